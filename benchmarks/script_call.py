"""One call in a script: ours, bare Monty driven the same way, and Monty's async client."""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from typing import Any

import pydantic_monty as monty

from benchmarks.measure import Ratio, interleaved, median, ratio_of
from substrate import ChainPolicy, Toolbox, ToolChainTool, ToolInvoker, tool
from substrate.capabilities.sandboxes import MontySandbox

CALLS = 300
CODE = f"for i in range({CALLS}):\n    x = await add(a=i)\nx"


@tool(risk="safe")
async def add(a: int) -> int:
    return a + 1


class Bare:
    """Bare Monty: a kept thread and one hop to the loop for every call."""

    def __init__(self, pool: monty.Monty) -> None:
        self._pool = pool
        self._todo: queue.SimpleQueue[Any] = queue.SimpleQueue()
        threading.Thread(target=self._work, daemon=True).start()

    def _work(self) -> None:
        while True:
            step, loop, future = self._todo.get()
            result = step()
            loop.call_soon_threadsafe(future.set_result, result)

    async def _in_thread(self, step: Any) -> Any:
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        self._todo.put((step, loop, future))
        return await future

    async def run(self) -> None:
        session = await self._in_thread(lambda: self._pool.checkout().__enter__())
        snapshot = await self._in_thread(lambda: session.feed_start(CODE))
        while not isinstance(snapshot, monty.MontyComplete):
            snapshot, calls = await self._in_thread(lambda s=snapshot: self._to_block(s))
            if isinstance(snapshot, monty.MontyComplete):
                break
            answers = {i: {"return_value": await add(**kwargs)} for i, kwargs in calls}
            snapshot = await self._in_thread(lambda s=snapshot, a=answers: s.resume(a))
        await self._in_thread(lambda: session.__exit__(None, None, None))

    def _to_block(self, snapshot: Any) -> Any:
        calls: list[Any] = []
        while isinstance(snapshot, monty.FunctionSnapshot):
            calls.append((snapshot.call_id, snapshot.kwargs))
            snapshot = snapshot.resume({"future": ...})
        return snapshot, calls


async def run() -> list[Ratio]:
    sandbox = MontySandbox(processes=4)
    invoker = ToolInvoker(Toolbox([add]), policy=ChainPolicy(max_tool_calls=CALLS))
    chain = ToolChainTool(invoker, sandbox)
    with monty.Monty(max_processes=1) as pool:
        async with sandbox, monty.AsyncMonty(max_processes=1) as client:
            bare = Bare(pool)

            async def ours() -> float:
                begun = time.perf_counter()
                result = await chain.run(CODE)
                assert result.status == "ok", result.output_text
                return (time.perf_counter() - begun) / CALLS * 1e6

            async def same_way() -> float:
                begun = time.perf_counter()
                await bare.run()
                return (time.perf_counter() - begun) / CALLS * 1e6

            async def async_client() -> float:
                begun = time.perf_counter()
                async with client.checkout() as session:
                    await session.feed_run(CODE, external_lookup={"add": add.function})
                return (time.perf_counter() - begun) / CALLS * 1e6

            works = {"ours": ours, "bare Monty": same_way, "AsyncMonty.feed_run": async_client}
            measured = await interleaved(works, 9)
    for name in works:
        print(f"  {name:28} {median(measured[name]):9.1f} µs a call")
    return [
        Ratio("in-script call ÷ bare Monty", ratio_of(measured, "ours", "bare Monty"), most=1.4),
        Ratio(
            "… ÷ AsyncMonty.feed_run", ratio_of(measured, "ours", "AsyncMonty.feed_run"), most=1.0
        ),
    ]
