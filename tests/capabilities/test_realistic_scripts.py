"""Scripts as a language model writes them, against the tools of a small company.

They lie in `scripts/`. A script begins with `=== ` and its name, then what is to come of it:

    --- value: what it gives, as a literal of Python
    --- fails: the reason and the line (`?` where the reason is left open)
    --- says: words of what the model is told
    --- trace: the tools that are called, in order (after `~`: in any); without it, whatever
    --- fault: what is wrong with it still
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from office import TOOLS, fresh, manager

from substrate import InMemoryBlobStore, run_script_sync
from substrate.kernel.tools.chain import ChainRunResult

CALL = re.compile(r"that failed is on line (\d+)")
SCRIPTS = Path(__file__).parent / "scripts"


class Written(NamedTuple):
    name: str
    code: str
    told: dict[str, str]


def scripts() -> Iterator[Written]:
    for path in sorted(SCRIPTS.glob("*.txt")):
        for part in re.split(r"^=== ", path.read_text("utf-8"), flags=re.MULTILINE)[1:]:
            name, _, rest = part.partition("\n")
            lines = rest.splitlines(keepends=True)
            heads = [line[4:].strip() for line in lines if line.startswith("--- ")]
            told = {key: text.strip() for key, _, text in (head.partition(":") for head in heads)}
            yield Written(f"{path.stem}: {name}", "".join(lines[len(heads) :]).strip("\n"), told)


def cases(kind: str) -> list[Any]:
    return [
        pytest.param(
            script,
            id=script.name,
            marks=[pytest.mark.xfail(strict=True, reason=script.told["fault"])]
            if "fault" in script.told
            else [],
        )
        for script in scripts()
        if kind in script.told
    ]


def ran(script: Written) -> ChainRunResult:
    fresh()
    result = run_script_sync(script.code, TOOLS, manager, store=InMemoryBlobStore())
    trace = script.told.get("trace")
    if trace is not None:
        called = [record.tool for record in result.call_trace]
        expected = trace.removeprefix("~").split()
        assert expected == (sorted(called) if trace.startswith("~") else called), result.output_text
    return result


def line_of(error: str) -> int | None:
    """The line that is told: of a traceback the last one, else that of the first problem."""
    lines = [int(number) for number in re.findall(r"\bline (\d+)[,:]", error)]
    if not lines:
        return None
    return lines[-1] if error.startswith("Traceback") else lines[0]


@pytest.mark.req("script.run", "script.value", "script.calls", "script.type-check")
@pytest.mark.parametrize("script", cases("value"))
def test_a_script_of_a_model_gives_its_value_and_calls_what_it_names(script: Written) -> None:
    result = ran(script)
    assert result.status == "ok", result.output_text
    assert result.value == ast.literal_eval(script.told["value"])


@pytest.mark.req("script.failure", "script.type-check")
@pytest.mark.parametrize("script", cases("fails"))
def test_a_script_that_cannot_run_is_told_where_and_what_to_write_instead(script: Written) -> None:
    result = ran(script)
    reason, line = script.told["fails"].split()
    assert result.status == "error", result.output_text
    assert reason in ("?", result.reason)
    told = CALL.findall(result.output_text)
    assert (int(told[-1]) if told else line_of(result.error or "")) == int(line), result.error
    assert script.told["says"] in result.output_text


def test_every_script_says_what_is_to_come_of_it() -> None:
    known = {"value", "fails", "says", "trace", "fault"}
    for script in scripts():
        keys = set(script.told)
        assert keys <= known, script.name
        assert ("value" in keys) != ("fails" in keys and "says" in keys), script.name
        assert script.code, script.name
