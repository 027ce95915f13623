"""`InMemoryBlobStore`: artifacts for as long as the process lives.

The default for scripts, notebooks and tests. Nothing is written anywhere, nothing
is copied on the way in or out, and a blob goes with its last pin.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import AsyncIterable, AsyncIterator

from substrate.kernel.blobs import BlobData, BlobStat
from substrate.kernel.errors import BlobNotFound
from substrate.storage.forks import renew_after_fork
from substrate.storage.threads import Threads

__all__ = ["CHUNK_BYTES", "InMemoryBlobStore", "check_range", "missing"]

CHUNK_BYTES = 1 << 20
"""Bytes in a chunk that `open` gives; also from where on hashing leaves the event loop."""

_SHOWN_CHARS = 80  # a ref of ours has 71


class InMemoryBlobStore:
    """A `BlobStore` in a dictionary; may be used from several event loops and threads.

    A blob goes at its last `unpin`. One that was put more often than pinned is kept,
    since a pin may be on the way, until `sweep` finds it old.
    """

    def __init__(self) -> None:
        self._blobs: dict[str, _Blob] = {}
        self._threads = Threads()
        self._renew()
        renew_after_fork(self, InMemoryBlobStore._renew)

    async def put(self, data: BlobData, media_type: str | None = None) -> str:  # noqa: ARG002
        """Store bytes, which are kept as they are and not copied, or a stream of chunks.

        Returns the ref, equal for equal content. Hashing more than `CHUNK_BYTES`
        runs in a thread. `media_type` is not kept: it belongs to who issues the ref.
        """
        content = data if isinstance(data, bytes) else await self._joined(data)
        large = len(content) > CHUNK_BYTES
        ref = await self._threads.run(lambda: _ref_of(content)) if large else _ref_of(content)
        with self._lock:
            blob = self._blobs.setdefault(ref, _Blob(content))
            blob.put_at = time.monotonic()
            blob.awaited += 1
        return ref

    async def resolve(self, ref: str) -> bytes:
        """The whole content, not copied; raises `BlobNotFound`."""
        return self._find(ref).data

    async def open(self, ref: str, start: int = 0, stop: int | None = None) -> AsyncIterator[bytes]:
        """The bytes from `start` up to `stop` in chunks of at most `CHUNK_BYTES`.

        A range is cut to what is there. A stream that was begun is read to its end
        even where the blob is dropped meanwhile.

        Raises:
            BlobNotFound: There is no such blob; when first read.
            ValueError: `start` or `stop` is negative; when first read.
        """
        check_range(start, stop)
        data = self._find(ref).data
        end = len(data) if stop is None else min(stop, len(data))
        for at in range(start, end, CHUNK_BYTES):
            yield data[at : min(at + CHUNK_BYTES, end)]

    async def stat(self, ref: str) -> BlobStat:
        """Ref and size in bytes; raises `BlobNotFound`."""
        return BlobStat(ref=ref, size=len(self._find(ref).data))

    async def pin(self, ref: str, lease: str) -> None:
        """Keep the blob for `lease`; pinning twice is pinning once. Raises `BlobNotFound`."""
        with self._lock:
            blob = self._find(ref)
            blob.leases.add(lease)
            blob.awaited = max(blob.awaited - 1, 0)

    async def unpin(self, ref: str, lease: str) -> None:
        """Drop the pin of `lease`, and with the last pin the blob; unknown ones are no error."""
        with self._lock:
            blob = self._blobs.get(ref)
            if blob is None or lease not in blob.leases:
                return
            blob.leases.discard(lease)
            if not blob.leases and not blob.awaited:
                del self._blobs[ref]

    async def sweep(self, older_than_s: float) -> int:
        """Drop what no lease pins and was put at least `older_than_s` seconds ago; how many."""
        with self._lock:
            latest = time.monotonic() - older_than_s
            old = [
                ref
                for ref, blob in self._blobs.items()
                if not blob.leases and blob.put_at <= latest
            ]
            for ref in old:
                del self._blobs[ref]
        return len(old)

    async def _joined(self, chunks: AsyncIterable[bytes]) -> bytes:
        found = [chunk async for chunk in chunks]
        if sum(map(len, found)) <= CHUNK_BYTES:
            return b"".join(found)
        return await self._threads.run(lambda: b"".join(found))

    def _renew(self) -> None:
        """Make the lock anew, which another thread may hold where this process was forked."""
        self._lock = threading.Lock()

    def _find(self, ref: str) -> _Blob:
        blob = self._blobs.get(ref)
        if blob is None:
            raise missing(ref)
        return blob


class _Blob:
    """Content, who pins it, and how many pins are still to follow a put."""

    __slots__ = ("awaited", "data", "leases", "put_at")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.leases: set[str] = set()
        self.put_at = 0.0
        self.awaited = 0


def missing(ref: str) -> BlobNotFound:
    """The error for a ref that a store does not hold; a long ref is cut."""
    shown = ref if len(ref) <= _SHOWN_CHARS else ref[:_SHOWN_CHARS] + "..."
    return BlobNotFound(
        f"no blob {shown!r} in this store: it was never put here, or its last pin went"
    )


def check_range(start: int, stop: int | None) -> None:
    """Refuse a range that counts from the end; raises ValueError."""
    if start < 0 or (stop is not None and stop < 0):
        msg = f"a range of a blob counts from its start: {start}..{stop} has a negative bound"
        raise ValueError(msg)


def _ref_of(data: bytes) -> str:
    return "sha256:" + hashlib.sha256(data).hexdigest()
