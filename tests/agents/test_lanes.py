"""Slots and paces: bounds on what runs at once and on how often something starts."""

from __future__ import annotations

import asyncio
import itertools
import threading
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from substrate import ChainPolicy, Toolbox, ToolCallRequest, ToolInvoker, tool
from substrate.agents.tools.lanes import Pacer, Slots
from substrate.agents.tools.traits import Rate


@settings(max_examples=100, deadline=None)
@given(
    st.integers(1, 4),
    st.lists(st.sampled_from(["stay", "cancel", "time out"]), min_size=1, max_size=12),
)
def test_no_slot_is_lost_whoever_waits_gives_up_or_is_cancelled(
    count: int, fates: list[str]
) -> None:
    async def main() -> None:
        slots = Slots(count)
        running = most = 0
        served: list[int] = []

        async def one(number: int, fate: str) -> None:
            nonlocal running, most
            if not await slots.take(0.0 if fate == "time out" else None):
                return
            running += 1
            most = max(most, running)
            served.append(number)
            try:
                await asyncio.sleep(0)
            finally:
                running -= 1
                slots.free()

        tasks = [asyncio.create_task(one(n, fate)) for n, fate in enumerate(fates)]
        await asyncio.sleep(0)
        for task, fate in zip(tasks, fates, strict=True):
            if fate == "cancel":
                task.cancel()
        await asyncio.wait(tasks)
        assert most <= count
        patient = [n for n, fate in enumerate(fates) if fate == "stay"]
        assert [n for n in served if fates[n] == "stay"] == patient
        assert all(slots.take_now() for _ in range(count))
        assert not slots.take_now()

    asyncio.run(main())


def test_a_slot_goes_from_one_event_loop_to_another() -> None:
    slots = Slots(1)
    assert slots.take_now()
    waits = threading.Event()
    got: list[bool] = []

    async def other() -> None:
        asyncio.get_running_loop().call_soon(waits.set)
        got.append(await slots.take())

    thread = threading.Thread(target=asyncio.run, args=(other(),))
    thread.start()
    assert waits.wait(10)
    slots.free()
    thread.join(10)
    assert got == [True]


@pytest.mark.req("way.slots")
def test_a_tool_starts_no_more_often_than_its_rate_and_in_order() -> None:
    async def main() -> None:
        started: list[tuple[float, int]] = []

        @tool(risk="safe", rate="3/s")
        async def ask(n: int) -> None:
            started.append((time.monotonic(), n))

        invoker = ToolInvoker(Toolbox([ask]))
        async with invoker.open_session() as session:
            calls = (ToolCallRequest("ask", {"n": n}) for n in range(7))
            results = await asyncio.gather(*(invoker.invoke(c, session=session) for c in calls))
            assert {r.status for r in results} == {"ok"}
            waits = {record.seq or 0: record.wait_ms for record in session.trace}
            assert max(waits.values()) > 1000  # it waited for its turn, not for the tool
        assert [n for _, n in started] == list(range(7))
        times = [at for at, _ in started]
        for first, fourth in zip(times, times[3:], strict=False):
            assert fourth - first >= 0.99

    asyncio.run(main())


def test_a_turn_that_comes_after_the_end_of_the_chains_time_is_refused_at_once() -> None:
    async def main() -> None:
        @tool(risk="safe", rate="1/h")
        async def ask() -> int:
            return 1

        invoker = ToolInvoker(Toolbox([ask]), policy=ChainPolicy(total_timeout_s=60))
        async with invoker.open_session() as session:
            first = await invoker.invoke(ToolCallRequest("ask"), session=session)
            async with asyncio.timeout(5):
                second = await invoker.invoke(ToolCallRequest("ask"), session=session)
        assert (first.status, second.status, second.reason, second.ran) == (
            "ok", "error", "budget", "no",
        )  # fmt: skip

    asyncio.run(main())


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 3), st.lists(st.booleans(), min_size=1, max_size=8))
def test_a_turn_that_was_cancelled_makes_nobody_wait(count: int, stays: list[bool]) -> None:
    """Cancelled turns count as starts no more; those that started do."""

    async def main() -> None:
        pacer = Pacer(Rate(count, 0.02))
        assert all([await pacer.take(0) for _ in range(count)])
        waiting = [asyncio.create_task(pacer.take(60)) for _ in stays]
        await asyncio.sleep(0)
        for task, stay in zip(waiting, stays, strict=True):
            if not stay:
                task.cancel()
        await asyncio.wait(waiting)
        if not any(stays):
            before = time.monotonic()
            assert await pacer.take(0.02)
            assert time.monotonic() - before < 1
        times = list(pacer._starts)
        assert times == sorted(times)
        for first, later in itertools.pairwise(times[::count]):
            assert later - first >= 0.02 - 1e-6

    asyncio.run(main())
