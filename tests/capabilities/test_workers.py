"""The threads of a sandbox: they end with it, and nothing that was asked of them is lost."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import pytest

from substrate.capabilities.sandboxes.workers import Workers


class Threads:
    """Those that a pool has started, counted by what each begins with."""

    def __init__(self) -> None:
        self.started: list[threading.Thread] = []

    def note(self) -> None:
        self.started.append(threading.current_thread())

    def all_end(self) -> bool:
        for thread in self.started:
            thread.join(10)
        return not any(thread.is_alive() for thread in self.started)


def held(by: threading.Event, started: threading.Event) -> Callable[[], str]:
    def step() -> str:
        started.set()
        by.wait(10)
        return "done"

    return step


@pytest.mark.parametrize("times", range(5))
def test_a_thread_that_closes_its_own_pool_ends_with_it(times: int) -> None:
    async def main() -> bool:
        threads = Threads()
        workers = Workers(2, threads.note)
        for _ in range(times):
            await workers.run(int)
        await workers.run(workers.close)
        return threads.all_end()

    assert asyncio.run(main())


def test_a_busy_thread_ends_after_its_step_and_what_waits_is_still_run() -> None:
    async def main() -> None:
        threads, free, started = Threads(), threading.Event(), threading.Event()
        workers = Workers(1, threads.note)
        first = workers.run(held(free, started))
        waiting = [workers.run(int) for _ in range(3)]
        assert started.wait(10)
        workers.close()
        free.set()
        assert await first == "done"
        assert await asyncio.gather(*waiting) == [0, 0, 0]
        assert len(threads.started) > 1
        workers.close()
        assert threads.all_end()

    asyncio.run(main())


def test_a_pool_that_was_closed_starts_anew() -> None:
    async def main() -> None:
        threads = Threads()
        workers = Workers(2, threads.note)
        await workers.run(int)
        workers.close()
        assert await workers.run(int) == 0
        workers.close()
        assert len(threads.started) == 2
        assert threads.all_end()

    asyncio.run(main())
