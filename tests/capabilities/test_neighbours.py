"""Scripts that hold a thread, a checker or a queue do not hold up their neighbours."""

from __future__ import annotations

import asyncio
import threading

import pytest

from substrate import ChainPolicy, Toolbox, ToolChainTool, ToolInvoker, tool
from substrate.capabilities.sandboxes import MontySandbox
from substrate.capabilities.sandboxes.workers import Workers
from substrate.kernel.tools.chain import ChainRunResult

LONG_S = 20.0


@tool(risk="safe", effect="pure")
async def add(a: int, b: int) -> int:
    return a + b


@tool(risk="safe", effect="once")
async def send(to: str) -> str:
    return to


def test_threads_that_long_steps_hold_are_made_up_for_and_then_let_go() -> None:
    async def main() -> None:
        release = threading.Event()
        workers = Workers(2, lambda: None, most=5)
        held = [workers.run(lambda: release.wait(LONG_S)) for _ in range(4)]
        async with asyncio.timeout(LONG_S):
            assert await workers.run(lambda: "through") == "through"
            release.set()
            await asyncio.gather(*held)
            await asyncio.gather(*[workers.run(lambda: None) for _ in range(20)])
        names = [thread.name for thread in threading.enumerate()]
        assert names.count("substrate-sandbox") <= before + 5
        workers.close()

    before = [thread.name for thread in threading.enumerate()].count("substrate-sandbox")
    asyncio.run(main())


@pytest.mark.req("invariant.9", "sandbox.limits")
def test_scripts_that_compute_on_hold_up_no_other_and_no_cancellation() -> None:
    async def main() -> None:
        async with MontySandbox(processes=8, threads=2) as sandbox:
            invoker = ToolInvoker(Toolbox([add]), policy=ChainPolicy(total_timeout_s=LONG_S))
            chain = ToolChainTool(invoker, sandbox)

            async def spin() -> ChainRunResult:
                return await chain.run("while True:\n    pass")

            spinning = [asyncio.create_task(spin()) for _ in range(5)]
            async with asyncio.timeout(LONG_S / 2):
                while any(task.get_stack(limit=1) == [] for task in spinning):
                    await asyncio.sleep(0)
                assert (await chain.run("await add(a=1, b=2)")).value == 3
                for task in spinning:
                    task.cancel()
                await asyncio.wait(spinning)
                assert all(task.cancelled() for task in spinning)
                assert (await chain.run("await add(a=1, b=2)")).value == 3

    asyncio.run(main())


@pytest.mark.req("script.type-check", "invariant.9")
def test_a_script_that_the_type_checker_cannot_end_is_run_unchecked_and_the_next_is_checked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from substrate.capabilities.sandboxes import monty

    monkeypatch.setattr(monty, "_LONGEST_CHECK_S", 0.5)
    hard = "a=1;b=2;c=3\nwhile a:\n"
    hard += "".join(f"  a,b,c=(b,{i}),(c,a),(a,b)\n" for i in range(30))
    hard = f"async def never():\n  {hard.replace(chr(10), chr(10) + '  ')}\nawait send(to='a')"

    async def main() -> None:
        async with MontySandbox() as sandbox, asyncio.timeout(LONG_S):
            chain = ToolChainTool(ToolInvoker(Toolbox([send])), sandbox)
            assert (await chain.run(hard)).value == "a"
            wrong = await chain.run("await send(to=1)")
            assert wrong.reason == "type_check", wrong.output_text

    asyncio.run(main())


@pytest.mark.req("invariant.2", "script.budget-ends")
def test_no_more_calls_are_started_than_tell_that_the_budget_is_spent() -> None:
    running: list[int] = []

    @tool(risk="safe", effect="pure")
    async def note(n: int) -> int:
        running.append(len(asyncio.all_tasks()))
        await asyncio.sleep(0)
        return n

    async def main() -> ChainRunResult:
        policy = ChainPolicy(max_tool_calls=20)
        chain = ToolChainTool(ToolInvoker(Toolbox([note]), policy=policy))
        code = "import asyncio\nawait asyncio.gather(*[note(n=n) for n in range(20_000)])"
        return await chain.run(code)

    result = asyncio.run(main())
    assert (result.reason, len(running)) == ("budget", 20)
    assert max(running) < 100
