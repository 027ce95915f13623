"""200 scripts of one call at once, against sync `feed_run` in as many threads."""

from __future__ import annotations

import asyncio
import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pydantic_monty as monty

from benchmarks.measure import Ratio, interleaved, median, ratio_of
from substrate import Toolbox, ToolChainTool, ToolInvoker, tool
from substrate.capabilities.sandboxes import MontySandbox

SCRIPTS = 200
PROCESSES = 8


@tool(risk="safe")
async def add(a: int) -> int:
    return a + 1


def pss_mb() -> float:
    """Proportional memory of this process and its children, in MB."""
    total, todo = 0, [os.getpid()]
    while todo:
        pid = todo.pop()
        try:
            for line in Path(f"/proc/{pid}/smaps_rollup").read_text("utf-8").splitlines():
                if line.startswith("Pss:"):
                    total += int(line.split()[1])
            for task in Path(f"/proc/{pid}/task").iterdir():
                todo += map(int, (task / "children").read_text("utf-8").split())
        except (FileNotFoundError, ProcessLookupError):
            continue
    return total / 1024


async def run() -> list[Ratio]:
    threads = (os.cpu_count() or 1) + 1
    sandbox = MontySandbox(processes=PROCESSES, threads=threads)
    chain = ToolChainTool(ToolInvoker(Toolbox([add])), sandbox)
    memory: list[float] = []
    with monty.Monty(max_processes=PROCESSES) as pool, ThreadPoolExecutor(threads) as executor:

        def one(number: int) -> None:
            with pool.checkout() as session:
                session.feed_run(f"add({number})", external_lookup={"add": lambda a: a + 1})

        async def ours() -> float:
            begun = time.perf_counter()
            results = await asyncio.gather(
                *(chain.run(f"await add(a={n})") for n in range(SCRIPTS))
            )
            assert {r.status for r in results} == {"ok"}
            taken = time.perf_counter() - begun
            memory.append(pss_mb())
            return SCRIPTS / taken

        async def base() -> float:
            loop = asyncio.get_running_loop()
            begun = time.perf_counter()
            await asyncio.gather(*(loop.run_in_executor(executor, one, n) for n in range(SCRIPTS)))
            return SCRIPTS / (time.perf_counter() - begun)

        async with sandbox:
            measured = await interleaved({"ours": ours, "sync feed_run": base}, 21)
    for name, values in measured.items():
        print(f"  {name:28} {median(values):9.0f} scripts a second")
    return [
        Ratio("rate ÷ sync feed_run", ratio_of(measured, "ours", "sync feed_run"), least=0.9),
        Ratio("memory of all processes", max(memory), most=120, unit=" MB"),
    ]
