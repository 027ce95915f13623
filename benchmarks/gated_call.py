"""One gated SAFE call of a tool that does not suspend: all gates, two observers, one record."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Any

from benchmarks.measure import Ratio, interleaved, median, ratio_of
from substrate import (
    ChainPolicy,
    HookEvent,
    HookManager,
    TextBlock,
    Toolbox,
    ToolCallRequest,
    ToolExecutionResult,
    ToolInvoker,
)

CALLS = 2000
RESULT = ToolExecutionResult([TextBlock("hello")])


class Greet:
    name = "greet"
    description = "Says hello."
    risk = "safe"
    input_schema: Mapping[str, Any] = {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "string"}},
        "required": ["a"],
    }

    async def execute(self, **_: Any) -> ToolExecutionResult:
        return RESULT


async def observe(_: Mapping[str, Any]) -> None:
    return


async def run() -> list[Ratio]:
    greet, hooks = Greet(), HookManager()
    hooks.register(HookEvent.TOOL_START, observe)
    hooks.register(HookEvent.TOOL_END, observe)
    invoker = ToolInvoker(Toolbox([greet]), hooks=hooks)
    policy = ChainPolicy(max_tool_calls=CALLS)

    async def gated() -> float:
        calls = [ToolCallRequest("greet", {"a": 1, "b": "x"}) for _ in range(CALLS)]
        async with invoker.open_session(policy=policy) as session:
            begun = time.perf_counter()
            for call in calls:
                await invoker.invoke(call, session=session)
            return (time.perf_counter() - begun) / CALLS * 1e6

    async def task_and_wait() -> float:
        begun = time.perf_counter()
        for _ in range(CALLS):
            task = asyncio.create_task(greet.execute(a=1, b="x"))
            await asyncio.wait((task,), timeout=60)
            task.result()
        return (time.perf_counter() - begun) / CALLS * 1e6

    async def raw() -> float:
        begun = time.perf_counter()
        for _ in range(CALLS):
            await greet.execute(a=1, b="x")
        return (time.perf_counter() - begun) / CALLS * 1e6

    works = {"gated": gated, "task + wait": task_and_wait, "raw await": raw}
    measured = await interleaved(works, 21)
    for name in works:
        print(f"  {name:28} {median(measured[name]):9.2f} µs a call")
    return [Ratio("gated call ÷ task + wait", ratio_of(measured, "gated", "task + wait"), most=1.0)]
