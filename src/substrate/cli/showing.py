"""What a run brought back, for a person or for a program."""

from __future__ import annotations

import json
import sys

from rich.console import Console
from rich.table import Table
from rich.text import Text

from substrate.agents.tools.toolbox import Toolbox
from substrate.capabilities.approval import visible
from substrate.capabilities.approval.editing import ascii_json
from substrate.capabilities.approval.visible import quoted
from substrate.capabilities.tools.chain.stubs import first_line
from substrate.kernel.secrets import hide
from substrate.kernel.tools.chain import ChainRunResult
from substrate.kernel.values import json_text, plain

__all__ = ["as_json", "show_tools", "show_trace", "show_value"]


def as_json(result: ChainRunResult) -> str:
    """The result by its field names, as one strict JSON document that standard output can take."""
    text = json_text(plain(result))
    try:
        text.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        return ascii_json(text)
    return text


def show_value(result: ChainRunResult, out: Console, secrets: frozenset[str] | None) -> None:
    """The prints and, of a script that went well, the value.

    What stands under `secrets` and the usual names is hidden; None shows the value whole.
    """
    if result.logs:
        out.print(Text(visible(result.logs, lines=True)), end="", soft_wrap=True)
    if result.status == "ok":
        value = result.value if secrets is None else hide(result.value, secrets)
        out.print(Text(visible(_written(value), lines=True)), soft_wrap=True)


def show_trace(result: ChainRunResult, err: Console) -> None:
    """What went wrong, the files, every call, and how the run ended."""
    if result.status != "ok" and result.error:
        width = err.width if err.is_terminal else _NO_FOLD
        for line in quoted("said", result.error, width):
            err.print(Text(line), soft_wrap=True)
    for file in result.files:
        told = f"file {file.path}, {file.media_type}, {file.artifact_ref or 'not stored'}"
        err.print(Text(visible(told)), soft_wrap=True)
    if result.call_trace:
        err.print(_trace(result))
    reason = f" ({result.reason})" if result.reason else ""
    end = f"{result.status}{reason}: {result.tool_calls} calls, {result.duration_ms:.0f} ms"
    err.print(Text(end))


_NO_FOLD = 1 << 40  # cells: a file or a pipe wraps nothing


def _written(value: object) -> str:
    if isinstance(value, str):
        return value
    return json.dumps(json.loads(json_text(value)), indent=2, ensure_ascii=False)


def _trace(result: ChainRunResult) -> Table:
    table = Table(box=None, pad_edge=False)
    for heading in ("#", "tool", "status", "ran", "risk", "approved by", "ms", "arguments"):
        table.add_column(heading, overflow="fold")
    for record in result.call_trace:
        status = record.status if record.reason is None else f"{record.status}: {record.reason}"
        cells = (
            str(record.seq or ""),
            record.tool,
            status,
            record.ran,
            record.risk.name if record.risk is not None else "",
            record.decided_by or "",
            f"{record.run_ms:.0f}",
            record.args_preview,
        )
        table.add_row(*(Text(visible(cell)) for cell in cells))
    return table


def show_tools(box: Toolbox, out: Console) -> None:
    """The tools as a table: how a script calls each, how it is gated, its first line."""
    table = Table("in a script", "risk", "effect", "what it does", box=None, pad_edge=False)
    for name, identifier in box.identifiers().items():
        traits = box.traits(name)
        if traits is None or traits.kind != "local" or traits.is_chain:
            continue
        called = identifier if identifier == name else f"{identifier}  ({name})"
        cells = (called, traits.risk_label, traits.effect.value, first_line(traits))
        table.add_row(*(Text(visible(cell)) for cell in cells))
    out.print(table)
