"""The type check before a script runs: what fails for certain is told, what may work is let by."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from substrate import (
    ApprovalDecision,
    ChainPolicy,
    Toolbox,
    ToolChainTool,
    ToolInvoker,
    run_script_sync,
    tool,
)
from substrate.capabilities.sandboxes import MontySandbox
from substrate.capabilities.sandboxes.checker import Checker
from substrate.kernel.sandbox import Problem, Script
from substrate.kernel.tools.approval import ApprovalRequest
from substrate.kernel.tools.chain import ChainRunResult

STUBS = """
from typing import Any, Literal
tools: dict[str, Any]
async def add(a: int, b: int = ...) -> int: ...
async def pay(to: str, amount: float, how: Literal["card", "cash"] = ...) -> dict[str, Any]: ...
async def find(q: str) -> list[dict[str, Any]]: ...
"""
TOOLS = {name: name for name in ("add", "pay", "find")}


@pytest.fixture(scope="module")
def checker() -> Any:
    made = Checker()
    yield made
    made.close()


def check(checker: Checker, code: str) -> list[Problem]:
    return checker.check(Script(code=code, tools=TOOLS, stubs=STUBS))


@pytest.mark.req("script.type-check")
@pytest.mark.parametrize(
    ("code", "line", "said"),
    [
        ("await add(a='1')", 1, "Expected `int`"),
        ("x = 1\nawait add()", 2, "required parameter `a`"),
        ("await add(a=1, c=2)", 1, "Argument `c`"),
        ("await add(1, 2, 3)", 1, "Too many positional arguments"),
        ("await pay(to='x', amount=1, how='coin')", 1, "card"),
        ("await pay(to=None, amount=1)", 1, "found `None`"),
        ("import asyncio\nawait asyncio.gather(add(a=1), add(a='2'))", 2, "Expected `int`"),
        ("async def f():\n    return await add(a='1')\nawait f()", 2, "Expected `int`"),
        ("await fnid(q='x')", 1, "did you mean 'find'"),
        ("import numpy", 1, "what can be imported"),
        ("import math\nmath.sqroot(2)", 2, "sqroot"),
        ("'a'.foo()", 1, "foo"),
        ("r = await add(a=1)\nr['x']", 2, "subscript"),
        ("'a' + 1", 1, "not supported"),
        ("await add", 1, "not awaitable"),
        ("if True:\n\tawait add(a='1')", 2, "Expected `int`"),
        ("s = '''\n  a\n'''\nawait add(a='1')", 4, "Expected `int`"),
    ],
)
def test_what_fails_for_certain_is_told_with_its_line(
    checker: Checker, code: str, line: int, said: str
) -> None:
    (problem,) = check(checker, code)
    assert (problem.reason, problem.line) == ("type_check", line)
    assert said in problem.message


@pytest.mark.req("script.type-check")
@pytest.mark.parametrize(
    ("code", "line", "way"),
    [
        ("d = {1: 2}\ndel d[1]", 2, "d.pop(key)"),
        ("def f():\n    yield 1", 2, "build a list"),
        ("class A(Exception):\n    pass", 1, "built-in exception"),
        ("async def f(x):\n    async with x:\n        pass", 2, "try and finally"),
        ("async def f(x):\n    async for y in x:\n        pass", 2, "a plain for"),
        ("class A:\n    @property\n    def x(self):\n        return 1", None, "plain method"),
        ("from math import *", None, "the names that are used"),
        ("type X = int", 1, "leave it out"),
    ],
)
def test_what_the_dialect_lacks_is_named_with_the_way_round_it(
    checker: Checker, code: str, line: int | None, way: str
) -> None:
    (problem,) = check(checker, f"x = 'seen together with a type error' + 1\n{code}")
    assert problem.reason == "unsupported"
    assert way in problem.message
    assert line is None or problem.line == line + 1


@pytest.mark.parametrize(
    "code",
    [
        "return await add(a=1)",
        "x = 1\ndef f():\n    global x\n    x = 2\nf()\nx",
        "from __future__ import annotations\n1",
        "import re\nm = re.match('a', 'a')\nm.group(0)",
        "data = await find(q='x')\nfirst = data[0] if data else None\nfirst['a']",
        "rows = [{'a': 1, 'b': 'x'}]\nsum(r['a'] for r in rows)",
        "rows = [{'a': 1, 'b': 'x'}]\nt = 0\nfor r in rows:\n    t += r['a']",
        """
import asyncio
rs = await asyncio.gather(*(add(a=i) for i in range(3)), return_exceptions=True)
sum([r for r in rs if not isinstance(r, Exception)])
""",
        "args = {'a': 1}\nawait add(**args)",
        "name = 'add'\nawait tools[name](a=1)",
        "try:\n    v = await add(a=1)\nexcept PermissionError as e:\n    v = str(e)\nv",
        "open('/workspace/media/a.png', 'rb').read()",
        "list(map(str, filter(None, [1])))",
        "rows = await find(q='x')\nrows.preview",
        "rows = await find(q='x')\nawait rows.text(0, 9)",
        "rows = await find(q='x')\nawait add(a=rows[0]['n'])",
        "x = {'a': 1}.get('a')\nawait add(a=x)",
        "f = [add]\nawait f[0](a=1)",
        "x = 5 if await find(q='x') else 'a'\nawait add(a=x)",
    ],
)
def test_what_may_work_is_let_by(checker: Checker, code: str) -> None:
    assert check(checker, code) == []


def test_nothing_of_a_script_is_executed_by_its_check(checker: Checker) -> None:
    check(checker, "1")
    before = dict(checker._sessions)
    begun = time.monotonic()
    for code in ("while True:\n    pass", "print('x')\n1 / 0", "def f(x=1 / 0):\n    pass"):
        check(checker, code)
    assert checker._sessions == before  # one in which something failed is dropped
    assert time.monotonic() - begun < 4  # the loop would take five seconds


def test_a_kept_session_is_renewed_and_gives_the_same(checker: Checker) -> None:
    for number in range(100):
        problems = check(checker, f"x{number} = await add(a='{number}')")
        assert [problem.line for problem in problems] == [1]
    other = Script(code="await add(a=1)", tools=TOOLS, stubs="async def add(a: str) -> int: ...\n")
    for _ in range(3):
        assert [p.reason for p in checker.check(other)] == ["type_check"]
        assert check(checker, "await add(a=1)") == []


@pytest.mark.parametrize(
    "code",
    ["(" * 20_000, "x" * 300_000, "-" * 50_000 + "1", "x = " + "[" * 500 + "]" * 500, "é" * 99],
)
def test_a_script_made_to_break_the_checker_breaks_nothing(checker: Checker, code: str) -> None:
    check(checker, code)
    assert check(checker, "await add(a=1)") == []


# in a chain -------------------------------------------------------------------------------


async def yes(_request: ApprovalRequest) -> ApprovalDecision:
    return ApprovalDecision.APPROVED


def run(code: str, *, risk: str = "high") -> tuple[ChainRunResult, list[str]]:
    ran: list[str] = []

    @tool(risk=risk)
    async def pay(to: str, amount: float) -> str:
        ran.append(to)
        return to

    return run_script_sync(code, tools=[pay], approve=yes), ran


@pytest.mark.req("script.type-check")
def test_a_script_of_wrong_types_calls_nothing() -> None:
    result, ran = run("await pay(to='a', amount=1)\nawait pay(to='b', amount='2')")
    assert (result.status, result.reason, ran) == ("error", "type_check", [])
    assert "line 2: " in (result.error or "")
    assert "No tool was called." in result.output_text


@pytest.mark.req("script.type-check")
def test_a_script_of_pure_tools_alone_is_not_checked() -> None:
    result, ran = run("await pay(to='a', amount=1)\nawait pay(to='b', amount='2')", risk="safe")
    assert (result.reason, ran) == ("script_error", ["a"])


def test_every_tool_that_is_named_is_checked_also_by_its_own_name() -> None:
    result, ran = run("await tools['pay'](to='a', amount=1)\nawait undefined()")
    assert (result.reason, ran) == ("type_check", [])


def test_a_sandbox_of_its_own_ends_its_checker_too() -> None:
    async def main() -> ChainRunResult:
        async with MontySandbox(processes=1) as sandbox:

            @tool(risk="high")
            async def pay(to: str) -> str:
                return to

            chain = ToolChainTool(ToolInvoker(Toolbox([pay])), sandbox)
            return await chain.run("await pay(to=1)")

    assert asyncio.run(main()).reason == "type_check"


def test_a_check_that_hangs_costs_a_chain_no_more_than_its_time() -> None:
    class Slow(MontySandbox):
        async def preflight(self, script: Script) -> list[Problem]:
            await asyncio.Event().wait()
            return []

    async def main() -> ChainRunResult:
        async with Slow(processes=1) as sandbox, asyncio.timeout(20):
            policy = ChainPolicy(total_timeout_s=0.2)
            chain = ToolChainTool(ToolInvoker(Toolbox([])), sandbox, policy=policy)
            return await chain.run("while True:\n    pass")

    result = asyncio.run(main())
    assert (result.status, result.reason) == ("timeout", "time")
    assert result.duration_ms < 10_000


def test_a_long_script_is_not_checked_and_runs() -> None:
    code = "x = 1\n" * 12_000 + "await pay(to='a', amount=1)"
    result, ran = run(code)
    assert (result.status, ran) == ("ok", ["a"]), result.output_text[:500]
