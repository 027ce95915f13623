"""A function's hints and docstring make it a tool."""

from __future__ import annotations

import asyncio
import dataclasses
import datetime as dt
import decimal
import enum
import functools
import threading
from collections.abc import Callable
from typing import Annotated, Any, Literal, cast

import pydantic
import pytest
from typing_extensions import TypedDict

from substrate.agents.tools.declare import FunctionTool, tool
from substrate.agents.tools.invoker import ToolInvoker
from substrate.agents.tools.toolbox import Toolbox
from substrate.agents.tools.traits import traits_of
from substrate.agents.tools.validation import BindError
from substrate.kernel.blobs import ArtifactStream
from substrate.kernel.content import FileBlock, ImageBlock, TextBlock
from substrate.kernel.context import RunContext
from substrate.kernel.errors import DeclarationError
from substrate.kernel.tools.chain import ChainPolicy, InvocationResult
from substrate.kernel.tools.tools import ToolCallRequest, ToolExecutionResult, ToolRisk


def call(function: Callable[..., Any], arguments: dict[str, Any]) -> InvocationResult:
    """One call past the gates, at any risk."""

    async def main() -> InvocationResult:
        is_tool = isinstance(function, FunctionTool)
        made = cast("FunctionTool[..., Any]", function) if is_tool else FunctionTool(function)
        policy = ChainPolicy(max_risk_unapproved=ToolRisk.CRITICAL)
        invoker = ToolInvoker(Toolbox([made]), policy=policy)
        async with invoker.open_session() as session:
            return await invoker.invoke(
                ToolCallRequest(made.name, arguments),
                session=session,
                ctx=RunContext(run_id="the run", extra={"user": "me"}),
            )

    return asyncio.run(main())


class Colour(enum.Enum):
    RED = "red"


class Item(pydantic.BaseModel):
    name: str
    count: int = 1


@dataclasses.dataclass
class Point:
    x: int


class Options(TypedDict, total=False):
    deep: bool


@pytest.mark.req("tools.functions")
def test_hints_and_docstring_become_the_schema() -> None:
    @tool
    def search(query: str, limit: int = 5, *, kind: Literal["web", "news"] = "web") -> list[str]:
        """Search the web.

        It is slow.

        Args:
            query: What to look
                for.
            limit (int): How many.

        Returns:
            The titles.
        """
        return [query, str(limit), kind]

    assert search.name == "search"
    assert search.description == "Search the web.\n\nIt is slow."
    assert search.input_schema == {
        "type": "object",
        "additionalProperties": False,
        "properties": {
            "query": {"type": "string", "description": "What to look for."},
            "limit": {"type": "integer", "default": 5, "description": "How many."},
            "kind": {"type": "string", "enum": ["web", "news"], "default": "web"},
        },
        "required": ["query"],
    }
    assert search.output_schema == {"type": "array", "items": {"type": "string"}}
    assert search("a", 1) == ["a", "1", "web"]
    assert call(search, {"query": "a"}).value == ["a", "5", "web"]


def test_parameters_documented_in_the_sphinx_way_are_read() -> None:
    @tool
    def search(query: str) -> None:
        """Search.

        :param str query: What to look for.
        """

    assert search.description == "Search."
    assert search.input_schema["properties"]["query"]["description"] == "What to look for."


@pytest.mark.req("tools.functions")
def test_functions_sync_and_async_bare_and_decorated_are_tools() -> None:
    def plain(a: int) -> int:
        return a

    async def waiting(a: int) -> int:
        await asyncio.sleep(0)
        return a

    def returning(a: int) -> Any:
        return waiting(a)

    class Callable:
        def method(self, a: int) -> int:
            return a

        async def __call__(self, a: int) -> int:
            return a

    functions: list[Any] = [
        plain,
        waiting,
        returning,
        lambda a: a,  # pyright: ignore[reportUnknownLambdaType]
        Callable().method,
        Callable(),
        functools.partial(lambda b, a: a, 1),  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]
        tool(plain),
        tool(name="other")(waiting),
    ]
    for function in functions:
        assert call(function, {"a": 3}).value == 3


@pytest.mark.req("tools.typed")
def test_a_function_receives_the_types_that_it_asks_for() -> None:
    seen: dict[str, Any] = {}

    def take(
        day: dt.date,
        when: dt.datetime,
        price: decimal.Decimal,
        colour: Colour,
        items: list[Item],
        point: Point,
        options: Options,
        data: bytes,
        tags: set[str],
        pair: tuple[int, str],
        maybe: int | None,
        number: float,
        few: Annotated[int, pydantic.Field(ge=1, description="few")] = 1,
    ) -> None:
        seen.update(locals())
        del seen["seen"]

    result = call(
        take,
        {
            "day": "2024-02-29",
            "when": "2024-02-29T12:00:00Z",
            "price": "1.10",
            "colour": "red",
            "items": [{"name": "a"}],
            "point": {"x": 1},
            "options": {"deep": True},
            "data": "/wA=",
            "tags": ["a"],
            "pair": [1, "b"],
            "maybe": None,
            "number": 2,
        },
    )
    assert result.status == "ok", result.text
    assert seen == {
        "day": dt.date(2024, 2, 29),
        "when": dt.datetime(2024, 2, 29, 12, tzinfo=dt.UTC),
        "price": decimal.Decimal("1.10"),
        "colour": Colour.RED,
        "items": [Item(name="a")],
        "point": Point(1),
        "options": {"deep": True},
        "data": b"\xff\0",
        "tags": {"a"},
        "pair": (1, "b"),
        "maybe": None,
        "number": 2.0,
        "few": 1,
    }


@pytest.mark.req("way.arguments", "fault.I15")
@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({}, "n"),
        ({"n": "x"}, "n"),
        ({"n": 1.5}, "n"),
        ({"n": 0}, "n"),
        ({"n": 1, "item": {"name": 3}}, "item"),
        ({"n": 1, "day": "never"}, "day"),
        ({"n": 1, "data": "no base64!"}, "base64"),
        ({"n": 1, "more": 2}, "more"),
    ],
    ids=str,
)
def test_wrong_arguments_never_reach_the_function(arguments: dict[str, Any], told: str) -> None:
    def take(
        n: Annotated[int, pydantic.Field(ge=1)],
        item: Item | None = None,
        day: dt.date | None = None,
        data: bytes = b"",
    ) -> None:
        pytest.fail("it ran")

    result = call(take, arguments)
    assert (result.status, result.reason, result.ran) == ("error", "invalid_arguments", "no")
    assert told in result.text


def test_defaults_are_the_functions_own_objects() -> None:
    default = object()

    def take(a: Any = default) -> bool:
        return a is default

    assert call(take, {}).value is True


@pytest.mark.req("tools.context")
def test_the_context_is_injected_never_shown_and_never_taken_from_the_model() -> None:
    def typed(a: int, where: RunContext) -> list[Any]:
        return [a, where.run_id]

    def optional(a: int, where: RunContext | None = None) -> list[Any]:
        return [a, where.run_id if where else None]

    def named(a, ctx):  # pyright: ignore  # noqa: PGH003
        return [a, ctx.run_id]  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]

    functions: list[Callable[..., Any]] = [typed, optional, named]
    for function in functions:
        assert list(FunctionTool(function).input_schema["properties"]) == ["a"]
        assert call(function, {"a": 1}).value == [1, "the run"]
        for name in ("where", "ctx"):
            forged = call(function, {"a": 1, name: {"run_id": "forged"}})
            assert (forged.reason, forged.ran) == ("invalid_arguments", "no")


@pytest.mark.req("tools.parameters")
def test_parameters_named_like_our_own_reach_the_function() -> None:
    def take(ctx: int, self: str, where: RunContext, cls: int = 0, model_config: int = 0) -> Any:
        return [ctx, self, where.run_id, cls, model_config]

    given = {"ctx": 1, "self": "s", "cls": 2, "model_config": 3}
    assert call(take, given).value == [1, "s", "the run", 2, 3]


def test_parameters_that_pydantic_would_not_have_are_fields_all_the_same() -> None:
    def take(_under: int, __dunder__: int, model_x: int, json: int, copy: int, schema: int) -> int:
        return _under + __dunder__ + model_x + json + copy + schema

    names = ["_under", "__dunder__", "model_x", "json", "copy", "schema"]
    assert call(take, dict.fromkeys(names, 1)).value == 6


@pytest.mark.parametrize(
    ("returned", "result"),
    [
        (None, ToolExecutionResult()),
        ("", ToolExecutionResult((TextBlock(""),))),
        ("text", ToolExecutionResult((TextBlock("text"),))),
        (b"\xff", ToolExecutionResult((FileBlock(b"\xff"),))),
        (0, ToolExecutionResult((), 0)),
        ([1, 2], ToolExecutionResult((), [1, 2])),
        ({}, ToolExecutionResult((), {})),
        (ImageBlock(b"\x89PNG"), ToolExecutionResult((ImageBlock(b"\x89PNG"),))),
        (
            ["see", ImageBlock(b"a"), {"n": 1}],
            ToolExecutionResult((TextBlock("see"), ImageBlock(b"a")), {"n": 1}),
        ),
        (ToolExecutionResult((), 1, is_error=True), ToolExecutionResult((), 1, is_error=True)),
    ],
    ids=repr,
)
def test_what_a_function_returns_becomes_a_result(
    returned: Any, result: ToolExecutionResult
) -> None:
    def give() -> Any:
        return returned

    assert asyncio.run(FunctionTool(give).execute()) == result


@pytest.mark.req("tools.threads")
def test_sync_functions_and_those_marked_run_off_the_loop() -> None:
    def where() -> bool:
        return threading.current_thread() is threading.main_thread()

    async def where_async() -> bool:
        return where()

    assert call(where, {}).value is False
    assert call(where_async, {}).value is True
    assert call(tool(thread=True)(where_async), {}).value is False


@pytest.mark.req("tools.declared-early")
@pytest.mark.parametrize("kind", ["var", "positional", "unknown hint", "no schema"])
def test_a_function_that_cannot_be_described_is_refused_by_name(kind: str) -> None:
    def var(*args: int) -> None: ...
    def positional(a: int, /) -> None: ...
    def unknown(a: Missing) -> None: ...  # type: ignore[name-defined]  # noqa: F821
    def strange(a: threading.Thread) -> None: ...

    functions: dict[str, Any] = {
        "var": var,
        "positional": positional,
        "unknown hint": unknown,
        "no schema": strange,
    }
    function = functions[kind]
    with pytest.raises(DeclarationError, match=f"'{function.__name__}'"):
        tool(function)


def test_options_given_to_the_decorator_are_the_tools_members() -> None:
    @tool(
        name="a-b",
        description="words",
        risk="high",
        effect="idempotent",
        timeout=2,
        concurrency=3,
        rate="4/s",
        defer_loading=True,
        requires_approval=True,
    )
    def function() -> None:
        """Other words."""

    traits = traits_of(function)
    assert (traits.name, traits.description, traits.risk.name) == ("a-b", "words", "HIGH")
    assert (traits.effect, traits.timeout_s, traits.concurrency) == ("idempotent", 2.0, 3)
    assert (traits.defer_loading, traits.requires_approval) == (True, True)
    with pytest.raises(TypeError, match="colour"):
        tool(colour="red")(function)  # type: ignore[call-overload]


def test_a_streamed_parameter_is_marked_in_the_schema() -> None:
    def take(data: ArtifactStream) -> None: ...

    traits = traits_of(FunctionTool(take))
    assert traits.streams == {"data"}


def test_the_faults_of_binding_name_their_places() -> None:
    def take(items: list[Item]) -> None: ...

    with pytest.raises(BindError) as caught:
        FunctionTool(take).bind_arguments({"items": [{"name": "a"}, {}]})
    assert [fault.path[-2:] for fault in caught.value.faults] == [(1, "name")]


def test_output_schemas_are_told_where_the_hint_has_one() -> None:
    def nothing() -> None: ...
    def item() -> Item: ...  # type: ignore[empty-body]
    def strange() -> threading.Thread: ...  # type: ignore[empty-body]

    assert FunctionTool(nothing).output_schema is None
    assert FunctionTool(strange).output_schema is None
    told = FunctionTool(item).output_schema
    assert told is not None
    assert list(told["properties"]) == ["name", "count"]


def test_docstrings_and_names_of_partials_are_their_own() -> None:
    def base(a: int, b: int) -> int:
        """The base."""
        return a + b

    made = FunctionTool(functools.partial(base, 1))
    assert made.name == "base"
    assert list(made.input_schema["properties"]) == ["b"]
    assert made.description == "The base."
    assert repr(made) == "<tool 'base'>"


def test_keyword_parameters_beyond_the_named_ones_are_not_shown() -> None:
    def take(a: int, **others: Any) -> Any:
        return [a, others]

    assert list(FunctionTool(take).input_schema["properties"]) == ["a"]
    assert call(take, {"a": 1}).value == [1, {}]
