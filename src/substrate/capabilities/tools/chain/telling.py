"""What the model reads of a chain: its value and prints, or what failed and what was done."""

from __future__ import annotations

from collections import Counter

from substrate.agents.tools.shown import NOTHING
from substrate.kernel.secrets import hide
from substrate.kernel.tools.chain import ChainCallRecord, ChainRunResult
from substrate.kernel.values import json_text

__all__ = ["tell_failure", "tell_success"]

_MOST_CALLS = 40
_RAN = {"no": "not run", "yes": "ran", "unknown": "may have happened"}


def tell_success(result: ChainRunResult, secrets: frozenset[str]) -> str:
    """The value, without what stands under secret names, then what was printed."""
    value = hide(result.value, secrets)
    shown = NOTHING.replace("tool", "script") if value is None else _text(value)
    parts = [shown]
    if result.logs:
        parts.append(f"[printed]\n{result.logs}")
    parts.extend(f"[file {file.path}, {file.media_type}]" for file in result.files)
    return "\n".join(parts)


def _text(value: object) -> str:
    return value if isinstance(value, str) and value.strip() else json_text(value)


def tell_failure(result: ChainRunResult) -> str:
    """The error, then every call that was made and what became of it."""
    parts = [f"The script failed ({result.reason}).", result.error or ""]
    parts += [_place(result), _done(result)]
    if result.logs:
        parts.append(f"[printed]\n{result.logs}")
    return "\n".join(part for part in parts if part)


def _place(result: ChainRunResult) -> str:
    """Where the call stands whose failure ended the script, if its traceback tells another line."""
    error = result.error or ""
    for record in reversed(result.call_trace):
        if record.status != "ok" and record.message and record.site is not None:
            if record.message in error and f"line {record.site.line}," not in error:
                return f"The call of {record.tool} that failed is on line {record.site.line}."
            break
    return ""


def _done(result: ChainRunResult) -> str:
    trace = result.call_trace
    if not trace:
        return f"No tool was called. [{result.chain_id}]"
    totals = Counter(_RAN[record.ran] for record in trace)
    counted = ", ".join(f"{count} {what}" for what, count in totals.items())
    lines = [f"Calls made in {result.chain_id}: {len(trace)} ({counted})."]
    lines += [_line(record) for record in trace[:_MOST_CALLS]]
    if len(trace) > _MOST_CALLS:
        lines.append(f"… and {len(trace) - _MOST_CALLS} more")
    lines.append("Do not repeat what ran or may have happened.")
    return "\n".join(lines)


def _line(record: ChainCallRecord) -> str:
    reason = f" ({record.reason})" if record.reason else ""
    shown = record.result_preview.replace("\n", " ")
    return (
        f"{record.seq}. {record.tool} {record.args_preview}: {record.status}{reason},"
        f" {_RAN[record.ran]}" + (f": {shown}" if shown else "")
    )
