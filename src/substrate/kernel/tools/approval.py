"""Asking a person (or a policy) whether a call may run."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Any, Literal, Protocol, TypeAlias, runtime_checkable

import msgspec

from substrate.kernel.tools.tools import ToolCallRequest, ToolRisk

__all__ = [
    "ApprovalAnswer",
    "ApprovalDecision",
    "ApprovalHandler",
    "ApprovalRequest",
    "ExpiryAware",
    "Grant",
]

Grant: TypeAlias = Literal["chain", "scope"]


class ApprovalDecision(enum.StrEnum):
    """APPROVED runs the call; MODIFIED runs it edited; DENIED and SKIPPED do not run it."""

    APPROVED = "approved"
    DENIED = "denied"
    SKIPPED = "skipped"
    MODIFIED = "modified"


class ApprovalRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What the approver is asked. Serialisable; `call.arguments` is a copy of the snapshot.

    `why` says in a sentence why this asks. `context` holds at least `description`
    (the tool's own words), `undeclared_risk` and `effect`. `requested_at` is in
    seconds since the epoch, `expires_in_s` the time left for an answer.
    """

    call: ToolCallRequest
    risk: ToolRisk
    agent_id: str | None = None
    run_id: str | None = None
    why: str = ""
    context: Mapping[str, Any] = msgspec.field(default_factory=dict[str, Any])
    requested_at: float = 0.0
    expires_in_s: float = 0.0


class ApprovalAnswer(msgspec.Struct, frozen=True):
    """A decision with its circumstances.

    `arguments` are the edited ones of MODIFIED. `grant` makes a yes stand for
    later calls of the same tool at no higher risk, in this chain or this scope.
    """

    decision: ApprovalDecision
    arguments: Mapping[str, Any] | None = None
    decided_by: str | None = None
    decided_at: float | None = None
    reason: str | None = None
    grant: Grant | None = None


@runtime_checkable
class ApprovalHandler(Protocol):
    """Asked for every call that needs a yes.

    Anything but a decision or an answer, and any exception, denies. The wait is
    bounded by `approval_timeout_s`: then the handler's task is cancelled with the
    message "expired" and left behind, whatever it does.
    """

    async def request(self, req: ApprovalRequest, /) -> ApprovalDecision | ApprovalAnswer:
        """Decide about one call."""
        ...


@runtime_checkable
class ExpiryAware(Protocol):
    """A handler that wants to hear that its answer to a request came too late."""

    def expired(self, req: ApprovalRequest, /) -> None:
        """The request is no longer open; called once, also without a late answer."""
        ...
