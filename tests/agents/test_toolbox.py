"""The labelled toolbox on the bench."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from substrate.agents.tools.declare import tool
from substrate.agents.tools.invoker import ToolInvoker
from substrate.agents.tools.toolbox import DuplicateToolWarning, Toolbox
from substrate.kernel.errors import DeclarationError
from substrate.kernel.tools.tools import (
    ToolCallRequest,
    ToolExecutionResult,
    ToolRegistry,
    ToolRisk,
    is_hosted_tool,
    is_provider_defined_tool,
)


@tool(risk="safe")
def look(path: str) -> str:
    """Look at a file."""
    return path


@tool(risk="high")
async def write(path: str, text: str) -> None:
    """Write a file."""


class Search:
    """A tool that the provider runs."""

    name = "search"
    provider_specs = {"anthropic": {"type": "web_search"}, "openai": {"type": "web"}}  # noqa: RUF012


class Editor:
    """A tool that the provider describes and that runs here."""

    name = "editor"
    risk = ToolRisk.CRITICAL
    provider_specs = {"anthropic": {"type": "text_editor"}}  # noqa: RUF012
    call_types = ("edit",)

    async def handle_call(self, **kwargs: Any) -> ToolExecutionResult:
        return ToolExecutionResult((), kwargs)


@tool(defer_loading=True)
def rare(n: int) -> int:
    """Seldom needed."""
    return n


@pytest.mark.req("S1")
def test_a_toolbox_is_a_registry_of_tools_by_their_names() -> None:
    box: ToolRegistry = Toolbox([look, write])
    assert isinstance(box, ToolRegistry)
    assert box.get("look") is look
    assert box.all() == [look, write]


@pytest.mark.req("S2")
def test_a_second_tool_of_one_name_replaces_the_first_in_its_slot_with_a_warning() -> None:
    other = tool(name="look", risk="critical")(lambda: None)
    box = Toolbox([look, write])
    with pytest.warns(DuplicateToolWarning, match="'look' is there already") as told:
        box.add(other)
    assert told[0].filename == __file__
    assert box.get("look") is other
    assert box.names() == ["look", "write"]
    traits = box.traits("look")
    assert traits is not None
    assert traits.risk is ToolRisk.CRITICAL


def test_the_same_tool_may_be_added_twice_without_a_word() -> None:
    box = Toolbox([look, look])
    box.add(look, on_duplicate="error")
    assert len(box) == 1


@pytest.mark.req("tools.duplicates")
def test_a_second_tool_of_one_name_may_be_refused() -> None:
    box = Toolbox([look])
    with pytest.raises(DeclarationError, match="'look'"):
        box.add(tool(name="look")(lambda: None), on_duplicate="error")
    assert box.all() == [look]


@pytest.mark.req("S3")
def test_get_gives_the_tool_or_none_and_all_a_list_of_ones_own() -> None:
    box = Toolbox([look])
    assert box.get("look") is look
    unknown: list[Any] = ["", "Look", "look ", None, 3]
    assert [box.get(name) for name in unknown] == [None] * 5
    box.all().clear()
    assert box.all() == [look]


@pytest.mark.req("S4")
def test_it_knows_its_names_its_risks_its_length_and_whether_it_holds_a_name() -> None:
    box = Toolbox([look, write, Search(), Editor(), rare])
    assert box.names() == ["look", "write", "search", "editor", "rare"]
    assert [t.name for t in box.by_risk(ToolRisk.SAFE)] == ["look", "search", "rare"]
    assert box.by_risk("high") == [write]
    assert [t.name for t in box.by_risk(2)] == ["editor"]  # type: ignore[arg-type]
    assert (len(box), len(Toolbox())) == (5, 0)
    assert "look" in box
    assert "loo" not in box
    assert 3 not in box
    assert [t.name for t in box] == box.names()
    assert repr(Toolbox([look, write])) == "Toolbox(look, write)"
    with pytest.raises(ValueError, match="risky"):
        box.by_risk("risky")


@pytest.mark.req("tools.undeclared")
def test_undeclared_risks_count_as_the_toolbox_says_and_ask_by_it() -> None:
    box = Toolbox([rare, look], undeclared="high")
    assert box.by_risk("high") == [rare]

    async def main() -> list[str | None]:
        invoker = ToolInvoker(box)
        async with invoker.open_session() as session:
            calls = [ToolCallRequest("rare", {"n": 1}), ToolCallRequest("look", {"path": "a"})]
            return [(await invoker.invoke(call, session=session)).reason for call in calls]

    assert asyncio.run(main()) == ["no_handler", None]


@pytest.mark.req("S5")
def test_the_three_kinds_of_tools_lie_side_by_side() -> None:
    box = Toolbox([look, Search(), Editor()])
    kinds = [traits.kind for name in box.names() if (traits := box.traits(name))]
    assert kinds == ["local", "hosted", "provider"]
    assert [is_hosted_tool(t) for t in box] == [False, True, False]
    assert [is_provider_defined_tool(t) for t in box] == [False, False, True]


@pytest.mark.req("S6")
def test_schemas_are_function_schemas_for_local_tools_and_the_first_entry_for_others() -> None:
    assert Toolbox([look, Search(), Editor()]).schemas() == [
        {
            "type": "function",
            "function": {
                "name": "look",
                "description": "Look at a file.",
                "parameters": {
                    "additionalProperties": False,
                    "type": "object",
                    "properties": {"path": {"type": "string"}},
                    "required": ["path"],
                },
            },
        },
        {"type": "web_search"},
        {"type": "text_editor"},
    ]


@pytest.mark.req("tools.provider")
def test_tools_without_a_shape_for_the_named_provider_are_dropped_with_a_warning() -> None:
    box = Toolbox([Search(), Editor(), look])
    with pytest.warns(UserWarning, match="'editor' has no shape for openai") as told:
        shapes = box.schemas("openai")
    assert told[0].filename == __file__
    assert shapes[0] == {"type": "web"}
    assert len(shapes) == 2


@pytest.mark.req("S7")
def test_schema_for_gives_one_whole_schema_and_names_the_nearest_of_an_unknown_one() -> None:
    box = Toolbox([look, write, rare, Search()])
    assert box.schema_for("look") == box.schemas()[0]
    assert box.schema_for("rare")["function"]["parameters"]["required"] == ["n"]
    assert box.schema_for("search") == {"type": "web_search"}
    with pytest.raises(LookupError, match="no tool named 'wrte'; did you mean 'write'"):
        box.schema_for("wrte")
    with pytest.raises(LookupError, match=r"no tool named 'zzz'$"):
        box.schema_for("zzz")


@pytest.mark.req("S8")
def test_a_deferred_tool_is_shown_without_its_schema_which_is_told_apart() -> None:
    box = Toolbox([look, rare])
    shown = box.schemas()[1]["function"]
    assert shown == {
        "name": "rare",
        "description": "Seldom needed.",
        "parameters": {"type": "object", "properties": {}},
    }
    assert box.deferred_schemas() == [box.schema_for("rare")]
    assert box.deferred_schemas()[0]["function"]["parameters"]["required"] == ["n"]


def test_what_a_model_is_told_can_be_changed_without_changing_the_tools() -> None:
    box = Toolbox([look, rare])
    for schema in [*box.schemas(), *box.deferred_schemas()]:
        schema["function"]["parameters"].clear()
    assert box.schema_for("look")["function"]["parameters"]["required"] == ["path"]
    assert box.schemas()[1]["function"]["parameters"] == {"type": "object", "properties": {}}


@pytest.mark.req("tools.functions")
def test_plain_functions_become_tools_when_they_are_added() -> None:
    def double(n: int) -> int:
        """Twice n."""
        return 2 * n

    box = Toolbox([double])
    held = box.get("double")
    assert held is not None
    assert held.name == "double"
    assert box.schemas()[0]["function"]["parameters"]["required"] == ["n"]


def test_a_class_in_place_of_a_tool_is_told() -> None:
    for kind in (Editor, Search):
        with pytest.raises(DeclarationError, match=rf"such as {kind.__name__}\(\)"):
            Toolbox([kind])


@pytest.mark.req("way.lookup")
def test_traits_are_found_by_raw_name_first_and_then_by_identifier() -> None:
    a_b, under = tool(name="a-b")(lambda: 1), tool(name="a_b")(lambda: 2)
    box = Toolbox([a_b])
    first = box.traits("a_b")
    assert first is not None
    assert first.name == "a-b"
    box.add(under)
    second = box.traits("a_b")
    assert second is not None
    assert second.name == "a_b"
    by_identifier = box.traits(box.identifiers()["a-b"])
    assert by_identifier is not None
    assert by_identifier.name == "a-b"
    assert box.traits("none") is None
