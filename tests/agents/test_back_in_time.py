"""A call is back by its deadline, its grace and the named bounds of what hangs."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from substrate import (
    ApprovalDecision,
    ChainPolicy,
    HookEvent,
    HookManager,
    InMemoryBlobStore,
    TextBlock,
    Toolbox,
    ToolCallRequest,
    ToolExecutionResult,
    ToolInvoker,
    tool,
)
from substrate.agents.tools import approvals, gates, shaping
from substrate.agents.tools.deadline import GRACE_S
from substrate.agents.tools.gates import Cleared
from substrate.kernel.blobs import BlobData
from substrate.kernel.hooks import ProgressStep

CALL_S = 0.05
STEP_S = 0.1
"""Stands for the five seconds of a guard, a sink or a store, so that the test is quick."""
SPARE_S = 1.0
"""For a busy machine; a wait that nobody bounds lasts far longer."""
FOREVER_S = 30.0

release = threading.Event()


async def hang() -> None:
    """Waits, whatever is done to it."""
    until = time.monotonic() + FOREVER_S
    while not release.is_set() and time.monotonic() < until:
        try:
            await asyncio.sleep(0.01)
        except asyncio.CancelledError:
            continue


async def _tool(how: str) -> None:
    match how:
        case "hangs":
            await asyncio.Event().wait()
        case "swallows":
            await hang()
        case "tidies for long":
            try:
                await asyncio.Event().wait()
            finally:
                await hang()
        case "own timeout":
            async with asyncio.timeout(FOREVER_S):
                await asyncio.Event().wait()
        case "task group":
            async with asyncio.TaskGroup() as group:
                group.create_task(hang())
        case "thread":
            await asyncio.to_thread(release.wait, FOREVER_S)
        case _:
            return


class Hanging:
    """An approver, a guard, a sink, an observer and a store that hang where they are told to."""

    def __init__(self, where: set[str]) -> None:
        self.where = where

    async def at(self, place: str) -> None:
        if place in self.where:
            await hang()

    async def request(self, req: Any, /) -> ApprovalDecision:
        await self.at("approver")
        return ApprovalDecision.APPROVED

    async def check(self, cleared: Cleared, /) -> None:
        await self.at("guard")

    async def sink(self, step: ProgressStep) -> None:
        await self.at("sink")

    async def observe(self, context: Mapping[str, Any]) -> None:
        await self.at("observer")


class HangingStore(InMemoryBlobStore):
    def __init__(self, hanging: Hanging) -> None:
        super().__init__()
        self.hanging = hanging

    async def put(self, data: BlobData, media_type: str | None = None) -> str:
        await self.hanging.at("store")
        return await super().put(data, media_type)


PLACES = ["approver", "guard", "sink", "observer", "store"]
TOOLS = ["returns", "hangs", "swallows", "tidies for long", "own timeout", "task group", "thread"]


def bound_s(how: str, where: set[str]) -> float:
    """What is promised."""
    bound = GRACE_S
    bound += STEP_S + GRACE_S if "approver" in where else 0
    bound += STEP_S + GRACE_S if "guard" in where else 0
    bound += CALL_S if how != "returns" else 0
    bound += 2 * (STEP_S + GRACE_S) if "sink" in where else 0
    bound += 2 * (STEP_S + GRACE_S) if "observer" in where else 0
    return bound + (2 * (STEP_S + GRACE_S) if "store" in where else 0)


@pytest.fixture
def quick_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shaping, "STEP_S", STEP_S)
    monkeypatch.setattr(approvals, "STEP_S", STEP_S)
    monkeypatch.setattr(gates, "STEP_S", STEP_S)


@pytest.mark.req("invariant.4")
@pytest.mark.usefixtures("quick_steps")
@settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(st.sampled_from(TOOLS), st.sets(st.sampled_from(PLACES), max_size=3))
def test_a_call_is_back_in_time_whatever_hangs(how: str, where: set[str]) -> None:
    @tool(risk="high")
    async def act() -> ToolExecutionResult:
        await _tool(how)
        return ToolExecutionResult([TextBlock("x" * 9000)])

    hanging = Hanging(where)
    hooks = HookManager(patience_s=STEP_S)
    hooks.register(HookEvent.TOOL_START, hanging.observe)
    hooks.register(HookEvent.TOOL_END, hanging.observe)
    policy = ChainPolicy(call_timeout_s=CALL_S, approval_timeout_s=STEP_S)
    invoker = ToolInvoker(
        Toolbox([act]), hanging, HangingStore(hanging), policy, hooks, guards=(hanging,)
    )

    async def main() -> float:
        release.clear()
        async with invoker.open_session() as session:
            begun = time.monotonic()
            result = await invoker.invoke(
                ToolCallRequest("act"), session=session, progress_sink=hanging.sink
            )
            spent = time.monotonic() - begun
            assert len(session.trace) == 1
            refused = where & {"approver", "guard"}
            assert result.ran == ("no" if refused else "yes" if how == "returns" else "unknown")
        release.set()  # what was given up ends now, and with it the loop
        async with asyncio.timeout(FOREVER_S):
            while len(asyncio.all_tasks()) > 1:
                await asyncio.sleep(0.01)
        return spent

    assert asyncio.run(main()) < bound_s(how, where) + SPARE_S
