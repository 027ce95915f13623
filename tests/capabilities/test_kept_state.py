"""State between the scripts of one scope: only where it is asked for."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from substrate import (
    ApprovalDecision,
    InMemoryBlobStore,
    Toolbox,
    ToolChainTool,
    ToolInvoker,
    tool,
)
from substrate.capabilities.tools.chain import state as states
from substrate.capabilities.tools.chain.state import bound_names
from substrate.kernel.context import RunContext
from substrate.kernel.tools.approval import ApprovalRequest
from substrate.kernel.tools.chain import ChainRunResult

TEXT = "ä" * 9000


@tool(risk="high")
async def add(a: int, b: int = 1) -> int:
    return a + b


@tool(risk="safe")
async def large() -> str:
    return TEXT


@tool(risk="safe")
async def length(text: str) -> int:
    return len(text)


class Yes:
    async def request(self, req: ApprovalRequest, /) -> ApprovalDecision:
        return ApprovalDecision.APPROVED


def run(*scripts: str, keep: bool = True, scopes: str = "") -> list[ChainRunResult]:
    async def main() -> list[ChainRunResult]:
        invoker = ToolInvoker(Toolbox([add, large, length]), Yes(), InMemoryBlobStore())
        chain = ToolChainTool(invoker, keep_state=keep)
        return [
            await chain.run(code, ctx=RunContext(session_id=scopes[n : n + 1] or "a"))
            for n, code in enumerate(scripts)
        ]

    return asyncio.run(main())


def value(*scripts: str) -> Any:
    results = run(*scripts)
    assert results[-1].status == "ok", results[-1].output_text
    return results[-1].value


@pytest.mark.req("script.keep-state")
def test_variables_functions_and_imports_are_there_for_the_next_script() -> None:
    assert value(
        "import math\nrows = [{'n': 1}]\ndef twice(x):\n    return 2 * x\nm = await add(a=1)",
        "rows.append({'n': 2})",
        "[rows, twice(m), math.floor(1.5), await add(a=m)]",
    ) == [[{"n": 1}, {"n": 2}], 4, 1, 3]


@pytest.mark.req("script.keep-state")
def test_nothing_is_kept_unless_it_is_asked_for_and_nothing_crosses_scopes() -> None:
    assert run("x = 1", "x", keep=False)[1].reason == "script_error"
    results = run("x = 1", "x", "x", scopes="aba")
    assert [r.status for r in results] == ["ok", "error", "ok"]

    async def main() -> ChainRunResult:
        chain = ToolChainTool(ToolInvoker(Toolbox([add])), keep_state=True)
        await chain.run("x = 1")
        return await chain.run("x")

    assert asyncio.run(main()).status == "error"  # no scope, no state


def test_an_artifact_of_an_earlier_script_is_still_one() -> None:
    assert value(
        "a = await large()\nb = {'in': [a]}",
        "again = a",
        "[await length(text=a), await length(text=b['in'][0]), await again.text(0, 4), a.size]",
    ) == [9000, 9000, "ää", 18000]


def test_a_script_that_raised_keeps_what_it_had_done_and_a_killed_one_changes_nothing() -> None:
    assert value("x = 1\n1 / 0", "x") == 1
    assert value("x = 1", "x = 2\nwhile True:\n    print('x' * 9000)", "x") == 1


def test_a_script_is_checked_with_the_names_of_earlier_ones() -> None:
    results = run(
        "rows = [1]\ndef pick(x):\n    return x", "await add(a=pick(rows[0]))", "await add(a=rosw)"
    )
    assert [r.reason for r in results] == [None, None, "type_check"]


def test_a_tool_that_an_earlier_script_redefined_is_that_scripts() -> None:
    assert value("def add(x):\n    return x\n1", "add(5) + 1") == 6


def test_an_error_in_a_function_of_an_earlier_script_says_where_it_is() -> None:
    results = run("def f():\n    return 1 / 0", "f()")
    assert 'File "script", line 1' in (results[1].error or "")
    assert 'File "an earlier script", line 2' in (results[1].error or "")
    calls = run("async def f():\n    return await add(a=1)", "await add(a=2)\nawait f()")
    sites = [record.site for record in calls[1].call_trace]
    assert sites[0] is not None
    assert sites[0].line == 1
    assert sites[1] is None  # it stands in another script


def test_a_state_that_is_too_large_is_not_kept_and_the_model_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(states, "_LARGEST", 20_000)
    results = run("x = 1", "x = 'y' * 90_000\n1", "x")
    assert "more than the 20000 that are kept" in results[1].output_text
    assert results[2].value == 1


def test_the_scope_that_was_not_used_for_longest_is_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(states, "_MOST_SCOPES", 2)
    results = run("x = 1", "x = 2", "x", "x = 3", "x", "x", scopes="abacab")
    assert [r.status for r in results] == ["ok", "ok", "ok", "ok", "ok", "error"]


def test_all_states_together_are_bounded_and_handles_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(states, "_MOST_BYTES", 40_000)
    fill = "x = 'y' * 15_000\n1"
    results = run(fill, fill, fill, "len(x)", "len(x)", scopes="abcac")
    assert [r.value for r in results[3:]] == [None, 15_000]
    many = "kept = [await artifacts.put('z' * 150 + str(n)) for n in range(60)]\n1"
    results = run("x = 1", many, "x", scopes="aba")
    assert results[2].status == "error"  # sixty handles are more than 40 kB


@pytest.mark.parametrize(
    ("code", "names"),
    [
        ("a = 1\nb, (c, *d) = 1, (2, 3)", {"a", "b", "c", "d"}),
        ("for i in x:\n    j = i", {"i", "j"}),
        ("import a.b\nfrom c import d as e", {"a", "e"}),
        ("def f(x):\n    y = x", {"f"}),
        ("with open('x') as g:\n    pass", {"g"}),
        ("try:\n    pass\nexcept E as h:\n    pass", {"h"}),
        ("(k := 1)", {"k"}),
        ("match x:\n    case [l, *m]:\n        pass", {"l", "m"}),
        ("class C:\n    z = 1", {"C"}),
        ("f = lambda q: (w := q)", {"f"}),
        ("1 +", None),
    ],
)
def test_the_names_that_a_script_binds(code: str, names: set[str] | None) -> None:
    assert bound_names(code) == names
