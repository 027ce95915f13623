"""What a script costs beside what it does: a warm start, a gather, the type check."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

import pydantic_monty as monty

from benchmarks.measure import Ratio, interleaved, median, ratio_of
from substrate import ChainPolicy, Toolbox, ToolChainTool, ToolInvoker, tool
from substrate.capabilities.sandboxes import MontySandbox
from substrate.capabilities.sandboxes.checker import Checker
from substrate.kernel.sandbox import Script

SIDE_BY_SIDE = 100
WAIT_S = 0.01
REPEATS = 30


@tool(risk="safe")
async def add(a: int) -> int:
    return a + 1


@tool(risk="safe")
async def wait(n: int) -> int:
    await asyncio.sleep(WAIT_S)
    return n


async def each(work: Callable[[], Awaitable[object]]) -> float:
    """Microseconds of one of many in a row."""
    begun = time.perf_counter()
    for _ in range(REPEATS):
        await work()
    return (time.perf_counter() - begun) / REPEATS * 1e6


async def run() -> list[Ratio]:
    sandbox = MontySandbox(processes=2)
    policy = ChainPolicy(max_tool_calls=1000, max_parallel_calls=SIDE_BY_SIDE)
    chain = ToolChainTool(ToolInvoker(Toolbox([add, wait]), policy=policy), sandbox)
    gathered = (
        f"import asyncio\nlen(await asyncio.gather(*[wait(n=n) for n in range({SIDE_BY_SIDE})]))"
    )
    with monty.Monty(max_processes=2) as pool:

        def one() -> None:
            with pool.checkout() as session:
                session.feed_run("add(1)", external_lookup={"add": lambda a: a + 1})

        async def ours() -> float:
            return await each(lambda: chain.run("await add(a=1)"))

        async def base() -> float:
            return await each(lambda: asyncio.to_thread(one))

        async def gather() -> float:
            begun = time.perf_counter()
            result = await chain.run(gathered)
            assert result.value == SIDE_BY_SIDE, result.output_text
            return (time.perf_counter() - begun) * 1e3

        async def in_process() -> float:
            begun = time.perf_counter()
            await asyncio.gather(*(asyncio.sleep(WAIT_S) for _ in range(SIDE_BY_SIDE)))
            return (time.perf_counter() - begun) * 1e3

        async with sandbox:
            warm = await interleaved({"ours": ours, "feed_run in a thread": base}, 15)
            wide = await interleaved({"ours": gather, "in process": in_process}, 15)
    for name, values in warm.items():
        print(f"  one call, {name:28} {median(values):9.0f} µs")
    for name, values in wide.items():
        print(f"  gather, {name:28} {median(values):9.1f} ms")
    return [
        Ratio("one-call script ÷ feed_run", ratio_of(warm, "ours", "feed_run in a thread"), 1.4),
        Ratio("gather of 100 ÷ in process", ratio_of(wide, "ours", "in process"), 1.7),
        Ratio("type check", await asyncio.to_thread(_check_ms), 3, unit=" ms"),
    ]


def _check_ms() -> float:
    """The middle of 80 checks in a kept session, which is renewed meanwhile."""
    stubs = "".join(
        f"async def tool_{n}(a: int, b: str = ...) -> list[int]: ...\n" for n in range(50)
    )
    tools = {f"tool_{n}": f"tool_{n}" for n in range(50)}
    checker = Checker()
    taken: list[float] = []
    for number in range(80):
        code = f"rows = await tool_{number % 50}(a={number})\ntotal = 0\nfor row in rows:\n    total += row\ntotal"
        begun = time.perf_counter()
        assert checker.check(Script(code=code, tools=tools, stubs=stubs)) == []
        taken.append((time.perf_counter() - begun) * 1e3)
    checker.close()
    return median(taken)
