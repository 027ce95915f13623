"""`Journal`: what is written before and after a call runs, so that it runs at most once.

It is written ahead: `intend` directly before the tool starts, `settle` when its
outcome is known. An intent without an outcome is a call in doubt.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import msgspec

from substrate.kernel.tools.chain import CallStatus, InvocationResult, Ran, Reason
from substrate.kernel.tools.tools import ToolEffect

__all__ = ["CallIntent", "CallOutcome", "Journal"]


class CallIntent(msgspec.Struct, frozen=True, kw_only=True):
    """A call that is about to start. `arguments` is the snapshot (see `kernel.values`)."""

    chain_id: str
    call_id: str
    seq: int | None
    tool: str
    digest: str
    effect: ToolEffect
    idempotency_key: str
    arguments: bytes


class CallOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a call. `late` marks the return of one that had been given up."""

    chain_id: str
    call_id: str
    status: CallStatus
    ran: Ran
    reason: Reason | None = None
    result: InvocationResult | None = None
    late: bool = False


@runtime_checkable
class Journal(Protocol):
    """The store of intents and outcomes.

    `intend` is durable when it returns; it raises `InDoubt` where the same call
    was intended before and has no outcome, and `Fenced` where the chain belongs to
    another worker. `settle` may be durable later; a late outcome replaces a doubt.
    """

    async def intend(self, intent: CallIntent) -> None:
        """Write that this call is about to start."""
        ...

    async def settle(self, outcome: CallOutcome) -> None:
        """Write what became of a call that was intended."""
        ...

    async def in_doubt(self, chain_id: str) -> list[CallIntent]:
        """The intents of a chain whose outcome is not known."""
        ...
