"""What Monty does not run, said with the way round it."""

from __future__ import annotations

__all__ = ["BUILTINS", "MODULES", "with_way_round"]

MODULES = (
    "asyncio, base64, bisect, collections, copy, csv, dataclasses, datetime, decimal, functools,"
    " hashlib, heapq, itertools, json, math, os, pathlib, random, re, sys, time, typing,"
    " unicodedata"
)
"""What a script can import, measured with Monty 1.4 (of most modules the common part)."""

BUILTINS = """\
class FileExistsError(OSError): ...
class FileNotFoundError(OSError): ...
class IsADirectoryError(OSError): ...
class NotADirectoryError(OSError): ...
class PermissionError(OSError): ...
class ImportError(Exception): ...
class ModuleNotFoundError(ImportError): ...
class UnboundLocalError(NameError): ...
class UnicodeDecodeError(ValueError): ...
class UnicodeEncodeError(ValueError): ...
filter: Any
format: Any
getattr: Any
hasattr: Any
map: Any
open: Any
setattr: Any
"""
"""What Monty runs and its type checker does not know, measured with Monty 1.4."""

_WAYS = {
    "'del' statement": "d.pop(key) for an entry of a dict, items.pop(index) for one of a list",
    "yield expressions": "build a list and return it",
    "yield from expressions": "build a list and return it",
    "class inheritance": "a plain class, a dataclass or a dict; raise a built-in exception",
    "async context managers": "call and close by hand, with try and finally",
    "async for loops": "await the whole list, then a plain for",
    "async comprehensions": "await asyncio.gather(*[…]), then a plain comprehension",
    "type aliases": "write the type where it is used, or leave it out",
    "exception groups": "a plain except",
    "method decorators": "a plain method, or a function outside of the class",
    "template strings": "an f-string",
    "Wildcard imports": "import the names that are used",
    "relative import": f"what can be imported: {MODULES}",
    "Cannot resolve imported module": f"what can be imported: {MODULES}",
    "No module named": f"what can be imported: {MODULES}",
    "'Artifact'": "it is a large result that stayed outside: pass it on to a tool"
    " as it is, or read a part of it with await a.text(start, stop)",
}


def with_way_round(message: str) -> str:
    """The message, and what to write instead where there is something."""
    for part, way in _WAYS.items():
        if part in message:
            return f"{message}\n  instead: {way}"
    return message
