"""Rules and functions as approvers."""

from __future__ import annotations

import asyncio

import pytest

from substrate.capabilities.approval import CallbackApproval, PolicyApproval, Rule
from substrate.kernel.tools.approval import ApprovalAnswer, ApprovalDecision, ApprovalRequest
from substrate.kernel.tools.tools import ToolCallRequest, ToolRisk


def request(name: str, risk: ToolRisk = ToolRisk.HIGH) -> ApprovalRequest:
    return ApprovalRequest(call=ToolCallRequest(name), risk=risk)


def decision(policy: PolicyApproval, req: ApprovalRequest) -> ApprovalDecision:
    answer = asyncio.run(policy.request(req))
    return answer.decision if isinstance(answer, ApprovalAnswer) else answer


@pytest.mark.req("approval.policy")
def test_the_first_rule_that_matches_decides_and_none_denies() -> None:
    policy = PolicyApproval(
        [Rule("mail.*", "deny"), Rule("*", "allow", risk=ToolRisk.HIGH)],
    )
    assert decision(policy, request("mail.send")) == "denied"
    assert decision(policy, request("files.read")) == "approved"
    assert decision(policy, request("files.read", ToolRisk.CRITICAL)) == "denied"


def test_policies_nest_and_ask() -> None:
    inner = PolicyApproval([Rule("b", "allow")])
    policy = PolicyApproval([Rule("a", "ask"), Rule("b", "ask")], ask=inner)
    assert decision(policy, request("a")) == "denied"
    assert decision(policy, request("b")) == "approved"
    assert decision(PolicyApproval([Rule("*", "ask")]), request("a")) == "denied"


def test_a_function_decides_sync_or_async_and_hears_of_the_end() -> None:
    told: list[str] = []

    async def later(req: ApprovalRequest) -> ApprovalDecision:
        return ApprovalDecision.SKIPPED

    quick = CallbackApproval(
        lambda req: ApprovalDecision.APPROVED, on_expired=lambda req: told.append(req.call.name)
    )
    assert asyncio.run(quick.request(request("a"))) == "approved"
    assert asyncio.run(CallbackApproval(later).request(request("a"))) == "skipped"
    quick.expired(request("late"))
    CallbackApproval(later).expired(request("late"))
    assert told == ["late"]


def test_what_is_no_function_is_refused() -> None:
    with pytest.raises(TypeError, match="a function of one request"):
        CallbackApproval("no")  # pyright: ignore[reportArgumentType]
