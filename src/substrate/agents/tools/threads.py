"""`run_in_thread`: a sync function off the event loop, on daemon threads of our own.

asyncio's default executor is joined when a loop shuts down and at interpreter
exit, so that one hung tool would hang the program. These threads are daemons,
reused while they are wanted and gone after a second of idleness.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import functools
import os
import queue
import threading
import weakref
from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar

__all__ = ["run_in_thread", "thread_left_by"]

T = TypeVar("T")

Job: TypeAlias = Callable[[], Callable[[], None]]
"""Runs the function; what it gives back delivers the result."""

_IDLE_S = 1.0

_lock = threading.Lock()
_idle: list[queue.SimpleQueue[Job]] = []
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_idle.clear)  # threads are not forked


_left: weakref.WeakKeyDictionary[asyncio.Future[Any], asyncio.Future[Any]]
_left = weakref.WeakKeyDictionary()


def thread_left_by(task: asyncio.Future[Any]) -> asyncio.Future[Any] | None:
    """What will come of the thread that a cancelled task has left running, if it has."""
    return _left.pop(task, None)


async def run_in_thread(function: Callable[..., T], *args: Any) -> T:
    """Run `function(*args)` in a thread, with the caller's context variables.

    A caller that is cancelled leaves the thread behind (`thread_left_by`).
    SystemExit and the like arrive as they are; StopIteration as a RuntimeError.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()
    context = contextvars.copy_context()

    def job() -> Callable[[], None]:
        try:
            result = context.run(function, *args)
        except StopIteration as error:
            failure = RuntimeError(f"StopIteration: {error.value!r}")
            failure.__cause__ = error
            return functools.partial(_deliver, loop, _set_exception, future, failure)
        except BaseException as error:  # it is the caller's
            return functools.partial(_deliver, loop, _set_exception, future, error)
        return functools.partial(_deliver, loop, _set_result, future, result)

    _start(job)
    try:
        await asyncio.wait((future,))
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is not None and not future.done():
            _left[task] = future
        future.add_done_callback(_consume)
        raise
    return future.result()


def _consume(future: asyncio.Future[Any]) -> None:
    if not future.cancelled():
        future.exception()  # nobody else may ask


def _deliver(loop: asyncio.AbstractEventLoop, call: Callable[..., None], *args: Any) -> None:
    with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
        loop.call_soon_threadsafe(call, *args)


def _set_result(future: asyncio.Future[Any], result: Any) -> None:
    if not future.done():
        future.set_result(result)


def _set_exception(future: asyncio.Future[Any], error: BaseException) -> None:
    if not future.done():
        future.set_exception(error)


def _start(job: Job) -> None:
    with _lock:
        idle = _idle.pop() if _idle else None
    if idle is not None:
        idle.put(job)
        return
    todo: queue.SimpleQueue[Job] = queue.SimpleQueue()
    todo.put(job)
    threading.Thread(target=_work, args=(todo,), name="substrate-tool", daemon=True).start()


def _work(todo: queue.SimpleQueue[Job]) -> None:
    while True:
        try:
            job = todo.get(timeout=_IDLE_S)
        except queue.Empty:
            with _lock:
                if todo in _idle:
                    _idle.remove(todo)
                    return
            job = todo.get()  # it was taken out of the idle list: a job is on its way
        deliver = job()
        with _lock:
            _idle.append(todo)  # before the caller hears of it, and wants a thread again
        deliver()
        del job, deliver
