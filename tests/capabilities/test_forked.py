"""A process that is forked after scripts ran: it ends, and is told what it cannot do."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

CODE = """
import os, sys
from substrate import ToolInvoker, Toolbox, ToolCallRequest, run_script_sync, tool

@tool(risk="safe")
def add(a: int) -> int:
    return a + 1

assert run_script_sync("await add(a=1)", tools=[add]).value == 2
child = os.fork()
if child == 0:
    result = run_script_sync("await add(a=2)", tools=[add])
    assert (result.status, result.reason) == ("error", "no_sandbox"), result
    assert "spawn" in result.error
    import asyncio

    async def direct():
        invoker = ToolInvoker(Toolbox([add]))
        async with invoker.open_session() as session:
            return await invoker.invoke(ToolCallRequest("add", {"a": 5}), session=session)

    assert asyncio.run(direct()).structured == 6  # the door needs no sandbox
    sys.exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
assert run_script_sync("await add(a=3)", tools=[add]).value == 4
print("both ended")
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_forked_process_is_told_that_scripts_cannot_run_in_it_and_ends() -> None:
    done = subprocess.run(
        [sys.executable, "-c", CODE], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout.strip()) == (0, "both ended"), done.stderr
