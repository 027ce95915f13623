"""Hold a deadline whatever the awaited code does: by leaving it behind, not by waiting for its end."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Coroutine
from typing import Any, TypeAlias, TypeVar

from substrate.agents.tools.own_task import Ended, Running, ToolExitError, start
from substrate.agents.tools.threads import thread_left_by

__all__ = [
    "GRACE_S",
    "STEP_S",
    "DeadlineExceededError",
    "OnLate",
    "ToolExitError",
    "call_bounded",
    "ended",
    "leave_behind",
    "run_bounded",
]

T = TypeVar("T")

GRACE_S = 0.25
"""Seconds that a cancelled coroutine gets to end before it is left behind."""

STEP_S = 5.0
"""Seconds that a guard, a sink, a store step or a classification may take."""

OnLate: TypeAlias = "Callable[[asyncio.Future[Any]], None]"
"""Is told of what is given up and still runs, or ended too late to be the answer."""


class DeadlineExceededError(Exception):
    """The time is over; what was awaited was left behind."""


async def run_bounded(coro: Coroutine[Any, Any, T], seconds: float, on_late: OnLate) -> T:
    """Await `coro` for at most `seconds`, in a task of its own.

    Raises:
        DeadlineExceededError: It is late; it was cancelled and handed to `on_late`.
        asyncio.CancelledError: The caller was cancelled, and nothing but that; `coro`
            was cancelled with it, handed to `on_late`, and given `GRACE_S` to end.
        ToolExitError: It raised SystemExit, CancelledError or another of their kind itself.
    """
    task = start(coro)
    if isinstance(task, Ended):
        return task.value if task.error is None else task.unwrap()
    try:
        await asyncio.wait((task,), timeout=seconds)
    except asyncio.CancelledError:
        leave_behind(task, on_late)
        await asyncio.wait((task,), timeout=GRACE_S)
        raise
    if task.done():
        return ended(task).unwrap()
    leave_behind(task, on_late)
    raise DeadlineExceededError


async def call_bounded(
    function: Callable[..., Any], *args: Any, seconds: float, on_late: OnLate
) -> Any:
    """Call a sync or async function of somebody else's, bounded as `run_bounded` is."""
    return await run_bounded(_call(function, args), seconds, on_late)


async def _call(function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    answer = function(*args)
    return await answer if inspect.isawaitable(answer) else answer


def ended(left: asyncio.Future[Any]) -> Ended:
    """How something ended that was started here, or the thread that it left behind."""
    if left.cancelled():
        return Ended(asyncio.CancelledError())
    error = left.exception()
    if error is not None:
        return Ended(error)
    result = left.result()
    return result if isinstance(result, Ended) else Ended(None, result)


def leave_behind(task: Running, on_late: OnLate) -> None:
    """Cancel a task without waiting for its end; `on_late` hears of it, and of its thread."""

    def look_for_thread(left: asyncio.Future[Any]) -> None:
        thread = thread_left_by(left)
        if thread is not None:
            on_late(thread)

    task.cancel()
    on_late(task)
    task.add_done_callback(look_for_thread)
