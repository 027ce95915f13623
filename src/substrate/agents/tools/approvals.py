"""Whether a call may run: its risk, and asking where the risk is above what runs unasked.

The wait for an answer is bounded by leaving the handler behind. What was approved
is the snapshot; an edit makes a new one, which is checked and classified again.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, cast

from substrate.agents.tools.arguments import Arguments, Snapshot, check_arguments, snapshot_of
from substrate.agents.tools.deadline import (
    GRACE_S,
    STEP_S,
    DeadlineExceededError,
    OnLate,
    call_bounded,
)
from substrate.agents.tools.session import InvokerSession
from substrate.agents.tools.shown import preview, said
from substrate.agents.tools.traits import Traits
from substrate.kernel.context import RunContext
from substrate.kernel.errors import Refused
from substrate.kernel.secrets import hide
from substrate.kernel.tools.approval import (
    ApprovalAnswer,
    ApprovalDecision,
    ApprovalHandler,
    ApprovalRequest,
    ExpiryAware,
)
from substrate.kernel.tools.chain import Reason
from substrate.kernel.tools.tools import ToolCallRequest, ToolRisk

__all__ = ["Approver", "Verdict", "decide"]


_MOST_EDITS = 2


@dataclass(frozen=True, slots=True)
class Verdict:
    """A yes: to which arguments, at which risk, by whom, and what was edited."""

    arguments: Arguments
    risk: ToolRisk
    decision: str | None = None
    decided_by: str | None = None
    edited: tuple[str, ...] = ()
    told: str | None = None


class Notes(Protocol):
    """Whatever wants to know risk and decision, also of a call that is then refused."""

    risk: ToolRisk | None
    decision: str | None
    decided_by: str | None


@dataclass(frozen=True, slots=True)
class Approver:
    """What asking needs besides the call."""

    handler: ApprovalHandler | None
    session: InvokerSession
    ctx: RunContext | None
    leave: OnLate
    noted: Notes


async def decide(
    call: ToolCallRequest, traits: Traits, arguments: Arguments, approver: Approver
) -> Verdict:
    """The verdict on a call; raises `Refused` where it is not a yes."""
    risk, why = await _assess(traits, arguments.snapshot, approver)
    if why is None:
        return Verdict(arguments, risk)
    edited: tuple[str, ...] = ()
    told = decided_by = None
    edits = 0
    while edits < _MOST_EDITS:
        if approver.session.granted(traits.name, risk):
            return Verdict(arguments, risk, "granted", decided_by, edited, told)
        answer = await _ask(call, traits, arguments.snapshot, risk, why, approver)
        if answer is None:  # a grant came meanwhile
            continue
        decided_by = answer.decided_by
        approver.noted.decision, approver.noted.decided_by = answer.decision.value, decided_by
        if answer.decision is ApprovalDecision.APPROVED:
            _grant(answer, traits, risk, approver)
            return Verdict(arguments, risk, "approved", decided_by, edited, told)
        if answer.decision is not ApprovalDecision.MODIFIED:
            raise _denial(traits, answer)
        edits += 1
        shown_risk = risk
        before = arguments.snapshot
        arguments = _edit(traits, answer)
        risk, why = await _assess(traits, arguments.snapshot, approver)
        edited = (*edited, *_changes(before.plain, arguments.snapshot.plain))
        told = _told(edited, arguments.snapshot, traits, approver)
        if risk <= shown_risk:
            _grant(answer, traits, risk, approver)
            return Verdict(arguments, risk, "modified", decided_by, edited, told)
        why = why or "the edit raised the risk"
    message = f"{traits.name!r} was not run: it was asked twice and the edit raised the risk again"
    raise Refused(message, reason="approval_denied")


async def _assess(
    traits: Traits, snapshot: Snapshot, approver: Approver
) -> tuple[ToolRisk, str | None]:
    """The risk of these arguments, and why they ask (None: they need not)."""
    risk, why = traits.risk, f"its risk is {traits.risk_label}"
    if traits.classify_risk is not None:
        risk, why = await _classified(traits.classify_risk, snapshot, approver.leave)
    approver.noted.risk = risk
    if risk > approver.session.policy.max_risk_unapproved:
        return risk, why
    wanted = traits.requires_approval
    if wanted is False:
        return risk, None
    if wanted is not True:
        try:
            wanted = await _called(wanted, snapshot, approver.leave)
        except Exception as error:  # fails closed: it counts as the highest risk
            approver.noted.risk = ToolRisk.CRITICAL
            return ToolRisk.CRITICAL, f"its requires_approval failed ({_brief(error)})"
    return risk, "the tool requires approval" if wanted else None


async def _classified(
    classify: Callable[[dict[str, Any]], Any], snapshot: Snapshot, leave: OnLate
) -> tuple[ToolRisk, str]:
    try:
        risk = ToolRisk(await _called(classify, snapshot, leave))
    except Exception as error:  # fails closed: it counts as the highest risk
        return ToolRisk.CRITICAL, f"its risk could not be classified ({_brief(error)})"
    return risk, f"its risk with these arguments is {risk.name}"


async def _called(function: Callable[[Any], Any], snapshot: Snapshot, leave: OnLate) -> Any:
    return await call_bounded(function, snapshot.copy(), seconds=STEP_S, on_late=leave)


def _brief(error: BaseException) -> str:
    if isinstance(error, DeadlineExceededError):
        return f"no answer within {STEP_S:g}s"
    return said(error)[:200]


def _grant(answer: ApprovalAnswer, traits: Traits, risk: ToolRisk, approver: Approver) -> None:
    if answer.grant is not None:
        approver.session.grant(traits.name, risk, answer.grant)


def _denial(traits: Traits, answer: ApprovalAnswer) -> Refused:
    by = f" by {answer.decided_by}" if answer.decided_by else ""
    why = f": {answer.reason}" if answer.reason else ""
    if answer.decision is ApprovalDecision.SKIPPED:
        text = f"{traits.name!r} was skipped{by}{why}. It was not run; go on without it."
        return Refused(text, reason="skipped")
    text = f"approval of {traits.name!r} was denied{by}{why}. It was not run."
    return Refused(text, reason="approval_denied")


def _edit(traits: Traits, answer: ApprovalAnswer) -> Arguments:
    edited: object = answer.arguments
    if not isinstance(edited, Mapping):
        kind = type(edited).__name__
        message = (
            f"the approver edited {traits.name!r} to a {kind}, not to arguments by name."
            " It was not run."
        )
        raise Refused(message, reason="handler_error")
    snapshot = snapshot_of(traits.name, dict(edited))
    try:
        return check_arguments(traits, snapshot)
    except Refused as refusal:
        message = f"the edited arguments were refused: {refusal.message}"
        raise Refused(message, reason="invalid_arguments", status="error") from None


def _told(edited: tuple[str, ...], snapshot: Snapshot, traits: Traits, approver: Approver) -> str:
    """What was edited, to what and by whom, in words for the model."""
    secrets = traits.secrets | approver.session.policy.secret_names
    now = {name: snapshot.plain.get(name, "(left out)") for name in edited}
    by = approver.noted.decided_by or "the approver"
    return f"{by} edited the arguments in approval: {preview(hide(now, secrets), _MOST_TOLD)}"


_MOST_TOLD = 300  # bytes


def _changes(before: Any, after: Any) -> tuple[str, ...]:
    keys = dict.fromkeys([*before, *after])
    missing = object()
    return tuple(k for k in keys if before.get(k, missing) != after.get(k, missing))


async def _ask(
    call: ToolCallRequest,
    traits: Traits,
    snapshot: Snapshot,
    risk: ToolRisk,
    why: str,
    approver: Approver,
) -> ApprovalAnswer | None:
    """Put the question; None where a standing grant has made it needless."""
    handler, session = approver.handler, approver.session
    if handler is None:
        message = (
            f"{traits.name!r} needs approval ({why}) and there is no ApprovalHandler"
            " to ask. It was not run."
        )
        raise Refused(message, reason="no_handler")
    request = _request(call, traits, snapshot, risk, why, approver)
    waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    session.pending[waiting] = (traits.name, risk)
    try:
        with session.clock.standing_still():
            return await _answer_of(handler, request, waiting, approver)
    finally:
        del session.pending[waiting]


def _request(
    call: ToolCallRequest,
    traits: Traits,
    snapshot: Snapshot,
    risk: ToolRisk,
    why: str,
    approver: Approver,
) -> ApprovalRequest:
    ctx = approver.ctx
    return ApprovalRequest(
        call=ToolCallRequest(traits.name, snapshot.copy(), call.call_id, call.seq, call.site),
        risk=risk,
        agent_id=ctx.agent_id if ctx else None,
        run_id=ctx.run_id if ctx else None,
        why=why,
        context={
            "description": traits.description,
            "effect": traits.effect.value,
            "undeclared_risk": not traits.risk_declared,
            "chain_id": approver.session.chain_id,
            "secrets": sorted(traits.secrets | approver.session.policy.secret_names),
        },
        requested_at=time.time(),
        expires_in_s=approver.session.policy.approval_timeout_s,
    )


async def _answer_of(
    handler: ApprovalHandler,
    request: ApprovalRequest,
    waiting: asyncio.Future[None],
    approver: Approver,
) -> ApprovalAnswer | None:
    task = asyncio.create_task(_contained(handler, request))
    try:
        await asyncio.wait(
            (task, waiting), timeout=request.expires_in_s, return_when=asyncio.FIRST_COMPLETED
        )
    except asyncio.CancelledError:
        task.cancel("cancelled")
        await asyncio.wait((task,), timeout=GRACE_S)
        approver.leave(task)
        raise
    if task.done():
        return _checked(task, request)
    expired = not waiting.done()
    task.cancel("expired" if expired else "granted")
    approver.leave(task)
    if not expired:
        return None
    if isinstance(handler, ExpiryAware):
        await _tell_expired(handler, request, approver)
    message = (
        f"approval of {request.call.name!r} timed out after {request.expires_in_s:g}s."
        " It was not run."
    )
    raise Refused(message, reason="approval_timeout")


async def _contained(handler: ApprovalHandler, request: ApprovalRequest) -> object:
    """What the handler says or raises, as a value: a task must not raise SystemExit."""
    try:
        answer = cast("Any", handler.request(request))
        return await answer if inspect.isawaitable(answer) else answer
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        return error
    except BaseException as error:  # told to the caller as a denial
        return error


async def _tell_expired(handler: ExpiryAware, request: ApprovalRequest, approver: Approver) -> None:
    try:
        await call_bounded(handler.expired, request, seconds=STEP_S, on_late=approver.leave)
    except Exception:  # the handler's own trouble changes no answer
        return


def _checked(task: asyncio.Task[object], request: ApprovalRequest) -> ApprovalAnswer:
    """The answer, or `Refused`: anything but a decision denies."""
    name = request.call.name
    if task.cancelled():
        raise _handler_fault(name, "the handler cancelled itself")
    answer = task.result()
    if isinstance(answer, BaseException):
        raise _handler_fault(name, f"the handler failed: {said(answer)}")
    if isinstance(answer, ApprovalDecision):
        answer = ApprovalAnswer(answer)
    if not isinstance(answer, ApprovalAnswer) or not isinstance(answer.decision, ApprovalDecision):
        found = f"a {type(answer).__name__}"
        raise _handler_fault(name, f"the handler answered {found}, which is no ApprovalDecision")
    for field, known in _KNOWN:
        found = getattr(answer, field)
        if found is not None and not (isinstance(found, str) and found in (known or (found,))):
            wanted = " or ".join(map(repr, known)) if known else "text"
            raise _handler_fault(name, f"the handler's {field} must be {wanted}")
    if answer.decision is ApprovalDecision.MODIFIED and answer.arguments is None:
        raise _handler_fault(name, "the handler answered MODIFIED without arguments")
    return answer


_KNOWN = (("grant", ("chain", "scope")), ("decided_by", None), ("reason", None))


def _handler_fault(name: str, what: str, reason: Reason = "handler_error") -> Refused:
    return Refused(f"approval of {name!r} was not given: {what}. It was not run.", reason=reason)
