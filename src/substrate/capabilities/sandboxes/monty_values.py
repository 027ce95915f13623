"""Values across Monty's wall: plain ones in, checked ones out.

What comes out is hostile: every walk is bounded in depth and size, and what is no
data (functions, classes, stand-ins of guest objects) is refused.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import decimal
import pathlib
import re
import uuid
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any, cast

from pydantic_monty import ClassInstance, ClassType, MontyClassProxy

from substrate.kernel.blobs import REF_KEY
from substrate.kernel.sandbox import Artifact

__all__ = ["ARTIFACTS", "ARTIFACT_CLASS", "ArtifactHandle", "from_guest", "to_guest"]

_READS = ("text", "lines")
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
    """An artifact as a script sees it: a preview, and ranges that it awaits."""

    ref: str
    preview: str
    size: int
    media_type: str

    def text(self) -> None:
        """Answered by the host, never here."""

    def lines(self) -> None:
        """Answered by the host, never here."""


ArtifactHandle.__name__ = ArtifactHandle.__qualname__ = "Artifact"  # as scripts know it


class _Artifacts:
    def put(self) -> None:
        """Answered by the host, never here."""


ARTIFACT_CLASS = ClassType(ArtifactHandle)
"""What the name `Artifact` stands for in a script."""

ARTIFACTS = ClassInstance(
    _Artifacts(), allowed_methods=("put",), id=uuid.uuid5(uuid.NAMESPACE_OID, "artifacts")
)
"""What the name `artifacts` stands for in a script."""


def handle_id(ref: str) -> uuid.UUID:
    """The id of an artifact's handle, the same in every process."""
    return uuid.uuid5(uuid.NAMESPACE_OID, ref)


def to_guest(value: Any, handles: dict[uuid.UUID, ClassInstance]) -> Any:
    """A plain value, with `Artifact`s as handles and lone surrogates as visible escapes.

    One artifact is one object in a script: its handle is kept in `handles` by its id.
    """
    if isinstance(value, Artifact):
        known = handle_id(value.ref)
        if known not in handles:
            fields = (value.ref, _text(value.preview), value.size, value.media_type)
            handles[known] = ClassInstance(
                ArtifactHandle(*fields), eager_attrs="all", allowed_methods=_READS, id=known
            )
        return handles[known]
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, dict):
        items = cast("dict[Any, Any]", value).items()
        return {_text(k) if isinstance(k, str) else k: to_guest(v, handles) for k, v in items}
    if isinstance(value, list | tuple):
        return [to_guest(item, handles) for item in cast("list[Any]", value)]
    if isinstance(value, bytearray | memoryview):
        return bytes(cast("bytes", value))
    return value


def _text(text: str) -> str:
    if text.isascii():
        return text
    return text.encode(errors="backslashreplace").decode()


_NO_DATA = re.compile(r"<(coroutine external_future\(\d+\)|function '[^']*' at 0x[0-9a-f]+)>")
"""What Monty sends as text where a script passes a call that it did not await, or a function."""


class _Walk:
    """One bounded walk over a value of the guest."""

    def __init__(self, handles: Mapping[uuid.UUID, ClassInstance]) -> None:
        self._handles = handles
        self._nodes = 0
        self._path: set[int] = set()

    def plain(self, value: Any, depth: int = 0) -> Any:
        if isinstance(value, str):
            if value.startswith("<") and _NO_DATA.fullmatch(value):
                msg = f"{value} is no data and cannot be passed; is an await missing?"
                raise ValueError(msg)
            return value
        if value is None or isinstance(value, _LEAVES):
            return value
        if isinstance(value, ArtifactHandle):
            return {REF_KEY: value.ref}
        if isinstance(value, MontyClassProxy) and value.id in self._handles:
            return {REF_KEY: self._handles[value.id].value.ref}  # of a restored session
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


def from_guest(value: Any, handles: Mapping[uuid.UUID, ClassInstance]) -> Any:
    """A value of the guest as data; raises ValueError where it is none.

    `handles` are those of the artifacts that the guest was given.
    """
    return _Walk(handles).plain(value)
