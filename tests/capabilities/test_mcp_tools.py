"""Tool lists of real MCP servers go in, through the gates, and back unchanged.

SUBSTRATE_CASES names a folder whose `mcp_tools/*.json` each hold a server's `tools`.
"""

from __future__ import annotations

import ast
import asyncio
import json
import os
import warnings
from pathlib import Path
from typing import Any

import pytest

from schema_values import Echo, made
from substrate.agents.tools.invoker import ToolInvoker
from substrate.agents.tools.toolbox import Toolbox
from substrate.capabilities.tools.chain import ToolChainTool
from substrate.kernel.tools.chain import ChainPolicy
from substrate.kernel.tools.tools import ToolCallRequest
from substrate.scripts import run_script

CASES = os.environ.get("SUBSTRATE_CASES")
LISTS = sorted((Path(CASES) / "mcp_tools").glob("*.json")) if CASES else []
POLICY = ChainPolicy(max_tool_calls=1000, max_inline_result_bytes=1_000_000)

pytestmark = [
    pytest.mark.skipif(not LISTS, reason="SUBSTRATE_CASES names no lists of tools"),
    pytest.mark.parametrize("path", LISTS, ids=lambda path: path.stem),
]


# the lists -------------------------------------------------------------------------------


def read(path: Path) -> list[Echo]:
    return [
        Echo(
            told["name"],
            told.get("description") or "",
            told["inputSchema"],
            told.get("outputSchema"),
        )
        for told in json.loads(path.read_text("utf-8"))["tools"]
    ]


def calls(tools: list[Echo]) -> list[tuple[Echo, dict[str, Any]]]:
    return [
        (tool, made(tool.input_schema, tool.input_schema, whole=whole))
        for tool in tools
        for whole in (False, True)
    ]


@pytest.mark.req("mcp.lists")
def test_every_tool_goes_into_a_toolbox_and_is_told_as_the_server_told_it(path: Path) -> None:
    tools = read(path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        box = Toolbox(tools)
        told = [schema["function"] for schema in box.schemas()]
    assert told == [
        {"name": t.name, "description": t.description, "parameters": t.input_schema} for t in tools
    ]


@pytest.mark.req("mcp.lists")
def test_every_tool_has_a_stub_that_is_python(path: Path) -> None:
    box = Toolbox(read(path))
    stubs = ToolChainTool(ToolInvoker(box)).stubs()
    found = {
        node.name: node for node in ast.parse(stubs).body if isinstance(node, ast.AsyncFunctionDef)
    }
    assert list(found) == list(box.identifiers().values())
    for raw, identifier in box.identifiers().items():
        traits = box.traits(raw)
        assert traits is not None
        arguments = found[identifier].args
        named = [arg.arg for arg in arguments.args]
        assert arguments.kwarg is not None or set(named) == set(traits.positional)
        doc = ast.get_docstring(found[identifier])
        assert doc is not None
        words = (traits.description or raw).split()
        assert doc.split()[: len(words)] == words


@pytest.mark.req("mcp.lists")
def test_every_tool_is_called_and_its_arguments_come_back_unchanged(path: Path) -> None:
    tools = read(path)

    async def main() -> None:
        invoker = ToolInvoker(Toolbox(tools), policy=POLICY)
        async with invoker.open_session() as session:
            for tool, arguments in calls(tools):
                result = await invoker.invoke(
                    ToolCallRequest(tool.name, arguments), session=session
                )
                assert result.status == "ok", (tool.name, arguments, result.text)
                assert result.structured == {"given": arguments}
            assert all(record.repaired == () for record in session.trace)

    asyncio.run(main())


@pytest.mark.req("mcp.lists")
def test_every_tool_is_called_in_a_script_and_its_arguments_come_back_unchanged(
    path: Path,
) -> None:
    tools = read(path)
    names = Toolbox(tools).identifiers()
    sent = [(names[t.name], made(t.input_schema, t.input_schema, whole=True)) for t in tools]
    script = "found = []\n" + "".join(
        f"found.append(await {name}(**{arguments!r}))\n" for name, arguments in sent
    )
    result = asyncio.run(run_script(script + "found", tools, policy=POLICY))
    assert result.status == "ok", result.output_text
    assert result.value == [{"given": arguments} for _, arguments in sent]
