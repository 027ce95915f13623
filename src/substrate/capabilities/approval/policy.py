"""`PolicyApproval`: rules decide, in order; it is a handler itself, so that policies nest."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Literal

from substrate.kernel.tools.approval import (
    ApprovalAnswer,
    ApprovalDecision,
    ApprovalHandler,
    ApprovalRequest,
)
from substrate.kernel.tools.tools import ToolRisk

__all__ = ["PolicyApproval", "Rule"]


@dataclass(frozen=True, slots=True)
class Rule:
    """What is done with calls of the tools that match `tools` (a glob), at most of this risk."""

    tools: str
    action: Literal["allow", "deny", "ask"]
    risk: ToolRisk = ToolRisk.CRITICAL
    reason: str | None = None

    def matches(self, req: ApprovalRequest) -> bool:
        """Whether the rule speaks of this request."""
        return fnmatchcase(req.call.name, self.tools) and req.risk <= self.risk


class PolicyApproval:
    """The first rule that matches decides; where none does, the call is denied.

    Args:
        rules: In order.
        ask: The handler for `ask` rules; without one, they deny.
    """

    def __init__(self, rules: Iterable[Rule], ask: ApprovalHandler | None = None) -> None:
        self._rules = tuple(rules)
        self._ask = ask

    async def request(self, req: ApprovalRequest, /) -> ApprovalDecision | ApprovalAnswer:
        """Decide about one call."""
        rule = next((rule for rule in self._rules if rule.matches(req)), None)
        if rule is None:
            return _denied("no rule of the policy allows it")
        if rule.action == "allow":
            return ApprovalAnswer(
                ApprovalDecision.APPROVED, decided_by="policy", reason=rule.reason
            )
        if rule.action == "deny":
            return _denied(rule.reason or f"the policy's rule {rule.tools!r} denies it")
        if self._ask is None:
            return _denied(f"the policy's rule {rule.tools!r} asks, and there is nobody to ask")
        return await self._ask.request(req)


def _denied(reason: str) -> ApprovalAnswer:
    return ApprovalAnswer(ApprovalDecision.DENIED, decided_by="policy", reason=reason)
