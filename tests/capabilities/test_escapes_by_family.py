"""Attack scripts by family: the exact end of each, and hosts on which each would succeed.

An attack is run through the chain tool on a pool of one worker. Whatever its end is, the
same checks are made of it, and the next script has to run on the same pool. The naive
hosts at the end run the same scripts; there the same checks find what was reached.
"""

from __future__ import annotations

import ast
import asyncio
import contextlib
import io
import re
import tempfile
import textwrap
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, cast

import pytest

from substrate import (
    ApprovalDecision,
    ChainPolicy,
    InMemoryBlobStore,
    Toolbox,
    ToolChainTool,
    ToolInvoker,
    tool,
)
from substrate.capabilities.sandboxes import MontySandbox
from substrate.capabilities.tools.chain import media
from substrate.kernel.tools.approval import ApprovalRequest
from substrate.kernel.tools.chain import ChainRunResult

pytestmark = pytest.mark.req("sandbox.attacks", "invariant.9")

CANARY = "CANARY_7f3a"  # in the host's environment, in a file, and in the globals of its tools
VARIABLE = "SUBSTRATE_CANARY"
OWNED = "substrate-owned"  # the name of every file that an attack would write
CALLS = 10
OUTPUT = 8 * 1024
LONGEST_S = 15.0  # the longest limit is 5; the rest is for a busy machine
USUAL = ChainPolicy(total_timeout_s=5, max_tool_calls=CALLS, max_output_bytes=OUTPUT)
SHORT = ChainPolicy(total_timeout_s=0.5, max_tool_calls=CALLS, max_output_bytes=OUTPUT)
CONTROL = "got = await echo(x='fine')\nprint('CONTROL-OK', got)\n6 * 7"
GRANTED = frozenset(["echo", "boom", "send", "large", "measure"])


# the host ---------------------------------------------------------------------------------


class Host:
    """The decoys: tools that note what reaches them, and one that nobody was granted."""

    def __init__(self) -> None:
        self.executed: list[tuple[str, Any]] = []

        @tool(risk="safe", effect="pure")
        async def echo(x: Any = None) -> Any:
            self.executed.append(("echo", x))
            return x

        @tool(risk="safe", effect="pure")
        async def boom(x: Any = None) -> Any:
            self.executed.append(("boom", x))
            msg = "boom"
            raise RuntimeError(msg)

        @tool(risk="safe", effect="pure")
        async def large() -> str:
            self.executed.append(("large", None))
            return "real " * 2000

        @tool(risk="safe", effect="pure")
        async def measure(x: Any) -> str:
            self.executed.append(("measure", None))
            return f"{type(x).__name__} {len(x)}"

        @tool(risk="high", effect="once")
        async def send(to: str = "") -> str:
            self.executed.append(("send", to))
            return "sent"

        self.tools = [echo, boom, large, measure, send]

    async def admin_only(self, x: Any = None) -> str:
        self.executed.append(("admin_only", x))
        return "done"

    async def request(self, req: ApprovalRequest, /) -> ApprovalDecision:
        """Whatever asks is refused."""
        return ApprovalDecision.DENIED


@dataclass
class Ended:
    """A run: its result, what was executed on the host, and the files that it left."""

    result: ChainRunResult
    executed: list[tuple[str, Any]] = field(default_factory=list[tuple[str, Any]])
    files: set[str] = field(default_factory=set[str])
    spent_s: float = 0.0


class Place:
    """A host with its secrets, and the pool."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.secret = folder / "secret"
        self.secret.write_text(CANARY)
        self.sandbox = MontySandbox(processes=1)

    def written(self) -> set[str]:
        """Names of files that were not there before."""
        below = [p for top in (self.folder, Path(media._root())) for p in top.rglob("*")]
        found = {p.name for p in below if (p.is_file() or p.is_symlink()) and p != self.secret}
        if self.secret.read_text() != CANARY:
            found.add("secret")
        for around in (Path(tempfile.gettempdir()), Path("/workspace"), Path("/")):
            if (around / OWNED).exists():
                found.add(OWNED)
        return found

    def attack_text(self, code: str) -> str:
        return code.replace("SECRET_FILE", str(self.secret)).replace("OWNED", OWNED)

    def run(self, code: str, policy: ChainPolicy = USUAL) -> Ended:
        async def main() -> Ended:
            host = Host()
            invoker = ToolInvoker(Toolbox(host.tools), host, InMemoryBlobStore(), policy)
            chain = ToolChainTool(invoker, self.sandbox)
            begun = time.monotonic()
            async with asyncio.timeout(60):
                result = await chain.run(self.attack_text(code))
            return Ended(result, host.executed, self.written(), time.monotonic() - begun)

        return asyncio.run(main())

    def goes_on(self) -> None:
        """The next script on the same pool has its right value."""
        after = self.run(CONTROL)
        assert (after.result.status, after.result.value) == ("ok", 42), after.result.output_text
        assert after.result.logs == "CONTROL-OK fine\n"
        assert after.executed == [("echo", "fine")]
        assert faults(after) == []


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(VARIABLE, CANARY)
        folder = tmp_path_factory.mktemp("host")
        patch.chdir(folder)
        made = Place(folder)
        yield made
        asyncio.run(made.sandbox.aclose())


def faults(ended: Ended) -> list[str]:
    """What no run may show, whatever its end."""
    result = ended.result
    called = {record.tool for record in result.call_trace}
    texts = [repr(result.value), result.logs, result.error or "", result.output_text]
    texts += [f"{r.args_preview} {r.result_preview} {r.message}" for r in result.call_trace]
    told = f"{result.value!r}\n{result.logs}"
    found = {
        "the secret is out": any(CANARY in text for text in [*texts, repr(ended.executed)]),
        "a breach is told": re.search(r"^BREACH|'BREACH", told, re.MULTILINE) is not None,
        "a name that was not granted ran": not {name for name, _ in ended.executed} <= GRANTED,
        "a name that was not granted is in the trace": not called <= GRANTED,
        "a call without a record": len(ended.executed) > len(result.call_trace),
        "too many calls": len(ended.executed) > USUAL.max_tool_calls,
        "a file was written": bool(ended.files),
        "more text than a model may read": len(result.output_text.encode()) > OUTPUT,
        "no reason": result.status != "ok" and result.reason is None,
        "too long": ended.spent_s > LONGEST_S,
    }
    return [what for what, is_so in found.items() if is_so]


# the attacks ------------------------------------------------------------------------------


class Attack(NamedTuple):
    """A script with the end that it must have: a reason, or its exact value."""

    code: str
    reason: str | None = None
    value: Any = None
    said: str = ""
    """A pattern in the error."""
    policy: ChainPolicy = USUAL
    calls: int | None = None
    """How many calls are executed, where that is certain."""


def ends(reason: str, code: str, said: str = "", calls: int | None = None) -> Attack:
    policy = SHORT if reason == "time" else USUAL
    return Attack(textwrap.dedent(code), reason, None, said, policy, calls)


def gives(value: Any, code: str, calls: int | None = None) -> Attack:
    return Attack(textwrap.dedent(code), None, value, calls=calls)


def tried(*expressions: str, head: str = "") -> str:
    """A script whose value tells of each expression what it gave, or the name of its error."""
    lines = [head, "out = []"]
    for one in expressions:
        lines += ["try:", f"    out.append({one})"]
        lines += ["except Exception as error:", "    out.append(type(error).__name__)"]
    return "\n".join([*lines, "out"])


def refused(name: str, *expressions: str, head: str = "") -> Attack:
    """Every expression ends in an error of this name."""
    return gives([name] * len(expressions), tried(*expressions, head=head))


NOWHERE = "sha256:" + "0" * 64

BRIDGE = {
    "an ungranted name": ends("script_error", "await admin_only(x=1)", "NameError", 0),
    "an ungranted name that is caught": refused("NameError", "await admin_only(x=1)"),
    "the chain tool itself": refused("NameError", "await tool_chain(code='1')"),
    "an ungranted raw name": refused("KeyError", "await tools['admin_only'](x=1)"),
    "an ungranted name by eval": refused("NameError", "await eval('admin_only')(x=1)"),
    "an ungranted name by exec": refused(
        "NameError", "exec('import asyncio\\nasyncio.run(admin_only(x=1))', {})"
    ),
    "what tools holds": gives(
        [["boom", "echo", "large", "measure", "send"], None, False],
        "[sorted(tools), tools.get('admin_only'), 'tool_chain' in tools]",
    ),
    "a name put into tools calls what was put there": gives(
        [1], tried("await tools['admin_only'](x=1)", head="tools['admin_only'] = echo"), 1
    ),
    "a swapped name asks as what it calls": gives(
        ["PermissionError"], tried("await tools['echo']('a')", head="tools['echo'] = tools['send']"), 0
    ),
    "a renamed function": refused(
        "AttributeError",
        "setattr(echo, '__name__', 'admin_only')",
        "setattr(echo, '__qualname__', 'admin_only')",
    ),
    "a function made of a name": refused(
        "TypeError", "type(echo)('admin_only')", "await 'admin_only'(x=1)"
    ),
    "a function of the script with an ungranted name": gives(
        "own", "async def admin_only(x):\n    return 'own'\nawait admin_only(1)", 0
    ),
    "a key that equals every name": refused(
        "KeyError",
        "await tools[E()](x=1)",
        head="class E:\n    def __eq__(self, other): return True\n    def __hash__(self): return 1",
    ),
    "a risky tool": refused("PermissionError", "await send(to='a')"),
    "arguments with a host's names": refused(
        "ValueError",
        *[
            f"await echo(**{{{name!r}: 1}})"
            for name in ("ctx", "self", "session", "call_id", "timeout", "__class__", "_", "")
        ],
    ),
    "a flood of positional arguments": refused("ValueError", "await echo(*range(50_000))"),
    "an argument given twice": refused("ValueError", "await echo(1, x=2)"),
    "a forged ref": refused(
        "ValueError",
        *[
            f"await echo(x={{'$artifact': {ref}}})"
            for ref in (
                f"'{NOWHERE}'", "'SECRET_FILE'", "'file://SECRET_FILE'", "'../secret'", "''",
                "'\\0'", "'a' * 100_000", "1", "b'x'",
            )
        ],
    ),
    "a forged ref deep in data": refused(
        "ValueError", f"await echo(x=[[{{'a': [{{'$artifact': '{NOWHERE}'}}]}}]])"
    ),
    "a forged handle": refused(
        "ValueError",
        "await echo(x=Artifact())",
        "await echo(x=[Artifact()])",
        head="class Artifact:\n    ref = 'SECRET_FILE'",
    ),
    "a forged handle that is a dataclass": refused(
        "ValueError",
        "await echo(x=Artifact('SECRET_FILE', '', 1, ''))",
        head="import dataclasses\n@dataclasses.dataclass\nclass Artifact:\n    ref: str\n"
        "    preview: str\n    size: int\n    media_type: str",
    ),
    "a handle made of its class": refused(
        "AttributeError", "type(a)('SECRET_FILE', '', 1, '')", head="a = await large()"
    ),
    "a handle whose ref was changed": gives(
        ["str 10000", "real"],
        f"a = await large()\na.ref = '{NOWHERE}'\n[await measure(x=a), await a.text(0, 4)]",
        2,
    ),
    "a handle with the ref of another": gives(
        ["str 10000", "real", "mine"],
        "a = await large()\nb = await artifacts.put('mine')\na.ref = b.ref\n"
        "[await measure(x=a), await a.text(0, 4), await b.text(0, 4)]",
    ),
    "methods that a handle has not": refused(
        "AttributeError",
        "a.delete()", "a.open()", "a.__init__()", "a.__getattribute__('x')",
        "artifacts.get('x')", "artifacts.delete('x')", "artifacts._store",
        "Artifact.text(1)", "type(artifacts).put('x')",
        head="a = await large()",
    ),
    "ranges that are none": refused(
        "TypeError",
        "await a.text('SECRET_FILE')", "await a.text(True)", "await a.text(0, 1, 2)",
        "await a.lines(1.0)", "await a.text(ref='x')",
        head="a = await large()",
    ),
    "the text of a call that was not awaited": refused(
        "ValueError",
        "await echo(x='<coroutine external_future(1)>')",
        "await echo(x=\"<function 'echo' at 0x1>\")",
    ),
    "one call awaited many times is one call": gives(
        [1, 1, 1],
        "import asyncio\nf = echo(x=1)\n[await f, *await asyncio.gather(f, f)]",
        1,
    ),
    "questions about the chain tool": refused(
        "LookupError",
        "await tool_schema('tool_chain')", "await tool_schema('admin_only')",
        "await tool_schema('__class__')", "await tool_schema('')",
    ),
    "questions of another type": refused(
        "ValueError",
        "await tool_search(1)", "await tool_search(None)", "await tool_search('a', _index=1)",
    ),
    "frames written by hand": refused(
        "AttributeError",
        "os.write(1, b'{}')", "os.open('/proc/self/fd/1', 1)", "os.fdopen(1)", "os.dup2(1, 9)",
        "sys.stdout.buffer", "sys.stdin",
        head="import os, sys",
    ),
}  # fmt: skip

ENDLESS = "while True:\n    "
RESOURCE = {
    "an endless loop": ends("time", f"{ENDLESS}pass"),
    "an endless loop in a handler": ends(
        "time", f"try:\n    {ENDLESS}    pass\nfinally:\n    {ENDLESS}    pass"
    ),
    "a limit that is caught": ends(
        "time",
        f"try:\n    {ENDLESS}    pass\nexcept BaseException:\n    out = 'caught'\nout",
    ),
    "a comparison without end": ends(
        "time",
        """
        class L:
            def __hash__(self): return 1
            def __eq__(self, other):
                while True: pass
        {L(): 1, L(): 2}
        """,
    ),
    "a factorial": ends("time", "import math\nmath.factorial(10 ** 7)"),
    "a power by a modulus": ends("time", "pow(3, 10 ** 5000, 10 ** 5000 + 1)"),
    "a slow hash": ends("time", "import hashlib\nhashlib.pbkdf2_hmac('sha256', b'a', b'b', 10 ** 9)"),
    "a long sum": ends("time", "sum(range(10 ** 12))"),
    "a flood of names": ends(
        "time", f"{ENDLESS}try:\n        nothing\n    except NameError:\n        pass"
    ),
    "a sleep": ends("time", "import asyncio\nawait asyncio.sleep(10 ** 9)"),
    "a sleep of no end": ends("time", "import asyncio\nawait asyncio.sleep(float('inf'))"),
    "a sleep of a huge number": refused("OverflowError", "time.sleep(10 ** 300)", head="import time"),
    "a sleep of no number": refused(
        "ValueError",
        "await asyncio.sleep(float('nan'))", "time.sleep(float('nan'))", "time.sleep(-1)",
        head="import asyncio, time",
    ),
    "a flood of sleeps": ends(
        "time",
        "import asyncio\nawait asyncio.gather(*[asyncio.sleep(99) for _ in range(10_000)])",
    ),
    "a flood of sleeps of no time": ends(
        "time", f"import asyncio\n{ENDLESS}await asyncio.sleep(0)"
    ),
    "memory": ends("memory", "[0] * 10 ** 9"),
    "memory that is caught": ends(
        "memory",
        f"{ENDLESS}try:\n        [0] * 10 ** 9\n    except BaseException:\n        pass",
    ),
    "memory by doubling": ends("memory", f"a = 'a'\n{ENDLESS}a += a"),
    "memory by a list that grows": ends("memory", "import itertools\nlist(itertools.count())"),
    "memory by a product": ends(
        "memory", "import itertools\nlist(itertools.product(range(1000), repeat=10))"
    ),
    "memory by a replacement": ends("memory", "('a' * 10 ** 5).replace('a', 'b' * 10 ** 5)"),
    "memory by a format's width": ends("memory", 'f"{1:{10 ** 10}}"'),
    "memory by a percent's width": ends("memory", "'%1000000000d' % 1"),
    "memory by padding": ends("memory", "'1'.ljust(10 ** 12)"),
    "a huge power": ends("memory", "10 ** 10 ** 9"),
    "a huge shift": ends("memory", "1 << 10 ** 12"),
    "a huge text of a number": refused("ValueError", "str(10 ** 100_000)", "int('9' * 10 ** 6)"),
    "recursion": ends("recursion", "def f():\n    return f()\nf()"),
    "recursion that is caught": gives(
        ["RecursionError"], tried("f()", head="def f():\n    return f()")
    ),
    "recursion in handlers": ends(
        "time", "def f():\n    try:\n        f()\n    finally:\n        f()\nf()"
    ),
    "source that is nested": refused(
        "SyntaxError",
        *[f"eval({left!r} * 5000 + '1' + {right!r} * 5000)" for left, right in (("(", ")"), ("-", ""))],
    ),
    "a regular expression that tries all": gives(
        [None, None],
        "import re\n[re.match('(a+)+$', 'a' * 40 + 'b'), re.match(r'^(\\w+\\s?)*$', 'a' * 60 + '!')]",
    ),
    "a regular expression that looks back": refused(
        "PatternError", "re.match(r'(a*)*\\1$', 'a' * 35 + 'b')", head="import re"
    ),
    "a regular expression that is huge": refused(
        "PatternError", "re.compile('(((a{1000}){1000}){1000})')", head="import re"
    ),
    "a flood of prints": ends("output", f"{ENDLESS}print('x' * 1000)", "bytes were printed"),
    "a flood of empty prints": ends("output", f"{ENDLESS}print()", "bytes were printed"),
    "one huge print": ends("output", "print('x' * 10 ** 8)", "bytes were printed"),
    "a flood of calls": ends(
        "budget",
        f"{ENDLESS}try:\n        await echo(x=1)\n    except Exception:\n        pass",
        calls=CALLS,
    ),
    "a flood of calls side by side": ends(
        "budget",
        "import asyncio\nawait asyncio.gather(*[echo(x=n) for n in range(1000)])",
        calls=CALLS,
    ),
    "a flood of calls that nobody awaits": ends(
        "not_awaited", "kept = []\nfor n in range(1000):\n    kept.append(echo(x=n))", calls=0
    ),
    "a flood of failures": ends(
        "budget",
        f"{ENDLESS}try:\n        await boom(x=1)\n    except RuntimeError:\n        pass",
        calls=CALLS,
    ),
    "a flood of reads": ends("time", f"a = await large()\n{ENDLESS}await a.text(0, 1)"),
    "a flood of questions": ends("time", f"{ENDLESS}await tool_search('echo')"),
}  # fmt: skip

OUTPUT_FAMILY = {
    "a huge value": gives("z" * 3_000_000, "'z' * 3_000_000"),
    "many values": gives(list(range(100_000)), "list(range(100_000))"),
    "a wide mapping": gives({str(n): n for n in range(20_000)}, "{str(n): n for n in range(20_000)}"),
    "a value in itself": gives({"x": "{...}"}, "a = {}\na['x'] = a\na"),
    "a value of a class": gives(
        "MontyClassProxy(name='R', attributes={})",
        "class R:\n    def __repr__(self): return 'x' * 10 ** 7\nR()",
    ),
    "a value whose words fail": gives(
        "MontyClassProxy(name='R', attributes={})",
        "class R:\n    def __repr__(self): raise ValueError('no')\nR()",
    ),
    "an error without end": ends("script_error", "raise ValueError('e' * 3_000_000)", "eee$"),
    "an error of many lines": ends("script_error", r"raise ValueError('\n' * 10 ** 6)"),
    "an error far down": ends(
        "script_error",
        "def f(n):\n    if n == 0:\n        raise ValueError('end')\n    return f(n - 1)\nf(400)",
        "Previous line repeated",
    ),
    "an error that is none": ends("script_error", "raise 1", "BaseException"),
    "an end of the interpreter": ends("script_error", "raise SystemExit", "SystemExit"),
    "an interrupt": ends("script_error", "raise KeyboardInterrupt", "KeyboardInterrupt"),
    "lone surrogates": gives(
        ["\ufffd", "ValueError", "JSONDecodeError", "UnicodeDecodeError"],
        tried(
            r"'\ud800'", "chr(0xd800)", r"json.loads('\"\\ud800\"')", r"b'\xed\xa0\x80'.decode()",
            head="import json\nprint('\\udfff')",
        ),
    ),
    "a terminal's codes in an error": ends(
        "script_error", r"raise ValueError('\x1b]0;owned\x07\x1b[2J\u202e')", "ValueError"
    ),
    "a NUL": gives("a\0b", r"'a\0b'"),
    "numbers that JSON has not": gives(["inf", "-inf"], "[str(1e308 * 10), str(-1e308 * 10)]"),
}  # fmt: skip

DATA = {
    "arguments that change after the call": gives(
        [[1], [1, 2]], "a = [1]\nf = echo(x=a)\na.append(2)\n[await f, a]", 1
    ),
    "arguments that another task changes": gives(
        [{"to": "a"}, {"to": "b"}],
        """
        import asyncio
        data = {'to': 'a'}
        async def other():
            data['to'] = 'b'
            return await echo(x=data)
        await asyncio.gather(echo(x=data), other())
        """,
        2,
    ),
    "a result that is changed": gives(
        [[1, 2], [1]],
        "a = await echo(x=[1])\na.append(2)\n[a, await echo(x=[1])]",
        2,
    ),
    "a ref beside other keys": refused(
        "ValueError",
        "await echo(x={'$artifact': 'SECRET_FILE', 'x': 1})",
        "await echo(x={'a': {'x': 1, '$artifact': 'SECRET_FILE'}})",
    ),
    "keys that a host may take for its own": gives(
        {"__class__": {"limit": 9}, "__proto__": {"a": 1}, "$ref": "#/a", "$artifact ": 1, "": 0},
        "await echo(x={'__class__': {'limit': 9}, '__proto__': {'a': 1}, '$ref': '#/a',"
        " '$artifact ': 1, '': 0})",
        1,
    ),
    "a key that is no text": refused(
        "ValueError", "await echo(x={(1, 2): 3})", "await echo(x={b'a': 1})"
    ),
    "a value of a class as text": refused("ValueError", "await echo(x=R())", head=(
        "class R:\n    def __str__(self): return 'echo'\n    def __repr__(self): return 'echo'")),
    "functions and modules": refused(
        "ValueError",
        "await echo(x=print)", "await echo(x=lambda: 1)", "await echo(x=int)", "await echo(x=f)",
        head="def f():\n    return 1",
    ),
    "a tool's name stands for the tool": gives("echo", "await echo(x=echo)"),
    "a call as an argument": ends(
        "script_error", "f = echo(x=1)\nawait echo(x=[f])", "is an await missing", 0
    ),
    "nesting": refused(
        "ValueError", "await echo(x=a)", "await artifacts.put(a)",
        head="a = []\nfor _ in range(50_000):\n    a = [a]",
    ),
    "a set of many types": gives(
        [None, b"x", 2.5, 1, [1, 2], "a"], "await echo(x={1, 'a', 2.5, b'x', (1, 2), None})", 1
    ),
    "true for one": ends("type_check", "await send(to=True)"),
    "true for one, hidden from the check": refused(
        "ValueError", "await send(to=await echo(x=True))", "await send(**{'to': None})"
    ),
    "keyword arguments of an object": refused(
        "TypeError", "await echo(**M())", "await echo(**{1: 1})",
        head="class M:\n    def keys(self): return ['x']\n    def __getitem__(self, k): return 1",
    ),
    "numbers at the edges": gives(
        [10**300, -(2**63), 2**64, -0.0],
        "await echo(x=[10 ** 300, -2 ** 63, 2 ** 64, -0.0])",
        1,
    ),
    "what a decimal can be": gives(
        ["1E+999999", "NaN", "sNaN"],
        "from decimal import Decimal\nawait echo(x=[Decimal('1e999999'), Decimal('NaN'),"
        " Decimal('sNaN')])",
        1,
    ),
}  # fmt: skip

WALKS = (
    "__globals__", "__builtins__", "__subclasses__", "__base__", "__bases__", "__mro__",
    "__code__", "__closure__", "__dict__", "__func__", "__self__", "__wrapped__", "__reduce__",
    "__reduce_ex__", "__getattribute__", "__traceback__", "__init__", "__loader__", "__spec__",
    "gi_frame", "cr_frame", "tb_frame", "f_back", "f_globals",
)  # fmt: skip
OBJECTS = (
    "()", "''", "1", "[]", "{}", "echo", "tools", "artifacts", "Artifact", "print", "type",
    "ValueError('x')", "(lambda: 1)", "(n for n in [])",
)  # fmt: skip
OPENING = (
    "open({0})", "open({0}, 'rb')", "Path({0}).read_text()", "Path({0}).read_bytes()",
    "os.listdir({0})", "os.stat({0})", "list(Path({0}).iterdir())", "os.path.realpath({0})",
)  # fmt: skip
FILES = (
    "'SECRET_FILE'", "'/workspace/media/../..SECRET_FILE'", "'/etc/passwd'", "'/proc/self/environ'",
    "'/proc/1/environ'", "'/proc/self/mem'", "'/workspace/media/../../etc/passwd'",
    "'../../../../etc/passwd'", "'/workspace/media/./../..//etc/passwd'", "'/dev/zero'",
    "'/monty'", "'/'", "'/workspace'",
)  # fmt: skip
WRITING = (
    "open({0}, 'w')", "open({0}, 'a')", "Path({0}).write_text('x')",
    "Path({0}).write_bytes(b'x')", "Path({0}).mkdir()", "os.mkdir({0})", "os.makedirs({0})",
)  # fmt: skip
WRITTEN = (
    "'/tmp/OWNED'", "'/workspace/media/OWNED'", "'/workspace/media/../OWNED'", "'/workspace/OWNED'",
    "'/OWNED'",
)  # fmt: skip
MODULES = (
    "subprocess", "ctypes", "socket", "builtins", "importlib", "pickle", "marshal", "gc", "inspect",
    "code", "pty", "shutil", "tempfile", "threading", "multiprocessing", "signal", "resource",
    "posix", "urllib.request", "http.client", "ssl", "io", "runpy", "site", "traceback",
    "substrate", "pydantic_monty", "msgspec", "__main__",
)  # fmt: skip

FORMAT = {
    "a format string over a tool": refused(
        "AttributeError",
        *[f"'{{0.{name}}}'.format(echo)" for name in WALKS],
    ),
    "a format string over a mapping": refused(
        "AttributeError",
        "'{a.__globals__}'.format(a=echo)", "'{a.__class__}'.format_map({'a': echo})",
        "'{0[a].__globals__}'.format({'a': echo})", "str.format('{0.__globals__}', echo)",
        "'{0.__init__.__globals__}'.format(artifacts)",
    ),
    "an f-string": refused(
        "AttributeError", "f'{echo.__globals__}'", "f'{echo.__code__.co_consts!r}'",
        "f'{artifacts._store:>10}'",
    ),
    "a tool as a text": gives(
        "<function 'echo' external> <function 'echo' external>", "f'{echo!r} ' + '%s' % echo"
    ),
    "attributes of everything": refused(
        "AttributeError", *[f"getattr({one}, {name!r})" for one in OBJECTS for name in WALKS]
    ),
    "a walk to every class": refused(
        "AttributeError", "().__class__.__base__.__subclasses__()", "type(()).__mro__[1]",
        "''.__class__.__mro__",
    ),
    "the frames of an error": gives(
        [None, None, None],
        "try:\n    await boom()\nexcept Exception as error:\n    out = [getattr(error, name, None)"
        " for name in ('__traceback__', '__cause__', '__context__')]\nout",
        1,
    ),
    "names of the interpreter": refused(
        "NameError",
        "__builtins__", "__import__('os')", "globals()", "vars()", "compile('1', '', 'eval')",
        "breakpoint()", "input()", "memoryview(b'')", "eval('__builtins__')",
        "eval(\"__import__('os').system('id')\")", "eval('globals()')",
    ),
    "imports": refused(
        "ModuleNotFoundError", *[f"exec('import {name}', {{}})" for name in MODULES]
    ),
    "modules that are there": refused(
        "AttributeError",
        "os.system('touch OWNED')", "os.popen('id')", "os.fork()", "os.execv('/bin/sh', [])",
        "os.kill(1, 9)", "os.symlink('/etc', 'OWNED')", "os.getppid()", "os.environb",
        "sys.modules['os']", "sys._getframe()", "sys.settrace(print)", "sys.setrecursionlimit(9)",
        head="import os, sys",
    ),
    "the environment": gives(
        ["RuntimeError", "RuntimeError"],
        tried(f"os.environ[{VARIABLE!r}]", f"os.getenv({VARIABLE!r})", head="import os"),
    ),
    "files": refused(
        "PermissionError",
        *[how.format(path) for path in FILES for how in OPENING],
        head="import os\nfrom pathlib import Path",
    ),
    "a path with a NUL": refused(
        "ValueError",
        r"open('/workspace/media/\0/../../etc/passwd')", r"open('SECRET_FILE\0.txt')",
    ),
    "writing": refused(
        "PermissionError",
        *[how.format(path) for path in WRITTEN for how in WRITING],
        head="import os\nfrom pathlib import Path",
    ),
    "writing in other ways": gives(
        ["ValueError", "PermissionError"],
        tried("open('OWNED', 'xb')", "os.rename('/workspace/media', 'OWNED')", head="import os"),
    ),
    "source in another spelling": refused(
        "NameError",
        "exec(\"ｏｓ = __import__('os')\", {})", "eval('__ｂuiltins__')",
    ),
}  # fmt: skip

FAMILIES: Mapping[str, Mapping[str, Attack]] = {
    "bridge": BRIDGE,
    "resource": RESOURCE,
    "output": OUTPUT_FAMILY,
    "data": DATA,
    "format": FORMAT,
}
ATTACKS = {
    f"{family}: {name}": attack
    for family, attacks in FAMILIES.items()
    for name, attack in attacks.items()
}


def wrong(attack: Attack, ended: Ended) -> list[str]:
    """How a run of an attack is other than it must be."""
    result, found = ended.result, faults(ended)
    if result.reason != attack.reason:
        found.append(f"the reason is {result.reason}: {(result.error or '')[-500:]}")
    elif attack.reason is None and result.value != attack.value:
        found.append(f"the value is {result.value!r:.500}")
    if not re.search(attack.said, result.error or ""):
        found.append(f"the error is {(result.error or '')[-500:]}")
    if attack.calls is not None and len(ended.executed) != attack.calls:
        found.append(f"{len(ended.executed)} calls")
    return found


@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_has_its_exact_end_and_the_next_script_runs(place: Place, name: str) -> None:
    attack = ATTACKS[name]
    assert wrong(attack, place.run(attack.code, attack.policy)) == []
    place.goes_on()


# naive hosts ------------------------------------------------------------------------------

NAIVE: Mapping[str, tuple[str, str]] = {
    "bridge": ("an ungranted name", "a name that was not granted ran"),
    "resource": ("a flood of calls side by side", "too many calls"),
    "output": ("a huge value", "more text than a model may read"),
    "data": ("arguments that change after the call", "the value is [[1, 2], [1, 2]]"),
    "format": ("the environment", "the secret is out"),
}
"""One attack of every family, and what it reaches on a host without walls."""


def naive_run(place: Place, code: str) -> Ended:
    """The script by `exec` beside its host: every name by hand, nothing bounded or recorded."""
    host, printed = Host(), io.StringIO()
    body = ast.parse(place.attack_text(code)).body
    if isinstance(body[-1], ast.Expr):
        body[-1] = ast.Return(body[-1].value)
    main = ast.parse("async def main(): ...")
    cast("ast.AsyncFunctionDef", main.body[0]).body = body
    tools = {made.name: made.function for made in host.tools}
    names: dict[str, Any] = {**tools, "admin_only": host.admin_only}
    exec(compile(ast.fix_missing_locations(main), "script", "exec"), names)
    with contextlib.redirect_stdout(printed):
        value = asyncio.run(names["main"]())
    text = f"{value!r}"
    result = ChainRunResult(status="ok", value=value, logs=printed.getvalue(), output_text=text)
    return Ended(result, host.executed)


@pytest.mark.parametrize("family", NAIVE)
def test_a_host_without_walls_shows_what_the_checks_of_a_family_look_for(
    place: Place, family: str
) -> None:
    name, reached = NAIVE[family]
    attack = FAMILIES[family][name]
    assert reached in wrong(attack, naive_run(place, attack.code))


def test_every_family_has_its_host_without_walls() -> None:
    assert NAIVE.keys() == FAMILIES.keys()
