"""What Monty does not run, said with the way round it."""

from __future__ import annotations

import re
from collections import Counter, defaultdict, deque

__all__ = ["BUILTINS", "MODULES", "with_way_round"]

MODULES = (
    "asyncio, base64, bisect, collections, copy, csv, dataclasses, datetime, decimal, functools,"
    " hashlib, itertools, json, math, os, pathlib, random, re, sys, time, typing,"
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

_GATHER = "await asyncio.gather(*[…]) runs calls side by side; the host bounds how many at once"
_HANDLE = (
    "it is a large result that stayed outside: pass it on to a tool as it is, or read a part"
    " of it with await a.text(start, stop) or await a.lines(start, stop)"
)
_IMPORTS = f"what can be imported: {MODULES}"
_LAMBDA = "a method can be called, but not passed on: write lambda x: x.method()"

_WAYS = {
    "'del' statement": "d.pop(key) for an entry of a dict, items.pop(index) for one of a list",
    "yield expressions": "build a list and return it",
    "yield from expressions": "build a list and return it",
    "class inheritance": "a plain class, a dataclass or a dict; raise a built-in exception",
    "async context managers": f"{_GATHER}; close by hand, with try and finally",
    "async for loops": "await the whole list, then a plain for",
    "async comprehensions": "await asyncio.gather(*[…]), then a plain comprehension",
    "type aliases": "write the type where it is used, or leave it out",
    "exception groups": "a plain except",
    "method decorators": "a plain method, or a function outside of the class",
    "template strings": "an f-string",
    "Wildcard imports": "import the names that are used",
    "relative import": _IMPORTS,
    "Cannot resolve imported module": _IMPORTS,
    "No module named": _IMPORTS,
    "cannot import name": "write it by hand: of most modules there is the common part",
    "gather() does not yet support keyword": "catch what fails in an async function of your own"
    " around the call, and gather these",
    "module 'asyncio' has no attribute 'TimeoutError'": "except TimeoutError",
    "module 'asyncio' has no attribute": _GATHER,
    "Module `asyncio` has no member": _GATHER,
    "cannot suspend in this synchronous context": "a list of calls: [tool(x=x) for x in items]",
    "'coroutine' object is not": "await first, in parentheses: (await tool(…))[…]",
    "object is not an iterator": "[… for …] and its first item: a generator is a list here",
    "JSONEncoder.__init__() got an unexpected keyword": "plain values first (str(day),"
    " list(group)), then json.dumps(data)",
    "callable replacement": "re.finditer, and join the parts in a loop",
    "has no attribute '__class__'": "type(x).__name__",
    "'int' has no attribute 'from_bytes'": "sum(b << 8 * i for i, b in enumerate(reversed(data)))",
    "'str' object has no attribute 'lines'": "it is no artifact but a text: text.splitlines()",
    "'str' object has no attribute 'text'": "it is no artifact but a text, as it is",
    "there is no method": _HANDLE,
    "'Artifact'": _HANDLE,
}
_METHOD = re.compile(r"(?:type object|object) '?(\w+)'? has no attribute '(\w+)'")
_OF_OBJECT = re.compile(r"'(?:collections\.)?(\w+)' object has no attribute '(\w+)'")
_TYPES = {
    kind.__name__: kind
    for kind in (str, bytes, int, float, list, dict, set, tuple, defaultdict, Counter, deque)
}


def with_way_round(message: str) -> str:
    """The message, and what to write instead where there is something."""
    for part, way in _WAYS.items():
        if part in message:
            return f"{message}\n  instead: {way}"
    for found in (_OF_OBJECT.search(message), _METHOD.search(message)):
        kind = _TYPES.get(found[1]) if found is not None else None
        if found is not None and kind is not None and hasattr(kind, found[2]):
            way = _LAMBDA.replace(".method", f".{found[2]}")
            return f"{message}\n  instead: {way}"
    return message
