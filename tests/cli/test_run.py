"""`substrate run`, as a person and as a program use it."""

from __future__ import annotations

import json
import os
import pty
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from substrate.cli.app import _APP

TOOLS = '''
from substrate import Toolbox, tool

@tool(risk="safe")
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b

@tool(risk="high")
def send(to: str) -> str:
    return f"sent to {to}"

@tool(risk="safe")
async def wait() -> None:
    import asyncio
    print("waiting", flush=True)
    await asyncio.Event().wait()
'''


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "my_tools.py").write_text(TOOLS)
    return tmp_path


def command(*args: str) -> list[str]:
    return [sys.executable, "-W", "error", "-m", "substrate", *args]


def run(folder: Path, *args: str, code: str | bytes = "") -> subprocess.CompletedProcess[str]:
    data = code.encode() if isinstance(code, str) else code
    done = subprocess.run(
        command(*args), cwd=folder, input=data, capture_output=True, timeout=60, check=False,
        env={**os.environ, "COLUMNS": "120", "NO_COLOR": "1"},
    )  # fmt: skip
    return subprocess.CompletedProcess(
        done.args, done.returncode, done.stdout.decode(), done.stderr.decode()
    )


@pytest.mark.req("cli.run")
@pytest.mark.parametrize("tools", ["my_tools", "my_tools.py"])
def test_a_script_gives_its_value_on_stdout_and_its_trace_on_stderr(
    folder: Path, tools: str
) -> None:
    (folder / "plan.py").write_text("print('hello')\nx = await add(a=1, b=2)\n{'x': x}")
    done = run(folder, "run", "plan.py", "--tools", tools)
    assert done.returncode == 0, done.stderr
    assert done.stdout == 'hello\n{\n  "x": 3\n}\n'
    assert "add" in done.stderr
    assert "Traceback" not in done.stderr


def test_json_is_one_document_of_the_results_fields_and_nothing_else(folder: Path) -> None:
    done = run(folder, "run", "-", "--tools", "my_tools", "--json", code="await add(a=1, b=2)")
    document = json.loads(done.stdout)
    assert (document["status"], document["value"], document["tool_calls"]) == ("ok", 3, 1)
    assert document["call_trace"][0]["tool"] == "add"


@pytest.mark.parametrize(
    ("code", "options", "expected"),
    [
        ("1 / 0", [], 1),
        ("x = [", [], 1),
        ("await send(to='x')", ["--approve", "never"], 3),
        ("await send(to='x')", [], 3),
        ("while True: pass", ["--timeout", "0.2"], 4),
        ("await wait()", ["--timeout", "0.2"], 4),
    ],
)
def test_the_exit_code_tells_what_ended_the_script(
    folder: Path, code: str, options: list[str], expected: int
) -> None:
    done = run(folder, "run", "-", "--tools", "my_tools", *options, code=code)
    assert done.returncode == expected, done.stderr


@pytest.mark.parametrize(
    ("args", "code", "said"),
    [
        (["nope.py", "--tools", "my_tools"], "", "no script nope.py"),
        (["my_tols.py", "--tools", "my_tools"], "", "did you mean 'my_tools.py'"),
        ([".", "--tools", "my_tools"], "", "is a folder"),
        (["-", "--tools", "my_tools"], b"\xff\xfe", "not UTF-8"),
        (["-", "--tools", "nope"], "", "no module nope"),
        (["-", "--tools", "nope.py"], "", "no file nope.py"),
        (["-", "--tools", "json"], "", "holds no tools"),
        (["-", "--tools", "broken"], "", "broken cannot be imported (broken.py, line 2): Value"),
        (["-", "--tools", "unreadable"], "", "unreadable cannot be imported (line 1): Syntax"),
        (["-", "--tools", "leaving"], "", "ended the program"),
        (["-", "--tools", "listed"], "", "TOOLS of listed must be a list"),
        (["-", "--tools", "my_tools", "--approve", "maybe"], "", "ask or never"),
        (["-", "--tools", "my_tools", "--timeout", "-1"], "", "seconds above 0"),
    ],
)
def test_bad_input_is_one_clear_line_and_no_traceback(
    folder: Path, args: list[str], code: Any, said: str
) -> None:
    (folder / "broken.py").write_text("x = 1\nraise ValueError('no')\n")
    (folder / "unreadable.py").write_text("x = (\n")
    (folder / "leaving.py").write_text("raise SystemExit(3)\n")
    (folder / "listed.py").write_text("TOOLS = 3\n")
    done = run(folder, "run", *args, code=code)
    assert done.returncode == 2, done.stderr
    assert said in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert done.stdout == ""


def test_tools_lists_exactly_what_a_module_offers(folder: Path) -> None:
    (folder / "some.py").write_text(
        "from my_tools import *\ndef three() -> int:\n    return 3\nTOOLS = [three]\n"
    )
    done = run(folder, "run", "-", "--tools", "some", code="await three()")
    assert done.stdout == "3\n"
    assert run(folder, "run", "-", "--tools", "some", code="await add(a=1, b=1)").returncode == 1


def test_large_results_lie_in_the_store_that_is_named(folder: Path) -> None:
    (folder / "big.py").write_text("def big() -> str:\n    return 'x' * 9000\nTOOLS = [big]\n")
    code = "a = await big()\na.size"
    done = run(folder, "run", "-", "--tools", "big", "--store", "kept", code=code)
    assert done.stdout == "9000\n"
    assert [
        p.stat().st_size
        for p in (folder / "kept").rglob("*")
        if p.is_file() and p.stat().st_size > 8000
    ] == [9000]


def test_ctrl_c_cancels_cleanly(folder: Path) -> None:
    (folder / "plan.py").write_text("await wait()")
    process = subprocess.Popen(
        command("run", "plan.py", "--tools", "my_tools"), cwd=folder,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline() == "waiting\n"
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=30)
    assert process.returncode == 130, said
    assert said.strip() == "cancelled"


def test_a_yes_at_the_terminal_runs_the_call(folder: Path) -> None:
    (folder / "plan.py").write_text("await send(to='alice')")
    master, slave = pty.openpty()
    process = subprocess.Popen(
        command("run", "plan.py", "--tools", "my_tools"), cwd=folder, stdin=slave,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    os.close(slave)
    assert process.stderr is not None
    asked = b""
    while not asked.endswith(b"? "):
        part = os.read(process.stderr.fileno(), 4096)
        assert part, asked
        asked += part
    os.write(master, b"y\n")
    printed, rest = process.communicate(timeout=60)
    os.close(master)
    out, said = printed.decode(), (asked + rest).decode()
    assert (process.returncode, out) == (0, "sent to alice\n"), said
    assert '"to": "alice"' in said


def test_help_teaches_and_the_version_is_told(folder: Path) -> None:
    said = run(folder, "run", "--help").stdout
    assert "substrate run plan.py --tools my_tools.py" in said
    assert "Exit codes" in said
    assert run(folder, "--version").stdout.strip()


ODD_MODULES = {
    "a proxy that is not bound": (
        "class P:\n    def __getattr__(s, n): raise RuntimeError('no request')\nrequest = P()\n",
        "holds no tools",
    ),
    "a tool whose schema fails": (
        ("class Z:\n    name = 'z'\n    description = 'd'\n    input_schema = property(lambda s: 1 / 0)\n"
        "    async def execute(self, **k): ...\nTOOLS = [Z()]\n"),
        "ZeroDivisionError",
    ),
    "names that fail": ("def __getattr__(n): raise RuntimeError(n)\n", "TOOLS of odd cannot be read"),
    "what is no list": ("TOOLS = 5\n", "must be a list of tools, not a int"),
    "what are no tools": ("TOOLS = [5]\n", "a tool needs a name"),
    "an end of the program": ("raise SystemExit('bye')\n", "ended the program"),
    "an interrupt of its own": ("raise KeyboardInterrupt\n", "KeyboardInterrupt"),
    "an error that is no Exception": ("class X(BaseException): pass\nraise X('hello')\n", "X: hello"),
    "an error without words": (
        "class E(Exception):\n    def __str__(s): raise ValueError\nraise E\n",
        "odd cannot be imported (odd.py, line 3): E",
    ),
    "text that is no UTF-8": (b"\xff\xfe\x00", "odd cannot be imported"),
}  # fmt: skip


@pytest.mark.req("cli.run")
@pytest.mark.parametrize("name", ODD_MODULES)
def test_a_module_that_behaves_oddly_is_one_clear_line(
    folder: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    source, words = ODD_MODULES[name]
    (folder / "odd.py").write_bytes(source if isinstance(source, bytes) else source.encode())
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "odd", raising=False)
    for named in ("odd", "odd.py"):
        done = CliRunner().invoke(_APP, ["run", "-", "--tools", named], input="1")
        assert (done.exit_code, done.stdout) == (2, "")
        assert words in done.stderr.replace("odd.py cannot", "odd cannot").replace(
            "of odd.py", "of odd"
        )
        assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("name", ["x" * 5000 + ".py", "x" * 5000, "a\0b.py", "no/such.py"])
def test_a_name_that_can_be_none_is_one_clear_line(folder: Path, name: str) -> None:
    for arguments in (["run", "-", "--tools", name], ["run", name, "--tools", "my_tools"]):
        done = CliRunner().invoke(_APP, arguments, input="1")
        assert (done.exit_code, done.stdout) == (2, "")
        assert done.stderr.count("\n") == 1
        assert len(done.stderr) < 300


def test_every_value_can_be_shown(folder: Path) -> None:
    done = run(
        folder, "run", "-", "--tools", "my_tools", code="[10 ** 5000, float('nan'), b'\\xff']"
    )
    assert done.returncode == 0, done.stderr
    assert "$int" in done.stdout


@pytest.mark.parametrize(
    ("shell", "code", "words"),
    [
        ("exec {0} run - --tools my_tools <&-", 2, "standard input is closed"),
        ("echo 1 | {0} run - --tools my_tools >/dev/full", 2, "the output cannot be written"),
        ("echo '\"ü🎉\"' | PYTHONIOENCODING=ascii {0} run - --tools my_tools", 0, ""),
        ("mkdir gone && cd gone && rmdir ../gone && echo 1 | {0} run - --tools my_tools", 2, "my_tools"),
    ],
)  # fmt: skip
def test_a_shell_that_takes_something_away_gets_one_clear_line(
    folder: Path, shell: str, code: int, words: str
) -> None:
    called = shlex.join(command())
    done = subprocess.run(
        ["sh", "-c", shell.format(called)], cwd=folder, capture_output=True, timeout=60, check=False
    )
    said = done.stderr.decode()
    assert done.returncode == code, said
    assert words in said
    assert "Traceback" not in said
