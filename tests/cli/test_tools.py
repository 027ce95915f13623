"""`substrate tools`: what a model would see, and how each tool is gated."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from test_run import run

TOOLS = '''
from substrate import tool

@tool(risk="safe", name="weather.get")
def weather(city: str, days: int = 1) -> list[float]:
    """The temperature of a city.

    Args:
        city: Its name in English.
    """
    return [1.0]

@tool(risk="high", effect="once")
def send(to: str) -> str:
    """Send [bold]a mail\\x1b[31m."""
    return to

@tool
def plain(x: int) -> int:
    return x
'''


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "my_tools.py").write_text(TOOLS)
    return tmp_path


@pytest.mark.req("cli.tools")
def test_tools_are_listed_with_risk_effect_and_their_first_line(folder: Path) -> None:
    done = run(folder, "tools", "my_tools.py")
    assert (done.returncode, done.stderr) == (0, "")
    rows = {line.split("  ")[0]: line for line in done.stdout.splitlines()}
    assert "weather.get" in rows["weather_get"]
    assert "pure" in rows["weather_get"]
    assert "The temperature of a city." in rows["weather_get"]
    assert "HIGH" in rows["send"]
    assert "once" in rows["send"]
    assert "[bold]a mail" in rows["send"]
    assert "\x1b" not in done.stdout
    assert "SAFE (undeclared)" in rows["plain"]


@pytest.mark.req("cli.tools")
def test_stubs_are_written_or_printed(folder: Path) -> None:
    printed = run(folder, "tools", "my_tools", "--stubs", "-")
    assert printed.returncode == 0
    tree = ast.parse(printed.stdout)
    made = {node.name for node in tree.body if isinstance(node, ast.AsyncFunctionDef)}
    assert made == {"weather_get", "send", "plain"}
    assert "city: Its name in English." in printed.stdout
    written = run(folder, "tools", "my_tools", "--stubs", "out.pyi")
    assert (written.returncode, written.stdout) == (0, "")
    assert (folder / "out.pyi").read_text() == printed.stdout


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("tools", "nothing.py"), "nothing.py"),
        (("tools", "my_tools", "--stubs", "no/folder/out.pyi"), "cannot be written"),
        (("tools", "json"), "json"),
        (("tools",), "Missing argument"),
    ],
)
def test_bad_input_is_one_clear_line(folder: Path, args: tuple[str, ...], said: str) -> None:
    done = run(folder, *args)
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr
