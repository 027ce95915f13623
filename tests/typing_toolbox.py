"""What a type checker must accept; `pyright` reads this file and nothing runs it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, assert_type

from substrate import Toolbox, ToolChainTool, ToolExecutionResult, ToolInvoker, tool
from substrate.kernel.context import RunContext
from substrate.kernel.tools.tools import (
    AnyTool,
    HostedTool,
    ProviderDefinedTool,
    Tool,
    ToolRegistry,
)


class Weather:
    """A tool that names its own arguments."""

    @property
    def name(self) -> str:
        return "weather"

    @property
    def description(self) -> str:
        return ""

    @property
    def input_schema(self) -> Mapping[str, Any]:
        return {"properties": {"city": {"type": "string"}}, "required": ["city"]}

    async def execute(self, *, city: str, ctx: RunContext | None = None) -> ToolExecutionResult:
        return ToolExecutionResult((), city)


class Bare:
    """A tool with plain attributes that takes whatever comes."""

    def __init__(self) -> None:
        self.name = "bare"
        self.description = ""
        self.input_schema = {"type": "object"}

    async def execute(self, **kwargs: Any) -> ToolExecutionResult:
        return ToolExecutionResult((), kwargs)


class Search:
    name = "search"

    @property
    def provider_specs(self) -> Mapping[str, Any]:
        return {}


class Editor(Search):
    call_types: Sequence[str] = ("edit",)

    async def handle_call(
        self, *, command: str, ctx: RunContext | None = None
    ) -> ToolExecutionResult:
        return ToolExecutionResult((), command)


@tool
def bare(a: int) -> str:
    return str(a)


@tool(risk="high", effect="once", timeout=5)
async def full(a: int, *, b: str = "") -> str:
    return b * a


def plain_function(a: int) -> int:
    return a


registry: ToolRegistry = Toolbox()
local: list[Tool] = [Weather(), Bare(), bare, full, ToolChainTool(ToolInvoker(registry))]
hosted: HostedTool = Search()
provider: ProviderDefinedTool = Editor()
every: list[AnyTool] = [*local, hosted, provider]
box = Toolbox([Weather(), bare, full, plain_function, hosted, provider])
invoker = ToolInvoker(box)

assert_type(bare(1), str)
assert_type(box.get("bare"), AnyTool | None)
assert_type(box.all(), list[AnyTool])
