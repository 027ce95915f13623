"""What Monty's modules lack is told before anything runs, and what a script handles is let by."""

from __future__ import annotations

import pytest

from substrate import run_script_sync, tool
from substrate.capabilities.sandboxes.foresight import foreseen

calls: list[int] = []


@tool(risk="safe", effect="pure")
async def note(n: int) -> int:
    calls.append(n)
    return n


@pytest.mark.req("script.not-awaited", "sandbox.contract")
@pytest.mark.parametrize(
    ("late", "line", "way"),
    [
        ("t = asyncio.create_task(note(n=1))", 3, "asyncio.gather"),
        ("await asyncio.wait_for(note(n=1), 1)", 3, "asyncio.gather"),
        ("lock = asyncio.Semaphore(3)", 3, "asyncio.gather"),
        (
            "await asyncio.gather(note(n=1), return_exceptions=True)",
            3,
            "async function of your own",
        ),
        (
            "try:\n    await note(n=1)\nexcept asyncio.TimeoutError:\n    pass",
            5,
            "except TimeoutError",
        ),
        ("try:\n    await asyncio.wait([])\nexcept ValueError:\n    pass", 4, "asyncio.gather"),
    ],
)
def test_what_asyncio_lacks_is_told_before_a_call_is_made(late: str, line: int, way: str) -> None:
    calls.clear()
    result = run_script_sync(f"import asyncio\nawait note(n=0)\n{late}", [note])
    assert (result.reason, calls) == ("unsupported", [])
    assert f"line {line}: " in (result.error or "")
    assert way in (result.error or "")


@pytest.mark.parametrize(
    "code",
    [
        "import asyncio\ntry:\n    asyncio.create_task\n    out = 1\nexcept AttributeError:\n    out = 2\nout",
        "import asyncio\ntry:\n    asyncio.gather(return_exceptions=True)\nexcept Exception:\n    out = 2\nout",
        "class A:\n    create_task = 2\nasyncio = A()\nasyncio.create_task",
        "return_exceptions = 2\nreturn_exceptions",
        "import asyncio\n'asyncio.wait'\n2  # asyncio.wait_for",
        "import asyncio\nawait asyncio.sleep(0)\n[n] = await asyncio.gather(note(n=2))\nn",
    ],
)
def test_what_would_run_is_run(code: str) -> None:
    result = run_script_sync(code, [note])
    assert result.value == 2, result.output_text


@pytest.mark.parametrize(
    "code", ["asyncio.wait(", "asyncio.x\0", "(" * 5000 + "asyncio.x", "asyncio.x\n" * 9]
)
def test_what_the_host_cannot_read_is_let_by(code: str) -> None:
    assert foreseen(code) == []
