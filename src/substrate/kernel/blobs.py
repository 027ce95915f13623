"""`BlobStore`: where data that is too big to carry lies, by content-addressed refs.

A ref names its algorithm: `sha256:<64 hex digits>`. What a blob *is* (text,
bytes, JSON; its media type) belongs to the handle that was issued for it, not
to the blob. Pins are leases: a pinned blob stays until its last lease goes.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator
from typing import Protocol, TypeAlias, runtime_checkable

import msgspec

__all__ = ["REF_KEY", "ArtifactStream", "BlobData", "BlobStat", "BlobStore"]

REF_KEY = "$artifact"
"""`{REF_KEY: ref}` stands for the content of an artifact, wherever a value may."""

BlobData: TypeAlias = bytes | AsyncIterable[bytes]


class BlobStat(msgspec.Struct, frozen=True):
    """What is known of a blob without reading it; `size` in bytes."""

    ref: str
    size: int


class ArtifactStream:
    """An artifact as a stream: what a parameter annotated so receives in place of a ref.

    Iterate it for chunks of bytes; each iteration reads from the start.
    """

    __slots__ = ("_ref", "_store", "media_type", "size")

    def __init__(self, store: BlobStore, ref: str, *, size: int, media_type: str) -> None:
        self._store = store
        self._ref = ref
        self.size = size
        self.media_type = media_type

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self._store.open(self._ref)

    def read(self, start: int = 0, stop: int | None = None) -> AsyncIterator[bytes]:
        """The bytes from `start` up to `stop` (exclusive; None: the end), in chunks."""
        return self._store.open(self._ref, start, stop)


@runtime_checkable
class BlobStore(Protocol):
    """Content-addressed storage. All methods may be called from any task of one event loop."""

    async def put(self, data: BlobData, media_type: str | None = None) -> str:
        """Store bytes or a stream of chunks; the ref. Equal content gives an equal ref."""
        ...

    async def resolve(self, ref: str) -> bytes:
        """The whole content; raises `BlobNotFound`."""
        ...

    def open(self, ref: str, start: int = 0, stop: int | None = None) -> AsyncIterator[bytes]:
        """The content from `start` to `stop` as chunks; raises `BlobNotFound` when first read."""
        ...

    async def stat(self, ref: str) -> BlobStat:
        """Size and ref; raises `BlobNotFound`."""
        ...

    async def pin(self, ref: str, lease: str) -> None:
        """Keep the blob for `lease`; pinning twice is pinning once. Raises `BlobNotFound`."""
        ...

    async def unpin(self, ref: str, lease: str) -> None:
        """Drop the lease's pin; an unknown pin or blob is no error."""
        ...

    async def sweep(self, older_than_s: float) -> int:
        """Drop every blob put longer ago than that which no lease pins; how many went."""
        ...
