"""Files, folders and locks as a store in a folder needs them: synced, private, gone without error."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import time
from collections.abc import Generator
from pathlib import Path

from substrate.storage.memory import CHUNK_BYTES

__all__ = [
    "age_s",
    "entries",
    "hash_of",
    "lock",
    "make_folder",
    "opened",
    "sync_folder",
    "unlock",
    "write_all",
]


def lock(fd: int, *, wait: bool) -> None:
    """Lock an open file until it is closed; BlockingIOError where others hold it."""
    import fcntl  # not everywhere: `substrate.storage` can be imported where it is missing

    fcntl.flock(fd, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)


def unlock(fd: int) -> None:
    """Let others lock it."""
    import fcntl

    fcntl.flock(fd, fcntl.LOCK_UN)


@contextlib.contextmanager
def opened(path: Path) -> Generator[int]:
    """A descriptor to read from, closed in the end."""
    fd = os.open(path, os.O_RDONLY)
    try:
        yield fd
    finally:
        os.close(fd)


def write_all(fd: int, data: bytes) -> None:
    """Write all of it, however much one write takes."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(fd, rest) :]


def hash_of(path: Path) -> str:
    """The sha256 of a file as hex, read in chunks."""
    digest = hashlib.sha256()
    with opened(path) as fd:
        while chunk := os.read(fd, CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


def make_folder(path: Path) -> None:
    """Make a folder so that it outlives a power cut; one that is there is left as it is."""
    try:
        path.mkdir(mode=0o700)
    except FileExistsError:
        if not path.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path) from None
    else:
        sync_folder(path.parent)


def sync_folder(path: Path) -> None:
    """Have the names in a folder outlive a power cut."""
    with opened(path) as fd:
        os.fsync(fd)


def entries(folder: Path) -> list[Path]:
    """What lies in a folder; nothing where it is gone."""
    try:
        return list(folder.iterdir())
    except FileNotFoundError:
        return []


def age_s(path: Path) -> float:
    """Seconds since the file was last put or renewed; negative infinity where it is gone."""
    try:
        return time.time() - path.stat().st_mtime
    except FileNotFoundError:
        return float("-inf")
