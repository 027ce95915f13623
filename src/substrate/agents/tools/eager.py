"""Tasks that take their first step at once.

A task for every call would cost more than all gates together. What costs is the
way over the loop's queue, which a coroutine that does not suspend never needs. It
wants a task of its own all the same: whatever it does to `asyncio.current_task()`
(timeouts and task groups cancel it, and remember it) must not meet the caller's.

Python 3.12 has such tasks; `start_now` gives them to 3.11 too. And it holds back
what would stop the loop: SystemExit and KeyboardInterrupt end the task alone.
"""

from __future__ import annotations

import asyncio
import contextvars
import sys
from collections.abc import Coroutine
from typing import Any, TypeVar, cast

from substrate.kernel.errors import RunCancelled

__all__ = ["ToolExitError", "result_of", "start_now"]

T = TypeVar("T")


class ToolExitError(Exception):
    """SystemExit, KeyboardInterrupt, CancelledError and the like, raised by what was awaited.

    They must neither end the loop nor look like a cancellation of the caller. `error`
    is what was raised.
    """

    error: BaseException


def result_of(task: asyncio.Task[T]) -> T:
    """What a task has come to that nobody but itself cancelled.

    Raises what it raised; `ToolExitError` in place of what is no `Exception`.
    """
    try:
        error = task.exception()
    except asyncio.CancelledError as cancelled:
        error = cancelled
    if error is not None:
        raise _told(error) from error.__cause__
    return task.result()


def _told(error: BaseException) -> BaseException:
    """What awaited code raised, as something that only tells of it."""
    if isinstance(error, Exception | RunCancelled):
        return error
    told = ToolExitError(type(error).__name__)
    told.error = error
    return told


if sys.version_info >= (3, 12):

    def start_now(coro: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """A task of `coro`, which has run up to its first suspension, or to its end."""
        loop = asyncio.get_running_loop()
        return asyncio.Task(_contained(coro), loop=loop, eager_start=True)

    async def _contained(coro: Coroutine[Any, Any, T]) -> T:
        try:
            return await coro
        except (SystemExit, KeyboardInterrupt) as error:
            raise _told(error) from error.__cause__

else:
    _tasks = cast("Any", asyncio.tasks)
    _current: dict[asyncio.AbstractEventLoop, Any] = _tasks._current_tasks  # noqa: SLF001
    _register_task = _tasks._register_task  # noqa: SLF001
    _PlainTask: Any = _tasks._PyTask  # noqa: SLF001

    def start_now(coro: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """A task of `coro`, which has run up to its first suspension, or to its end."""
        return cast("asyncio.Task[T]", _EagerTask(coro))

    class _EagerTask(_PlainTask):
        """asyncio's own task, but that it takes its first step when it is made.

        The fields are those of CPython 3.11, which changes no more. One that ends at
        once, as most do, gets no more of them than it needs.
        """

        _name = "substrate"
        _callbacks: Any = ()
        _must_cancel = False
        _fut_waiter = None
        _num_cancels_requested = 0

        def __init__(self, coro: Coroutine[Any, Any, Any]) -> None:
            loop = self._loop = asyncio.get_running_loop()
            self._coro = coro
            self._context = contextvars.copy_context()
            caller = _current.get(loop)
            _current[loop] = self
            try:
                blocker = self._context.run(coro.send, None)
            except StopIteration as stop:
                self._result, self._state = stop.value, "FINISHED"
            except asyncio.CancelledError as error:
                self._state, self._cancelled_exc = "CANCELLED", error
            except BaseException as error:  # raised where the result is asked for
                self._exception, self._exception_tb = error, error.__traceback__
                self._state = "FINISHED"
            else:
                self._wait_for(blocker)
            finally:
                _current[loop] = caller

        def _wait_for(self, blocker: Any) -> None:
            self._callbacks = []
            _register_task(self)
            if blocker is None:  # a bare yield, as in asyncio.sleep(0)
                self._loop.call_soon(self._Task__step, context=self._context)
            elif getattr(blocker, "_asyncio_future_blocking", False) and blocker is not self:
                blocker._asyncio_future_blocking = False  # noqa: SLF001
                blocker.add_done_callback(self._Task__wakeup, context=self._context)
                self._fut_waiter = blocker
                if self._must_cancel and blocker.cancel():
                    self._must_cancel = False
            else:
                error = RuntimeError(f"a task cannot wait for {blocker!r}")
                self._loop.call_soon(self._Task__step, error, context=self._context)

        def _Task__step(self, error: BaseException | None = None) -> None:  # noqa: N802
            try:
                _PlainTask._Task__step(self, error)  # noqa: SLF001
            except (SystemExit, KeyboardInterrupt):  # it is in the task
                return
