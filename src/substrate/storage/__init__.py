"""Where artifacts lie: in memory, in files."""

from substrate.storage.files import FileBlobStore
from substrate.storage.memory import InMemoryBlobStore

__all__ = ["FileBlobStore", "InMemoryBlobStore"]
