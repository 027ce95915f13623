"""Large toolboxes: tools by name and line, and found by words inside the script."""

from __future__ import annotations

import ast
import asyncio
import sqlite3
from typing import Any

import pytest

from substrate import ApprovalDecision, Toolbox, ToolChainTool, ToolInvoker, run_script_sync, tool
from substrate.capabilities.tools.chain.search import ToolIndex
from substrate.kernel.tools.approval import ApprovalRequest

WORDS = ["issue", "mail", "invoice", "calendar", "contact"]


def made(number: int) -> Any:
    word = WORDS[number % len(WORDS)]

    @tool(name=f"{word}_{number}", risk="safe", description=f"Read the {word} no. {number}.\nMore.")
    def read(key: str, limit: int = 10) -> str:
        return f"{word} {key}"

    return read


@tool(risk="safe", name="repo.listOpenIssues")
def list_issues(owner: str) -> list[str]:
    """List what is still to be done in a repository."""
    return [owner]


MANY = [*(made(number) for number in range(300)), list_issues]


@pytest.mark.req("script.search")
def test_a_small_toolbox_is_told_whole_and_a_large_one_by_name_and_line() -> None:
    small = ToolChainTool(ToolInvoker(Toolbox(MANY[:3]))).description
    assert "async def issue_0(key: str, limit: int = ...) -> str:" in small
    assert "tool_search" not in small
    large = ToolChainTool(ToolInvoker(Toolbox(MANY)))
    assert "async def issue_0(" not in large.description
    assert "# mail_1: Read the mail no. 1.\n" in large.description
    assert "async def tool_search(query: str" in large.description
    assert len(large.description) < 30_000
    ast.parse(large.description[large.description.index("from typing") :])


@pytest.mark.req("script.search")
def test_a_script_finds_a_tool_reads_its_stub_and_calls_it() -> None:
    code = """
found = await tool_search("open issues of a repository")
stub = await tool_schema(found[0]["name"])
value = await tools["repo.listOpenIssues"](owner="me")
[found[0], stub.split(":")[0], value]
"""
    result = run_script_sync(code, tools=MANY)
    assert result.status == "ok", result.output_text
    first, stub, value = result.value
    assert first == {
        "name": "repo_listOpenIssues", "does": "List what is still to be done in a repository.",
    }  # fmt: skip
    assert stub == "async def repo_listOpenIssues(owner"
    assert value == ["me"]
    assert len(result.call_trace) == 1  # a search is no call


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("await tool_schema('mial_1')", "did you mean"),
        ("await tool_schema(5)", "takes other arguments"),
        ("await tool_search()", "takes other arguments"),
        ("await tool_search('mail', 5, 6)", "takes other arguments"),
        ("await tool_search(None)", "takes other arguments"),
    ],
)
def test_a_wrong_question_is_an_ordinary_error(code: str, said: str) -> None:
    result = run_script_sync(code, tools=MANY)
    assert (result.status, result.reason) == ("error", "script_error")
    assert said in (result.error or "")


@pytest.mark.parametrize("risk", ["safe", "high"])
def test_a_tool_of_that_name_comes_first(risk: str) -> None:
    @tool(risk=risk)
    def tool_search(words: int) -> str:
        """My own."""
        return f"own {words}"

    async def yes(_request: ApprovalRequest) -> ApprovalDecision:
        return ApprovalDecision.APPROVED

    code = "[await tool_search(words=5), (await tool_schema('tool_search')).split(':')[0]]"
    result = run_script_sync(code, tools=[tool_search], approve=yes)
    assert result.value == ["own 5", "async def tool_search(words"], result.output_text
    large = ToolChainTool(ToolInvoker(Toolbox([*MANY, tool_search]))).description
    assert "async def tool_search" not in large
    assert "async def tool_schema" in large


@pytest.mark.parametrize("query", ["", "  ", '"', "mail OR", "NEAR(a b)", "-*", "a" * 999, "日本"])
def test_no_words_break_the_search(query: str) -> None:
    box = Toolbox(MANY)
    index = ToolIndex({n: t for n in box.names() if (t := box.traits(n)) is not None})
    assert isinstance(index.search(query), list)
    assert len(index.search("mail", limit=10**9)) == 50
    assert len(index.search("mail", limit=-1)) == 1


def test_without_fts5_words_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    class NoFts5:
        def close(self) -> None: ...

        def execute(self, *_: Any) -> None:
            msg = "no such module: fts5"
            raise sqlite3.OperationalError(msg)

    def connect(*_: Any, **__: Any) -> NoFts5:
        return NoFts5()

    monkeypatch.setattr(sqlite3, "connect", connect)
    box = Toolbox(MANY)
    index = ToolIndex({n: t for n in box.names() if (t := box.traits(n)) is not None})
    assert index.search("contact")[0]["name"].startswith("contact_")


def test_the_index_follows_the_toolbox() -> None:
    async def main() -> list[Any]:
        box = Toolbox([made(0)])
        chain = ToolChainTool(ToolInvoker(box))
        code = "[hit['name'] for hit in await tool_search('mail issue')]"
        before = await chain.run(code)
        box.add(made(1))
        return [before.value, sorted((await chain.run(code)).value)]

    assert asyncio.run(main()) == [["issue_0"], ["issue_0", "mail_1"]]
