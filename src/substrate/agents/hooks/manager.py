"""`HookManager`: who is told of what, bounded in time and never heard back.

Async observers are called in turn; those that do not finish at once are awaited
together for at most `patience_s` in all, then left behind and logged. Sync ones
run in order on one thread of the manager, and nobody waits for them. Whatever an
observer raises is logged and changes nothing: what may refuse a call is a guard.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import inspect
import logging
import queue
import threading
import weakref
from collections.abc import Callable, Coroutine, Iterable, Mapping
from types import MappingProxyType
from typing import Any, TypeVar, cast

from substrate.agents.tools.eager import start_now
from substrate.kernel.hooks import Hook, HookEvent

__all__ = ["HookManager"]

H = TypeVar("H", bound=Hook)

_log = logging.getLogger("substrate.hooks")


class _Observer:
    __slots__ = ("hook", "is_async")

    def __init__(self, hook: Hook) -> None:
        self.hook = hook
        call = getattr(hook, "__call__", hook)  # noqa: B004  # an object's async __call__
        self.is_async: bool = inspect.iscoroutinefunction(hook) or inspect.iscoroutinefunction(call)


class HookManager:
    """Registers observers of `HookEvent`s and tells them.

    Args:
        patience_s: How long one `dispatch` waits for its async observers, in seconds.
    """

    def __init__(self, *, patience_s: float = 1.0) -> None:
        self._observers: dict[HookEvent, tuple[_Observer, ...]] = {}
        self._patience_s = patience_s
        self._late: set[asyncio.Future[Any]] = set()
        self._thread = _HookThread()

    def on(self, event: HookEvent | str) -> Callable[[H], H]:
        """Decorator: `@hooks.on(HookEvent.TOOL_END)`."""

        def register(hook: H) -> H:
            self.register(event, hook)
            return hook

        return register

    def register(self, event: HookEvent | str, hook: Hook) -> None:
        """Add an observer; it is told in the order of registration. TypeError if not callable."""
        if not callable(hook):
            msg = f"a hook is a function of one mapping, not {hook!r}"
            raise TypeError(msg)
        key = HookEvent(event)
        self._observers[key] = (*self._observers.get(key, ()), _Observer(hook))

    def unregister(self, event: HookEvent | str, hook: Hook) -> None:
        """Remove an observer; one that is not there is no error."""
        key = HookEvent(event)
        kept = tuple(o for o in self._observers.get(key, ()) if o.hook != hook)
        self._observers[key] = kept

    def clear(self, event: HookEvent | str | None = None) -> None:
        """Remove all observers of one event, or of every event."""
        if event is None:
            self._observers.clear()
        else:
            self._observers.pop(HookEvent(event), None)

    async def dispatch(self, event: HookEvent, context: Mapping[str, Any]) -> None:
        """Tell every observer of `event`; returns within `patience_s`, never raises of its own.

        All are told before anything is waited for, so that a caller who is cancelled
        leaves none of them out.
        """
        observers = self._observers.get(event)
        if not observers:
            return
        view = MappingProxyType(context)
        slow: list[asyncio.Task[None]] = []
        for observer in observers:
            if not observer.is_async:
                self._thread.tell(observer.hook, view)
                continue
            task = start_now(_tell(observer.hook, view, event))
            if not task.done():
                slow.append(task)
        if slow:
            await self._wait(slow, event)

    async def _wait(self, tasks: list[asyncio.Task[None]], event: HookEvent) -> None:
        late: Iterable[asyncio.Task[None]] = tasks
        try:
            _, late = await asyncio.wait(tasks, timeout=self._patience_s)
        finally:
            for task in late:
                task.cancel()
                self._leave(task)
        for _ in late:
            _log.warning("an observer of %s was given up after %gs", event, self._patience_s)

    def _leave(self, task: asyncio.Future[Any]) -> None:
        self._late.add(task)
        task.add_done_callback(self._forget)

    def _forget(self, task: asyncio.Future[Any]) -> None:
        self._late.discard(task)
        if not task.cancelled():
            task.exception()

    def close(self, timeout_s: float = 5.0) -> None:
        """Wait until the sync observers have been told everything, for at most `timeout_s`."""
        self._thread.close(timeout_s)


async def _tell(hook: Hook, view: Mapping[str, Any], event: HookEvent) -> None:
    """Tell an async observer; what it raises is logged by its type, for no content is."""
    try:
        await cast("Coroutine[Any, Any, None]", hook(view))
    except asyncio.CancelledError:
        raise  # it was given up
    except BaseException as error:
        _log.warning("an observer of %s failed (%s)", event, type(error).__name__)


class _HookThread:
    """One daemon thread that runs sync observers in order; started when first needed."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[tuple[Hook, Mapping[str, Any]] | None] | None = None
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    def tell(self, hook: Hook, view: Mapping[str, Any]) -> None:
        if self._queue is None:
            self._start()
        cast("queue.SimpleQueue[Any]", self._queue).put((hook, view))

    def _start(self) -> None:
        with self._lock:
            if self._queue is None:
                todo: queue.SimpleQueue[Any] = queue.SimpleQueue()
                self._thread = threading.Thread(
                    target=_run_hooks, args=(todo,), name="substrate-hooks", daemon=True
                )
                self._thread.start()
                self._queue = todo
                closer = weakref.WeakMethod(self.close)
                atexit.register(lambda: (close := closer()) and close(5.0))

    def close(self, timeout_s: float) -> None:
        with self._lock:
            todo, thread, self._queue, self._thread = self._queue, self._thread, None, None
        if todo is not None and thread is not None:
            todo.put(None)
            if thread is not threading.current_thread():
                thread.join(timeout_s)

    def __del__(self) -> None:
        with contextlib.suppress(Exception):
            if self._queue is not None:
                self._queue.put(None)


def _run_hooks(todo: queue.SimpleQueue[tuple[Hook, Mapping[str, Any]] | None]) -> None:
    while (item := todo.get()) is not None:
        hook, view = item
        try:
            told = hook(view)
            if inspect.isawaitable(told):
                _close(told)
                _log.warning("an observer gave an awaitable; register an async function")
        except BaseException:  # an observer must not end the thread of the others
            _log.warning("an observer failed", exc_info=True)


def _close(told: object) -> None:
    """A coroutine that is never awaited must say so nowhere else."""
    if inspect.iscoroutine(told):
        told.close()
