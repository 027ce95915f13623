"""`CallbackApproval`: a function decides."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from substrate.kernel.tools.approval import ApprovalAnswer, ApprovalDecision, ApprovalRequest

__all__ = ["CallbackApproval", "Decide"]

Decision: TypeAlias = ApprovalDecision | ApprovalAnswer
Decide: TypeAlias = Callable[[ApprovalRequest], Decision | Awaitable[Decision]]


class CallbackApproval:
    """Asks a function, sync (then it must not block) or async.

    Args:
        decide: Called with the request; gives a decision or an answer.
        on_expired: Called with a request that nobody may answer any more.
    """

    def __init__(
        self, decide: Decide, on_expired: Callable[[ApprovalRequest], None] | None = None
    ) -> None:
        if not callable(decide):
            msg = f"an approval callback is a function of one request, not {decide!r}"
            raise TypeError(msg)
        self._decide = decide
        self._on_expired = on_expired

    async def request(self, req: ApprovalRequest, /) -> Decision:
        """Decide about one call."""
        decision = self._decide(req)
        return await decision if inspect.isawaitable(decision) else decision

    def expired(self, req: ApprovalRequest, /) -> None:
        """The request is no longer open."""
        if self._on_expired is not None:
            self._on_expired(req)
