"""Blobs on their way in and out of a `Folder`; every method blocks, and runs in a thread."""

from __future__ import annotations

import hashlib
import os
import secrets
import threading
from pathlib import Path

from substrate.storage.folder import TEMP, Folder
from substrate.storage.memory import missing
from substrate.storage.posix import lock, write_all

__all__ = ["Reader", "Writing", "put_whole"]


def put_whole(folder: Folder, data: bytes) -> str:
    """Make bytes a blob, put just now; the ref."""
    digest = hashlib.sha256(data).hexdigest()
    if not folder.refresh(digest, len(data)):
        writing = Writing(folder)
        try:
            writing.finish([data], check_existing=False)
        except BaseException:
            writing.discard()
            raise
    return f"sha256:{digest}"


class Writing:
    """A blob on its way in: a locked file that gets its name when it is whole."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._temp = folder.blobs / f"{TEMP}{secrets.token_hex(16)}"
        self._hash = hashlib.sha256()
        self._size = 0
        self._fd: int | None = None
        self._ended = False
        self._process = os.getpid()
        self._lock = threading.Lock()  # a cancelled put discards while a write still runs

    def write(self, chunks: list[bytes]) -> None:
        """Write on; RuntimeError where the put was cancelled."""
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
            write_all(fd, chunk)
        return fd

    def _create(self) -> int:
        self._folder.make()
        # Under the lock: a sweep never sees the file before its writer has locked it.
        with self._folder.locked():
            fd = os.open(self._temp, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            lock(fd, wait=True)
        return fd

    def _end(self) -> None:
        self._ended = True
        if self._fd is not None:
            if self._process == os.getpid():  # else a forked child throws away its parent's work
                self._temp.unlink(missing_ok=True)
            os.close(self._fd)
            self._fd = None


class Reader:
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
        """Up to `size` bytes; none where it is closed."""
        with self._lock:
            return b"" if self._fd is None else os.pread(self._fd, size, at)

    def close(self) -> None:
        """Also where it was never opened."""
        with self._lock:
            self._closed = True
            if self._fd is not None:
                os.close(self._fd)
                self._fd = None
