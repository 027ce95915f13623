"""Calls that nobody awaits: told before anything runs where that can be seen."""

from __future__ import annotations

import pytest

from substrate import ApprovalDecision, run_script_sync, tool
from substrate.capabilities.tools.chain.awaiting import never_awaited
from substrate.kernel.tools.approval import ApprovalRequest

TOOLS = ("add", "pay")


@pytest.mark.req("script.not-awaited")
@pytest.mark.parametrize(
    ("code", "line", "written"),
    [
        ("add(1)", 1, "add(1)"),
        ("x = 1\nadd(\n    1,\n)\nx", 2, "add(\n    1,\n)"),
        ("add(1) + 1", 1, "add(1)"),
        ("1 + add(1)", 1, "add(1)"),
        ("-add(1)", 1, "add(1)"),
        ("add(1) > 2", 1, "add(1)"),
        ("f'{add(1)}'", 1, "add(1)"),
        ("print('x', add(1))", 1, "add(1)"),
        ("len(add(1))", 1, "add(1)"),
        ("if add(1):\n    pass", 1, "add(1)"),
        ("for x in add(1):\n    pass", 1, "add(1)"),
        ("add(1)['a']", 1, "add(1)"),
        ("add(1).a", 1, "add(1)"),
        ("x = add(1)", 1, "add(1)"),
        ("x = add(1)\ny = 2", 1, "add(1)"),
        ("x = add(1)\nprint(x)", 1, "add(1)"),
        ("x = add(1)\nx['a'] + x['b']", 1, "add(1)"),
        ("tools['a-b'](1)", 1, "tools['a-b'](1)"),
        ("def f():\n    add(1)\nf()", 2, "add(1)"),
        ("await pay(add(1))", 1, "add(1)"),
        ("await pay(x=[{'y': add(1)}])", 1, "add(1)"),
        ("await add(1)\nadd(2)", 2, "add(2)"),
    ],
)
def test_a_call_that_is_visibly_never_awaited_is_told_with_the_right_line(
    code: str, line: int, written: str
) -> None:
    (problem,) = never_awaited(code, TOOLS)
    assert (problem.reason, problem.line) == ("not_awaited", line)
    assert problem.message.startswith(f"{written} is never awaited")
    assert problem.message.endswith(f"write: await {written}")


@pytest.mark.parametrize(
    "code",
    [
        "await add(1)",
        "x = add(1)\nawait x",
        "x = add(1)\nprint(await x)",
        "xs = [add(i) for i in range(3)]\nawait asyncio.gather(*xs)",
        "await asyncio.gather(add(1), pay(2))",
        "t = asyncio.create_task(add(1))\nawait t",
        "def f(x):\n    return add(x)\nawait f(1)",
        "f = lambda: add(1)\nawait f()",
        "x = add(1)\ny = x\nawait y",
        "x = {'a': add(1)}\nawait x['a']",
        "def add(x):\n    return x\nadd(1) + 1",
        "import add\nadd(1)",
        "def g(add):\n    add(1)",
        "other(1)",
        "x.add(1)",
        "'add(1)'",
        "# add(1)",
        "add(1",
        "await (add)(1)",
    ],
)
def test_what_may_be_awaited_is_let_by(code: str) -> None:
    assert never_awaited(code, TOOLS) == []


def test_a_script_that_no_parser_of_the_host_reads_is_let_by() -> None:
    assert never_awaited("add(1)\n" + "(" * 5000, TOOLS) == []
    assert never_awaited("add(1)\n" + "-" * 100_000 + "1", TOOLS) == []


@pytest.mark.req("script.not-awaited")
def test_one_that_is_seen_at_the_end_only_ends_the_run_without_a_value() -> None:
    ran: list[str] = []

    @tool(risk="high")
    async def pay(to: str) -> str:
        ran.append(to)
        return to

    async def yes(_request: ApprovalRequest) -> ApprovalDecision:
        return ApprovalDecision.APPROVED

    code = "def make(to):\n    return pay(to=to)\nx = [make('a')]\nx"
    result = run_script_sync(code, tools=[pay], approve=yes)
    assert (result.status, result.reason, result.value) == ("error", "not_awaited", None)
    assert "line 2: pay(to=to) was never awaited and was not run" in (result.error or "")
    assert ran == []
    assert result.call_trace == ()

    waited = "def make(to):\n    return pay(to=to)\nx = [make('a')]\nawait pay(to='b')\n1"
    result = run_script_sync(waited, tools=[pay], approve=yes)
    assert [(r.args_preview, r.ran) for r in result.call_trace] == [
        ('{"to":"a"}', "yes"), ('{"to":"b"}', "yes"),
    ]  # fmt: skip
