"""The one rule by which names become identifiers, independent of their order."""

from __future__ import annotations

import hashlib
import keyword
import unicodedata
from collections.abc import Iterable

__all__ = ["identifier_of", "identifiers_of"]

_RESERVED = frozenset(
    [
        "ArithmeticError",
        "AssertionError",
        "AttributeError",
        "BaseException",
        "BaseExceptionGroup",
        "BlockingIOError",
        "BrokenPipeError",
        "BufferError",
        "BytesWarning",
        "ChildProcessError",
        "ConnectionAbortedError",
        "ConnectionError",
        "ConnectionRefusedError",
        "ConnectionResetError",
        "DeprecationWarning",
        "EOFError",
        "Ellipsis",
        "EncodingWarning",
        "EnvironmentError",
        "Exception",
        "ExceptionGroup",
        "FileExistsError",
        "FileNotFoundError",
        "FloatingPointError",
        "FutureWarning",
        "GeneratorExit",
        "IOError",
        "ImportError",
        "ImportWarning",
        "IndentationError",
        "IndexError",
        "InterruptedError",
        "IsADirectoryError",
        "KeyError",
        "KeyboardInterrupt",
        "LookupError",
        "MemoryError",
        "ModuleNotFoundError",
        "NameError",
        "NotADirectoryError",
        "NotImplemented",
        "NotImplementedError",
        "OSError",
        "OverflowError",
        "PendingDeprecationWarning",
        "PermissionError",
        "ProcessLookupError",
        "PythonFinalizationError",
        "RecursionError",
        "ReferenceError",
        "ResourceWarning",
        "RuntimeError",
        "RuntimeWarning",
        "StopAsyncIteration",
        "StopIteration",
        "SyntaxError",
        "SyntaxWarning",
        "SystemError",
        "SystemExit",
        "TabError",
        "TimeoutError",
        "TypeError",
        "UnboundLocalError",
        "UnicodeDecodeError",
        "UnicodeEncodeError",
        "UnicodeError",
        "UnicodeTranslateError",
        "UnicodeWarning",
        "UserWarning",
        "ValueError",
        "Warning",
        "ZeroDivisionError",
        "abs",
        "aiter",
        "all",
        "anext",
        "any",
        "ascii",
        "bin",
        "bool",
        "breakpoint",
        "bytearray",
        "bytes",
        "callable",
        "chr",
        "classmethod",
        "compile",
        "complex",
        "copyright",
        "credits",
        "delattr",
        "dict",
        "dir",
        "divmod",
        "enumerate",
        "eval",
        "exec",
        "exit",
        "filter",
        "float",
        "format",
        "frozenset",
        "getattr",
        "globals",
        "hasattr",
        "hash",
        "help",
        "hex",
        "id",
        "input",
        "int",
        "isinstance",
        "issubclass",
        "iter",
        "len",
        "license",
        "list",
        "locals",
        "map",
        "max",
        "memoryview",
        "min",
        "next",
        "object",
        "oct",
        "open",
        "ord",
        "pow",
        "print",
        "property",
        "quit",
        "range",
        "repr",
        "reversed",
        "round",
        "set",
        "setattr",
        "slice",
        "sorted",
        "staticmethod",
        "str",
        "sum",
        "super",
        "tuple",
        "type",
        "vars",
        "zip",
        "_",
        "__build_class__",
        "__debug__",
        "__doc__",
        "__import__",
        "__loader__",
        "__name__",
        "__package__",
        "__spec__",
        "tools",
        "artifacts",
        "asyncio",
        "Artifact",
        "Any",
        "Literal",
    ]
)
"""Builtins (the union of Python 3.11 to 3.14) and the names that a script or its stubs have."""


def identifier_of(name: str) -> str:
    """The identifier of a name that stands alone: NFKC, `_` for what no identifier may hold."""
    text = unicodedata.normalize("NFKC", name)
    text = "".join(char if f"a{char}".isidentifier() else "_" for char in text)
    text = unicodedata.normalize("NFKC", text)
    if not text:
        return "tool"
    if not text.isidentifier():
        text = f"_{text}"
    if keyword.iskeyword(text) or text in _RESERVED:
        text += "_"
    return text


def identifiers_of(names: Iterable[str]) -> dict[str, str]:
    """Raw name to identifier, the same in every order.

    A name that needs no change keeps it; others that collide get `_` and hex digits
    of the raw name's sha256: four, or more where these collide too.
    """
    wanted = {name: identifier_of(name) for name in names}
    holders: dict[str, list[str]] = {}
    for name, identifier in wanted.items():
        holders.setdefault(identifier, []).append(name)
    result: dict[str, str] = {}
    clashing: list[str] = []
    for identifier, raw in holders.items():
        for name in raw:
            if name == identifier or len(raw) == 1:
                result[name] = identifier
            else:
                clashing.append(name)
    taken = set(wanted.values())
    digits = 4
    while clashing:
        tried = {name: f"{wanted[name]}_{_digest(name)[:digits]}" for name in clashing}
        counts: dict[str, int] = {}
        for candidate in tried.values():
            counts[candidate] = counts.get(candidate, 0) + 1
        free = {n: c for n, c in tried.items() if counts[c] == 1 and c not in taken}
        result.update(free)
        clashing = [name for name in clashing if name not in free]
        digits += 4
    return {name: result[name] for name in wanted}


def _digest(name: str) -> str:
    return hashlib.sha256(name.encode(errors="backslashreplace")).hexdigest()
