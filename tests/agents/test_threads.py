"""Sync functions run off the loop, on threads that hold up nobody."""

from __future__ import annotations

import asyncio
import contextvars
import subprocess
import sys
import threading
import time
from typing import NoReturn

import pytest

from substrate.agents.tools import threads
from substrate.agents.tools.threads import run_in_thread

who = contextvars.ContextVar("who", default="nobody")


@pytest.mark.req("tools.threads")
def test_a_function_sees_the_callers_context_variables_and_cannot_change_them() -> None:
    def look() -> tuple[str, bool]:
        seen = who.get()
        who.set("the thread")
        return seen, threading.current_thread() is threading.main_thread()

    async def main() -> None:
        who.set("the caller")
        assert await run_in_thread(look) == ("the caller", False)
        assert who.get() == "the caller"
        who.set("the caller, later")
        assert await run_in_thread(look) == ("the caller, later", False)

    asyncio.run(main())


def test_arguments_and_results_are_handed_over_as_they_are() -> None:
    thing = object()
    assert asyncio.run(run_in_thread(lambda *args: args, thing, 2)) == (thing, 2)


@pytest.mark.req("case.C9")
def test_blocking_functions_run_side_by_side_while_the_loop_goes_on() -> None:
    together = threading.Barrier(8, timeout=10)

    async def main() -> int:
        ticks = 0
        waiting = asyncio.gather(*(run_in_thread(together.wait) for _ in range(7)))
        while together.n_waiting < 7:
            await asyncio.sleep(0.001)
            ticks += 1
        await run_in_thread(together.wait)
        await waiting
        return ticks

    assert asyncio.run(main()) > 0


@pytest.mark.parametrize(
    "error", [ValueError("x"), SystemExit(3), KeyboardInterrupt(), asyncio.CancelledError()]
)
def test_what_a_function_raises_arrives_as_it_is(error: BaseException) -> None:
    def fail() -> NoReturn:
        raise error

    async def main() -> None:
        with pytest.raises(type(error)) as caught:
            await run_in_thread(fail)
        assert caught.value is error

    asyncio.run(main())


def test_stop_iteration_arrives_as_a_runtime_error() -> None:
    async def main() -> None:
        with pytest.raises(RuntimeError, match="StopIteration: 3"):
            await run_in_thread(stop)

    def stop() -> NoReturn:
        raise StopIteration(3)

    asyncio.run(main())


def test_a_cancelled_caller_leaves_the_thread_behind() -> None:
    go, done = threading.Event(), threading.Event()

    def work() -> str:
        go.wait(10)
        done.set()
        return "dropped"

    async def main() -> None:
        task = asyncio.create_task(run_in_thread(work))
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        go.set()
        assert await run_in_thread(done.wait, 10)

    asyncio.run(main())


def test_a_function_that_outlives_its_loop_disturbs_nobody() -> None:
    go = threading.Event()

    async def main() -> None:
        task = asyncio.create_task(run_in_thread(go.wait, 10))
        await asyncio.sleep(0.01)
        task.cancel()

    asyncio.run(main())
    go.set()
    assert asyncio.run(run_in_thread(lambda: 1)) == 1


def test_threads_are_used_again_and_go_when_they_are_idle(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def main() -> set[int]:
        return {await run_in_thread(threading.get_ident) for _ in range(20)}

    def ours() -> list[threading.Thread]:
        return [t for t in threading.enumerate() if t.name == "substrate-tool"]

    deadline = time.monotonic() + 10
    while ours() and time.monotonic() < deadline:  # those of other tests
        time.sleep(0.05)
    assert len(asyncio.run(main())) == 1
    monkeypatch.setattr(threads, "_IDLE_S", 0.05)
    while ours() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert ours() == []
    assert threads._idle == []


def test_threads_that_go_idle_while_they_are_wanted_lose_no_job(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(threads, "_IDLE_S", 0.001)

    async def main() -> None:
        for n in range(100):
            pause = 0.0005 + n % 5 * 0.0002
            found = await asyncio.gather(*(run_in_thread(int, n) for n in range(4)))
            assert found == [0, 1, 2, 3]
            await asyncio.sleep(pause)

    asyncio.run(asyncio.wait_for(main(), 30))


def test_a_hung_function_does_not_hold_up_the_end_of_the_program() -> None:
    script = """
import asyncio, threading
from substrate.agents.tools.threads import run_in_thread

async def main():
    task = asyncio.create_task(run_in_thread(threading.Event().wait))
    await asyncio.sleep(0.05)
    task.cancel()

asyncio.run(main())
print("over")
"""
    ended = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, timeout=30, check=False
    )
    assert (ended.returncode, ended.stdout.strip(), ended.stderr) == (0, b"over", b"")
