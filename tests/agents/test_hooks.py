"""Observers are told, bounded in time, and change nothing."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Mapping
from typing import Any

import pytest

from substrate import HookEvent, HookManager

CONTEXT = {"tool_name": "t", "call_id": "c"}


def dispatched(hooks: HookManager, times: int = 1) -> None:
    async def main() -> None:
        async with asyncio.timeout(10):
            for _ in range(times):
                await hooks.dispatch(HookEvent.TOOL_START, CONTEXT)

    asyncio.run(main())


@pytest.mark.req("S42")
def test_async_observers_are_told_in_the_order_of_registration() -> None:
    hooks, told = HookManager(), list[str]()

    @hooks.on(HookEvent.TOOL_START)
    async def first(context: Mapping[str, Any]) -> None:
        told.append(f"first {context['tool_name']}")

    @hooks.on("tool_start")
    async def second(context: Mapping[str, Any]) -> None:
        told.append("second")

    dispatched(hooks)
    assert told == ["first t", "second"]
    assert first is not second


@pytest.mark.req("hooks.sync")
def test_sync_observers_run_in_order_on_one_other_thread_and_are_drained_at_close() -> None:
    hooks, told = HookManager(), list[tuple[int, int]]()
    for number in range(3):
        hooks.register(
            HookEvent.TOOL_START,
            lambda _, number=number: told.append((number, threading.get_ident())),
        )
    dispatched(hooks, 2)
    hooks.close()
    assert [number for number, _ in told] == [0, 1, 2, 0, 1, 2]
    (thread,) = {thread for _, thread in told}
    assert thread != threading.get_ident()


def test_a_sync_observer_that_blocks_holds_up_no_call() -> None:
    hooks, release = HookManager(), threading.Event()

    def block(_: Mapping[str, Any]) -> None:
        release.wait(10)

    hooks.register(HookEvent.TOOL_START, block)
    begun = time.monotonic()
    dispatched(hooks, 3)
    assert time.monotonic() - begun < 5  # one of them alone would block for ten
    release.set()
    hooks.close()


@pytest.mark.req("hooks.bounded")
def test_observers_that_hang_are_given_up_together(caplog: pytest.LogCaptureFixture) -> None:
    hooks, told = HookManager(patience_s=0.05), list[str]()

    async def hang(_: Mapping[str, Any]) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            told.append("cancelled")
            raise

    async def slow(_: Mapping[str, Any]) -> None:
        await asyncio.sleep(0)
        told.append("slow")

    for _ in range(2):
        hooks.register(HookEvent.TOOL_START, hang)
    hooks.register(HookEvent.TOOL_START, slow)
    with caplog.at_level(logging.WARNING):
        dispatched(hooks, 2)
    assert told.count("cancelled") == 4
    assert told.count("slow") >= 1
    assert "given up" in caplog.text


@pytest.mark.parametrize("error", [ValueError("x"), SystemExit(1), asyncio.CancelledError()])
def test_what_an_observer_raises_changes_nothing(error: BaseException) -> None:
    hooks, told = HookManager(), list[str]()

    async def fail(_: Mapping[str, Any]) -> None:
        raise error

    async def after(_: Mapping[str, Any]) -> None:
        told.append("after")

    hooks.register(HookEvent.TOOL_START, fail)
    hooks.register(HookEvent.TOOL_START, after)
    dispatched(hooks)
    assert told == ["after"]


def test_an_observer_cannot_change_the_context() -> None:
    hooks, seen = HookManager(), list[str]()

    async def change(context: Any) -> None:
        context["tool_name"] = "other"

    async def read(context: Mapping[str, Any]) -> None:
        seen.append(context["tool_name"])

    hooks.register(HookEvent.TOOL_START, change)
    hooks.register(HookEvent.TOOL_START, read)
    dispatched(hooks)
    assert seen == ["t"]


@pytest.mark.req("hooks.register")
def test_observers_can_be_removed_one_by_one_and_all() -> None:
    hooks, told = HookManager(), list[str]()

    async def one(_: Mapping[str, Any]) -> None:
        told.append("one")

    async def two(_: Mapping[str, Any]) -> None:
        told.append("two")

    hooks.register(HookEvent.TOOL_START, one)
    hooks.register(HookEvent.TOOL_START, two)
    hooks.unregister(HookEvent.TOOL_START, one)
    hooks.unregister(HookEvent.TOOL_END, one)
    dispatched(hooks)
    hooks.clear()
    dispatched(hooks)
    assert told == ["two"]


def test_what_is_no_function_is_refused_when_registered() -> None:
    with pytest.raises(TypeError, match="function of one mapping"):
        HookManager().register(HookEvent.TOOL_START, "no")  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="nonsense"):
        HookManager().register("nonsense", print)
