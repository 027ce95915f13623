"""Lanes: who may run at once, and how often, in order of arrival.

A `Slots` bounds what runs at once, a `Pacer` how often something starts. Both may
be used from several event loops and threads: waiting is a future of the waiter's
own loop. `Lane` is what the invoker keeps for one tool.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque

from substrate.agents.tools.traits import Rate, Traits

__all__ = ["Held", "Lane", "Pacer", "Slots"]


class Slots:
    """A bound on what runs at once; first come, first served."""

    __slots__ = ("_free", "_lock", "_queue")

    def __init__(self, count: int) -> None:
        self._free = count
        self._lock = threading.Lock()
        self._queue: deque[asyncio.Future[None]] = deque()

    def take_now(self) -> bool:
        """Take a slot where one is free and nobody waits."""
        with self._lock:
            if self._free > 0 and not self._queue:
                self._free -= 1
                return True
        return False

    async def take(self, timeout_s: float | None = None) -> bool:
        """Take a slot, waiting for at most `timeout_s`; False where none came free."""
        with self._lock:
            if self._free > 0 and not self._queue:
                self._free -= 1
                return True
            loop = asyncio.get_running_loop()
            turn: asyncio.Future[None] = loop.create_future()
            self._queue.append(turn)
        try:
            await asyncio.wait((turn,), timeout=timeout_s)
        except asyncio.CancelledError:
            self._give_up(turn)
            raise
        if turn.done():
            return True
        self._give_up(turn)
        return False

    def _give_up(self, turn: asyncio.Future[None]) -> None:
        """Leave the queue; a slot that was handed over meanwhile is passed on."""
        with self._lock:
            if turn in self._queue:
                self._queue.remove(turn)
                return
        self.free()

    def free(self) -> None:
        """Give a slot back; the one who has waited longest gets it."""
        with self._lock:
            while self._queue:
                turn = self._queue.popleft()
                try:
                    turn.get_loop().call_soon_threadsafe(_wake, turn)
                except RuntimeError:  # its loop is closed: nobody waits there
                    continue
                return
            self._free += 1


def _wake(turn: asyncio.Future[None]) -> None:
    if not turn.done():
        turn.set_result(None)


class Pacer:
    """At most `count` starts in any `per_s` seconds; first come, first served."""

    __slots__ = ("_count", "_lock", "_per_s", "_starts")

    def __init__(self, rate: Rate) -> None:
        self._count, self._per_s = rate.count, rate.per_s
        self._starts: deque[float] = deque()  # of the last `per_s` seconds and to come, rising
        self._lock = threading.Lock()

    async def take(self, timeout_s: float) -> bool:
        """Wait for the turn to start, at most `timeout_s`; False at once where it comes later."""
        now = time.monotonic()
        starts = self._starts
        with self._lock:
            while starts and starts[0] <= now - self._per_s:
                starts.popleft()
            is_full = len(starts) >= self._count
            at = max(now, starts[-self._count] + self._per_s) if is_full else now
            if at - now > timeout_s:
                return False
            starts.append(at)
        try:
            while (rest := at - time.monotonic()) > 0:
                await asyncio.sleep(rest)
        except asyncio.CancelledError:
            with self._lock:  # it does not start, and counts no more
                starts.remove(at)
            raise
        return True


class Lane:
    """What an invoker keeps for one tool: its slots and its rate."""

    __slots__ = ("pacer", "slots", "traits")

    def __init__(self, traits: Traits) -> None:
        self.traits = traits
        self.slots = Slots(traits.concurrency) if traits.concurrency is not None else None
        self.pacer = Pacer(traits.rate) if traits.rate is not None else None


class Held:
    """Slots that are held, to be freed together."""

    __slots__ = ("_chain", "_tool")

    def __init__(self) -> None:
        self._chain: Slots | None = None
        self._tool: Slots | None = None

    def add(self, slots: Slots) -> None:
        """One more; the chain's first."""
        if self._chain is None:
            self._chain = slots
        else:
            self._tool = slots

    def free(self) -> None:
        """Free them; once."""
        chain, tool, self._chain, self._tool = self._chain, self._tool, None, None
        if tool is not None:
            tool.free()
        if chain is not None:
            chain.free()
