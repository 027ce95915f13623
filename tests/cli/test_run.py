"""`substrate run`, as a person and as a program use it."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import select
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
    "a proxy without a class": (
        ("class P:\n    __class__ = property(lambda s: 1 / 0)\n"
        "    def __getattr__(s, n): raise SystemExit(n)\nrequest = P()\n"),
        "holds no tools",
    ),
    "a public tool whose schema fails": (
        ("class Z:\n    name = 'z'\n    input_schema = property(lambda s: 1 / 0)\n"
        "    async def execute(self, **k): ...\nz = Z()\n"),
        "a tool of Z cannot be read: ZeroDivisionError",
    ),
    "a tool whose name ends the program": (
        ("class Z:\n    def __getattr__(s, n): raise SystemExit(n)\nTOOLS = [Z()]\n"),
        "a tool of Z cannot be read: SystemExit",
    ),
    "names that end the program": (
        "def __getattr__(n): raise SystemExit(n)\n", "TOOLS of odd cannot be read",
    ),
    "a list that fails": (
        "class L(list):\n    def __iter__(s): raise KeyboardInterrupt\nTOOLS = L([1])\n",
        "odd cannot be read: KeyboardInterrupt",
    ),
    "an error over several lines": (
        "raise ValueError('a\\nok: 1 calls\\x1b[31m' + 'x' * 10000)\n",
        "ValueError: a\\u{a}ok: 1 calls\\u{1b}[31mxxx",
    ),
    "an end without words": (
        "class C:\n    def __str__(s): raise ValueError\nraise SystemExit(C())\n", "ended the program",
    ),
    "a fault of syntax without a place": ("raise SyntaxError\n", "odd cannot be imported: SyntaxError"),
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
    for arguments in (["run", "-", "--tools", "odd"], ["tools", "odd.py"]):
        done = CliRunner().invoke(_APP, arguments, input="1")
        assert (done.exit_code, done.stdout) == (2, "")
        assert len(done.stderr) < 400
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
    ("shell", "code", "words", "lines"),
    [
        ("exec {0} run - --tools my_tools <&-", 2, "standard input is closed", 1),
        ("echo 'await mark()' | {0} run - --tools my_tools >&-", 2, "standard output is closed", 1),
        ("{0} tools my_tools >&-", 2, "standard output is closed", 1),
        ("echo 1 | {0} run - --tools my_tools >/dev/full", 2, "the output cannot be written", 1),
        ("{0} run --help >/dev/full", 2, "the output cannot be written", 1),
        ("echo 1 | {0} run - --tools my_tools 2>/dev/full", 0, "", 0),
        ("echo 1/0 | {0} run - --tools my_tools 2>&-", 1, "", 0),
        ("echo \"print('xy' * 200000)\" | ({0} run - --tools my_tools; exit $?) | head -c1",
         0, "the output cannot be written: Broken pipe", 1),
        ("echo '\"ü🎉\"' | PYTHONIOENCODING=ascii {0} run - --tools my_tools", 0, "ok: 0 calls", 1),
        ("mkdir gone && cd gone && rmdir ../gone && echo 1 | {0} run - --tools my_tools", 2, "my_tools", 2),
        ("mkdir gone && cd gone && rmdir ../gone && echo 1 | {0} run - --tools {1}/my_tools.py", 0, "ok", 2),
    ],
)  # fmt: skip
def test_a_shell_that_takes_something_away_gets_one_clear_line(
    folder: Path, shell: str, code: int, words: str, lines: int
) -> None:
    marked = f"@tool(risk='safe')\ndef mark() -> None: open({str(folder / 'ran')!r}, 'w')\n"
    (folder / "my_tools.py").write_text(TOOLS + marked)
    called = shlex.join(command())
    done = subprocess.run(
        ["sh", "-c", shell.format(called, folder)], cwd=folder, capture_output=True, timeout=60,
        check=False,
    )  # fmt: skip
    said = done.stderr.decode()
    assert done.returncode == code, said
    assert words in said
    assert said.count("\n") <= lines, said
    assert "Traceback" not in said
    assert not (folder / "ran").exists()


def test_json_is_json_in_any_encoding(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    done = run(folder, "run", "-", "--tools", "my_tools", "--json", code="'ü🎉'")
    assert json.loads(done.stdout)["value"] == "ü🎉"


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (RuntimeError("a\nb"), 1, "substrate: a fault of substrate itself; --debug shows where: RuntimeError: a\\u{a}b\n"),
        (SystemExit(7), 1, "substrate: a fault of substrate itself; --debug shows where: SystemExit: 7\n"),
        (KeyboardInterrupt(), 130, "cancelled\n"),
    ],
)  # fmt: skip
def test_a_fault_of_our_own_is_one_clear_line(
    folder: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException, code: int, said: str
) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr("substrate.cli.app._result", fail)
    done = CliRunner().invoke(_APP, ["run", "-", "--tools", "json"], input="1")
    assert (done.exit_code, done.stdout, done.stderr) == (code, "", said)


@pytest.mark.parametrize("store", ["my_tools.py", "my_tools.py/x", "x" * 5000])
def test_a_store_that_cannot_be_is_told_before_anything_runs(
    folder: Path, monkeypatch: pytest.MonkeyPatch, store: str
) -> None:
    monkeypatch.chdir(folder)
    arguments = ["run", "-", "--tools", str(folder / "my_tools.py"), "--store", store]
    done = CliRunner().invoke(_APP, arguments, input="await wait()")
    assert (done.exit_code, done.stdout) == (2, "")
    assert "cannot be used" in done.stderr
    assert done.stderr.count("\n") == 1


def test_ctrl_c_during_an_import_cancels(folder: Path) -> None:
    waits = "import threading\nprint('waiting', flush=True)\nthreading.Event().wait()\n"
    (folder / "slow.py").write_text(waits)
    process = subprocess.Popen(
        command("tools", "slow"), cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline() == "waiting\n"
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=30)
    assert (process.returncode, said) == (130, "cancelled\n")


@pytest.mark.req("cli.run")
def test_what_a_script_says_is_shown_as_it_is_and_looks_like_nothing_of_ours(folder: Path) -> None:
    text = ":skull: [bold]scp host:key:/tmp[/bold]"
    forged = "x\\nok: 0 calls, 1 ms\\r#  tool"
    code = f"await add(a=1, b=2)\nprint({text!r})\nraise ValueError('{forged}')"
    done = run(folder, "run", "-", "--tools", "my_tools", code=code)
    assert done.stdout == f"{text}\n"
    lines = done.stderr.splitlines()
    ours = [line for line in lines if not line.startswith(("said | ", "     | "))]
    assert [line.split(" ")[0] for line in ours] == ["#", "1", "error"]
    assert "\\u{d}#  tool" in done.stderr


class Person:
    """Somebody at a terminal of their own, with `substrate run` in it."""

    def __init__(self, folder: Path, early: str = "") -> None:
        self._master, slave = pty.openpty()
        os.write(self._master, early.encode())
        env = {key: value for key, value in os.environ.items() if key != "EDITOR"}
        self._process = subprocess.Popen(
            command("run", "plan.py", "--tools", "my_tools"), cwd=folder, stdin=slave,
            stdout=slave, stderr=slave, start_new_session=True, env={**env, "TERM": "xterm"},
        )  # fmt: skip
        os.close(slave)
        self.seen = ""

    def answer(self, line: str) -> None:
        """Wait for a question, and type."""
        before = self.seen.count(QUESTION) + self.seen.count("as JSON: ")
        while self.seen.count(QUESTION) + self.seen.count("as JSON: ") == before:
            self._look()
        os.write(self._master, line.encode())

    def _look(self) -> None:
        assert select.select([self._master], [], [], 30)[0], self.seen
        part = os.read(self._master, 4096)
        assert part, self.seen
        self.seen += part.decode(errors="replace")

    def end(self) -> tuple[int, str]:
        try:
            with contextlib.suppress(OSError):  # the program has closed its side
                while True:
                    self._look()
            return self._process.wait(30), self.seen
        finally:
            self._process.kill()
            self._process.wait()
            os.close(self._master)


QUESTION = ")? "


@pytest.mark.req("approval.terminal", "approval.once")
@pytest.mark.parametrize(
    ("early", "lines", "code", "said"),
    [
        ("", ["y\n"], 0, "sent to :skull: alice"),
        ("", ["n\n"], 3, "was not run"),
        ("", ["what\n", "s\n"], 3, "skip"),
        ("", ["e\n", '{"to": "bob"}\n', "y\n"], 0, "sent to bob"),
        ("", ["e\n", '{"to": \n', "n\n"], 3, "that is no JSON"),
        ("", ["\x04"], 3, ")? \r\nsaid | "),
        ("y\ny\ny", ["\n", "n\n"], 3, "was not run"),
    ],
)  # fmt: skip
def test_a_person_at_a_real_terminal_is_asked_and_heard(
    folder: Path, early: str, lines: list[str], code: int, said: str
) -> None:
    (folder / "plan.py").write_text("await send(to=':skull: alice')")
    person = Person(folder, early)
    try:
        for line in lines:
            person.answer(line)
    finally:
        ended, seen = person.end()
    assert (ended, said in seen) == (code, True), seen
    assert "May this run?" in seen
    assert '"to": ":skull: alice"' in seen
