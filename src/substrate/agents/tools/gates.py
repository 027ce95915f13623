"""The gates of a call, in the order in which it passes them.

One small function a gate: explicit inputs, and what the next gate needs as its
result, so that a forgotten gate is a type error. A gate refuses by raising
`Refused`. The pipeline that calls them is `ToolInvoker.pass_gates`; only it may.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from msgspec.structs import replace

from substrate.agents.tools.approvals import Approver, decide
from substrate.agents.tools.arguments import (
    Arguments,
    Snapshot,
    check_arguments,
    refuse_faults,
    snapshot_of,
    value_at,
)
from substrate.agents.tools.bounded import attempt
from substrate.agents.tools.call import CallState, Cleared, Guard, Outcome, Ready
from substrate.agents.tools.deadline import (
    STEP_S,
    DeadlineExceededError,
    OnLate,
    call_bounded,
    ended,
    run_bounded,
)
from substrate.agents.tools.lanes import Held, Lane, Slots
from substrate.agents.tools.refs import OFF_LOOP, Resolver
from substrate.agents.tools.session import Answered, InvokerSession
from substrate.agents.tools.shaping import shape_result, short_result, unshaped
from substrate.agents.tools.shown import said, said_type
from substrate.agents.tools.threads import run_in_thread
from substrate.agents.tools.traits import Traits, TraitsSource
from substrate.agents.tools.validation import BindError
from substrate.kernel.blobs import REF_KEY, ArtifactStream
from substrate.kernel.context import RunContext
from substrate.kernel.errors import (
    DeclarationError,
    Fenced,
    InDoubt,
    NotDone,
    Refused,
    RunCancelled,
)
from substrate.kernel.hooks import ProgressSink, ProgressStep
from substrate.kernel.journal import CallIntent, CallOutcome, Journal
from substrate.kernel.names import did_you_mean
from substrate.kernel.tools.approval import ApprovalHandler
from substrate.kernel.tools.chain import CallStatus, InvocationResult, Ran
from substrate.kernel.tools.tools import (
    ToolCallRequest,
    ToolEffect,
    ToolExecutionResult,
)

__all__ = [
    "announce_call",
    "check_arguments",
    "check_cancelled",
    "clear_risk",
    "execute",
    "find_tool",
    "late_outcome",
    "recall",
    "require_callable",
    "resolve_refs",
    "run_guards",
    "settle_outcome",
    "shape_outcome",
    "spend_budget",
    "take_free_slot",
    "take_slot",
    "take_snapshot",
    "write_intent",
]

_log = logging.getLogger("substrate.invoker")

MOST_ABANDONED = 64
"""Calls of one invoker that may run on after they were given up; beyond, tools are `busy`."""


# 1 snapshot and recall -----------------------------------------------------------------


def take_snapshot(call: ToolCallRequest) -> Snapshot:
    """The arguments as sent, encoded once: what is checked, approved, digested and run."""
    return snapshot_of(call.name, call.arguments)


def recall(call: ToolCallRequest, snapshot: Snapshot, session: InvokerSession) -> Answered | None:
    """What this call id was used for before, if it is the same call; None: it is new."""
    known = session.answers.get(call.call_id)
    if known is not None and (known.tool, known.digest) != (call.name, snapshot.digest):
        message = (
            f"call id {call.call_id!r} was used before for {known.tool!r} with other"
            " arguments; a new call needs a new id"
        )
        raise Refused(message, reason="conflict", status="error")
    return known


# 2 budget ------------------------------------------------------------------------------


def spend_budget(session: InvokerSession) -> None:
    """A slot of `max_tool_calls` is reserved, and the chain has time left."""
    if session.clock.left() <= 0:
        raise _out_of_time(session)
    if not session.reserve():
        most = session.policy.max_tool_calls
        message = f"the budget of {most} tool calls of this chain is spent; finish without more"
        raise Refused(message, reason="budget", status="error")


def _out_of_time(session: InvokerSession) -> Refused:
    limit = session.policy.total_timeout_s
    return Refused(f"the chain's {limit:g}s are over", reason="budget", status="error")


# 3 registry lookup ---------------------------------------------------------------------


def find_tool(source: TraitsSource, name: str) -> Traits:
    """The tool of this raw name or identifier."""
    try:
        traits = source.traits(name)
    except DeclarationError as error:
        message = f"the tool {name!r} is declared wrongly: {error}"
        raise Refused(message, reason="unknown_tool", status="error") from None
    if traits is None:
        message = f"no tool named {name!r}{did_you_mean(name, source.names())}"
        raise Refused(message, reason="unknown_tool", status="error")
    return traits


# 4 type gate ---------------------------------------------------------------------------


def require_callable(traits: Traits, session: InvokerSession) -> Traits:
    """The tool runs here, and may be called from where the call comes."""
    if traits.run is None:
        why = "it runs at the model's provider"
    elif session.direct:
        return traits
    elif traits.kind == "provider":
        why = "it is defined by the model's provider"
    elif traits.is_chain:
        why = "a chain cannot start chains"
    else:
        return traits
    message = f"{traits.name!r} cannot be called from a script: {why}"
    raise Refused(message, reason="not_callable_from_chain", status="error")


# 5 arguments ---------------------------------------------------------------------------


# `check_arguments` is the work of `arguments.py`: the arguments fit the tool's schema, every
# fault is named by its path, and JSON text was decoded where an object or array is wanted.

# 6 risk and approval -------------------------------------------------------------------


async def clear_risk(
    state: CallState,
    traits: Traits,
    arguments: Arguments,
    session: InvokerSession,
    handler: ApprovalHandler | None,
    ctx: RunContext | None,
    leave: OnLate,
) -> Cleared:
    """The risk is one that runs unasked, or somebody said yes to exactly these arguments."""
    call = state.call
    if (
        traits.classify_risk is None
        and traits.requires_approval is False
        and traits.risk <= session.policy.max_risk_unapproved
    ):
        state.risk = traits.risk
        return Cleared(call, traits, arguments, traits.risk, session.view)
    approver = Approver(handler, session, ctx, leave, state)
    verdict = await decide(call, traits, arguments, approver)
    state.runs = verdict.arguments.snapshot
    state.risk, state.decision, state.decided_by = (
        verdict.risk,
        verdict.decision,
        verdict.decided_by,
    )
    state.edited, state.told = verdict.edited, verdict.told
    return Cleared(call, traits, verdict.arguments, verdict.risk, session.view)


# 7 guards ------------------------------------------------------------------------------


async def run_guards(guards: Sequence[Guard], cleared: Cleared, leave: OnLate) -> None:
    """Every guard let the call pass."""
    for guard in guards:
        try:
            await call_bounded(guard.check, cleared.apart(), seconds=STEP_S, on_late=leave)
        except Refused as refusal:
            raise Refused(refusal.message, reason="guard") from None
        except Exception as error:
            raise _guard_failed(guard, error) from None


def _guard_failed(guard: Guard, error: BaseException) -> Refused:
    late = isinstance(error, DeadlineExceededError)
    what = f"gave no answer within {STEP_S:g}s" if late else f"failed: {said(error)}"
    return Refused(f"the guard {type(guard).__name__} {what}", reason="guard")


def let_guards_see(guards: Sequence[Guard], cleared: Cleared, outcome: Outcome) -> None:
    """Tell the guards that want it what the tool returned."""
    output = outcome.output
    for guard in guards if output is not None else ():
        saw = cast("Callable[..., None] | None", getattr(guard, "saw", None))
        if saw is None:
            continue
        try:
            saw(cleared.apart(), output)
        except BaseException as error:  # the tool has run: nothing of a guard's may hide that
            _log.warning("%s.saw failed (%s)", type(guard).__name__, type(error).__name__)


# 8 inbound refs ------------------------------------------------------------------------


async def resolve_refs(cleared: Cleared, session: InvokerSession, leave: OnLate) -> Ready:
    """Every artifact ref is replaced by its content, and the whole fits the schema again."""
    arguments, traits = cleared.checked, cleared.traits
    if not arguments.refs:
        values = arguments.snapshot.copy() if arguments.bound is None else arguments.bound
        return Ready(cleared, _renamed(values))
    values = arguments.snapshot.copy()
    stand_ins = arguments.snapshot.copy()
    resolver = Resolver(traits, session, leave)
    for path in arguments.refs:
        holder, shadow = value_at(values, path[:-1]), value_at(stand_ins, path[:-1])
        content = await resolver.content(holder[path[-1]][REF_KEY], path)
        holder[path[-1]] = content
        shadow[path[-1]] = {} if isinstance(content, ArtifactStream) else content
    if resolver.size > OFF_LOOP:
        await run_in_thread(_check_again, traits, stand_ins)
        return Ready(cleared, await run_in_thread(_for_tool, traits, values))
    _check_again(traits, stand_ins)
    return Ready(cleared, _for_tool(traits, values))


def _check_again(traits: Traits, values: dict[str, Any]) -> None:
    faults = [f for f in traits.faults(values) if not (f.path and f.path[0] in traits.streams)]
    if faults:
        refuse_faults(traits, faults)


def _for_tool(traits: Traits, values: dict[str, Any]) -> Mapping[str, Any]:
    if traits.bind is not None:
        try:
            values = traits.bind(values)
        except BindError as error:
            refuse_faults(traits, error.faults)
    return _renamed(values)


def _renamed(values: dict[str, Any]) -> Mapping[str, Any]:
    if "ctx" in values or "self" in values:
        return {_RENAMED.get(key, key): value for key, value in values.items()}
    return values


_RENAMED = {"ctx": "ctx_", "self": "self_"}


# 9 slot and cancel check ---------------------------------------------------------------


def take_free_slot(session: InvokerSession, lane: Lane, abandoned: int) -> Slots | None:
    """A slot that nobody need wait for, as is the rule; None where `take_slot` has to look."""
    if lane.slots is not None or lane.pacer is not None or abandoned >= MOST_ABANDONED:
        return None
    return session.slots if session.slots.take_now() else None


async def take_slot(session: InvokerSession, lane: Lane, abandoned: int) -> Held:
    """A slot of the chain and of the tool is held, taken in order of arrival, until it is freed."""
    if abandoned >= MOST_ABANDONED:
        message = (
            f"{lane.traits.name!r} was not run: {abandoned} calls that were given up are"
            " still running; try again later"
        )
        raise Refused(message, reason="busy", status="error")
    held = Held()
    try:
        if not (session.slots.take_now() or await session.slots.take(_left(session))):
            raise _out_of_time(session)
        held.add(session.slots)
        if lane.slots is not None:
            if not (lane.slots.take_now() or await lane.slots.take(_left(session))):
                raise _out_of_time(session)
            held.add(lane.slots)
        if lane.pacer is not None and not await lane.pacer.take(session.clock.left()):
            raise _out_of_time(session)
    except BaseException:
        held.free()
        raise
    return held


def _left(session: InvokerSession) -> float:
    return max(session.clock.left(), 0.0)


def check_cancelled(ctx: RunContext | None, session: InvokerSession) -> None:
    """The run still goes on, and so does the chain."""
    if session.closed:
        message = "the session was closed while the call waited; it was not run"
        raise Refused(message, reason="session_closed", status="error")
    if ctx is not None:
        ctx.check()


# 10 announce ---------------------------------------------------------------------------


async def announce_call(sink: ProgressSink, cleared: Cleared, leave: OnLate) -> None:
    """The progress sink was told that the call starts."""
    call = cleared.call
    step = ProgressStep(
        kind="TOOL_CALL", tool=cleared.traits.name, call_id=call.call_id, seq=call.seq
    )
    await tell(sink, step, leave)


async def announce_result(sink: ProgressSink, state: CallState, leave: OnLate) -> None:
    """The progress sink was told what became of the call."""
    if not state.announced:
        state.announced = True
        step = ProgressStep(
            kind="TOOL_RESULT",
            tool=state.tool,
            call_id=state.call.call_id,
            seq=state.call.seq,
            status=state.status,
            reason=state.reason,
            ran=state.ran,
        )
        await tell(sink, step, leave)


async def tell(sink: ProgressSink, step: ProgressStep, leave: OnLate) -> None:
    """Tell a sink, bounded; what it raises is logged."""
    try:
        await call_bounded(sink, step, seconds=STEP_S, on_late=leave)
    except DeadlineExceededError:
        _log.warning("a progress sink was given up after %gs", STEP_S)
    except Exception as error:
        _log.warning("a progress sink failed (%s)", said_type(error))


# 11 intent -----------------------------------------------------------------------------


async def write_intent(
    journal: Journal, cleared: Cleared, session: InvokerSession, leave: OnLate
) -> CallIntent:
    """Of a `once` or `idempotent` tool it is written that the call is about to start."""
    traits, call = cleared.traits, cleared.call
    snapshot = cleared.checked.snapshot
    nth = session.repeats.get(snapshot.digest, 0)
    session.repeats[snapshot.digest] = nth + 1
    key = f"{session.chain_id}\n{traits.name}\n{snapshot.digest}\n{nth}"
    intent = CallIntent(
        chain_id=session.chain_id,
        call_id=call.call_id,
        seq=call.seq,
        tool=traits.name,
        digest=snapshot.digest,
        effect=traits.effect,
        idempotency_key=hashlib.sha256(key.encode()).hexdigest()[:32],
        arguments=snapshot.data,
    )
    try:
        await run_bounded(journal.intend(intent), STEP_S, leave)
    except DeadlineExceededError:
        message = f"{traits.name!r} was not started: the journal gave no answer in {STEP_S:g}s"
        raise Refused(message, reason="internal", status="error") from None
    except InDoubt as error:
        message = f"{traits.name!r} was not started: {error}, and may have happened"
        raise Refused(message, reason="in_doubt", status="error") from None
    except Fenced as error:
        message = f"{traits.name!r} was not started: {error}"
        raise Refused(message, reason="fenced", status="error") from None
    except Exception as error:
        _log.error("the journal failed (%s)", type(error).__name__)  # no content
        message = f"{traits.name!r} was not started: the journal failed ({type(error).__name__})"
        raise Refused(message, reason="internal", status="error") from None
    return intent


# 12 execute ----------------------------------------------------------------------------


async def execute(
    ready: Ready,
    state: CallState,
    session: InvokerSession,
    ctx: RunContext | None,
    intent: CallIntent | None,
    leave: OnLate,
) -> Outcome:
    """Run the tool within its time; the one place where a tool is run."""
    traits = ready.cleared.traits
    seconds = _seconds(traits, session)
    if seconds <= 0:
        refusal = _out_of_time(session)
        state.status, state.reason, state.message = "error", refusal.reason, refusal.message
        return Outcome("error", "no", refusal.reason, refusal.message)
    own = _own_context(ctx, session, intent, seconds)
    run = cast("Callable[..., Any]", traits.run)
    state.ran, state.run_at = "unknown", time.perf_counter()
    try:
        output = await run_bounded(run(ctx=own, **ready.kwargs), seconds, leave)
        outcome = _accepted(traits, output)
    except DeadlineExceededError:
        message = _late_text(traits, seconds)
        outcome = Outcome("timeout", "unknown", "timeout", message)
    except NotDone as error:
        message = state.shown(f"{traits.name!r} did nothing: {error}")
        outcome = Outcome("error", "no", "tool_error", message)
    except RunCancelled as error:
        outcome = Outcome("cancelled", "yes", "cancelled", str(error), raised=error)
    except Exception as error:
        message = state.shown(f"{traits.name!r} failed: {said(error)}")
        outcome = Outcome("error", "yes", "tool_error", message)
    finally:
        state.ran_until = time.perf_counter()
    state.status, state.ran, state.reason = outcome.status, outcome.ran, outcome.reason
    state.message = outcome.message
    return outcome


_UNBOUNDED_S = 1e9


def _seconds(traits: Traits, session: InvokerSession) -> float:
    left = session.clock.left()
    if traits.is_chain:
        return _UNBOUNDED_S  # it keeps the clock of its own chain
    own = traits.timeout_s
    limit = session.policy.call_timeout_s
    return min(limit if own is None else min(own, limit), left)


def _own_context(
    ctx: RunContext | None, session: InvokerSession, intent: CallIntent | None, seconds: float
) -> RunContext:
    key = intent.idempotency_key if intent is not None else None
    deadline = time.monotonic() + seconds
    if ctx is None:
        return RunContext(None, None, session.scope, deadline, key)
    return RunContext(
        ctx.run_id, ctx.agent_id, ctx.session_id, deadline, key, ctx.cancelled, ctx.extra
    )


def _late_text(traits: Traits, seconds: float) -> str:
    doubt = "" if traits.effect is ToolEffect.PURE else "; whether it happened is not known"
    return f"{traits.name!r} was started and gave no answer within {seconds:g}s{doubt}"


def _accepted(traits: Traits, output: object) -> Outcome:
    if not isinstance(output, ToolExecutionResult):
        message = (
            f"{traits.name!r} ran, but returned a {type(output).__name__} instead of a"
            " ToolExecutionResult"
        )
        return Outcome("error", "yes", "tool_error", message)
    if output.is_error:
        return Outcome("error", "yes", "tool_error", "", output)
    return Outcome("ok", "yes", None, "", output)


# 13 outcome ----------------------------------------------------------------------------


async def settle_outcome(
    journal: Journal, intent: CallIntent, outcome: Outcome, leave: OnLate
) -> None:
    """What became of a call with an intent is written; a failure of that changes no answer."""
    settled = CallOutcome(
        chain_id=intent.chain_id,
        call_id=intent.call_id,
        status=outcome.status,
        ran=outcome.ran,
        reason=outcome.reason,
    )
    await attempt("the journal", journal.settle(settled), leave)


# 14 shaping ----------------------------------------------------------------------------


async def shape_outcome(
    outcome: Outcome, state: CallState, session: InvokerSession, leave: OnLate
) -> InvocationResult:
    """What became of the call as a result that is fit to carry."""
    if outcome.raised is not None:
        raise outcome.raised
    if outcome.output is None:
        text = outcome.message if state.told is None else f"{outcome.message} [{state.told}]"
        return InvocationResult(status="error", reason=outcome.reason, ran=outcome.ran, text=text)
    is_chain = state.traits is not None and state.traits.is_chain
    try:
        result = short_result(outcome.output, session)
        if result is None:
            result = await shape_result(
                outcome.output, state.tool, session, leave, state.secrets, is_chain=is_chain
            )
    except Exception as error:  # the tool has run: what it returned is odd, not undone
        result = unshaped(outcome.output, error, session)
    if result.status == "error" and not is_chain:
        result = replace(result, text=state.shown(result.text))
    return result if state.told is None else replace(result, told=state.told)


def late_outcome(intent: CallIntent, task: asyncio.Future[Any]) -> CallOutcome | None:
    """What a call that was given up came to in the end; None where that still cannot be told."""
    late = ended(task)
    if isinstance(late.error, asyncio.CancelledError):
        return None
    if isinstance(late.error, NotDone):
        status, ran = "error", "no"
    else:
        failed = isinstance(late.value, ToolExecutionResult) and late.value.is_error
        status, ran = "error" if failed or late.error is not None else "ok", "yes"
    return CallOutcome(
        chain_id=intent.chain_id,
        call_id=intent.call_id,
        status=cast("CallStatus", status),
        ran=cast("Ran", ran),
        reason=None if status == "ok" else "tool_error",
        late=True,
    )
