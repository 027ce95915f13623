"""`start`: foreign code in a task of its own, which costs no task where it does not suspend.

A tool, guard or observer may cancel its own task, or have a timeout do so; were that
the caller's task, it would look like the caller's cancellation. So a spare task stands
in as the current one during the first step. It is used again where the code ends there,
and runs the rest where it suspends. (An eager task of Python 3.12 does the same at the
price of a task for every call.)
"""

from __future__ import annotations

import asyncio
import contextvars
import os
import sys
import types
from collections.abc import Callable, Coroutine, Generator
from threading import get_ident
from typing import Any, TypeAlias, cast

import msgspec

from substrate.kernel.errors import RunCancelled

__all__ = ["Ended", "Running", "ToolExitError", "start"]


class ToolExitError(Exception):
    """SystemExit, KeyboardInterrupt, CancelledError and the like, raised by what was awaited.

    They must neither end the loop nor look like a cancellation of the caller. `error`
    is what was raised.
    """

    error: BaseException


class Ended(msgspec.Struct, frozen=True):
    """How a coroutine ended: what it raised, or what it returned."""

    error: BaseException | None = None
    value: Any = None

    def unwrap(self) -> Any:
        """The value. Raises its error; `ToolExitError` in place of what is no `Exception`."""
        error = self.error
        if error is None:
            return self.value
        if isinstance(error, Exception | RunCancelled):
            raise error
        told = ToolExitError(type(error).__name__)
        told.error = error
        raise told from error.__cause__


Driver: TypeAlias = "Generator[Any, Any, None]"

Running: TypeAlias = "asyncio.Task[Ended]"
"""A coroutine that was not done at once; the task itself raises nothing of it."""


def start(coro: Coroutine[Any, Any, Any]) -> Running | Ended:
    """Run a coroutine, in a copy of this context, to its end or its first suspension."""
    ident = get_ident()
    spare = _spares.get(ident)
    if spare is None or spare.told_by._thread_id != ident:  # noqa: SLF001  # quicker than to ask for the running loop
        spare = _Spare(asyncio.get_running_loop())
    loop = spare.loop
    caller = _current.get(loop)
    if caller is spare:  # a first step within a first step
        spare = _Spare(loop)
    _current[loop] = spare
    try:
        context = _copy_context()
        found = context.run(spare.driver.send, coro)
        if type(found) is Ended:
            return found
    except BaseException as error:  # the caller must not meet it, whatever it is
        spare.driver = _driver()
        return Ended(error)
    finally:
        if caller is None:
            _current.pop(loop)
        else:
            _current[loop] = caller
    driver = spare.driver
    if asyncio.get_running_loop() is not loop:  # somebody runs a loop within a loop
        spare.driver, spare = _driver(), _Spare(asyncio.get_running_loop())
    spare.carry_on(_Rest(driver, found, context))
    return spare


@types.coroutine
def _drive() -> Generator[Any, Any, None]:
    """Runs one coroutine after the other, each sent in when the one before has ended.

    It yields what they wait for, and `Ended` for each: to await costs less than to step
    a coroutine by hand, which raises StopIteration at its end.
    """
    ended: Ended | None = None
    while True:
        coro = yield ended
        value = cast("Any", (yield from coro))
        ended = _NOTHING if value is None else Ended(None, value)
        del coro, value


def _driver() -> Driver:
    driver = cast("Driver", _drive())
    driver.send(None)  # up to where it waits for the first
    return driver


_NOTHING = Ended()
_copy_context = contextvars.copy_context

_current: Any
if sys.version_info >= (3, 14):

    class _Current:
        """The current task of a loop, as the dict that it was before."""

        get = staticmethod(asyncio.current_task)

        def __setitem__(self, loop: Any, task: Any) -> None:
            asyncio.tasks._swap_current_task(loop, task)  # noqa: SLF001

        def pop(self, loop: Any) -> None:
            asyncio.tasks._swap_current_task(loop, None)  # noqa: SLF001

    _current = _Current()
else:
    _current = asyncio.tasks._current_tasks  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType, reportUnknownVariableType]  # noqa: SLF001


class _Spare(asyncio.Task[Ended]):
    """A task that waits for a coroutine to carry on, one a thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.told_by: Any = loop if hasattr(loop, "_thread_id") else _Teller(loop)
        self.driver = _driver()
        self._work = _Work(loop)
        super().__init__(self._work, loop=loop)
        self._log_destroy_pending = False
        asyncio._unregister_task(self)  # nobody's business until it has work  # noqa: SLF001
        for ident, spare in list(_spares.items()):
            if spare.loop.is_closed():
                _spares.pop(ident, None)
        _spares[get_ident()] = self

    def carry_on(self, rest: _Rest) -> None:
        """Run what is left of a coroutine that took its first step as this task."""
        self._spend()
        asyncio._register_task(self)  # noqa: SLF001
        self._log_destroy_pending = True
        self._work.give(rest)

    def cancel(self, msg: Any | None = None) -> bool:
        self._spend()
        return super().cancel(msg)

    def _spend(self) -> None:
        if _spares.get(get_ident()) is self:
            del _spares[get_ident()]


_spares: dict[int, _Spare] = {}
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_spares.clear)  # their loop is the parent's


class _Teller:
    """Says in which thread a loop runs that does not say it itself."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    @property
    def _thread_id(self) -> int | None:
        return get_ident() if asyncio.get_running_loop() is self._loop else None


class _Rest:
    """A coroutine that has suspended, what it waits for, and the context that it runs in."""

    __slots__ = ("blocker", "context", "driver")

    def __init__(self, driver: Driver, blocker: Any, context: contextvars.Context) -> None:
        self.driver = driver
        self.blocker = blocker
        self.context = context

    def step(self, value: Any) -> Any:
        """What it waits for next; StopIteration with its outcome where it is done."""
        return self._run(self.driver.send, value)

    def fail(self, error: BaseException) -> Any:
        """The same, with an error thrown in."""
        return self._run(self.driver.throw, error)

    def _run(self, step: Callable[[Any], Any], value: Any) -> Any:
        try:
            found = self.context.run(step, value)
        except BaseException as error:  # in a task, SystemExit would stop the loop
            raise StopIteration(Ended(error)) from None
        if type(found) is Ended:
            raise StopIteration(found)
        return found


class _Work(Coroutine[Any, Any, Ended]):
    """What a spare task runs: it waits for a `_Rest`, and is it from then on."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._wanted: asyncio.Future[None] | None = None
        self._rest: _Rest | None = None

    def give(self, rest: _Rest) -> None:
        self._rest = rest
        if self._wanted is not None and not self._wanted.done():
            self._wanted.set_result(None)

    def send(self, value: Any, /) -> Any:
        """The next step; the first one of a rest waits for what that waits for."""
        if self._rest is None:
            self._wanted = self._loop.create_future()
            return _waiting_for(self._wanted)
        blocker, self._rest.blocker = self._rest.blocker, None
        return self._rest.step(value) if blocker is None else _waiting_for(blocker)

    def throw(self, error: Any, /, *_: Any) -> Any:
        """The task was cancelled, or what the coroutine waits for is no future."""
        if self._rest is None:
            raise error
        blocker, self._rest.blocker = self._rest.blocker, None
        if asyncio.isfuture(blocker) and blocker.cancel():
            return _waiting_for(blocker)  # as a task that is cancelled before it waits
        return self._rest.fail(error)

    def close(self) -> None:
        if self._rest is not None:
            self._rest.driver.close()

    def __await__(self) -> Any:
        raise NotImplementedError  # a task calls the methods above


def _waiting_for(blocker: Any) -> Any:
    if asyncio.isfuture(blocker):  # else it is the coroutine's fault, and the task tells it so
        blocker._asyncio_future_blocking = True  # noqa: SLF001
    return blocker
