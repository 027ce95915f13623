"""Every name of a tool has one identifier, whatever else is registered and in whatever order."""

from __future__ import annotations

import builtins
import itertools
import keyword
import random
import unicodedata
from collections.abc import Awaitable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from substrate.agents.tools.declare import FunctionTool
from substrate.agents.tools.identifiers import identifier_of, identifiers_of
from substrate.agents.tools.toolbox import Toolbox
from substrate.kernel.names import nearest
from substrate.kernel.tools.tools import ToolExecutionResult
from substrate.scripts import run_script_sync

FAMILIES = [
    ["weather.get", "weather-get", "weather_get"],
    ["class", "class_", "class-", "class_ "],
    ["print", "print_", "print-", "_", "__", "-", ".", " "],
    ["1", "_1", "-1", "١", "2fa"],
    ["", "tool", "tool_"],
    ["\ufb01le", "file", "\uff46ile", "\u00c5", "A\u030a", "\u212b"],  # equal under NFKC
    ["tools", "artifacts", "asyncio", "Artifact", "None", "await", "__debug__"],
    ["搜索", "поиск", "🙂", "e\u0301", "\u0301", "\ud800", "\\ud800"],
]
names = st.one_of(st.text(max_size=8), st.sampled_from([n for f in FAMILIES for n in f]))
sets_of_names = st.lists(names, unique=True, max_size=12)


@pytest.mark.req("tools.identifiers")
@given(sets_of_names, st.randoms())
@example([n for f in FAMILIES for n in f], random.Random(1))
def test_any_names_have_distinct_usable_identifiers_in_every_order(
    raw: list[str], order: random.Random
) -> None:
    found = identifiers_of(raw)
    assert list(found) == raw
    assert len(set(found.values())) == len(raw)
    for identifier in found.values():
        assert identifier.isidentifier()
        assert not keyword.iskeyword(identifier)
        assert identifier not in vars(builtins)
        assert identifier not in {"_", "tools", "artifacts", "asyncio", "Artifact"}
        assert unicodedata.normalize("NFKC", identifier) == identifier  # as Python reads it
        compile(f"{identifier} = 1", "script", "exec")
    assert identifiers_of(reversed(raw)) == found
    assert identifiers_of(order.sample(raw, len(raw))) == found


@pytest.mark.req("tools.identifiers")
@given(sets_of_names)
def test_a_name_that_needs_no_change_keeps_it(raw: list[str]) -> None:
    found = identifiers_of(raw)
    for name in raw:
        if identifier_of(name) == name:
            assert found[name] == name


@given(names)
def test_an_identifier_needs_no_change(name: str) -> None:
    assert identifier_of(identifier_of(name)) == identifier_of(name)


@pytest.mark.parametrize(
    ("name", "identifier"),
    [
        ("get_weather", "get_weather"),
        ("get-weather", "get_weather"),
        ("api.call", "api_call"),
        ("2fa", "_2fa"),
        ("class", "class_"),
        ("print", "print_"),
        ("tools", "tools_"),
        ("搜索", "搜索"),
        ("ﬁnd", "find"),
        ("_x", "_x"),
        ("", "tool"),
        ("🙂", "__"),
    ],
)
def test_the_rule_is_the_documented_one(name: str, identifier: str) -> None:
    assert identifier_of(name) == identifier


def test_names_that_collide_get_four_digits_of_their_own_digest() -> None:
    found = identifiers_of(["weather.get", "weather-get"])
    assert found == {"weather.get": "weather_get_b8af", "weather-get": "weather_get_bf37"}


def test_digits_are_added_where_a_suffixed_name_is_taken() -> None:
    taken = identifiers_of(["a.b", "a-b"])["a.b"]
    found = identifiers_of(["a.b", "a-b", taken])
    assert found[taken] == taken
    assert found["a.b"].startswith(taken)
    assert len(found["a.b"]) == len(taken) + 4


def test_the_nearest_names_are_few_and_none_where_nothing_is_near() -> None:
    assert nearest("serch", ["search", "patch", "zip"]) == ["search"]
    assert nearest("x", ["search"]) == []


def saying(name: str) -> FunctionTool[[], Awaitable[str]]:
    async def say() -> str:
        return name

    return FunctionTool(say, name=name, risk="safe")


@pytest.mark.req("case.C1", "invariant.10", "tools.parameters")
def test_odd_names_reach_their_tools_by_identifier_and_by_raw_name() -> None:
    raw = ["get-weather", "api.call", "2fa", "class", "搜索", "_x"]
    odd = {"from": "integer", "x-y": "string", "ctx": "integer", "self": "integer"}

    class Odd:
        name = "odd"
        description = ""
        risk = 0
        input_schema = {  # noqa: RUF012
            "type": "object",
            "properties": {key: {"type": kind} for key, kind in odd.items()},
            "required": list(odd),
        }

        async def execute(self, **kwargs: object) -> object:
            return ToolExecutionResult((), {k: v for k, v in kwargs.items() if k != "ctx"})

    box = Toolbox([saying(name) for name in raw])
    identifiers = box.identifiers()
    script = "".join(f"said.append(await {i}())\n" for i in identifiers.values())
    script += "".join(f"said.append(await tools[{name!r}]())\n" for name in raw)
    box.add(Odd())  # pyright: ignore[reportArgumentType]
    script += 'odd = await odd(**{"from": 1, "x-y": "z", "ctx": 2, "self": 3})\n'
    result = run_script_sync(f"said = []\n{script}[said, odd]", box)
    assert result.value == [
        [*raw, *raw],
        {"from": 1, "x-y": "z", "ctx_": 2, "self_": 3},
    ], result.output_text


@pytest.mark.req("case.C2")
def test_the_tool_literally_so_named_has_the_name_in_every_order() -> None:
    raw = ["weather.get", "weather-get", "weather_get"]
    found = [
        Toolbox([saying(name) for name in order]).identifiers()
        for order in itertools.permutations(raw)
    ]
    assert all(one == found[0] for one in found)
    assert found[0]["weather_get"] == "weather_get"
    script = "[" + ", ".join(f"await {found[0][name]}()" for name in raw) + "]"
    result = run_script_sync(script, [saying(name) for name in reversed(raw)])
    assert result.value == raw, result.output_text


def test_a_tool_cannot_take_a_name_that_its_stubs_use() -> None:
    assert identifiers_of(["Any", "Literal"]) == {"Any": "Any_", "Literal": "Literal_"}
