"""`HookManager`: who is told of what, bounded in time and never heard back.

Async observers are called in turn, each as in a task of its own; those that do not
finish at once are awaited together for at most `patience_s` in all, then left behind.
Sync ones run in order on one thread of the manager, and nobody waits for them.
Whatever an observer raises, SystemExit and its kind too, is logged by type and place
and changes nothing: what may refuse a call is a guard.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, TypeVar

from substrate.agents.hooks.hook_thread import HookThread, name_of
from substrate.agents.tools.own_task import Ended, Running, start
from substrate.kernel.hooks import Hook, HookEvent

__all__ = ["HookManager"]

H = TypeVar("H", bound=Hook)


_log = logging.getLogger("substrate.hooks")


class HookManager:
    """Registers observers of `HookEvent`s and tells them.

    Args:
        patience_s: How long one `dispatch` waits for its async observers, in seconds.
    """

    def __init__(self, *, patience_s: float = 1.0) -> None:
        self._observers: dict[HookEvent, tuple[tuple[Any, bool], ...]] = {}
        self._patience_s = patience_s
        self._running: dict[Running, bool] = {}  # is it waited for, or given up?
        self._lock = threading.Lock()
        self._thread = HookThread()

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
        self._observers[key] = (*self._observers.get(key, ()), (hook, _is_async(hook)))

    def unregister(self, event: HookEvent | str, hook: Hook) -> None:
        """Remove an observer; one that is not there is no error."""
        key = HookEvent(event)
        kept = tuple(one for one in self._observers.get(key, ()) if one[0] != hook)
        self._observers[key] = kept

    def clear(self, event: HookEvent | str | None = None) -> None:
        """Remove all observers of one event, or of every event."""
        if event is None:
            self._observers.clear()
        else:
            self._observers.pop(HookEvent(event), None)

    async def dispatch(self, event: HookEvent, context: Mapping[str, Any]) -> None:
        """Tell every observer of `event`; returns within `patience_s`, never raises of its own.

        A caller that is cancelled meanwhile is gone at once; the observers keep the rest
        of their time.
        """
        slow = self.tell(event, context)
        if slow is not None:
            await slow

    def tell(self, event: HookEvent, context: Mapping[str, Any]) -> Awaitable[None] | None:
        """As `dispatch`: all are told when it returns; what it gives waits for those not done."""
        observers = self._observers.get(event)
        if not observers:
            return None
        view = MappingProxyType(context)
        running: set[Running] | None = None
        for hook, is_async in observers:
            if not is_async:
                self._thread.tell(hook, view)
                continue
            try:
                started = start(hook(view))
            except Exception as error:  # it takes other arguments
                _failed(event, error)
                continue
            if not isinstance(started, Ended):
                running = {started} if running is None else running | {started}
            elif started.error is not None:
                _failed(event, started.error)
        return None if running is None else self._wait(running, event)

    async def _wait(self, running: set[Running], event: HookEvent) -> None:
        loop = asyncio.get_running_loop()
        until = loop.time() + self._patience_s
        self._keep(running)
        for task in running:
            task.add_done_callback(partial(self._ended, event))
        try:
            await asyncio.wait(running, timeout=self._patience_s)
        except asyncio.CancelledError:  # the caller's: observers are in tasks of their own
            loop.call_at(until, self._give_up, running, event)
            raise
        self._give_up(running, event)

    def _give_up(self, running: set[Running], event: HookEvent) -> None:
        for task in running:
            if not task.done():
                _log.warning("an observer of %s was given up after %gs", event, self._patience_s)
                self._running[task] = False
                task.cancel()

    def _ended(self, event: HookEvent, task: Running) -> None:
        awaited = self._running.pop(task, False)
        error = asyncio.CancelledError() if task.cancelled() else task.result().error
        if awaited and error is not None:
            _failed(event, error)

    def _keep(self, running: set[Running]) -> None:
        """Hold tasks until they end, which a loop that was closed can not tell."""
        with self._lock:
            for task in list(self._running):
                if task.get_loop().is_closed():
                    self._running.pop(task, None)
            self._running.update(dict.fromkeys(running, True))

    def close(self, timeout_s: float = 5.0) -> None:
        """Wait until the sync observers have been told everything, for at most `timeout_s`."""
        self._thread.close(timeout_s)


def _failed(event: HookEvent, error: BaseException) -> None:
    _log.warning("an observer of %s failed: %s", event, name_of(error))


def _is_async(hook: Hook) -> bool:
    call = getattr(hook, "__call__", hook)  # noqa: B004  # an object's async __call__
    return inspect.iscoroutinefunction(hook) or inspect.iscoroutinefunction(call)
