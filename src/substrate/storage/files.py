"""`FileBlobStore`: artifacts in a folder that several processes of one machine may share.

    <root>/blobs/ab/<hex>               a blob, named by its sha256
    <root>/blobs/tmp-<random>           a blob that is being written, locked by its writer
    <root>/pins/<hex>/<sha256 of lease> a pin; its mtime is when it was last renewed
    <root>/lock                         held, for moments, by whoever changes the above

A blob appears whole or not at all, also after a kill or a power cut. Needs a POSIX
file system. Content lies there as it is: folders are 0700, files 0600.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import hashlib
import os
import re
import secrets
import threading
import time
from collections.abc import AsyncIterable, AsyncIterator, Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TypeVar

from substrate.kernel.blobs import BlobData, BlobStat
from substrate.kernel.errors import BlobNotFound
from substrate.storage.memory import CHUNK_BYTES, check_range, missing

__all__ = ["FileBlobStore"]

T = TypeVar("T")

_DIGEST = re.compile(r"[0-9a-f]{64}")
_REF = re.compile(rf"sha256:({_DIGEST.pattern})")
_TEMP = "tmp-"
_THREADS = 4


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
        self._folder = _Folder(Path(root).absolute(), lease_s)
        # Threads of its own: tools that block the loop's default ones must not hold up storage.
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="substrate-blobs")

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
            return await self._change(partial(self._folder.put, data))
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
        reader = _Reader(self._folder.find(ref), ref)
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
        writing = _Writing(self._folder)
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
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    async def _change(self, work: Callable[[], T]) -> T:
        return await self._run(partial(self._folder.change, work))


class _Folder:
    """The files; every method blocks, and runs in a thread."""

    def __init__(self, root: Path, lease_s: float) -> None:
        self.root = root
        self.blobs = root / "blobs"
        self.pins = root / "pins"
        self._lease_s = lease_s

    def find(self, ref: str) -> Path:
        """Where the blob of this ref lies or would lie; raises `BlobNotFound` for no ref of ours."""
        found = _REF.fullmatch(ref)
        if found is None:
            raise missing(ref)
        return self._path(found[1])

    def put(self, data: bytes) -> str:
        digest = hashlib.sha256(data).hexdigest()
        if not self.refresh(digest, len(data)):
            writing = _Writing(self)
            try:
                writing.finish([data], check_existing=False)
            except BaseException:
                writing.discard()
                raise
        return f"sha256:{digest}"

    def refresh(self, digest: str, size: int) -> bool:
        """Count a blob that is there, whole, as put just now; False where there is none."""
        path = self._path(digest)
        try:
            if path.stat().st_size != size or _hash_of(path) != digest:
                return False
            # Under the lock: a sweep has either deleted the blob, or sees that it is new.
            with self.locked():
                os.utime(path)
        except FileNotFoundError:
            return False
        return True

    def adopt(self, temp: Path, digest: str) -> None:
        """Give a written file its name as a blob, put just now."""
        path = self._path(digest)
        _make_folder(path.parent)
        with self.locked():
            os.utime(temp)
            temp.replace(path)
        _sync_folder(path.parent)

    def read(self, ref: str) -> bytes:
        path = self.find(ref)
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            raise missing(ref) from None
        if hashlib.sha256(data).hexdigest() != path.name:
            msg = f"blob {ref!r} is damaged: its content has another hash; put the content again"
            raise BlobNotFound(msg)
        return data

    def stat(self, ref: str) -> BlobStat:
        try:
            return BlobStat(ref=ref, size=self.find(ref).stat().st_size)
        except FileNotFoundError:
            raise missing(ref) from None

    def pin(self, ref: str, lease: str) -> None:
        path = self.find(ref)
        self.make()
        with self.locked():
            row = self._row(path.name, lease)
            new = not row.exists()
            # The row comes before the look, so that a kill in between leaves a pin too many.
            row.parent.mkdir(mode=0o700, exist_ok=True)
            os.close(os.open(row, os.O_WRONLY | os.O_CREAT, 0o600))
            os.utime(row)
            if not path.exists():
                row.unlink()
                raise missing(ref)
        if new:
            with contextlib.suppress(FileNotFoundError):  # unpinned and swept meanwhile
                _sync_folder(row.parent)
            _sync_folder(self.pins)

    def unpin(self, ref: str, lease: str) -> None:
        with contextlib.suppress(FileNotFoundError, BlobNotFound):
            self._row(self.find(ref).name, lease).unlink()

    def sweep(self, older_than_s: float) -> int:
        if not self.blobs.is_dir():
            return 0
        for rows in _entries(self.pins):
            with self.locked():
                self._expire(rows)
        swept = 0
        for path in _entries(self.blobs):
            if path.name.startswith(_TEMP):
                self._drop_leftover(path)
            elif path.is_dir():
                blobs = [blob for blob in _entries(path) if _DIGEST.fullmatch(blob.name)]
                swept += sum(self._drop(blob, older_than_s) for blob in blobs)
        return swept

    def _expire(self, rows: Path) -> None:
        for row in _entries(rows):
            with contextlib.suppress(FileNotFoundError):  # unpinned meanwhile
                if _age_s(row) > self._lease_s:
                    row.unlink()
        with contextlib.suppress(OSError):  # not empty
            rows.rmdir()

    def _drop(self, blob: Path, older_than_s: float) -> bool:
        if _age_s(blob) < older_than_s:
            return False
        with self.locked():
            # Only now does nobody put or pin it any more.
            if _age_s(blob) < older_than_s or _entries(self.pins / blob.name):
                return False
            try:
                blob.unlink()
            except FileNotFoundError:  # another sweep was faster
                return False
        return True

    def _drop_leftover(self, temp: Path) -> None:
        with (
            self.locked(),
            contextlib.suppress(FileNotFoundError, BlockingIOError),  # done, or being written
            _opened(temp) as fd,
        ):
            _lock(fd, wait=False)
            temp.unlink()

    def make(self) -> None:
        """Make the folders that are not there."""
        self.root.parent.mkdir(parents=True, exist_ok=True)
        for folder in (self.root, self.blobs, self.pins):
            _make_folder(folder)

    def change(self, work: Callable[[], T]) -> T:
        """Do what writes; an OSError names the root, which is what the user gave."""
        try:
            return work()
        except OSError as error:
            msg = f"the blob store cannot write to its folder ({error.strerror})"
            raise OSError(error.errno, msg, str(self.root)) from error

    @contextlib.contextmanager
    def locked(self) -> Generator[None]:
        """Alone among all threads and processes; for moments, never while content is written."""
        fd = os.open(self.root / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            _lock(fd, wait=True)
            yield
        finally:
            _unlock(fd)  # closing is not enough: a process forked meanwhile shares the lock
            os.close(fd)

    def _path(self, digest: str) -> Path:
        return self.blobs / digest[:2] / digest

    def _row(self, digest: str, lease: str) -> Path:
        # Hashed: a lease is any text, and must not walk out of the folder.
        name = hashlib.sha256(lease.encode("utf-8", "surrogatepass")).hexdigest()
        return self.pins / digest / name


class _Writing:
    """A blob on its way in: a locked file that gets its name when it is whole."""

    def __init__(self, folder: _Folder) -> None:
        self._folder = folder
        self._temp = folder.blobs / f"{_TEMP}{secrets.token_hex(16)}"
        self._hash = hashlib.sha256()
        self._size = 0
        self._fd: int | None = None
        self._ended = False
        self._lock = threading.Lock()  # a cancelled put discards while a write still runs

    def write(self, chunks: list[bytes]) -> None:
        with self._lock:
            self._write(chunks)

    def finish(self, chunks: list[bytes], *, check_existing: bool = True) -> str:
        """Write the rest and make it a blob; the ref."""
        with self._lock:
            fd = self._write(chunks)
            digest = self._hash.hexdigest()
            if not (check_existing and self._folder.refresh(digest, self._size)):
                os.fsync(fd)
                self._folder.adopt(self._temp, digest)
            self._end()
        return f"sha256:{digest}"

    def discard(self) -> None:
        """Leave nothing behind; also after `finish`."""
        with self._lock:
            self._end()

    def _write(self, chunks: list[bytes]) -> int:
        if self._ended:
            msg = "the put was cancelled"
            raise RuntimeError(msg)
        fd = self._fd = self._create() if self._fd is None else self._fd
        for chunk in chunks:
            self._hash.update(chunk)
            self._size += len(chunk)
            _write_all(fd, chunk)
        return fd

    def _create(self) -> int:
        self._folder.make()
        # Under the lock: a sweep never sees the file before its writer has locked it.
        with self._folder.locked():
            fd = os.open(self._temp, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            _lock(fd, wait=True)
        return fd

    def _end(self) -> None:
        self._ended = True
        if self._fd is not None:
            self._temp.unlink(missing_ok=True)
            os.close(self._fd)
            self._fd = None


class _Reader:
    """An open blob; it stays readable when it is swept."""

    def __init__(self, path: Path, ref: str) -> None:
        self._path = path
        self._ref = ref
        self._fd: int | None = None
        self._closed = False
        self._lock = threading.Lock()  # a cancelled reader closes while a read still runs

    def open(self) -> int:
        """The size in bytes."""
        with self._lock:
            if self._closed:
                return 0
            try:
                fd = self._fd = os.open(self._path, os.O_RDONLY)
            except FileNotFoundError:
                raise missing(self._ref) from None
            return os.fstat(fd).st_size

    def read(self, at: int, size: int) -> bytes:
        with self._lock:
            return b"" if self._fd is None else os.pread(self._fd, size, at)

    def close(self) -> None:
        with self._lock:
            self._closed = True
            if self._fd is not None:
                os.close(self._fd)
                self._fd = None


def _lock(fd: int, *, wait: bool) -> None:
    """Lock an open file until it is closed; BlockingIOError where others hold it."""
    import fcntl  # not everywhere: `substrate.storage` can be imported where it is missing

    fcntl.flock(fd, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)


def _unlock(fd: int) -> None:
    import fcntl

    fcntl.flock(fd, fcntl.LOCK_UN)


@contextlib.contextmanager
def _opened(path: Path) -> Generator[int]:
    fd = os.open(path, os.O_RDONLY)
    try:
        yield fd
    finally:
        os.close(fd)


def _write_all(fd: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(fd, rest) :]


def _hash_of(path: Path) -> str:
    digest = hashlib.sha256()
    with _opened(path) as fd:
        while chunk := os.read(fd, CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


def _make_folder(path: Path) -> None:
    """Make a folder so that it outlives a power cut; one that is there is left as it is."""
    try:
        path.mkdir(mode=0o700)
    except FileExistsError:
        if not path.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path) from None
    else:
        _sync_folder(path.parent)


def _sync_folder(path: Path) -> None:
    with _opened(path) as fd:
        os.fsync(fd)


def _entries(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except FileNotFoundError:
        return []


def _age_s(path: Path) -> float:
    """Seconds since the file was last put or renewed; negative infinity where it is gone."""
    try:
        return time.time() - path.stat().st_mtime
    except FileNotFoundError:
        return float("-inf")
