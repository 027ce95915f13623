"""`traits_of`: the one place that reads what a tool says of itself.

Optional members are read once, checked, and the schema compiled, so that a wrong
declaration fails when the tool is added and a call reads plain fields.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NoReturn, Protocol, cast, runtime_checkable

import jsonschema_rs

from substrate.agents.tools.identifiers import identifiers_of
from substrate.agents.tools.validation import Fault, faults_by, validity_by
from substrate.kernel.errors import DeclarationError
from substrate.kernel.secrets import declared_secrets
from substrate.kernel.tools.tools import (
    AnyTool,
    ToolEffect,
    ToolRegistry,
    ToolRisk,
    is_hosted_tool,
    is_provider_defined_tool,
)

__all__ = [
    "Rate",
    "RegistryTraits",
    "Traits",
    "TraitsSource",
    "traits_of",
]


@dataclass(frozen=True, slots=True)
class Rate:
    """At most `count` starts in any `per_s` seconds."""

    count: int
    per_s: float


@dataclass(frozen=True, slots=True, eq=False)
class Traits:
    """A tool as the gates see it; every optional member with its default."""

    tool: AnyTool
    name: str
    description: str
    kind: Literal["local", "hosted", "provider"]
    is_chain: bool
    input_schema: Mapping[str, Any]
    output_schema: Mapping[str, Any] | None
    risk: ToolRisk
    risk_declared: bool
    effect: ToolEffect
    timeout_s: float | None
    requires_approval: bool | Callable[[dict[str, Any]], Any]
    classify_risk: Callable[[dict[str, Any]], Any] | None
    verify: Callable[..., Any] | None
    concurrency: int | None
    rate: Rate | None
    defer_loading: bool
    streams: frozenset[str]
    secrets: frozenset[str]
    is_valid: Callable[[Any], bool]
    faults: Callable[[Any], list[Fault]]
    bind: Callable[[dict[str, Any]], dict[str, Any]] | None
    run: Callable[..., Awaitable[Any]] | None
    positional: tuple[str, ...]

    @property
    def risk_label(self) -> str:
        """The risk as it is shown: an undeclared one says so."""
        return self.risk.name if self.risk_declared else f"{self.risk.name} (undeclared)"


@runtime_checkable
class TraitsSource(Protocol):
    """A registry that keeps the traits of its tools."""

    def traits(self, name: str) -> Traits | None:
        """The traits of the tool of this raw name, else of this identifier, else None."""
        ...

    def names(self) -> list[str]:
        """The raw names of all tools."""
        ...


class RegistryTraits:
    """The traits of any registry's tools, read when first asked for."""

    def __init__(self, registry: ToolRegistry) -> None:
        self._registry = registry
        self._known: dict[str, Traits] = {}

    def traits(self, name: str) -> Traits | None:
        """The traits of the tool of this raw name, else of this identifier, else None."""
        tool = self._registry.get(name)
        if tool is None:
            by_identifier = {v: k for k, v in identifiers_of(self.names()).items()}
            raw = by_identifier.get(name)
            tool = self._registry.get(raw) if raw is not None else None
        if tool is None:
            return None
        known = self._known.get(tool.name)
        if known is None or known.tool is not tool:
            known = self._known[tool.name] = traits_of(tool)
        return known

    def names(self) -> list[str]:
        """The raw names of all tools."""
        return [tool.name for tool in self._registry.all()]


# reading a tool --------------------------------------------------------------------------


def traits_of(tool: AnyTool, *, undeclared: ToolRisk = ToolRisk.SAFE) -> Traits:
    """Read and check everything a tool says of itself.

    Args:
        tool: Any object of one of the three kinds.
        undeclared: The risk of a tool that declares none.

    Raises:
        DeclarationError: Naming the tool, what was found and what to do.
    """
    if isinstance(tool, type):
        msg = f"{tool.__name__} is a class: give a tool made from it, such as {tool.__name__}()"
        raise DeclarationError(msg)
    name = getattr(tool, "name", None)
    if not isinstance(name, str) or not name.strip():
        msg = f"a tool needs a name that is a text, not {name!r} ({type(tool).__name__})"
        raise DeclarationError(msg)
    read = _Reader(tool, name)
    hosted, provider = is_hosted_tool(tool), is_provider_defined_tool(tool)
    schema = read.schema()
    validator = read.validator(schema)
    clash = _clashing(schema)
    if clash is not None:
        msg = f"tool {name!r}: its parameters {clash!r} and '{clash}_' would be one; rename one"
        raise DeclarationError(msg)
    risk = read.risk()
    return Traits(
        tool=tool,
        name=name,
        description=read.text("description"),
        kind="hosted" if hosted else "provider" if provider else "local",
        is_chain=name == "tool_chain" or bool(read.member("is_chain_tool")),
        input_schema=schema,
        output_schema=read.mapping("output_schema"),
        risk=undeclared if risk is None else risk,
        risk_declared=risk is not None,
        effect=read.effect(risk),
        timeout_s=read.seconds("timeout"),
        requires_approval=read.requires_approval(),
        classify_risk=read.function("classify_risk"),
        verify=read.function("verify"),
        concurrency=read.count("concurrency"),
        rate=read.rate(),
        defer_loading=bool(read.member("defer_loading")),
        streams=_streams(schema),
        secrets=declared_secrets(schema) | declared_secrets(read.mapping("output_schema")),
        is_valid=validity_by(validator),
        faults=faults_by(validator),
        bind=read.function("bind_arguments"),
        run=None if hosted else read.run("handle_call" if provider else "execute"),
        positional=_positional(schema),
    )


class _Reader:
    """Reads the members of one tool; every complaint names the tool."""

    def __init__(self, tool: AnyTool, name: str) -> None:
        self._tool = tool
        self._name = name

    def wrong(self, member: str, wanted: str, found: object) -> NoReturn:
        msg = f"tool {self._name!r}: {member} must be {wanted}, not {found!r:.200}"
        raise DeclarationError(msg)

    def member(self, name: str) -> Any:
        return getattr(self._tool, name, None)

    def text(self, name: str) -> str:
        value = self.member(name)
        if value is not None and not isinstance(value, str):
            self.wrong(name, "a text", value)
        return value or ""

    def mapping(self, name: str) -> Mapping[str, Any] | None:
        value = self.member(name)
        if value is not None and not isinstance(value, Mapping):
            self.wrong(name, "a mapping", value)
        return cast("Mapping[str, Any] | None", value)

    def schema(self) -> Mapping[str, Any]:
        value = self.mapping("input_schema")
        if value is None:
            if hasattr(self._tool, "provider_specs"):
                return {"type": "object"}
            self.wrong("input_schema", "a JSON Schema of an object", value)
        if value.get("type", "object") != "object":
            self.wrong("input_schema", "a schema of an object", value.get("type"))
        return value

    def validator(self, schema: Mapping[str, Any]) -> Any:
        kind = cast("Any", jsonschema_rs.Draft202012Validator)
        if "$schema" in schema:
            kind = cast("Any", jsonschema_rs).validator_cls_for(dict(schema))
        try:
            return kind(_plain_schema(schema), retriever=_no_remote)
        except Exception as error:
            first = str(error).split("\n\n", 1)[0]
            msg = f"tool {self._name!r}: its input_schema is no valid JSON Schema: {first}"
            raise DeclarationError(msg) from None

    def risk(self) -> ToolRisk | None:
        value = self.member("risk")
        if value is None:
            return None
        try:
            return ToolRisk(value)
        except ValueError:
            self.wrong("risk", "SAFE, HIGH or CRITICAL", value)

    def effect(self, risk: ToolRisk | None) -> ToolEffect:
        value = self.member("effect")
        if value is None:
            return ToolEffect.PURE if risk is ToolRisk.SAFE else ToolEffect.ONCE
        try:
            return ToolEffect(value)
        except ValueError:
            self.wrong("effect", "pure, idempotent or once", value)

    def seconds(self, name: str) -> float | None:
        value = self.member(name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
            self.wrong(name, "a number of seconds above 0", value)
        return float(value)

    def count(self, name: str) -> int | None:
        value = self.member(name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            self.wrong(name, "a whole number of at least 1", value)
        return value

    def function(self, name: str) -> Callable[..., Any] | None:
        value = self.member(name)
        if value is not None and not callable(value):
            self.wrong(name, "a function", value)
        return value

    def requires_approval(self) -> bool | Callable[[dict[str, Any]], Any]:
        value = self.member("requires_approval")
        if value is None:
            return False
        if not isinstance(value, bool) and not callable(value):
            self.wrong("requires_approval", "True, False or a function of the arguments", value)
        return value

    def rate(self) -> Rate | None:
        value = self.member("rate")
        if value is None:
            return None
        found = (
            re.fullmatch(r"\s*([1-9]\d*)\s*/\s*(s|min|h)\s*", value)
            if isinstance(value, str)
            else None
        )
        if found is None:
            self.wrong("rate", "a text like '10/s', '100/min' or '1000/h'", value)
        return Rate(int(found[1]), {"s": 1.0, "min": 60.0, "h": 3600.0}[found[2]])

    def run(self, name: str) -> Callable[..., Awaitable[Any]]:
        value = self.member(name)
        if not callable(value):
            self.wrong(name, "an async function", value)
        function = cast("Callable[..., Awaitable[Any]]", value)
        call = getattr(value, "__call__", value)  # noqa: B004  # an object with an async __call__
        if not (inspect.iscoroutinefunction(value) or inspect.iscoroutinefunction(call)):
            msg = f"tool {self._name!r}: {name} must be async; for a plain function use @tool"
            raise DeclarationError(msg)
        return function


def _no_remote(uri: str) -> NoReturn:
    msg = f"a schema may not refer to {uri}: nothing is fetched"
    raise ValueError(msg)


def _plain_schema(schema: Any) -> Any:
    if isinstance(schema, Mapping):
        return {str(k): _plain_schema(v) for k, v in cast("Mapping[Any, Any]", schema).items()}
    if isinstance(schema, list | tuple):
        return [_plain_schema(item) for item in cast("list[Any]", schema)]
    return schema


def _streams(schema: Mapping[str, Any]) -> frozenset[str]:
    properties = cast("Mapping[str, Any]", schema.get("properties") or {})
    return frozenset(
        name
        for name, part in properties.items()
        if isinstance(part, Mapping)
        and cast("Mapping[str, Any]", part).get("x-substrate-stream") is True
    )


def _clashing(schema: Mapping[str, Any]) -> str | None:
    """`ctx` or `self` where `ctx_` or `self_` stands beside it: both would arrive under one name."""
    properties = cast("Mapping[str, Any]", schema.get("properties") or {})
    return next((n for n in ("ctx", "self") if n in properties and f"{n}_" in properties), None)


def _positional(schema: Mapping[str, Any]) -> tuple[str, ...]:
    properties = list(cast("Mapping[str, Any]", schema.get("properties") or {}))
    required = set(cast("Iterable[str]", schema.get("required") or ()))
    return (
        *(p for p in properties if p in required),
        *(p for p in properties if p not in required),
    )
