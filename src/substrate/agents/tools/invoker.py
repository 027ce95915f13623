"""`ToolInvoker`: the one door through which every tool call passes.

`invoke` is the frame: whatever happens inside, one record is written and the end
is told. `pass_gates` is the way of a call, top to bottom; each line is one gate of
`gates.py`. The invoker is shared by every chain and holds nothing of any: that
lies in the `InvokerSession`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeAlias

from msgspec.structs import replace

from substrate.agents.hooks.manager import HookManager
from substrate.agents.tools import gates
from substrate.agents.tools.arguments import Snapshot
from substrate.agents.tools.bounded import attempt
from substrate.agents.tools.call import CallState, Cleared, Guard
from substrate.agents.tools.deadline import OnLate
from substrate.agents.tools.lanes import Lane
from substrate.agents.tools.session import Answered, InvokerSession, Scope, SessionView
from substrate.agents.tools.shown import cut, preview
from substrate.agents.tools.traits import RegistryTraits, Traits, TraitsSource
from substrate.kernel.blobs import BlobStore
from substrate.kernel.context import RunContext
from substrate.kernel.errors import Refused, RunCancelled
from substrate.kernel.hooks import HookDispatcher, HookEvent, ProgressSink
from substrate.kernel.journal import CallIntent, Journal
from substrate.kernel.secrets import hide
from substrate.kernel.tools.approval import ApprovalHandler
from substrate.kernel.tools.chain import ChainCallRecord, ChainPolicy, InvocationResult
from substrate.kernel.tools.tools import ToolCallRequest, ToolEffect, ToolRegistry, new_call_id

__all__ = ["Cleared", "Guard", "InvokerSession", "SessionView", "ToolInvoker"]

_log = logging.getLogger("substrate.invoker")

Teller: TypeAlias = Callable[[HookEvent, dict[str, Any]], Awaitable[None] | None]

_SCOPE_LEASE_S = 86_400.0
_LOOK_FOR_IDLE_S = 60.0
_RESULT_PREVIEW_BYTES = 200
_EPOCH = time.time() - time.perf_counter()


class ToolInvoker:
    """Runs tool calls, each past every gate.

    Args:
        registry: Where tools are looked up.
        approval_handler: Who is asked; without one, whatever needs a yes is denied.
        artifact_store: Where large results go; without one, they are carried whole.
        policy: The limits of a chain; `open_session` may replace it.
        hooks: Who is told of TOOL_START and TOOL_END.
        guards: Judge every cleared call, in order; they fail closed.
        journal: What makes `once` hold beyond this process; without one, each session
            has its own in memory.
    """

    def __init__(
        self,
        registry: ToolRegistry,
        approval_handler: ApprovalHandler | None = None,
        artifact_store: BlobStore | None = None,
        policy: ChainPolicy | None = None,
        hooks: HookDispatcher | None = None,
        *,
        guards: Sequence[Guard] = (),
        journal: Journal | None = None,
    ) -> None:
        self.registry = registry
        self.policy = policy if policy is not None else ChainPolicy()
        self.store = artifact_store
        self._source = registry if isinstance(registry, TraitsSource) else RegistryTraits(registry)
        self._approval = approval_handler
        self._tell = self._teller(hooks)
        self._guards = tuple(guards)
        self._journal = journal
        self._lanes: dict[str, Lane] = {}
        self._scopes: dict[str, Scope] = {}
        self._look_for_idle_at = 0.0
        self._abandoned: dict[asyncio.Future[Any], str] = {}

    @property
    def source(self) -> TraitsSource:
        """The tools as the gates see them."""
        return self._source

    @property
    def abandoned(self) -> tuple[str, ...]:
        """The names of what was given up and still runs: tools, handlers, guards, sinks."""
        return tuple(self._abandoned.values())

    def open_session(
        self,
        scope: str | None = None,
        script: str | None = None,
        *,
        policy: ChainPolicy | None = None,
        direct: bool = False,
    ) -> InvokerSession:
        """The state of one chain; use it as an async context manager.

        Args:
            scope: The id of the conversation, within which refs and grants hold; None:
                the session is a scope of its own.
            script: The source of the chain.
            policy: Stands in for the invoker's.
            direct: These are an agent's own calls, outside a script.
        """
        own = scope is None
        key = new_call_id() if scope is None else scope
        held = Scope(key) if own else self._scopes.setdefault(key, Scope(key))
        return InvokerSession(
            self,
            scope=held,
            own_scope=own,
            policy=policy if policy is not None else self.policy,
            script=script,
            direct=direct,
            store=self.store,
            on_close=self._forget_idle_scopes,
            leave=self.leaver("the artifact store"),
        )

    async def invoke(
        self,
        call: ToolCallRequest,
        *,
        session: InvokerSession,
        ctx: RunContext | None = None,
        progress_sink: ProgressSink | None = None,
    ) -> InvocationResult:
        """One call, past every gate; the frame around `pass_gates`.

        Raises nothing but the caller's own cancellation (its task's, or `RunCancelled`);
        every other outcome is a result. One record goes into `session.trace`, one
        TOOL_START and one TOOL_END are told, except where the call id was answered
        before: then that answer comes back, marked `replayed`.
        """
        state = CallState(call, session.policy, time.perf_counter())
        session.clock.enter_call()
        try:
            if session.owner is not self or session.closed:
                raise _no_session(session)
            snapshot = state.snapshot = gates.take_snapshot(call)
            known = gates.recall(call, snapshot, session)
            if known is not None:
                state.recalled = True
                with session.clock.standing_still():
                    return replace(await known.answer(), replayed=True)
            state.entry = session.answers[call.call_id] = Answered(call.name, snapshot.digest)
            if self._tell is not None:
                state.context = _told(state, session, ctx)
                if (slow := self._tell(HookEvent.TOOL_START, state.context)) is not None:
                    await slow
            state.result = await self.pass_gates(state, snapshot, session, ctx, progress_sink)
            return state.result
        except Refused as refusal:
            return _refused(state, refusal)
        except (asyncio.CancelledError, RunCancelled):
            state.status = state.reason = "cancelled"
            raise
        except Exception as error:
            return _refused(state, _fault(state, error))
        finally:
            session.clock.leave_call()
            if not state.recalled:
                await self._close_call(state, session, ctx, progress_sink)

    async def pass_gates(
        self,
        state: CallState,
        snapshot: Snapshot,
        session: InvokerSession,
        ctx: RunContext | None,
        sink: ProgressSink | None,
    ) -> InvocationResult:
        """The way of one call. Each line is a gate; a refusal is raised as `Refused`."""
        leave = self.leaver(state.call.name)
        gates.spend_budget(session)
        traits = gates.find_tool(self._source, state.call.name)
        state.tool, state.traits = traits.name, traits
        if traits.secrets:
            state.secrets |= traits.secrets
            session.secrets |= traits.secrets
        local = gates.require_callable(traits, session)
        arguments = gates.check_arguments(local, snapshot)
        state.repaired, state.runs = arguments.repaired, arguments.snapshot
        cleared = await gates.clear_risk(
            state, local, arguments, session, self._approval, ctx, leave
        )
        if self._guards:
            await gates.run_guards(self._guards, cleared, leave)
        ready = await gates.resolve_refs(cleared, session, leave)
        lane = self._lane(local)
        held = gates.take_free_slot(session, lane, len(self._abandoned))
        if held is None:
            held = await gates.take_slot(session, lane, len(self._abandoned))
        try:
            gates.check_cancelled(ctx, session)
            if sink is not None:
                await gates.announce_call(sink, cleared, leave)
            journal, intent, late = self._journal or session.journal, None, leave
            if local.effect is not ToolEffect.PURE:
                intent = await gates.write_intent(journal, cleared, session, leave)
                late = self._late_writer(journal, intent, leave)
            outcome = await gates.execute(ready, state, session, ctx, intent, late)
            if intent is not None:
                await gates.settle_outcome(journal, intent, outcome, leave)
        finally:
            held.free()
        if sink is not None:
            await gates.announce_result(sink, state, leave)
        gates.let_guards_see(self._guards, cleared, outcome)
        return await gates.shape_outcome(outcome, state, session, leave)

    def _lane(self, traits: Traits) -> Lane:
        lane = self._lanes.get(traits.name)
        if lane is None or lane.traits is not traits:
            lane = self._lanes[traits.name] = Lane(traits)
        return lane

    def _teller(self, hooks: HookDispatcher | None) -> Teller | None:
        """How observers are told; a dispatcher that is none of ours is bounded."""
        if hooks is None or isinstance(hooks, HookManager):
            return None if hooks is None else hooks.tell
        leave = self.leaver("hooks")

        async def tell(event: HookEvent, context: dict[str, Any]) -> None:
            await attempt("the hooks", hooks.dispatch(event, context), leave)

        return tell

    def leaver(self, name: str) -> OnLate:
        """What counts and names a task that was given up, until it ends."""

        def leave(task: asyncio.Future[Any]) -> None:
            self._abandoned[task] = name
            task.add_done_callback(self._returned)

        return leave

    def _late_writer(self, journal: Journal, intent: CallIntent, leave: OnLate) -> OnLate:
        """What comes late of a call with an intent changes no answer, but resolves its doubt."""

        def write(task: asyncio.Future[Any]) -> None:
            outcome = gates.late_outcome(intent, task)
            if outcome is not None:
                writing = asyncio.ensure_future(journal.settle(outcome))
                self._abandoned[writing] = intent.tool
                writing.add_done_callback(self._returned)

        def late(task: asyncio.Future[Any]) -> None:
            leave(task)
            task.add_done_callback(write)

        return late

    def _returned(self, task: asyncio.Future[Any]) -> None:
        self._abandoned.pop(task, None)
        if not task.cancelled():
            task.exception()

    async def _close_call(
        self,
        state: CallState,
        session: InvokerSession,
        ctx: RunContext | None,
        sink: ProgressSink | None,
    ) -> None:
        """On every outcome: the answer to whoever sent the same call, the record, the end event.

        Observers are told also where the caller is cancelled meanwhile.
        """
        if state.entry is not None:
            state.entry.settle(state.result or _cancelled(state))
        if state.traits is None:  # refused before it was looked up: its secrets are secret too
            with contextlib.suppress(Exception):
                known = self._source.traits(state.call.name)
                state.secrets |= known.secrets if known is not None else frozenset()
        session.record(_record(state))
        try:
            if sink is not None:
                await gates.announce_result(sink, state, self.leaver(state.tool))
            if self._tell is not None and state.context is None:  # refused before it started
                state.context = _told(state, session, ctx)
                if (slow := self._tell(HookEvent.TOOL_START, state.context)) is not None:
                    await slow
        finally:
            if self._tell is not None:
                slow = self._tell(HookEvent.TOOL_END, _told_at_the_end(state))
                if slow is not None:
                    await slow

    async def close_scope(self, scope: str) -> None:
        """Forget a scope that has no open session, and release what it kept."""
        held = self._scopes.get(scope)
        if held is None or held.sessions:
            return
        del self._scopes[scope]
        if self.store is not None:
            for handle in held.handles.values():
                leave = self.leaver("the artifact store")
                await attempt("an unpin", self.store.unpin(handle.blob, held.lease), leave)

    async def _forget_idle_scopes(self, session: InvokerSession) -> None:
        """A scope that nobody has used for a day is released."""
        del session
        now = time.monotonic()
        if now < self._look_for_idle_at:
            return
        self._look_for_idle_at = now + _LOOK_FOR_IDLE_S
        for held in list(self._scopes.values()):
            if not held.sessions and now - held.idle_since > _SCOPE_LEASE_S:
                await self.close_scope(held.id)


def _no_session(session: InvokerSession) -> Refused:
    what = "is closed" if session.closed else "belongs to another invoker"
    return Refused(f"the session {what}; open a new one", reason="session_closed", status="error")


def _told(state: CallState, session: InvokerSession, ctx: RunContext | None) -> dict[str, Any]:
    return {
        "tool_name": state.tool,
        "call_id": state.call.call_id,
        "seq": state.call.seq,
        "chain_id": session.chain_id,
        "run_id": ctx.run_id if ctx is not None else None,
        "agent_id": ctx.agent_id if ctx is not None else None,
    }


def _told_at_the_end(state: CallState) -> dict[str, Any]:
    return {
        **(state.context or {}),
        "tool_name": state.tool,
        "status": state.status,
        "reason": state.reason,
        "ran": state.ran,
        "duration_ms": (time.perf_counter() - state.started_at) * 1000,
    }


def _cancelled(state: CallState) -> InvocationResult:
    return InvocationResult(
        status="error",
        reason="cancelled",
        ran=state.ran,
        text=f"the call of {state.tool!r} was cancelled",
    )


def _refused(state: CallState, refusal: Refused) -> InvocationResult:
    state.status, state.reason, state.ran = refusal.status, refusal.reason, refusal.ran
    state.message = state.shown(refusal.message)
    status = "denied" if refusal.status == "denied" else "error"
    state.result = InvocationResult(
        status=status, reason=refusal.reason, ran=refusal.ran, text=state.message
    )
    return state.result


def _fault(state: CallState, error: Exception) -> Refused:
    # its words may hold what is not to be logged
    _log.error("a fault of substrate's own in %s (%s)", state.tool, type(error).__name__)
    _log.debug("the fault", exc_info=error)
    message = (
        f"substrate failed in {state.tool!r} ({type(error).__name__}); the tool {_RAN[state.ran]}"
    )
    return Refused(message, reason="internal", status="error", ran=state.ran)


_RAN = {"no": "was not run", "yes": "ran", "unknown": "may have run"}


def _record(state: CallState) -> ChainCallRecord:
    call, traits, snapshot, result = state.call, state.traits, state.snapshot, state.result
    secrets, runs = state.secrets, state.runs or snapshot
    run_at = state.run_at or time.perf_counter()
    record = ChainCallRecord(
        call_id=call.call_id,
        tool=state.tool,
        seq=call.seq,
        status=state.status,
        reason=state.reason,
        ran=state.ran,
        args_digest=snapshot.digest if snapshot is not None else "",
        args_preview=runs.preview(secrets) if runs is not None else "",
        risk=state.risk if state.risk is not None or traits is None else traits.risk,
        effect=traits.effect if traits is not None else None,
        wait_ms=(run_at - state.started_at) * 1000,
        run_ms=(state.ran_until - state.run_at) * 1000 if state.ran_until else 0.0,
        started_at=state.started_at + _EPOCH,
        result_preview=_result_preview(result, secrets),
        site=call.site,
    )
    ref = result.artifact_ref if result is not None else None
    if state.status == "ok" and state.decision is None and not state.repaired and ref is None:
        return record  # nearly always
    return replace(
        record,
        decision=state.decision,
        decided_by=state.decided_by,
        edited=state.edited,
        repaired=state.repaired,
        message=state.message,
        artifact_ref=ref,
    )


def _result_preview(result: InvocationResult | None, secrets: frozenset[str]) -> str:
    if result is None:
        return ""
    if result.preview is not None:
        return cut(result.preview, _RESULT_PREVIEW_BYTES)
    if result.structured is not None:
        shown = result.structured
        if type(shown) in (dict, list):
            shown = hide(shown, secrets)
        return preview(shown, _RESULT_PREVIEW_BYTES)
    text = result.text
    if len(text) <= _RESULT_PREVIEW_BYTES and text.isascii():
        return text
    return cut(text, _RESULT_PREVIEW_BYTES)
