"""Hold a deadline whatever the awaited code does: by leaving it behind, not by waiting for its end.

A task for every call would cost more than all gates together. So a coroutine
that has never been seen to suspend is stepped in the caller's own task, which
costs nothing where it again does not suspend. One that does suspend is driven on
right there, since its scopes (`asyncio.timeout`, task groups) remember the task
that they were entered in; from its next call on it gets a task of its own
(`Pace`). Python 3.12 has eager tasks, which give both at once.

A `CancelledError` that arrives while we drive somebody's coroutine belongs to it
first: it may come of its own `asyncio.timeout`. Only a cancellation count that
stays above the level at entry is the caller's.
"""

from __future__ import annotations

import asyncio
import sys
import types
from collections.abc import Awaitable, Callable, Coroutine, Generator
from typing import Any, Generic, TypeAlias, TypeVar, cast

from substrate.kernel.errors import RunCancelled

__all__ = [
    "GRACE_S",
    "STEP_S",
    "DeadlineExceededError",
    "OnLate",
    "Pace",
    "ToolExitError",
    "carry_on",
    "run_bounded",
]

T = TypeVar("T")

GRACE_S = 0.25
"""Seconds that a cancelled coroutine gets to end before it is left behind."""

STEP_S = 5.0
"""Seconds that a guard, a sink, a store step or a classification may take."""

OnLate: TypeAlias = "Callable[[asyncio.Future[Any]], None]"
"""Is told of what is given up and still runs, or ended too late to be the answer."""

_EAGER = sys.version_info >= (3, 12)


class DeadlineExceededError(Exception):
    """The time is over; what was awaited was left behind."""


class ToolExitError(Exception):
    """SystemExit, KeyboardInterrupt, CancelledError and the like, raised by what was awaited.

    They must neither end the loop nor look like a cancellation of the caller. `error`
    is what was raised.
    """

    error: BaseException


class Pace:
    """What was seen of one coroutine function: has it ever suspended?"""

    __slots__ = ("suspends",)

    def __init__(self) -> None:
        self.suspends = _EAGER


async def run_bounded(
    coro: Coroutine[Any, Any, T], seconds: float, on_late: OnLate, pace: Pace | None = None
) -> T:
    """Await `coro` for at most `seconds`.

    Raises:
        DeadlineExceededError: It is late; it was cancelled and handed to `on_late`.
        asyncio.CancelledError: The caller was cancelled (and `coro` with it, with a
            grace of `GRACE_S`, then handed to `on_late`).
        ToolExitError: It raised SystemExit, CancelledError or another of their kind itself.
    """
    if pace is None or pace.suspends:
        return await _in_task(coro, seconds, on_late)
    try:
        blocker = coro.send(None)
    except StopIteration as stop:
        return stop.value
    except BaseException as error:
        raise _own(error) from error.__cause__
    pace.suspends = True
    return await carry_on(coro, blocker, seconds, on_late)


def carry_on(
    coro: Coroutine[Any, Any, T], blocker: Any, seconds: float, on_late: OnLate
) -> Awaitable[T]:
    """Await the rest of a coroutine that was stepped once, here, and waits for `blocker`."""
    return _InPlace(coro, blocker, seconds, on_late)


async def _in_task(coro: Coroutine[Any, Any, T], seconds: float, on_late: OnLate) -> T:
    if sys.version_info >= (3, 12):
        task = asyncio.Task(_contained(coro), loop=asyncio.get_running_loop(), eager_start=True)
        if task.done():
            return task.result()
    else:
        task = asyncio.create_task(_contained(coro))
    try:
        await asyncio.wait((task,), timeout=seconds)
    except asyncio.CancelledError:
        task.cancel()
        await asyncio.wait((task,), timeout=GRACE_S)
        if not (task.done() and task.cancelled()):
            on_late(task)
        raise
    if task.done():
        return task.result()
    task.cancel()
    on_late(task)
    raise DeadlineExceededError


async def _contained(coro: Coroutine[Any, Any, T]) -> T:
    """The body of a task of its own: what it raises must not stop the loop."""
    try:
        return await coro
    except BaseException as error:
        task = asyncio.current_task()
        if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
            raise  # it was given up
        raise _own(error) from error.__cause__


def _own(error: BaseException) -> BaseException:
    """What the awaited code raised, as something that only tells of it."""
    if isinstance(error, Exception | RunCancelled):
        return error
    wrapped = ToolExitError(f"{type(error).__name__}: {error}")
    wrapped.error = error
    return wrapped


def _consume(task: asyncio.Future[Any]) -> None:
    if not task.cancelled():
        task.exception()


class _InPlace(Generic[T]):
    """A coroutine stepped in the awaiting task, until it ends or is handed over."""

    __slots__ = (
        "_blocker", "_coro", "_expired", "_leaving", "_level", "_loop", "_on_late", "_seconds",
        "_task", "_timer", "_until", "_waker",
    )  # fmt: skip

    _loop: asyncio.AbstractEventLoop
    _task: asyncio.Task[Any]
    _timer: asyncio.TimerHandle
    _waker: asyncio.Future[None]

    def __init__(
        self,
        coro: Coroutine[Any, Any, T],
        blocker: Any,
        seconds: float,
        on_late: OnLate,
    ) -> None:
        self._coro = coro
        self._blocker = blocker
        self._seconds = seconds
        self._on_late = on_late

    def __await__(self) -> Generator[Any, None, T]:
        self._loop = asyncio.get_running_loop()
        self._task = cast("asyncio.Task[Any]", asyncio.current_task())
        # a cancellation that was not delivered yet came during the first step: the caller's
        undelivered = bool(getattr(self._task, "_must_cancel", False))
        self._level = self._task.cancelling() - undelivered
        self._expired = self._leaving = False
        self._until = self._loop.time() + self._seconds
        self._timer = self._loop.call_at(self._until, self._expire)
        try:
            return (yield from self._drive(self._blocker))
        finally:
            self._timer.cancel()

    def _drive(self, blocker: Any) -> Generator[Any, None, T]:
        while True:
            error = yield from self._until_ready(blocker)
            if self._expired:
                self._hand_over(blocker)
                raise asyncio.CancelledError if self._leaving else DeadlineExceededError
            try:
                blocker = self._coro.send(None) if error is None else self._coro.throw(error)
            except StopIteration as stop:
                if self._task.cancelling() > self._level:
                    self._ended_late().set_result(stop.value)
                    raise asyncio.CancelledError from None
                return stop.value
            except BaseException as raised:
                if self._task.cancelling() > self._level:
                    if not isinstance(raised, asyncio.CancelledError):
                        self._ended_late().set_exception(_own(raised))
                    raise asyncio.CancelledError from raised
                raise _own(raised) from raised.__cause__
            self._watch_caller()

    def _ended_late(self) -> asyncio.Future[T]:
        """The end of code whose caller was cancelled: an answer to nobody, but known."""
        ended: asyncio.Future[T] = self._loop.create_future()
        ended.add_done_callback(_consume)
        self._on_late(ended)
        return ended

    def _until_ready(self, blocker: Any) -> Generator[Any, None, asyncio.CancelledError | None]:
        """Wait as the task itself would; the error to throw into the coroutine, if any."""
        if blocker is None:  # a bare yield, as in asyncio.sleep(0)
            try:
                yield
            except asyncio.CancelledError as error:
                self._watch_caller()
                return error
            return None
        blocker._asyncio_future_blocking = False  # as a task does  # noqa: SLF001
        blocker.add_done_callback(self._wake)
        try:
            while not (blocker.done() or self._expired):
                self._waker = self._loop.create_future()
                try:
                    yield from self._waker
                except asyncio.CancelledError as error:
                    self._watch_caller()
                    if not blocker.cancel():  # else it ends by itself, and tells the coroutine
                        return error
        finally:
            blocker.remove_done_callback(self._wake)
        return None

    def _watch_caller(self) -> None:
        """Arm the grace where the caller was cancelled; the old deadline where that is over."""
        leaving = self._task.cancelling() > self._level
        if leaving == self._leaving:
            return
        self._leaving = leaving
        self._timer.cancel()
        until = self._loop.time() + GRACE_S if leaving else self._until
        self._timer = self._loop.call_at(until, self._expire)

    def _expire(self) -> None:
        self._expired = True
        self._wake()

    def _wake(self, _: object = None) -> None:
        if hasattr(self, "_waker") and not self._waker.done():
            self._waker.set_result(None)

    def _hand_over(self, blocker: Any) -> None:
        """A new task goes on waiting where the coroutine stood, and is then cancelled.

        Cancelling before its first step would never reach the coroutine.
        """
        task = self._loop.create_task(_contained(_walk_on(self._coro, blocker)))
        self._loop.call_soon(task.cancel)
        self._on_late(task)


@types.coroutine
def _again(blocker: Any) -> Generator[Any, None, None]:
    if blocker is not None:
        blocker._asyncio_future_blocking = True  # noqa: SLF001
    yield blocker


async def _walk_on(coro: Coroutine[Any, Any, T], blocker: Any) -> T:
    error: BaseException | None = None
    while True:
        try:
            await _again(blocker)
        except BaseException as raised:  # it is the coroutine's to handle
            error = raised
        try:
            blocker = coro.send(None) if error is None else coro.throw(error)
        except StopIteration as stop:
            return stop.value
        error = None
