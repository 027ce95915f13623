"""A few daemon threads that run blocking steps for whichever event loop asks."""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar

__all__ = ["Places", "Workers"]

T = TypeVar("T")
Step: TypeAlias = Callable[[], None]


class Workers:
    """At most `count` threads, started as they are needed; each begins with `prepare`.

    The thread that became idle last gets the next step: its caches are warm.
    """

    def __init__(self, count: int, prepare: Callable[[], None]) -> None:
        self._count = count
        self._prepare = prepare
        self._threads = 0
        self._idle: list[queue.SimpleQueue[Step | None]] = []
        self._waiting: deque[Step] = deque()
        self._lock = threading.Lock()
        self._here = threading.local()

    def run(self, step: Callable[[], T]) -> asyncio.Future[T]:
        """Run a step off the loop; a future of the running loop."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        letters: _Letters | None = getattr(self._here, "letters", None)
        if letters is None or letters.loop is not loop:
            letters = self._here.letters = _Letters(loop)

        def job() -> None:
            try:
                result = step()
            except BaseException as error:  # it is the caller's
                letters.post(future, None, error)
            else:
                letters.post(future, result, None)

        self._put(job)
        return future

    def _put(self, job: Step) -> None:
        with self._lock:
            if self._idle:
                self._idle.pop().put(job)
                return
            if self._threads >= self._count:
                self._waiting.append(job)
                return
            self._threads += 1
        todo: queue.SimpleQueue[Step | None] = queue.SimpleQueue()
        todo.put(job)
        threading.Thread(
            target=self._work, args=(todo,), name="substrate-sandbox", daemon=True
        ).start()

    def _work(self, todo: queue.SimpleQueue[Step | None]) -> None:
        self._prepare()
        job = todo.get()
        while job is not None:
            job()
            with self._lock:
                job = self._waiting.popleft() if self._waiting else None
                if job is None:
                    self._idle.append(todo)
            if job is None:
                job = todo.get()

    def close(self) -> None:
        """End the threads that are idle; a busy one goes on being used."""
        with self._lock:
            idle, self._idle = self._idle, []
            self._threads -= len(idle)
        for todo in idle:
            todo.put(None)


class _Letters:
    """Results on their way to one event loop; those that are there together wake it once."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._posted: deque[tuple[asyncio.Future[Any], Any, BaseException | None]] = deque()
        self._ringing = False

    def post(self, future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
        """Called in any thread."""
        self._posted.append((future, result, error))
        if not self._ringing:
            self._ringing = True
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
                self.loop.call_soon_threadsafe(self._empty)

    def _empty(self) -> None:
        self._ringing = False  # first: what is posted from now on rings again
        while self._posted:
            future, result, error = self._posted.popleft()
            if future.done():
                continue
            if error is None:
                future.set_result(result)
            else:
                future.set_exception(error)


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
