"""Stubs are Python, whatever a tool says of itself."""

from __future__ import annotations

import ast
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from substrate.agents.tools.declare import tool
from substrate.agents.tools.invoker import ToolInvoker
from substrate.agents.tools.toolbox import Toolbox
from substrate.agents.tools.traits import Traits, traits_of
from substrate.capabilities.tools.chain import ToolChainTool
from substrate.capabilities.tools.chain.stubs import annotation_of, stub_of, stubs_of
from substrate.kernel.tools.tools import ToolExecutionResult
from substrate.scripts import run_script_sync

HOSTILE = [
    '"""',
    'ends with "',
    'ends with ""',
    "ends with \\",
    '\\"""',
    '\\\\"""\nimport os\n"""',
    "\\N{DASH} \\x \\u12 {braces} %s",
    "one\n\n  two\n\tthree\r\nfour\rfive",
    "\x00\x01\x1b[31m",
    "\u2028line\u2029separators\x85\x0b\x0c\x1c",
    "\ud800",
    "",
    "   ",
    "搜索 🙂",
]
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
words = st.one_of(
    texts, st.sampled_from([w for w in HOSTILE if w != "\ud800"]), st.text('"\\\n a', max_size=8)
)


def read(
    properties: dict[str, Any], description: str = "", output: Any = None, **schema: Any
) -> Traits:
    async def execute(**kwargs: Any) -> ToolExecutionResult:
        return ToolExecutionResult((), kwargs)

    made: Any = SimpleNamespace(
        name="it",
        description=description,
        input_schema={"type": "object", "properties": properties, **schema},
        output_schema=output,
        execute=execute,
    )
    return traits_of(made)


def parsed(text: str) -> ast.AsyncFunctionDef:
    body = ast.parse(text).body
    assert len(body) == 1
    assert isinstance(body[0], ast.AsyncFunctionDef)
    return body[0]


@pytest.mark.req("script.stubs")
def test_a_stub_tells_signature_words_parameters_and_defaults() -> None:
    traits = read(
        {
            "limit": {"type": "integer", "default": 5, "description": "How many\nat most."},
            "query": {"type": "string", "description": "What to look for."},
        },
        "Search the web.",
        {"type": "array", "items": {"type": "string"}},
        required=["query"],
        additionalProperties=False,
    )
    assert (
        stub_of("search", traits)
        == '''\
async def search(query: str, limit: int = ...) -> list[str]:
    """Search the web.

    Args:
        query: What to look for.
        limit: How many at most. (default 5)"""
    ...
'''
    )


@pytest.mark.req("script.stubs")
@given(words, words, words)
@example(*HOSTILE[:3])
@example(*HOSTILE[3:6])
@example(*HOSTILE[6:9])
@example("\ud800", "   ", "")
def test_no_words_of_a_tool_break_out_of_its_docstring(
    description: str, of_parameter: str, default: str
) -> None:
    part = {"type": "string", "description": of_parameter, "default": default}
    stub = stub_of("it", read({"a": part}, description))
    function = parsed(stub)
    assert len(function.body) == 2
    assert ast.get_docstring(function)
    assert [arg.arg for arg in function.args.args] == ["a"]


@pytest.mark.parametrize("description", HOSTILE)
def test_the_words_are_read_as_they_were_written(description: str) -> None:
    doc = ast.get_docstring(parsed(stub_of("it", read({}, description))))
    assert doc is not None
    shown = description.replace("\ud800", "\\ud800")
    assert doc.split() == (shown.strip() or "it").split()


@pytest.mark.req("tools.parameters")
def test_parameters_that_are_no_names_are_told_apart() -> None:
    odd = {"from": {}, "x-y": {"description": "odd"}, "a'b": {}, "": {}, "1": {}, "None": {}}
    function = parsed(stub_of("it", read({**odd, "fine": {}}, required=["from", "fine"])))
    assert [arg.arg for arg in function.args.args] == ["fine"]
    assert function.args.kwarg is not None
    assert function.args.kwarg.arg == "others"
    doc = ast.get_docstring(function)
    assert doc is not None
    told = doc[doc.index("**{") + 2 :]
    assert set(ast.literal_eval(told)) == set(odd)


@given(st.lists(words, unique=True, max_size=5), st.booleans())
@example(["others", "from"], False)
@example(["ﬁ", "fi", "e\u0301", "\u00e9"], True)
def test_any_parameters_make_a_stub_that_compiles(names: list[str], required: bool) -> None:
    traits = read({name: {} for name in names}, required=names if required else [])
    text = stub_of("it", traits)
    compile(text, "stubs", "exec")
    assert len(parsed(text).body) == 2


def test_names_that_python_would_read_as_others_are_no_parameters() -> None:
    function = parsed(stub_of("it", read({"\ufb01": {}, "fi": {}, "__debug__": {}, "others": {}})))
    assert [arg.arg for arg in function.args.args] == ["fi", "others"]
    assert function.args.kwarg is not None
    assert function.args.kwarg.arg == "others_"


def test_a_tool_that_takes_anything_says_so() -> None:
    assert parsed(stub_of("it", read({}))).args.kwarg is not None
    assert parsed(stub_of("it", read({}, additionalProperties=False))).args.kwarg is None
    assert parsed(stub_of("it", read({"a": {}}))).args.kwarg is None


ROOT: dict[str, Any] = {
    "$defs": {
        "a/b": {"type": "string"},
        "c~d": {"type": "integer"},
        "tree": {"type": "array", "items": {"$ref": "#/$defs/tree"}},
    }
}


@pytest.mark.parametrize(
    ("schema", "annotation"),
    [
        ({"type": "string"}, "str"),
        ({"type": "integer"}, "int"),
        ({"type": "number"}, "float"),
        ({"type": "boolean"}, "bool"),
        ({"type": "null"}, "None"),
        ({"type": "array"}, "list[Any]"),
        ({"type": "object"}, "dict[str, Any]"),
        ({"type": "object", "additionalProperties": {"type": "integer"}}, "dict[str, int]"),
        ({"type": ["null", "string"]}, "str | None"),
        (
            {"anyOf": [{"type": "null"}, {"type": "array", "items": {"type": "string"}}]},
            "list[str] | None",
        ),
        ({"oneOf": [{"const": "a"}, {"const": None}]}, "Literal['a'] | Literal[None]"),
        ({"anyOf": [{"type": "string"}, {}]}, "Any"),
        ({"anyOf": []}, "Any"),
        ({"enum": ["a", 1, True, None]}, "Literal['a', 1, True, None]"),
        ({"enum": [1.5]}, "Any"),
        ({"type": "number", "enum": [1.5]}, "float"),
        ({"type": "string", "enum": [str(n) for n in range(50)]}, "str"),
        ({"const": 'it\'s """ \\ \n'}, "Literal['it\\'s \"\"\" \\\\ \\n']"),
        ({"$ref": "#/$defs/a~1b"}, "str"),
        ({"$ref": "#/$defs/c~0d"}, "int"),
        ({"$ref": "#/$defs/none"}, "Any"),
        ({"$ref": "https://x.test/a"}, "Any"),
        ({"$ref": "#"}, "Any"),
        ({"type": "strange"}, "Any"),
        (True, "Any"),
        (None, "Any"),
    ],
    ids=str,
)
def test_a_schema_becomes_an_annotation(schema: Any, annotation: str) -> None:
    assert annotation_of(schema, ROOT) == annotation
    ast.parse(annotation, mode="eval")


def test_a_schema_that_holds_itself_ends() -> None:
    found = annotation_of({"$ref": "#/$defs/tree"}, ROOT)
    assert found.startswith("list[list[")
    assert found.endswith("Any]]]") or "Any" in found


@pytest.mark.req("script.stubs", "S39")
def test_a_model_is_shown_the_stubs_of_the_tools_that_a_script_may_call() -> None:
    @tool(name="get-weather")
    async def get_weather(city: str) -> dict[str, float]:
        """The weather of a city."""
        return {city: 1.0}

    hosted: Any = SimpleNamespace(name="search", provider_specs={"x": {}})
    box = Toolbox([get_weather, hosted])
    chain = ToolChainTool(ToolInvoker(box))
    box.add(chain)
    assert "exist only inside the\nscript" in chain.description
    assert chain.description.endswith(chain.stubs())
    functions = [n for n in ast.parse(chain.stubs()).body if isinstance(n, ast.AsyncFunctionDef)]
    assert [function.name for function in functions] == ["get_weather"]
    assert "-> dict[str, float]:" in chain.stubs()
    for name in ("search", "tool_chain"):
        result = run_script_sync(f"await tools[{name!r}](code='1')", box)
        assert result.status == "error"
        assert all(record.ran == "no" for record in result.call_trace)


@pytest.mark.req("script.positional")
def test_positional_arguments_follow_the_stub_past_parameters_that_are_no_names() -> None:
    class Echo:
        name = "echo"
        description = ""
        risk = "safe"
        input_schema: dict[str, Any] = {  # noqa: RUF012  # a protocol's property is no ClassVar
            "properties": {"late": {}, "from": {}, "first": {}, "x-y": {}},
            "required": ["from", "first"],
        }

        async def execute(self, *, ctx: object = None, **kwargs: Any) -> ToolExecutionResult:
            return ToolExecutionResult((), kwargs)

    result = run_script_sync("await echo(1, 2, **{'from': 3})", [Echo()])
    assert result.value == {"first": 1, "late": 2, "from": 3}, result.output_text


def test_stubs_of_many_tools_are_one_module() -> None:
    text = stubs_of([("a", read({})), ("b", read({}))])
    names = [getattr(node, "name", None) for node in ast.parse(text).body]
    assert names == [None, None, "Artifact", "Artifacts", None, "a", "b"]
