"""`Threads`: a few of a store's own, so that tools which block the loop's hold up no storage."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from substrate.storage.forks import renew_after_fork

__all__ = ["Threads"]

T = TypeVar("T")

_THREADS = 4


class Threads:
    """Runs what blocks; started when first needed, in a forked child too."""

    def __init__(self) -> None:
        self._renew()
        renew_after_fork(self, Threads._renew)

    async def run(self, work: Callable[[], T]) -> T:
        """Run it, and wait for it."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)

    def submit(self, work: Callable[[], object]) -> None:
        """Run it, and wait for nothing."""
        self._pool.submit(work)

    def _renew(self) -> None:
        """Forget the threads, which a fork does not copy, and what they had to do."""
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="substrate-blobs")
