"""Events that observers can watch, and the shape of what watches them."""

from __future__ import annotations

import enum
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Literal, Protocol, TypeAlias

import msgspec

from substrate.kernel.tools.chain import CallStatus, Ran, Reason

__all__ = ["Hook", "HookDispatcher", "HookEvent", "ProgressSink", "ProgressStep"]


class HookEvent(enum.StrEnum):
    """What can be observed.

    Contexts are mappings. TOOL_START holds at least `tool_name` and `call_id`;
    TOOL_END also `status`, `reason`, `ran` and `duration_ms`.
    """

    RUN_START = "run_start"
    RUN_END = "run_end"
    STEP_START = "step_start"
    STEP_END = "step_end"
    LLM_START = "llm_start"
    LLM_END = "llm_end"
    TOOL_START = "tool_start"
    TOOL_END = "tool_end"


Hook: TypeAlias = Callable[[Mapping[str, Any]], Awaitable[None] | None]


class HookDispatcher(Protocol):
    """What the invoker and the agent need of a hook manager."""

    async def dispatch(self, event: HookEvent, context: Mapping[str, Any]) -> None:
        """Tell every observer of `event`; never raises, bounded in time."""
        ...


class ProgressStep(msgspec.Struct, frozen=True, kw_only=True):
    """A step of one call as it happens: `TOOL_CALL` before it runs, `TOOL_RESULT` after, always."""

    kind: Literal["TOOL_CALL", "TOOL_RESULT"]
    tool: str
    call_id: str
    seq: int | None = None
    status: CallStatus | None = None
    reason: Reason | None = None
    ran: Ran | None = None


ProgressSink: TypeAlias = Callable[[ProgressStep], Awaitable[None] | None]
