"""A few daemon threads that run blocking steps for whichever event loop asks."""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar

__all__ = ["Places", "Workers"]

T = TypeVar("T")


class Workers:
    """At most `count` threads, started as they are needed; they end with the process."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._todo: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._threads = 0
        self._busy = 0
        self._lock = threading.Lock()

    def run(self, step: Callable[[], T]) -> asyncio.Future[T]:
        """Run a step off the loop; a future of the running loop."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()

        def job() -> None:
            try:
                result = step()
            except BaseException as error:  # it is the caller's
                _deliver(loop, future, None, error)
            else:
                _deliver(loop, future, result, None)

        with self._lock:
            self._busy += 1
            start = self._busy > self._threads and self._threads < self._count
            self._threads += start
        if start:
            threading.Thread(target=self._work, name="substrate-sandbox", daemon=True).start()
        self._todo.put(job)
        return future

    def _work(self) -> None:
        while (job := self._todo.get()) is not None:
            job()
            with self._lock:
                self._busy -= 1

    def close(self) -> None:
        """End the threads when they are idle."""
        with self._lock:
            count, self._threads = self._threads, 0
        for _ in range(count):
            self._todo.put(None)


def _deliver(
    loop: asyncio.AbstractEventLoop,
    future: asyncio.Future[Any],
    result: Any,
    error: BaseException | None,
) -> None:
    def settle() -> None:
        if future.done():
            return
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(error)

    with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
        loop.call_soon_threadsafe(settle)


class Places:
    """A bound on what exists at once; first come, first served, on any event loop."""

    def __init__(self, count: int) -> None:
        self._free = count
        self._queue: deque[asyncio.Future[None]] = deque()
        self._lock = threading.Lock()

    async def take(self) -> None:
        """Wait for a place."""
        with self._lock:
            if self._free > 0:
                self._free -= 1
                return
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._queue.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            with self._lock:
                waiting = turn in self._queue
                if waiting:
                    self._queue.remove(turn)
            if not waiting:
                self.free()
            raise

    def free(self) -> None:
        """Give a place back to whoever has waited longest."""
        with self._lock:
            while self._queue:
                turn = self._queue.popleft()
                try:
                    turn.get_loop().call_soon_threadsafe(_wake, turn)
                except RuntimeError:  # that loop is closed
                    continue
                return
            self._free += 1


def _wake(turn: asyncio.Future[None]) -> None:
    if not turn.done():
        turn.set_result(None)
