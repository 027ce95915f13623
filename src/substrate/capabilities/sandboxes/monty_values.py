"""Values across Monty's wall: plain ones in, checked ones out.

What comes out is hostile: every walk is bounded in depth and size, and what is no
data (functions, classes, stand-ins of guest objects) is refused.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import decimal
import pathlib
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, cast

from pydantic_monty import ClassInstance

from substrate.kernel.sandbox import Artifact

__all__ = ["ArtifactHandle", "from_guest", "to_guest"]

_DEPTH = 100
_NODES = 2_000_000
_LEAVES = (
    bool,
    int,
    float,
    str,
    bytes,
    dt.date,
    dt.time,
    dt.timedelta,
    decimal.Decimal,
)


@dataclasses.dataclass(frozen=True)
class ArtifactHandle:
    """An artifact as a script sees it: a preview, never the content."""

    ref: str
    preview: str
    size: int
    media_type: str


def to_guest(value: Any) -> Any:
    """A plain value, with `Artifact`s as handles and lone surrogates as visible escapes."""
    if isinstance(value, Artifact):
        fields = (value.ref, _text(value.preview), value.size, value.media_type)
        return ClassInstance(ArtifactHandle(*fields), eager_attrs="all")
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, dict):
        items = cast("dict[Any, Any]", value).items()
        return {_text(k) if isinstance(k, str) else k: to_guest(v) for k, v in items}
    if isinstance(value, list | tuple):
        return [to_guest(item) for item in cast("list[Any]", value)]
    if isinstance(value, bytearray | memoryview):
        return bytes(cast("bytes", value))
    return value


def _text(text: str) -> str:
    if text.isascii():
        return text
    return text.encode(errors="backslashreplace").decode()


class _Walk:
    """One bounded walk over a value of the guest."""

    def __init__(self) -> None:
        self._nodes = 0
        self._path: set[int] = set()

    def plain(self, value: Any, depth: int = 0) -> Any:
        if value is None or isinstance(value, _LEAVES):
            return value
        if isinstance(value, ArtifactHandle):
            return {"$artifact": value.ref}
        if isinstance(value, pathlib.PurePath):
            return str(value)
        self._nodes += 1
        if depth > _DEPTH or self._nodes > _NODES:
            msg = f"the value is nested deeper than {_DEPTH} levels, or too large"
            raise ValueError(msg)
        with self._inside(value):
            return self._container(value, depth)

    @contextmanager
    def _inside(self, value: object) -> Generator[None]:
        if id(value) in self._path:
            msg = "the value contains itself"
            raise ValueError(msg)
        self._path.add(id(value))
        try:
            yield
        finally:
            self._path.discard(id(value))

    def _container(self, value: Any, depth: int) -> Any:
        if isinstance(value, dict):
            items = cast("dict[Any, Any]", value).items()
            return {self._key(key): self.plain(item, depth + 1) for key, item in items}
        if isinstance(value, list | tuple):
            return [self.plain(item, depth + 1) for item in cast("list[Any]", value)]
        if isinstance(value, set | frozenset):
            members = [self.plain(item, depth + 1) for item in cast("set[Any]", value)]
            return sorted(members, key=lambda member: (type(member).__name__, repr(member)))
        name = getattr(value, "name", None)
        what = f"{type(value).__name__} {name!r}" if isinstance(name, str) else type(value).__name__
        msg = f"a {what} is no data and cannot be passed"
        raise ValueError(msg)

    def _key(self, key: Any) -> Any:
        if isinstance(key, str | int | float | dt.date) and not isinstance(key, bool):
            return key
        if key is None or isinstance(key, bool):
            return str(key)
        msg = f"a key must be text or a number, not a {type(key).__name__}"
        raise ValueError(msg)


def from_guest(value: Any) -> Any:
    """A value of the guest as data; raises ValueError where it is none."""
    return _Walk().plain(value)
