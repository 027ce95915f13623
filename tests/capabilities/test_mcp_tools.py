"""Tool lists of real MCP servers go in, through the gates, and back unchanged.

SUBSTRATE_CASES names a folder whose `mcp_tools/*.json` each hold a server's `tools`.
"""

from __future__ import annotations

import ast
import asyncio
import json
import os
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import jsonschema_rs
import pytest

from substrate.agents.tools.invoker import ToolInvoker
from substrate.agents.tools.toolbox import Toolbox
from substrate.capabilities.tools.chain import ToolChainTool
from substrate.kernel.content import TextBlock
from substrate.kernel.tools.chain import ChainPolicy
from substrate.kernel.tools.tools import ToolCallRequest, ToolExecutionResult
from substrate.scripts import run_script

CASES = os.environ.get("SUBSTRATE_CASES")
LISTS = sorted((Path(CASES) / "mcp_tools").glob("*.json")) if CASES else []
POLICY = ChainPolicy(max_tool_calls=1000, max_inline_result_bytes=1_000_000)

pytestmark = [
    pytest.mark.skipif(not LISTS, reason="SUBSTRATE_CASES names no lists of tools"),
    pytest.mark.parametrize("path", LISTS, ids=lambda path: path.stem),
]


class Echo:
    """A tool of a server, which gives its arguments back."""

    risk = "safe"

    def __init__(self, told: Mapping[str, Any]) -> None:
        self.name: str = told["name"]
        self.description: str = told.get("description") or ""
        self.input_schema: dict[str, Any] = told["inputSchema"]
        self.output_schema: dict[str, Any] | None = told.get("outputSchema")

    async def execute(self, *, ctx: object = None, **kwargs: Any) -> ToolExecutionResult:
        properties = self.input_schema.get("properties", {})
        renamed = {"ctx_": "ctx", "self_": "self"}
        given = {
            renamed[key] if key in renamed and key not in properties else key: value
            for key, value in kwargs.items()
        }
        return ToolExecutionResult((TextBlock("said"),), {"given": given})


# arguments from a schema -----------------------------------------------------------------

FORMATS = {
    "uuid": "12345678-1234-4234-8234-123456789abc",
    "uri": "https://example.test/a?b=c",
    "json": '{"a": [1]}',
    "date": "2024-02-29",
    "date-time": "2024-02-29T12:00:00Z",
    "email": "a@example.test",
}
WORDS = 'a "b" {"c": 1} \\n ä 搜\n'


def made(schema: Any, root: Mapping[str, Any], *, whole: bool, depth: int = 0) -> Any:
    """A value that fits `schema`; `whole` also fills what is not required, some levels deep."""
    if not isinstance(schema, Mapping) or not schema:
        return WORDS
    part = cast("Mapping[str, Any]", schema)
    if "$ref" in part:
        place: Any = root
        for step in str(part["$ref"]).removeprefix("#").strip("/").split("/"):
            place = place[step.replace("~1", "/").replace("~0", "~")] if step else place
        return made(place, root, whole=whole, depth=depth)
    if "const" in part:
        return part["const"]
    if "enum" in part:
        return part["enum"][-1]
    for word in ("anyOf", "oneOf"):
        if word in part:
            rest = {k: v for k, v in part.items() if k not in {word, "default"}}
            options = [option for option in part[word] if option != {"type": "null"}]
            values = [made({**rest, **o}, root, whole=whole, depth=depth) for o in options]
            fitting = [v for v in values if fits(v, part, root)]
            return fitting[0] if fitting else values[0]
    kinds: Any = part.get("type", "object" if "properties" in part else "string")
    kind: Any = cast("list[str]", kinds)[0] if isinstance(kinds, list) else kinds
    if kind == "object":
        return an_object(part, root, whole=whole, depth=depth)
    if kind == "array":
        count = max(part.get("minItems", 0), 1 if whole and depth < 4 else 0)
        return [made(part.get("items"), root, whole=whole, depth=depth + 1) for _ in range(count)]
    if kind in {"integer", "number"}:
        least = part.get("minimum", part.get("exclusiveMinimum", 0) + 1)
        return min(least + 1, part.get("maximum", least + 1))
    if kind == "string":
        text = FORMATS.get(part.get("format", ""), WORDS)
        if "pattern" in part:
            text = next(
                t for t in (*FORMATS.values(), "2024-02-29", "#a1b2c3") if fits(t, part, root)
            )
        return text
    return {"boolean": True, "null": None}[kind]


def an_object(
    part: Mapping[str, Any], root: Mapping[str, Any], *, whole: bool, depth: int
) -> dict[str, Any]:
    required = set(part.get("required", ()))
    wanted = {
        key: value
        for key, value in part.get("properties", {}).items()
        if key in required or (whole and depth < 4)
    }
    return {key: made(v, root, whole=whole, depth=depth + 1) for key, v in wanted.items()}


def fits(value: Any, part: Mapping[str, Any], root: Mapping[str, Any]) -> bool:
    schema = {**{k: v for k, v in root.items() if k in {"$defs", "definitions"}}, **part}
    return jsonschema_rs.is_valid(schema, value)


# the lists -------------------------------------------------------------------------------


def read(path: Path) -> list[Echo]:
    return [Echo(told) for told in json.loads(path.read_text("utf-8"))["tools"]]


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
