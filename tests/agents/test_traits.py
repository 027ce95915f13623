"""A wrong declaration is told when a tool is added; a right one is read once."""

from __future__ import annotations

import functools
import math
from types import MappingProxyType, SimpleNamespace
from typing import Any, cast

import pytest

from substrate.agents.tools.toolbox import Toolbox
from substrate.agents.tools.traits import Rate, RegistryTraits, Traits, TraitsSource, traits_of
from substrate.kernel.errors import DeclarationError
from substrate.kernel.tools.tools import ToolEffect, ToolExecutionResult, ToolRisk

SCHEMA: dict[str, Any] = {"type": "object", "properties": {"a": {"type": "integer"}}}


async def run(**kwargs: Any) -> ToolExecutionResult:
    return ToolExecutionResult((), kwargs)


def a_tool(**members: Any) -> Any:
    """A local tool with these members; those given as `...` are left out."""
    whole = {"name": "it", "description": "", "input_schema": SCHEMA, "execute": run, **members}
    return SimpleNamespace(**{key: value for key, value in whole.items() if value is not ...})


def read(**members: Any) -> Traits:
    return traits_of(a_tool(**members))


def test_a_tool_that_declares_nothing_has_the_documented_defaults() -> None:
    traits = read(description=...)
    assert (traits.name, traits.description, traits.kind, traits.is_chain) == (
        "it",
        "",
        "local",
        False,
    )
    assert (traits.timeout_s, traits.concurrency, traits.rate) == (None, None, None)
    assert (traits.requires_approval, traits.classify_risk, traits.verify) == (False, None, None)
    assert (traits.defer_loading, traits.output_schema, traits.bind) == (False, None, None)


@pytest.mark.req("S40", "tools.by-name")
@pytest.mark.parametrize("risk", [ToolRisk.HIGH, 1, "high", "HIGH", "High"])
def test_a_risk_is_a_member_its_value_or_its_name(risk: Any) -> None:
    assert read(risk=risk).risk is ToolRisk.HIGH


@pytest.mark.req("tools.by-name")
@pytest.mark.parametrize("effect", [ToolEffect.ONCE, "once", "ONCE"])
def test_an_effect_is_a_member_or_its_name(effect: Any) -> None:
    assert read(effect=effect).effect is ToolEffect.ONCE


@pytest.mark.req("tools.effect")
@pytest.mark.parametrize(
    ("members", "effect"),
    [
        ({"risk": "safe"}, ToolEffect.PURE),
        ({}, ToolEffect.ONCE),
        ({"risk": "high"}, ToolEffect.ONCE),
        ({"risk": "critical"}, ToolEffect.ONCE),
        ({"risk": "safe", "effect": "once"}, ToolEffect.ONCE),
        ({"risk": "high", "effect": "idempotent"}, ToolEffect.IDEMPOTENT),
        ({"effect": "pure"}, ToolEffect.PURE),
    ],
)
def test_only_a_tool_that_was_declared_safe_is_pure_by_default(
    members: dict[str, Any], effect: ToolEffect
) -> None:
    assert read(**members).effect is effect


@pytest.mark.req("tools.undeclared")
def test_a_tool_without_a_risk_counts_as_the_registry_says_and_is_shown_as_undeclared() -> None:
    assert (read().risk, read().risk_label) == (ToolRisk.SAFE, "SAFE (undeclared)")
    held = Toolbox([a_tool()], undeclared=ToolRisk.HIGH).traits("it")
    assert held is not None
    assert (held.risk, held.risk_label, held.effect) == (
        ToolRisk.HIGH,
        "HIGH (undeclared)",
        ToolEffect.ONCE,
    )
    assert read(risk="safe").risk_label == "SAFE"


@pytest.mark.req("tools.declared-early")
@pytest.mark.parametrize(
    ("members", "told"),
    [
        ({"name": ""}, "needs a name"),
        ({"name": "  "}, "needs a name"),
        ({"name": 3}, "needs a name"),
        ({"name": ...}, "needs a name"),
        ({"description": 3}, "description must be a text"),
        ({"risk": "risky"}, "risk must be SAFE, HIGH or CRITICAL, not 'risky'"),
        ({"risk": 7}, "risk must be"),
        ({"effect": "twice"}, "effect must be pure, idempotent or once, not 'twice'"),
        ({"timeout": 0}, "timeout must be"),
        ({"timeout": -1}, "timeout must be"),
        ({"timeout": True}, "timeout must be"),
        ({"timeout": "5"}, "timeout must be"),
        ({"timeout": float("nan")}, "timeout must be"),
        ({"concurrency": 0}, "concurrency must be"),
        ({"concurrency": True}, "concurrency must be"),
        ({"concurrency": 1.5}, "concurrency must be"),
        ({"rate": "0/s"}, "rate must be"),
        ({"rate": "10"}, "rate must be"),
        ({"rate": "10/day"}, "rate must be"),
        ({"rate": 10}, "rate must be"),
        ({"classify_risk": "high"}, "classify_risk must be a function"),
        ({"verify": 1}, "verify must be a function"),
        ({"requires_approval": "yes"}, "requires_approval must be"),
        ({"input_schema": ...}, "input_schema must be"),
        ({"input_schema": None}, "input_schema must be"),
        ({"input_schema": "object"}, "input_schema must be"),
        ({"input_schema": {"type": "array"}}, "input_schema must be a schema of an object"),
        ({"input_schema": {"type": "object", "required": "a"}}, "no valid JSON Schema"),
        ({"input_schema": {"properties": {"a": {"type": "int"}}}}, "no valid JSON Schema"),
        ({"input_schema": {"properties": {"a": {"$ref": "https://x.test/a"}}}}, "nothing is"),
        ({"input_schema": {"properties": {"a": {"$ref": "#/$defs/none"}}}}, "no valid JSON Schema"),
        ({"input_schema": {"properties": {"a": {"pattern": "("}}}}, "no valid JSON Schema"),
        ({"input_schema": {"properties": []}}, "no valid JSON Schema"),
        ({"input_schema": {"properties": {"a": 3}}}, "no valid JSON Schema"),
        ({"input_schema": {"required": 3}}, "no valid JSON Schema"),
        (
            {"input_schema": {"properties": {"ctx": {}, "ctx_": {}}}},
            "'ctx' and 'ctx_' would be one",
        ),
        ({"output_schema": "text"}, "output_schema must be"),
        ({"execute": ...}, "execute must be an async function"),
        ({"execute": 3}, "execute must be an async function"),
        ({"execute": lambda: None}, "execute must be async; for a plain function use @tool"),
    ],
)
def test_a_wrong_declaration_is_told_when_the_tool_is_added(
    members: dict[str, Any], told: str
) -> None:
    box = Toolbox()
    with pytest.raises(DeclarationError) as caught:
        box.add(a_tool(**members))
    assert told in str(caught.value)
    if isinstance(members.get("name", "it"), str) and members.get("name", "it").strip():
        assert "'it'" in str(caught.value)
    assert len(box) == 0


@pytest.mark.parametrize(
    ("rate", "read_as"),
    [("10/s", Rate(10, 1)), (" 100 / min ", Rate(100, 60)), ("1000/h", Rate(1000, 3600))],
)
def test_a_rate_is_a_count_and_a_time(rate: str, read_as: Rate) -> None:
    assert read(rate=rate).rate == read_as


def test_a_function_that_is_async_in_any_way_can_be_executed() -> None:
    class Callable:
        async def __call__(self, **kwargs: Any) -> ToolExecutionResult:
            return ToolExecutionResult((), kwargs)

    for execute in (run, functools.partial(run, a=1), Callable()):
        assert read(execute=execute).run is execute


@pytest.mark.parametrize(
    "schema",
    cast(
        "list[Any]",
        [
            {},
            {"type": "object"},
            MappingProxyType({"type": "object", "properties": MappingProxyType({"a": True})}),
            {"type": "object", "properties": {"a": True, "b": False}},
            {"$schema": "http://json-schema.org/draft-07/schema#", "type": "object"},
            {"$schema": "https://json-schema.org/draft/2020-12/schema", "type": "object"},
            {"type": "object", "properties": {"a": {"$ref": "#"}}},
            {"$schema": "https://x.test/draft-99", "type": "object"},
        ],
    ),
    ids=str,
)
def test_schemas_of_every_lawful_shape_are_read(schema: Any) -> None:
    traits = read(input_schema=schema)
    assert traits.is_valid({})
    assert traits.faults({}) == []


def test_parameters_stand_required_first_in_the_order_of_the_schema() -> None:
    schema: Any = {"properties": {"a": {}, "b": {}, "c": {}, "d": {}}, "required": ["d", "b", "x"]}
    assert read(input_schema=schema).positional == ("b", "d", "a", "c")


@pytest.mark.req("way.arguments")
def test_every_fault_is_named_by_its_path() -> None:
    schema = {
        "type": "object",
        "properties": {
            "a": {"type": "integer"},
            "l": {"type": "array", "items": {"type": "object", "required": ["x"]}},
            "u": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
        },
        "required": ["r"],
        "additionalProperties": False,
    }
    traits = read(input_schema=schema)
    wrong = {"a": "1", "l": [{"x": 1}, {}], "u": "x", "more": 1}
    assert not traits.is_valid(wrong)
    faults = {fault.path: fault for fault in traits.faults(wrong)}
    assert {("a",), ("l", 1), ("u",), ()} == set(faults)
    assert faults["a",].keyword == "type"
    assert faults["u",].is_combinator
    assert not faults["a",].is_combinator


def test_draft_7_schemas_are_read_by_their_own_rules() -> None:
    items = {"type": "array", "items": [{"type": "integer"}]}
    old = {"$schema": "http://json-schema.org/draft-07/schema#", "properties": {"a": items}}
    traits = read(input_schema=old)
    assert traits.is_valid({"a": [1, "x"]})
    assert not traits.is_valid({"a": ["x"]})


def test_bytes_are_text_to_a_schema() -> None:
    traits = read(input_schema={"properties": {"a": {"type": "string"}, "b": {"minLength": 3}}})
    assert traits.is_valid({"a": b"\xff"})
    assert not traits.is_valid({"a": 3, "b": b"\xff"})


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_nan_and_the_infinities_are_numbers_and_no_whole_ones(value: float) -> None:
    parts: dict[str, Any] = {"n": {"type": "number"}, "i": {"type": "integer"}, "s": {}}
    traits = read(input_schema={"properties": {**parts, "l": {"items": {"type": "number"}}}})
    assert traits.is_valid({"n": value, "l": [value]})
    assert not traits.is_valid({"n": "x", "s": value})
    assert not traits.is_valid({"i": value})
    assert [fault.path for fault in traits.faults({"n": value, "i": value})] == [("i",)]


def test_the_message_of_a_fault_is_bounded() -> None:
    traits = read(input_schema={"properties": {"a": {"type": "integer"}}})
    assert len(traits.faults({"a": "x" * 1_000_000})[0].message) < 20_000


@pytest.mark.req("S5", "way.lookup")
def test_any_registry_is_read_and_its_changes_are_seen() -> None:
    held: dict[str, Any] = {"a-b": a_tool(name="a-b"), "c": a_tool(name="c")}
    registry = SimpleNamespace(get=held.get, all=lambda: list(held.values()))
    source = RegistryTraits(registry)  # type: ignore[arg-type]
    assert isinstance(source, TraitsSource)
    assert source.names() == ["a-b", "c"]
    first = source.traits("a-b")
    assert first is not None
    assert source.traits("a_b") is first
    assert source.traits("none") is None
    held["a-b"] = a_tool(name="a-b", risk="high")
    changed = source.traits("a_b")
    assert changed is not None
    assert changed.risk is ToolRisk.HIGH
