"""`Folder`: the files of a `FileBlobStore`, and who may change them when."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
from collections.abc import Callable, Generator
from pathlib import Path
from typing import TypeVar

from substrate.kernel.blobs import BlobStat
from substrate.kernel.errors import BlobNotFound
from substrate.storage.memory import missing
from substrate.storage.posix import (
    age_s,
    entries,
    hash_of,
    lock,
    make_folder,
    opened,
    sync_folder,
    unlock,
)

__all__ = ["TEMP", "Folder"]

T = TypeVar("T")

TEMP = "tmp-"
"""How the name of a blob begins that is still being written."""

_DIGEST = re.compile(r"[0-9a-f]{64}")
_REF = re.compile(rf"sha256:({_DIGEST.pattern})")


class Folder:
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

    def refresh(self, digest: str, size: int) -> bool:
        """Count a blob that is there, whole, as put just now; False where there is none."""
        path = self._path(digest)
        try:
            if path.stat().st_size != size or hash_of(path) != digest:
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
        make_folder(path.parent)
        with self.locked():
            os.utime(temp)
            temp.replace(path)
        sync_folder(path.parent)

    def read(self, ref: str) -> bytes:
        """The content, checked against its hash; raises `BlobNotFound`."""
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
        """Ref and size; raises `BlobNotFound`."""
        try:
            return BlobStat(ref=ref, size=self.find(ref).stat().st_size)
        except FileNotFoundError:
            raise missing(ref) from None

    def pin(self, ref: str, lease: str) -> None:
        """Write or renew the pin; raises `BlobNotFound`, and leaves none then."""
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
                sync_folder(row.parent)
            sync_folder(self.pins)

    def unpin(self, ref: str, lease: str) -> None:
        """Delete the pin, if there is one."""
        with contextlib.suppress(FileNotFoundError, BlobNotFound):
            row = self._row(self.find(ref).name, lease)
            with self.locked():  # else it goes under the hands of a pin of the same lease
                row.unlink()

    def sweep(self, older_than_s: float) -> int:
        """Delete pins that ran out and what nobody pins; how many blobs."""
        if not self.blobs.is_dir():
            return 0
        for rows in entries(self.pins):
            with self.locked():
                self._expire(rows)
        swept = 0
        for path in entries(self.blobs):
            if path.name.startswith(TEMP):
                self._drop_leftover(path)
            elif path.is_dir():
                blobs = [blob for blob in entries(path) if _DIGEST.fullmatch(blob.name)]
                swept += sum(self._drop(blob, older_than_s) for blob in blobs)
        return swept

    def _expire(self, rows: Path) -> None:
        for row in entries(rows):
            with contextlib.suppress(FileNotFoundError):  # unpinned meanwhile
                if age_s(row) > self._lease_s:
                    row.unlink()
        with contextlib.suppress(OSError):  # not empty
            rows.rmdir()

    def _drop(self, blob: Path, older_than_s: float) -> bool:
        if age_s(blob) < older_than_s:
            return False
        with self.locked():
            # Only now does nobody put or pin it any more.
            if age_s(blob) < older_than_s or entries(self.pins / blob.name):
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
            opened(temp) as fd,
        ):
            lock(fd, wait=False)
            temp.unlink()

    def make(self) -> None:
        """Make the folders that are not there."""
        self.root.parent.mkdir(parents=True, exist_ok=True)
        for folder in (self.root, self.blobs, self.pins):
            make_folder(folder)

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
            lock(fd, wait=True)
            yield
        finally:
            unlock(fd)  # closing is not enough: a process forked meanwhile shares the lock
            os.close(fd)

    def _path(self, digest: str) -> Path:
        return self.blobs / digest[:2] / digest

    def _row(self, digest: str, lease: str) -> Path:
        # Hashed: a lease is any text, and must not walk out of the folder.
        name = hashlib.sha256(lease.encode("utf-8", "surrogatepass")).hexdigest()
        return self.pins / digest / name
