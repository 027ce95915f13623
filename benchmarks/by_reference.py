"""20 MB of text from one tool to the next by reference, against what it takes at the least."""

from __future__ import annotations

import asyncio
import hashlib
import time

from benchmarks.measure import Ratio, interleaved, median, ratio_of
from substrate import InMemoryBlobStore, Toolbox, ToolCallRequest, ToolInvoker, tool

TEXTS = {"ASCII": "a" * 20_000_000, "not ASCII": "ü" * 10_000_000}
MOST = {"ASCII": 1.6, "not ASCII": 2.0}


async def run() -> list[Ratio]:
    return [ratio for kind in TEXTS for ratio in await _one(kind, TEXTS[kind])]


async def _one(kind: str, text: str) -> list[Ratio]:
    lags: list[float] = []

    @tool(risk="safe")
    async def make() -> str:
        return text

    @tool(risk="safe")
    async def take(text: str) -> int:
        return len(text)

    invoker = ToolInvoker(Toolbox([make, take]), None, InMemoryBlobStore())

    async def tick() -> None:
        while True:
            before = time.perf_counter()
            await asyncio.sleep(0.001)
            lags.append((time.perf_counter() - before - 0.001) * 1000)

    async def ours() -> float:
        ticker = asyncio.create_task(tick())
        async with invoker.open_session() as session:
            begun = time.perf_counter()
            made = await invoker.invoke(ToolCallRequest("make"), session=session)
            ref = {"$artifact": made.artifact_ref}
            taken = await invoker.invoke(ToolCallRequest("take", {"text": ref}), session=session)
            spent = time.perf_counter() - begun
        ticker.cancel()
        assert taken.structured == len(text)
        return spent * 1000

    async def least() -> float:
        begun = time.perf_counter()
        data = text.encode()
        hashlib.sha256(data).hexdigest()
        data.decode()
        return (time.perf_counter() - begun) * 1000

    measured = await interleaved({"ours": ours, "encode + sha256 + decode": least}, 15)
    for name, values in measured.items():
        print(f"  {kind + ', ' + name:28} {median(values):9.1f} ms")
    lag = sorted(lags)[int(len(lags) * 0.99)]
    return [
        Ratio(
            f"{kind} by reference",
            ratio_of(measured, "ours", "encode + sha256 + decode"),
            MOST[kind],
        ),
        Ratio(f"{kind}: lag of the loop (99 %)", lag, most=20, unit=" ms"),
    ]
