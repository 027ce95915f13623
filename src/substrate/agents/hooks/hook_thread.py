"""`HookThread`: sync observers in order, off the event loop, on one daemon thread.

The thread is started when first needed, drained at `close` and at interpreter exit.
A forked child starts its own; what the parent had not told yet is the parent's to tell.
"""

from __future__ import annotations

import atexit
import contextlib
import inspect
import logging
import os
import queue
import threading
import weakref
from collections.abc import Mapping
from typing import Any, TypeAlias

from substrate.kernel.hooks import Hook

__all__ = ["HookThread", "name_of"]

Todo: TypeAlias = "queue.SimpleQueue[tuple[Hook, Mapping[str, Any]] | None]"

_EXIT_S = 5.0

_log = logging.getLogger("substrate.hooks")


class HookThread:
    """Runs sync observers one after the other; may be told from several threads."""

    def __init__(self) -> None:
        self._forget()
        _threads.add(self)

    def tell(self, hook: Hook, view: Mapping[str, Any]) -> None:
        """Have the observer called, after those before it; never raises."""
        with self._lock:
            todo = self._todo or self._start()
            if todo is not None:
                todo.put((hook, view))

    def close(self, timeout_s: float) -> None:
        """Wait until all was told, for at most `timeout_s`; a later `tell` starts anew."""
        with self._lock:
            todo, thread, self._todo, self._thread = self._todo, self._thread, None, None
        if todo is not None and thread is not None:
            todo.put(None)
            if thread is not threading.current_thread():
                thread.join(timeout_s)

    def _start(self) -> Todo | None:
        todo: Todo = queue.SimpleQueue()
        thread = threading.Thread(target=_run, args=(todo,), name="substrate-hooks", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # no thread is to be had, or the interpreter ends
            _log.warning("an observer was not told: no thread could be started")
            return None
        self._todo, self._thread = todo, thread
        return todo

    def _forget(self) -> None:
        self._todo: Todo | None = None
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    def __del__(self) -> None:
        with contextlib.suppress(Exception):
            if self._todo is not None:
                self._todo.put(None)


def name_of(error: BaseException) -> str:
    """What was raised and where; its text may hold what nobody should read in a log."""
    place = error.__traceback__
    while place is not None and place.tb_next is not None:
        place = place.tb_next
    if place is None:
        return type(error).__name__
    code = place.tb_frame.f_code
    return f"{type(error).__name__} in {code.co_name}, {code.co_filename}:{place.tb_lineno}"


_threads: weakref.WeakSet[HookThread] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    for thread in list(_threads):
        thread.close(_EXIT_S)


def _forget_all() -> None:
    for thread in list(_threads):
        thread._forget()  # noqa: SLF001  # threads are not forked, and who held the lock is one


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_all)


def _run(todo: Todo) -> None:
    while (item := todo.get()) is not None:
        hook, view = item
        try:
            told = hook(view)
            if inspect.isawaitable(told):
                _close(told)
                _log.warning("an observer gave an awaitable; register an async function")
        except BaseException as error:  # an observer must not end the thread of the others
            _log.warning("an observer failed: %s", name_of(error))


def _close(told: object) -> None:
    """A coroutine that is never awaited must say so nowhere else."""
    if inspect.iscoroutine(told):
        told.close()
