"""Attack scripts: none reaches anything but its granted tools, and the sandbox goes on.

The corpus is read where `SUBSTRATE_CASES` names a folder of cases. Its index says what
each script must not be able to do; a script prints BREACH when it has done it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import socket
import sys
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

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
from substrate.kernel.tools.approval import ApprovalRequest
from substrate.kernel.tools.chain import ChainRunResult

CANARY = "CANARY_7f3a"
TCP, UDP, ABSTRACT = 45871, 45872, "\0substrate-canary"
LONGEST_S = 15.0  # the limit is 3; the rest is for a busy machine
POLICY = ChainPolicy(total_timeout_s=3, max_tool_calls=50, max_output_bytes=64 * 1024)


def corpus() -> list[Path]:
    named = os.environ.get("SUBSTRATE_CASES")
    return sorted((Path(named) / "escapes").glob("*.py")) if named else []


SCRIPTS = corpus()
CONTROL = """
v = await echo(x="fine")
print("CONTROL-OK", v)
42
"""


class Host:
    """The tools of a run, and what was executed."""

    def __init__(self) -> None:
        self.executed: list[str] = []

        def ran(name: str) -> None:
            self.executed.append(name)

        @tool(risk="safe")
        async def echo(x: Any) -> Any:
            ran("echo")
            return x

        @tool(risk="safe")
        async def aecho(x: Any) -> Any:
            ran("aecho")
            return x

        @tool(risk="safe")
        async def boom(x: Any = None) -> Any:
            ran("boom")
            msg = "boom"
            raise RuntimeError(msg)

        @tool(risk="high")
        async def send_once() -> str:
            ran("send_once")
            return "sent"

        self.tools = [echo, aecho, boom, send_once]

    async def request(self, req: ApprovalRequest, /) -> ApprovalDecision:
        return ApprovalDecision.APPROVED


@contextlib.contextmanager
def listeners(
    tcp: int = TCP, udp: int = UDP, abstract: str = ABSTRACT
) -> Generator[tuple[list[str], dict[str, socket.socket]]]:
    """What attacks try to reach: a list of those that were, and the sockets."""
    reached: list[str] = []
    with contextlib.ExitStack() as stack:
        made: dict[str, socket.socket] = {}
        made["tcp"] = stack.enter_context(socket.socket())
        made["udp"] = stack.enter_context(socket.socket(type=socket.SOCK_DGRAM))
        made["tcp"].setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made["tcp"].bind(("127.0.0.1", tcp))
        made["udp"].bind(("127.0.0.1", udp))
        if sys.platform == "linux":
            made["abstract"] = stack.enter_context(socket.socket(socket.AF_UNIX))
            made["abstract"].bind(abstract)
        for name, one in made.items():
            one.setblocking(False)
            if name != "udp":
                one.listen()
        yield reached, made
        for name, one in made.items():
            with contextlib.suppress(BlockingIOError):
                if name == "udp":
                    one.recv(1)
                else:
                    one.accept()[0].close()
                reached.append(name)


async def run(sandbox: MontySandbox, code: str) -> tuple[ChainRunResult, list[str], float]:
    host = Host()
    invoker = ToolInvoker(Toolbox(host.tools), host, InMemoryBlobStore())
    begun = time.monotonic()
    result = await ToolChainTool(invoker, sandbox, policy=POLICY).run(code)
    return result, host.executed, time.monotonic() - begun


def faults(result: ChainRunResult, executed: list[str], spent_s: float) -> list[str]:
    """What of a run must not be."""
    shown = f"{result.value!r}\n{result.logs}\n{result.output_text}"
    told = f"{result.value!r}\n{result.logs}"
    found = {
        "BREACH": re.search(r"^BREACH|'BREACH", told, re.MULTILINE) is not None,
        "the secret is shown": CANARY in shown,
        "too long": spent_s > LONGEST_S,
        "too many calls": len(executed) > POLICY.max_tool_calls,
        "sent twice": executed.count("send_once") > 1,
        "more calls than records": len(executed) > len(result.call_trace),
        "more text than a model may read": len(result.output_text.encode()) > 64 * 1024,
    }
    return [what for what, is_so in found.items() if is_so]


def is_bounded(result: ChainRunResult) -> bool:
    return result.status != "ok" and result.reason is not None


ENDLESS = ("infinite_loop", "sleep_forever", "stdout_flood", "str_times")
"""Parts of names of scripts that only a limit can end."""


@pytest.mark.req("sandbox.attacks", "invariant.9")
@pytest.mark.skipif(not SCRIPTS, reason="SUBSTRATE_CASES names no attack scripts")
def test_no_script_of_the_corpus_reaches_anything_but_its_tools(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SUBSTRATE_CANARY", CANARY)
    monkeypatch.chdir(tmp_path)

    async def main() -> dict[str, list[str]]:
        wrong: dict[str, list[str]] = {}
        async with MontySandbox(processes=2) as sandbox:
            control = SCRIPTS[0].read_text("utf-8")
            for path in [*SCRIPTS, SCRIPTS[0]]:
                ended = await run(sandbox, path.read_text("utf-8"))
                found = faults(*ended)
                is_endless = any(part in path.name for part in ENDLESS)
                if is_endless and not is_bounded(ended[0]):
                    found.append("no limit ended it")
                if path is SCRIPTS[0] and ("CONTROL-OK" not in ended[0].logs or len(ended[1]) != 1):
                    found.append(f"the control fails: {ended[0].output_text}")
                if found:
                    wrong[path.name] = [*found, ended[0].output_text[:500]]
            assert "CONTROL-OK" in (await run(sandbox, control))[0].logs
        return wrong

    with listeners() as (reached, _):
        assert asyncio.run(main()) == {}
    assert reached == []
    assert [p.name for p in tmp_path.iterdir()] == []


# our own, by family -----------------------------------------------------------------------

ATTACKS = {
    "a tool's attributes": "echo.__globals__['CANARY']",
    "a tool's code": "echo.__code__.co_consts",
    "subclasses": "().__class__.__base__.__subclasses__()",
    "an exception's frame": "try:\n    await boom()\nexcept Exception as e:\n"
    "    e.__traceback__.tb_frame.f_globals",
    "a format string": "'{0.__class__.__mro__}'.format(echo)",
    "a format string over a handle": "a = await artifacts.put('x')\n'{0.__init__.__globals__}'.format(a)",
    "import": "__import__('subprocess').run(['id'])",
    "an import of os": "import os\nos.system('id')",
    "the environment": "import os\nprint(os.environ)\nprint(os.getenv('SUBSTRATE_CANARY'))",
    "a file": "open('/etc/passwd').read()",
    "a path": "from pathlib import Path\nPath('/proc/self/environ').read_bytes()",
    "a way up": "open('/workspace/media/../../etc/passwd').read()",
    "writing media": "open('/workspace/media/x', 'w').write('x')",
    "eval of an import": "eval(\"__import__('os').getpid()\")",
    "a name that was not granted": "await admin_only()",
    "a raw name that was not granted": "await tools['admin_only']()",
    "adding a tool": "tools['admin_only'] = echo\nawait tools['admin_only'](x=1)",
    "a forged ref": "await echo(x={'$artifact': 'sha256:' + '0' * 64})",
    "a ref beside others": "await echo(x={'$artifact': 'sha256:ab', 'x': 1})",
    "a forged handle": "class Artifact:\n    ref = 'sha256:ab'\nawait echo(x=Artifact())",
    "deep data": "x = []\nfor _ in range(5000):\n    x = [x]\nawait echo(x=x)",
    "wide data": "await echo(x=[0] * 30_000_000)",
    "a power": "10 ** 10 ** 8",
    "a regular expression": "import re\nre.match('(a+)+$', 'a' * 40 + 'b')",
    "prints": "while True:\n    print('x' * 10_000)",
    "calls without end": "while True:\n    try:\n        await echo(x=1)\n    except Exception:\n        pass",
    "calls side by side": "import asyncio\nawait asyncio.gather(*[echo(x=1) for _ in range(5_000)])",
    "sleeps side by side": "import asyncio\nawait asyncio.gather(*[asyncio.sleep(99) for _ in range(9999)])",
    "a long value": "'x' * 100_000_000",
    "recursion": "def f(n):\n    return f(n + 1)\nf(0)",
}  # fmt: skip
GENTLE = {
    "a regular expression",
    "a format string",
    "a long value",
    "calls side by side",
    "adding a tool",
    "a ref beside others",
}
"""Attacks that end by themselves, having got nothing."""


@pytest.mark.req("sandbox.attacks", "invariant.9")
@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_ends_with_nothing_and_the_next_script_runs(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SUBSTRATE_CANARY", CANARY)

    async def main() -> None:
        async with MontySandbox(processes=1) as sandbox:
            ended = await run(sandbox, ATTACKS[name])
            assert faults(*ended) == [], ended[0].output_text[:2000]
            assert "root:" not in ended[0].output_text
            if name not in GENTLE:
                assert is_bounded(ended[0]), ended[0]
            after, executed, _ = await run(sandbox, CONTROL)
            assert (after.value, executed, "CONTROL-OK fine" in after.logs) == (42, ["echo"], True)

    asyncio.run(main())


# negative controls: hosts on which the attacks succeed ------------------------------------


def test_the_checks_see_a_breach_on_a_naive_host(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Plain `exec`: attributes, imports, files, formats and the environment are open."""
    monkeypatch.setenv("SUBSTRATE_CANARY", CANARY)
    (tmp_path / "file").write_text(CANARY)

    def naive(code: str) -> str:
        printed: list[str] = []
        names: dict[str, Any] = {"echo": run, "print": lambda text: printed.append(str(text))}  # pyright: ignore[reportUnknownArgumentType, reportUnknownLambdaType]
        exec(code, names)  # it is the control
        return "\n".join(printed)

    open_doors = {
        "attributes": "print(echo.__globals__['CANARY'])",
        "an import": "import os\nprint(os.environ['SUBSTRATE_CANARY'])",
        "a file": f"with open({str(tmp_path / 'file')!r}) as file:\n    print(file.read())",
        "a format": "print('{0.__globals__[CANARY]}'.format(echo))",
    }
    for name, code in open_doors.items():
        result = ChainRunResult(status="ok", logs=naive(code))
        assert "the secret is shown" in faults(result, [], 0.0), name


@pytest.mark.parametrize(
    ("fault", "result", "executed", "spent_s"),
    [
        ("BREACH", ChainRunResult(status="ok", logs="BREACH 1"), [], 0.0),
        ("too long", ChainRunResult(status="ok"), [], 99.0),
        ("too many calls", ChainRunResult(status="ok"), ["echo"] * 51, 0.0),
        ("sent twice", ChainRunResult(status="ok"), ["send_once"] * 2, 0.0),
        ("more calls than records", ChainRunResult(status="ok"), ["echo"], 0.0),
        (
            "more text than a model may read",
            ChainRunResult(status="ok", output_text="x" * 70_000),
            [],
            0.0,
        ),
    ],
)
def test_each_check_can_fail(
    fault: str, result: ChainRunResult, executed: list[str], spent_s: float
) -> None:
    assert fault in faults(result, executed, spent_s)


def test_the_listeners_see_who_connects() -> None:
    with listeners(0, 0, f"\0substrate-{os.getpid()}") as (reached, made):
        with socket.socket() as one:
            one.connect(made["tcp"].getsockname())
        with socket.socket(type=socket.SOCK_DGRAM) as one:
            one.sendto(b"x", made["udp"].getsockname())
    assert {"tcp", "udp"} <= set(reached)
