"""The values of a chain: its policy, the result and record of one call, the result of a script.

Times are seconds as floats, `_ms` where named so; sizes are bytes. Where a
field of a record is not known, the record says the worst that can be true.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

import msgspec

from substrate.kernel.content import ContentBlock
from substrate.kernel.tools.tools import CallSite, ToolEffect, ToolRisk

__all__ = [
    "CallStatus",
    "ChainCallRecord",
    "ChainFile",
    "ChainPolicy",
    "ChainReason",
    "ChainRunResult",
    "ChainStatus",
    "InvocationResult",
    "InvocationStatus",
    "Ran",
    "Reason",
]

InvocationStatus: TypeAlias = Literal["ok", "error", "denied"]
CallStatus: TypeAlias = Literal["ok", "error", "denied", "timeout", "cancelled"]
Ran: TypeAlias = Literal["no", "yes", "unknown"]
Reason: TypeAlias = Literal[
    "budget",
    "unknown_tool",
    "not_callable_from_chain",
    "invalid_arguments",
    "no_handler",
    "approval_timeout",
    "approval_denied",
    "skipped",
    "handler_error",
    "guard",
    "bad_ref",
    "conflict",
    "repeat",
    "busy",
    "session_closed",
    "cancelled",
    "timeout",
    "tool_error",
    "in_doubt",
    "fenced",
    "internal",
]
ChainStatus: TypeAlias = Literal["ok", "error", "timeout", "cancelled", "suspended", "in_doubt"]
ChainReason: TypeAlias = Literal[
    "script_error",
    "not_awaited",
    "syntax",
    "type_check",
    "unsupported",
    "budget",
    "time",
    "memory",
    "recursion",
    "output",
    "protocol",
    "crash",
    "diverged",
    "no_sandbox",
]


class ChainPolicy(msgspec.Struct, frozen=True):
    """The limits of a chain. `max_risk_unapproved` is also taken by name (`"high"`).

    `secret_names` are names of values that are never shown, beside the usual ones.
    """

    max_tool_calls: int = 50
    max_parallel_calls: int = 16
    call_timeout_s: float = 60.0
    approval_timeout_s: float = 55.0
    total_timeout_s: float = 300.0
    max_inline_result_bytes: int = 4096
    max_output_bytes: int = 20_000
    max_risk_unapproved: ToolRisk = ToolRisk.SAFE
    require_layers: frozenset[str] = frozenset()
    secret_names: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        for name in ("max_tool_calls", "max_inline_result_bytes", "max_output_bytes"):
            _require(name, getattr(self, name), 0)
        _require("max_parallel_calls", self.max_parallel_calls, 1)
        for name in ("call_timeout_s", "approval_timeout_s", "total_timeout_s"):
            value: object = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
                msg = f"ChainPolicy.{name} must be a number of seconds above 0, not {value!r}"
                raise ValueError(msg)
        risk = ToolRisk(self.max_risk_unapproved)
        msgspec.structs.force_setattr(self, "max_risk_unapproved", risk)
        for name in ("require_layers", "secret_names"):
            msgspec.structs.force_setattr(self, name, frozenset(getattr(self, name)))


def _require(name: str, value: object, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        msg = f"ChainPolicy.{name} must be a whole number of at least {least}, not {value!r}"
        raise ValueError(msg)


class ChainFile(msgspec.Struct, frozen=True, gc=False):
    """A media file: where the script can open it, what it really is, and its artifact."""

    path: str
    media_type: str
    artifact_ref: str | None = None


class InvocationResult(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What a caller gets of one call.

    `text` is the tool's text as it was (of a refusal: the reason in words),
    `structured` its structured content in plain form. What is too big to carry
    is replaced by `preview` and `artifact_ref`; media lie in `files`; blocks that
    are neither text nor bytes stay in `content`. `empty` says that the tool
    returned nothing at all, as against the empty text. `told` is what the caller
    should know besides: that and by whom the arguments were edited.
    """

    status: InvocationStatus
    reason: Reason | None = None
    ran: Ran = "no"
    text: str = ""
    structured: Any = None
    preview: str | None = None
    artifact_ref: str | None = None
    files: tuple[ChainFile, ...] = ()
    content: tuple[ContentBlock, ...] = ()
    replayed: bool = False
    empty: bool = False
    told: str | None = None

    @property
    def value(self) -> Any:
        """The natural value: structured content if there is any, else text, else None."""
        if self.structured is not None:
            return self.structured
        return None if self.empty else self.text


class ChainCallRecord(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One call as it goes into the trace, whatever became of it.

    `args_digest` is `sha256:` of the canonical arguments as sent; previews are
    bounded. `decided_by` names who approved, `edited` the arguments that were
    changed in approving, `repaired` the paths where JSON text was decoded.
    `wait_ms` is the time spent before the tool started, `run_ms` within it.
    """

    call_id: str
    tool: str
    seq: int | None = None
    status: CallStatus = "error"
    reason: Reason | None = None
    ran: Ran = "unknown"
    args_digest: str = ""
    args_preview: str = ""
    risk: ToolRisk | None = None
    effect: ToolEffect | None = None
    decision: str | None = None
    decided_by: str | None = None
    edited: tuple[str, ...] = ()
    repaired: tuple[str, ...] = ()
    wait_ms: float = 0.0
    run_ms: float = 0.0
    started_at: float = 0.0
    message: str = ""
    result_preview: str = ""
    artifact_ref: str | None = None
    site: CallSite | None = None
    replayed: bool = False


class ChainRunResult(msgspec.Struct, frozen=True, kw_only=True):
    """What a script brought back, on every outcome.

    `value` is the script's value, `output_text` what the model reads (bounded by
    `max_output_bytes`), `logs` what was printed, `error` the traceback or message
    of a failure, `call_trace` one record for each call. `sandbox` names the
    sandbox and the layers that were active.
    """

    status: ChainStatus
    reason: ChainReason | None = None
    value: Any = None
    output_text: str = ""
    logs: str = ""
    error: str | None = None
    chain_id: str = ""
    tool_calls: int = 0
    duration_ms: float = 0.0
    call_trace: Sequence[ChainCallRecord] = ()
    files: Sequence[ChainFile] = ()
    artifact_ref: str | None = None
    sandbox: Any = None
