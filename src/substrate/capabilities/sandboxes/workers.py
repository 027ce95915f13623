"""A few daemon threads that run blocking steps for whichever event loop asks."""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar

__all__ = ["Places", "Workers"]

T = TypeVar("T")
Step: TypeAlias = Callable[[], None]
Todo: TypeAlias = "queue.SimpleQueue[Step | None]"


_STUCK_S = 0.05
"""A step of that many seconds, which most never need, no longer counts as one of `count`."""


class Workers:
    """`count` threads, started as they are needed; each begins with `prepare`.

    The thread that became idle last gets the next step: its caches are warm. Threads
    that a long step holds are made up for, up to `most` in all, so that others' steps
    do not wait for its end.
    """

    def __init__(self, count: int, prepare: Callable[[], None], most: int | None = None) -> None:
        self._count = count
        self._most = count if most is None else max(most, count)
        self._begun: dict[int, float] = {}  # when a busy thread began its step
        self._look_at = 0.0
        self._prepare = prepare
        self._running = 0
        self._allowed = count  # steps that may run now: those that are stuck do not count
        self._idle: list[Todo] = []
        self._closed = 0  # how often; a thread belongs to the time between two
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

        if not self._put(job):
            self._watch(loop)
        return future

    def _put(self, job: Step) -> bool:
        """Have a step run; False where it has to wait for a thread."""
        with self._lock:
            if self._running >= self._allowed:
                self._waiting.append(job)
                return False
            self._running += 1
            idle = self._idle.pop() if self._idle else None
        self._give(job, idle)
        return True

    def _watch(self, loop: asyncio.AbstractEventLoop) -> None:
        """Look soon whether a long step holds up the ones that wait."""
        now = time.monotonic()
        if self._most > self._count and now >= self._look_at:
            self._look_at = now + _STUCK_S
            loop.call_later(_STUCK_S, self._relieve, loop)

    def _relieve(self, loop: asyncio.AbstractEventLoop) -> None:
        jobs: list[tuple[Step, Todo | None]] = []
        with self._lock:
            long_ago = time.monotonic() - _STUCK_S
            stuck = sum(begun <= long_ago for begun in list(self._begun.values()))
            self._allowed = min(self._count + stuck, self._most)
            while self._waiting and self._running < self._allowed:
                self._running += 1
                idle = self._idle.pop() if self._idle else None
                jobs.append((self._waiting.popleft(), idle))
            waiting = bool(self._waiting)
        for job, idle in jobs:
            self._give(job, idle)
        if waiting:
            self._look_at = 0.0
            self._watch(loop)

    def _give(self, job: Step, todo: Todo | None) -> None:
        if todo is not None:
            todo.put(job)
            return
        todo = queue.SimpleQueue()
        todo.put(job)
        threading.Thread(
            target=self._work, args=(todo, self._closed), name="substrate-sandbox", daemon=True
        ).start()

    def _work(self, todo: Todo, closed: int) -> None:
        """One thread. It does not end before `close`: a worker process dies with its thread."""
        self._prepare()
        me = threading.get_ident()
        job = todo.get()
        while job is not None:
            begun = self._begun[me] = time.monotonic()
            job()
            with self._lock:
                del self._begun[me]
                if self._allowed > self._count and time.monotonic() - begun >= _STUCK_S:
                    self._allowed -= 1  # nobody need stand in for it any more
                has_place = self._waiting and self._running <= self._allowed
                job = self._waiting.popleft() if has_place else None
                ends = closed != self._closed
                if job is None:
                    self._running -= 1
                    if not ends:
                        self._idle.append(todo)
            if ends:
                if job is not None:
                    self._give(job, None)
                return
            if job is None:
                job = todo.get()

    def close(self) -> None:
        """End the threads: the idle ones now, a busy one after its step."""
        with self._lock:
            self._closed += 1
            idle, self._idle = self._idle, []
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
