"""`FileBlobStore`: artifacts in a folder that several processes of one machine may share.

    <root>/blobs/ab/<hex>               a blob, named by its sha256
    <root>/blobs/tmp-<random>           a blob that is being written, locked by its writer
    <root>/pins/<hex>/<sha256 of lease> a pin; its mtime is when it was last renewed
    <root>/lock                         held, for moments, by whoever changes the above

A blob appears whole or not at all, also after a kill or a power cut. Needs a POSIX
file system. Content lies there as it is: folders are 0700, files 0600.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterable, AsyncIterator, Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

from substrate.kernel.blobs import BlobData, BlobStat
from substrate.storage.folder import Folder
from substrate.storage.memory import CHUNK_BYTES, check_range
from substrate.storage.threads import Threads
from substrate.storage.transfer import Reader, Writing, put_whole

__all__ = ["FileBlobStore"]

T = TypeVar("T")


class FileBlobStore:
    """A `BlobStore` in the folder `root`, made at the first `put` with its parents.

    May be used from several event loops, threads and processes at once. Nothing
    is done on the event loop, and a stream is never held whole in memory.
    Blobs go in `sweep` alone, never at an `unpin`. A pin holds for `lease_s`
    seconds from when it was last pinned, so that what a crashed chain pinned
    goes too; who needs a blob longer pins it again.
    """

    def __init__(self, root: str | os.PathLike[str], *, lease_s: float = 86_400.0) -> None:
        if lease_s <= 0:
            msg = f"lease_s must be above 0 seconds, not {lease_s}"
            raise ValueError(msg)
        self._folder = Folder(Path(root).absolute(), lease_s)
        # Threads of its own: tools that block the loop's default ones must not hold up storage.
        self._threads = Threads()

    @property
    def root(self) -> Path:
        """The folder, absolute."""
        return self._folder.root

    async def put(self, data: BlobData, media_type: str | None = None) -> str:  # noqa: ARG002
        """Store bytes or a stream of chunks; the ref, equal for equal content.

        On return the content is on disk. A blob that is there already counts as
        put just now; if it is damaged it is written anew. A stream that raises, or
        a cancelled put of a stream, leaves nothing. `media_type` is not kept: it
        belongs to who issues the ref.

        Raises:
            OSError: The folder cannot be written (it is named), or the disk is full.
        """
        if isinstance(data, bytes):
            return await self._change(partial(put_whole, self._folder, data))
        return await self._put_stream(data)

    async def resolve(self, ref: str) -> bytes:
        """The whole content, checked against its hash.

        Raises:
            BlobNotFound: There is no such blob, or it is damaged.
        """
        return await self._run(partial(self._folder.read, ref))

    async def open(self, ref: str, start: int = 0, stop: int | None = None) -> AsyncIterator[bytes]:
        """The bytes from `start` up to `stop` in chunks of at most `CHUNK_BYTES`.

        A range is cut to what is there. A stream that was begun is read to its end
        even where the blob is swept meanwhile. Content is not checked against its
        hash here, since a range cannot be.

        Raises:
            BlobNotFound: There is no such blob; when first read.
            ValueError: `start` or `stop` is negative; when first read.
        """
        check_range(start, stop)
        reader = Reader(self._folder.find(ref), ref)
        try:
            size = await self._run(reader.open)
            end = size if stop is None else min(stop, size)
            for at in range(start, end, CHUNK_BYTES):
                yield await self._run(partial(reader.read, at, min(CHUNK_BYTES, end - at)))
        finally:
            self._threads.submit(reader.close)

    async def stat(self, ref: str) -> BlobStat:
        """Ref and size in bytes; raises `BlobNotFound`."""
        return await self._run(partial(self._folder.stat, ref))

    async def pin(self, ref: str, lease: str) -> None:
        """Keep the blob for `lease`, for `lease_s` seconds from now; pinning again renews.

        Raises:
            BlobNotFound: There is no such blob; then no pin is left either.
            OSError: The folder cannot be written.
        """
        await self._change(partial(self._folder.pin, ref, lease))

    async def unpin(self, ref: str, lease: str) -> None:
        """Drop the pin of `lease`; an unknown pin or blob is no error. The blob stays until swept."""
        await self._change(partial(self._folder.unpin, ref, lease))

    async def sweep(self, older_than_s: float) -> int:
        """Drop pins not renewed for `lease_s`, then unpinned blobs put `older_than_s` ago or more.

        Returns how many blobs went. What a killed writer left half written goes
        too, uncounted. `older_than_s` must be longer than anyone takes from `put`
        to `pin`: a minute is ample.
        """
        return await self._change(partial(self._folder.sweep, older_than_s))

    async def _put_stream(self, data: AsyncIterable[bytes]) -> str:
        writing = Writing(self._folder)
        chunks: list[bytes] = []
        size = 0
        try:
            async for chunk in data:
                chunks.append(chunk)
                size += len(chunk)
                if size >= CHUNK_BYTES:
                    full, chunks, size = chunks, [], 0
                    await self._change(partial(writing.write, full))
            return await self._change(partial(writing.finish, chunks))
        except GeneratorExit:
            self._threads.submit(writing.discard)  # the coroutine is closed: it may not wait
            raise
        except BaseException:
            await self._run(writing.discard)
            raise

    async def _run(self, work: Callable[[], T]) -> T:
        return await self._threads.run(work)

    async def _change(self, work: Callable[[], T]) -> T:
        return await self._run(partial(self._folder.change, work))
