"""What a tool is: the taxonomy, its risk and effect, a call and its raw result.

Three kinds lie side by side in a registry (`AnyTool`): a `Tool` runs here, a
`HostedTool` runs at the model's provider, a `ProviderDefinedTool` is described
by the provider and run here by `handle_call`. Optional members of a tool are
listed in `Tool`'s docstring and read in one place, `agents.tools.traits`.
"""

from __future__ import annotations

import enum
import itertools
import os
import secrets
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeAlias, TypeGuard, cast, runtime_checkable

import msgspec

from substrate.kernel.content import ContentBlock, TextBlock
from substrate.kernel.context import RunContext

__all__ = [
    "AnyTool",
    "CallSite",
    "FunctionSpec",
    "HostedTool",
    "ProviderDefinedTool",
    "ProviderSpec",
    "Tool",
    "ToolCallRequest",
    "ToolEffect",
    "ToolExecutionResult",
    "ToolRegistry",
    "ToolRisk",
    "ToolSpec",
    "is_hosted_tool",
    "is_provider_defined_tool",
    "new_call_id",
    "spec_of",
]


class ToolRisk(enum.IntEnum):
    """How dangerous a call is: SAFE 0 < HIGH 1 < CRITICAL 2. Also by name: `ToolRisk("high")`."""

    SAFE = 0
    HIGH = 1
    CRITICAL = 2

    @classmethod
    def _missing_(cls, value: object) -> ToolRisk | None:
        return cls.__members__.get(value.upper()) if isinstance(value, str) else None


class ToolEffect(enum.StrEnum):
    """What running a tool again means.

    `pure`: it may run again. `idempotent`: it may run again with the same
    idempotency key. `once`: it may be started at most once.
    """

    PURE = "pure"
    IDEMPOTENT = "idempotent"
    ONCE = "once"

    @classmethod
    def _missing_(cls, value: object) -> ToolEffect | None:
        return cls.__members__.get(value.upper()) if isinstance(value, str) else None


_counter = itertools.count(1)
_prefix = secrets.token_hex(5)


def _renew_prefix() -> None:
    global _prefix  # noqa: PLW0603  # a forked child must not hand out its parent's ids
    _prefix = secrets.token_hex(5)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_prefix)


def new_call_id() -> str:
    """A process-unique id: a random prefix and a counter (a uuid4 costs seven times as much)."""
    return f"c-{_prefix}-{next(_counter)}"


class CallSite(msgspec.Struct, frozen=True, gc=False):
    """Where in a script a call is written: UTF-8 byte offsets (`end` exclusive) and the line from 1."""

    start: int
    end: int
    line: int


class ToolCallRequest(msgspec.Struct, frozen=True):
    """One call as it is sent. `seq` is the n-th call made in its chain; `site` its place there."""

    name: str
    arguments: Any = msgspec.field(default_factory=dict[str, Any])
    call_id: str = msgspec.field(default_factory=new_call_id)
    seq: int | None = None
    site: CallSite | None = None


class ToolExecutionResult(msgspec.Struct, frozen=True):
    """What a tool hands back.

    `structured_content` is the machine-readable value (None: there is none);
    `content` the blocks for reading (a bare text is one block of it). No blocks and no structured content means
    the tool returned nothing. `is_error` says the tool itself reports failure.
    """

    content: Sequence[ContentBlock] = ()
    structured_content: Any = None
    is_error: bool = False
    metadata: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        content: object = self.content
        if isinstance(content, str):
            msgspec.structs.force_setattr(self, "content", (TextBlock(content),))
        elif not isinstance(content, list | tuple):
            msg = f"content is a list of blocks, not a {type(content).__name__}"
            raise TypeError(msg)

    @property
    def text(self) -> str:
        """The text blocks, joined by newlines."""
        return "\n".join(block.text for block in self.content if isinstance(block, TextBlock))


@runtime_checkable
class Tool(Protocol):
    """A tool that runs here.

    Optional members, each read once when the tool is first seen: `risk`,
    `effect`, `output_schema`, `timeout` (seconds), `classify_risk(arguments)`,
    `verify(call)`, `requires_approval` (bool or callable of the arguments),
    `concurrency` (calls at once), `rate` (`"10/s"`, `"100/min"`, `"1000/h"`),
    `defer_loading` (bool).
    """

    @property
    def name(self) -> str:
        """Unique in its registry."""
        ...

    @property
    def description(self) -> str:
        """What it does, for the model."""
        ...

    @property
    def input_schema(self) -> Mapping[str, Any]:
        """JSON Schema 2020-12 of the arguments, an object."""
        ...

    async def execute(
        self, *args: Any, ctx: RunContext | None = None, **kwargs: Any
    ) -> ToolExecutionResult:
        """Run with arguments that fit `input_schema`. Raise `NotDone` if nothing happened.

        All are given by name; `*args` lets type checkers accept tools that name their own.
        """
        ...


@runtime_checkable
class HostedTool(Protocol):
    """A tool that the model's provider runs; `provider_specs` maps a provider to its wire shape."""

    @property
    def name(self) -> str:
        """Unique in its registry."""
        ...

    @property
    def provider_specs(self) -> Mapping[str, Any]:
        """Provider name to that provider's wire shape."""
        ...


@runtime_checkable
class ProviderDefinedTool(Protocol):
    """A tool whose shape the provider defines and that runs here by `handle_call`."""

    @property
    def name(self) -> str:
        """Unique in its registry."""
        ...

    @property
    def provider_specs(self) -> Mapping[str, Any]:
        """Provider name to that provider's wire shape."""
        ...

    @property
    def call_types(self) -> Sequence[str]:
        """The kinds of call items it answers."""
        ...

    async def handle_call(
        self, *args: Any, ctx: RunContext | None = None, **kwargs: Any
    ) -> ToolExecutionResult:
        """Stands for `execute`: the same arguments, the same result."""
        ...


AnyTool: TypeAlias = Tool | HostedTool | ProviderDefinedTool


def is_provider_defined_tool(tool: AnyTool) -> TypeGuard[ProviderDefinedTool]:
    """Told by `handle_call`."""
    return hasattr(tool, "handle_call")


def is_hosted_tool(tool: AnyTool) -> TypeGuard[HostedTool]:
    """Told by `provider_specs` without anything that would run here."""
    return (
        hasattr(tool, "provider_specs")
        and not hasattr(tool, "handle_call")
        and not hasattr(tool, "execute")
    )


@runtime_checkable
class ToolRegistry(Protocol):
    """Where tools are looked up. `Toolbox` is ours; any object of this shape serves."""

    def get(self, name: str) -> AnyTool | None:
        """The tool of exactly this name, or None; never raises."""
        ...

    def all(self) -> list[AnyTool]:
        """Every tool, in the order it was added."""
        ...


class FunctionSpec(msgspec.Struct, frozen=True):
    """A local tool as a model is told of it."""

    name: str
    description: str
    parameters: Mapping[str, Any]

    def to_wire(self) -> dict[str, Any]:
        """The function schema that most model APIs understand."""
        return {
            "type": "function",
            "function": {
                "name": self.name,
                "description": self.description,
                "parameters": dict(self.parameters),
            },
        }


class ProviderSpec(msgspec.Struct, frozen=True):
    """A hosted or provider-defined tool in the shape of one provider."""

    name: str
    provider: str
    spec: Any

    def to_wire(self) -> Any:
        """The provider's own shape, unchanged."""
        return self.spec


ToolSpec: TypeAlias = FunctionSpec | ProviderSpec


def spec_of(tool: AnyTool, provider: str | None = None) -> ToolSpec | None:
    """How `tool` is described to a model.

    For hosted and provider-defined tools: the named provider's entry (None where
    there is none), or the first entry where no provider is named.
    """
    if not (is_hosted_tool(tool) or is_provider_defined_tool(tool)):
        local = cast("Tool", tool)
        return FunctionSpec(local.name, local.description or "", local.input_schema)
    specs = tool.provider_specs
    key = provider if provider is not None else next(iter(specs), None)
    if key is None or key not in specs:
        return None
    return ProviderSpec(tool.name, key, specs[key])
