"""The scripts in the documentation run as it says."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from substrate import InMemoryBlobStore, run_script_sync, tool
from substrate.kernel.tools.chain import ChainRunResult

TEXT = (Path(__file__).parents[2] / "docs" / "scripts.md").read_text("utf-8")
BLOCKS = re.findall(r"```python (\w+)\n(.*?)```", TEXT, re.DOTALL)


@tool(risk="safe")
def load(name: str) -> str:
    return "alpha\nbeta\n" * 1000


@tool(risk="safe", name="text.length")
def length(text: str) -> int:
    return len(text)


@tool(risk="high")
def pay(to: str, amount: float) -> dict[str, str]:
    """Pay somebody."""
    return {"to": to, "state": "done"}


def run(code: str) -> ChainRunResult:
    return run_script_sync(code, [load, length, pay], store=InMemoryBlobStore())


@pytest.mark.parametrize("code", [code for kind, code in BLOCKS if kind == "script"])
def test_a_script_gives_what_is_written_beside_its_last_line(code: str) -> None:
    result = run(code)
    assert result.status == "ok", result.output_text
    said = code.rstrip().splitlines()[-1].rpartition("# ")[2].partition(", where")[0]
    assert result.value == ast.literal_eval(said)


@pytest.mark.parametrize("code", [code for kind, code in BLOCKS if kind == "refused"])
def test_a_refused_script_calls_nothing_and_says_what_is_written(code: str) -> None:
    result = run(code)
    assert result.status == "error"
    assert result.call_trace == ()
    parts = code.splitlines()[0].rpartition("# ")[2].split("…")
    rest = result.error or ""
    for part in filter(None, map(str.strip, parts)):
        assert part in rest, result.error
        rest = rest.partition(part)[2]


def test_every_kind_of_block_is_there() -> None:
    assert {kind for kind, _ in BLOCKS} == {"tools", "script", "refused"}
    assert len(BLOCKS) == 8
