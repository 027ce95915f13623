"""Single gates seen through the door: recall, approval, guards, slots, clocks, cancellation."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from substrate import (
    ApprovalAnswer,
    ApprovalDecision,
    ChainPolicy,
    InMemoryBlobStore,
    NotDone,
    Refused,
    Toolbox,
    ToolCallRequest,
    ToolExecutionResult,
    ToolInvoker,
    ToolRisk,
    tool,
)
from substrate.agents.tools.gates import Cleared
from substrate.kernel.context import RunContext
from substrate.kernel.errors import RunCancelled
from substrate.kernel.hooks import ProgressStep
from substrate.kernel.tools.approval import ApprovalRequest
from substrate.kernel.tools.chain import InvocationResult

Main = Callable[[], Awaitable[None]]


def run(main: Main) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(20):
            await main()

    asyncio.run(bounded())


class Counted:
    """A tool that counts its runs and waits, if it is told to."""

    def __init__(self, **options: Any) -> None:
        self.runs: list[Any] = []
        self.gate = asyncio.Event()
        self.started = asyncio.Event()
        self.waits = options.pop("waits", False)
        self.tool = tool(name="t", **options)(self._body)

    async def _body(self, x: int = 0, ctx: RunContext | None = None) -> int:
        self.runs.append((x, ctx))
        self.started.set()
        if self.waits:
            await self.gate.wait()
        return x


def large_is_critical(arguments: dict[str, Any]) -> ToolRisk:
    return ToolRisk.CRITICAL if arguments["x"] > 9 else ToolRisk.HIGH


class Asked:
    """An approver whose answers are given by the test."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.requests: list[ApprovalRequest] = []
        self.asked = asyncio.Event()
        self.told: list[ApprovalRequest] = []

    async def request(self, req: ApprovalRequest, /) -> Any:
        self.requests.append(req)
        self.asked.set()
        answer: Any = self.answers.pop(0)
        return await answer if asyncio.isfuture(answer) else answer

    def expired(self, req: ApprovalRequest, /) -> None:
        self.told.append(req)


def call(x: Any = 0, call_id: str | None = None) -> ToolCallRequest:
    return ToolCallRequest("t", {"x": x}, call_id) if call_id else ToolCallRequest("t", {"x": x})


@pytest.mark.req("way.recall", "once.in-process", "case.C17", "fault.I25")
def test_one_call_id_runs_once_in_sequence_and_at_the_same_time() -> None:
    async def main() -> None:
        counted = Counted(waits=True)
        invoker = ToolInvoker(
            Toolbox([counted.tool]), policy=ChainPolicy(max_risk_unapproved=ToolRisk.HIGH)
        )
        async with invoker.open_session() as session:
            sent = [
                asyncio.create_task(invoker.invoke(call(1, "same"), session=session))
                for _ in range(3)
            ]
            await counted.started.wait()
            counted.gate.set()
            results = await asyncio.gather(*sent)
            again = await invoker.invoke(call(1, "same"), session=session)
            assert [r.replayed for r in results] == [False, True, True]
            assert again.replayed
            assert {r.structured for r in (*results, again)} == {1}
            assert len(counted.runs) == len(session.trace) == session.call_count == 1

    run(main)


@pytest.mark.req("way.conflict")
def test_a_call_id_used_for_other_arguments_is_a_conflict() -> None:
    async def main() -> None:
        counted = Counted()
        invoker = ToolInvoker(Toolbox([counted.tool]))
        async with invoker.open_session() as session:
            await invoker.invoke(call(1, "id"), session=session)
            other = await invoker.invoke(call(2, "id"), session=session)
            assert (other.status, other.reason, other.ran) == ("error", "conflict", "no")
            assert [x for x, _ in counted.runs] == [1]

    run(main)


@pytest.mark.req("way.recall")
def test_who_waits_for_a_call_whose_sender_is_cancelled_is_told_so() -> None:
    async def main() -> None:
        counted = Counted(waits=True)
        invoker = ToolInvoker(Toolbox([counted.tool]))
        async with invoker.open_session() as session:
            first = asyncio.create_task(invoker.invoke(call(1, "id"), session=session))
            await counted.started.wait()
            second = asyncio.create_task(invoker.invoke(call(1, "id"), session=session))
            await asyncio.sleep(0)
            first.cancel()
            with pytest.raises(asyncio.CancelledError):
                await first
            told = await second
            assert (told.status, told.reason, told.replayed) == ("error", "cancelled", True)
            (record,) = session.trace
            assert (record.status, record.ran) == ("cancelled", "unknown")

    run(main)


@pytest.mark.req("approval.edit", "fault.I20", "S25")
def test_an_edit_runs_the_edited_arguments_and_tells_so() -> None:
    async def main() -> None:
        counted = Counted(risk="high")
        edit = ApprovalAnswer(ApprovalDecision.MODIFIED, {"x": 5}, decided_by="the boss")
        invoker = ToolInvoker(Toolbox([counted.tool]), Asked(edit))
        async with invoker.open_session() as session:
            result = await invoker.invoke(call(1), session=session)
            assert result.structured == 5
            assert result.told is not None
            assert "the boss" in result.told
            (record,) = session.trace
            assert (record.edited, record.decided_by, record.decision) == (
                ("x",), "the boss", "modified",
            )  # fmt: skip

    run(main)


@pytest.mark.req("approval.edit")
def test_an_edit_that_raises_the_risk_is_asked_once_more() -> None:
    async def main() -> None:
        counted = Counted(classify_risk=large_is_critical)
        asked = Asked(ApprovalAnswer(ApprovalDecision.MODIFIED, {"x": 10}), ApprovalDecision.DENIED)
        invoker = ToolInvoker(Toolbox([counted.tool]), asked)
        async with invoker.open_session() as session:
            result = await invoker.invoke(call(1), session=session)
            assert (result.status, result.reason) == ("denied", "approval_denied")
        assert [req.risk for req in asked.requests] == [ToolRisk.HIGH, ToolRisk.CRITICAL]
        assert not counted.runs

    run(main)


def test_an_edit_that_does_not_fit_the_schema_is_refused() -> None:
    async def main() -> None:
        counted = Counted(risk="high")
        invoker = ToolInvoker(
            Toolbox([counted.tool]), Asked(ApprovalAnswer(ApprovalDecision.MODIFIED, {"x": "no"}))
        )
        async with invoker.open_session() as session:
            result = await invoker.invoke(call(1), session=session)
            assert (result.reason, result.ran) == ("invalid_arguments", "no")
        assert not counted.runs

    run(main)


@pytest.mark.req("approval.skip")
def test_a_skipped_call_tells_the_model_to_go_on_without() -> None:
    async def main() -> None:
        counted = Counted(risk="high")
        invoker = ToolInvoker(Toolbox([counted.tool]), Asked(ApprovalDecision.SKIPPED))
        async with invoker.open_session() as session:
            result = await invoker.invoke(call(), session=session)
            assert (result.status, result.reason, result.ran) == ("denied", "skipped", "no")
            assert "go on without" in result.text

    run(main)


@pytest.mark.req("approval.once", "case.C14", "fault.I23", "S24")
def test_a_late_yes_runs_nothing_and_is_told_expired() -> None:
    async def main() -> None:
        counted, answer = Counted(risk="high"), asyncio.get_running_loop().create_future()
        asked = Asked(answer)
        policy = ChainPolicy(approval_timeout_s=0.05)
        invoker = ToolInvoker(Toolbox([counted.tool]), asked, policy=policy)
        async with invoker.open_session() as session:
            result = await invoker.invoke(call(), session=session)
            assert (result.status, result.reason, result.ran) == (
                "denied",
                "approval_timeout",
                "no",
            )
            assert asked.told == asked.requests
            if not answer.done():
                answer.set_result(ApprovalDecision.APPROVED)
            await asyncio.sleep(0)
        assert not counted.runs

    run(main)


@pytest.mark.req("approval.grant")
@pytest.mark.parametrize("reach", ["chain", "scope"])
def test_a_standing_grant_lets_pass_what_waits_and_what_comes(reach: Any) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        counted, never, first = Counted(risk="high"), loop.create_future(), loop.create_future()
        asked = Asked(never, first)
        invoker = ToolInvoker(Toolbox([counted.tool]), asked)
        async with invoker.open_session("scope") as session:
            waiting = asyncio.create_task(invoker.invoke(call(1), session=session))
            await asked.asked.wait()
            asked.asked.clear()
            granting = asyncio.create_task(invoker.invoke(call(2), session=session))
            await asked.asked.wait()
            first.set_result(ApprovalAnswer(ApprovalDecision.APPROVED, grant=reach))
            results = [
                await waiting,
                await granting,
                await invoker.invoke(call(3), session=session),
            ]
            assert [r.structured for r in results] == [1, 2, 3]
            assert len(asked.requests) == 2
        async with invoker.open_session("scope") as session:
            asked.answers.append(ApprovalDecision.DENIED)
            later = await invoker.invoke(call(4), session=session)
            assert later.status == ("ok" if reach == "scope" else "denied")

    run(main)


@pytest.mark.req("fault.I22", "approval.shown")
def test_the_approver_is_told_who_asks_what_and_why() -> None:
    async def main() -> None:
        asked = Asked(ApprovalDecision.DENIED)
        counted = Counted()
        box = Toolbox([counted.tool], undeclared=ToolRisk.HIGH)
        invoker = ToolInvoker(box, asked)
        ctx = RunContext(run_id="run", agent_id="agent")
        async with invoker.open_session() as session:
            await invoker.invoke(call(3), session=session, ctx=ctx)
        (req,) = asked.requests
        assert (req.agent_id, req.run_id, req.call.arguments) == ("agent", "run", {"x": 3})
        assert req.why == "its risk is HIGH (undeclared)"
        assert req.context["undeclared_risk"] is True

    run(main)


@pytest.mark.req("tools.requires-approval")
@pytest.mark.parametrize("failing", ["classify_risk", "requires_approval"])
def test_a_risk_that_cannot_be_told_counts_as_critical(failing: str) -> None:
    async def main() -> None:
        def fail(_: Any) -> Any:
            raise RuntimeError("cannot tell")

        asked = Asked(ApprovalDecision.DENIED)
        counted = Counted(risk="safe", **{failing: fail})
        invoker = ToolInvoker(Toolbox([counted.tool]), asked)
        async with invoker.open_session() as session:
            await invoker.invoke(call(), session=session)
        assert asked.requests[0].risk is ToolRisk.CRITICAL

    run(main)


class NoMail:
    def __init__(self) -> None:
        self.seen: list[Any] = []

    async def check(self, cleared: Cleared, /) -> None:
        assert cleared.arguments == {"x": 1}
        assert cleared.session.trace == ()
        raise Refused("not on a Sunday")

    def saw(self, cleared: Cleared, output: ToolExecutionResult) -> None:
        self.seen.append(output)


@pytest.mark.req("way.guards")
def test_a_guard_refuses_in_its_own_words() -> None:
    async def main() -> None:
        counted, guard = Counted(), NoMail()
        invoker = ToolInvoker(Toolbox([counted.tool]), guards=(guard,))
        async with invoker.open_session() as session:
            result = await invoker.invoke(call(1), session=session)
            assert (result.status, result.reason, result.text) == (
                "denied", "guard", "not on a Sunday",
            )  # fmt: skip
        assert not counted.runs
        assert not guard.seen

    run(main)


@pytest.mark.req("way.slots")
def test_no_more_run_at_once_than_the_chain_and_the_tool_allow() -> None:
    async def main() -> None:
        running, most = 0, 0

        @tool(risk="safe", concurrency=2)
        async def work() -> None:
            nonlocal running, most
            running += 1
            most = max(most, running)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            running -= 1

        invoker = ToolInvoker(Toolbox([work]), policy=ChainPolicy(max_parallel_calls=3))
        async with invoker.open_session() as session:
            results = await asyncio.gather(
                *(invoker.invoke(ToolCallRequest("work"), session=session) for _ in range(9))
            )
        assert {r.status for r in results} == {"ok"}
        assert most == 2

    run(main)


@pytest.mark.req("clock.total", "fault.I8")
def test_the_chains_time_bounds_its_calls_and_stands_still_for_a_person() -> None:
    async def main() -> None:
        counted = Counted(risk="safe", waits=True)
        slow_yes = asyncio.get_running_loop().create_future()
        asked = Asked(slow_yes)
        risky = tool(name="risky", risk="high")(lambda: 1)
        invoker = ToolInvoker(Toolbox([counted.tool, risky]), asked)
        policy = ChainPolicy(total_timeout_s=0.15)
        async with invoker.open_session(policy=policy) as session:
            asking = asyncio.create_task(invoker.invoke(ToolCallRequest("risky"), session=session))
            await asked.asked.wait()
            await asyncio.sleep(0.2)  # longer than the chain may take in all
            slow_yes.set_result(ApprovalDecision.APPROVED)
            assert (await asking).status == "ok"
            late = await invoker.invoke(call(), session=session)
            assert (late.reason, late.ran) == ("timeout", "unknown")
            spent = await invoker.invoke(call(), session=session)
            assert (spent.reason, spent.ran) == ("budget", "no")

    run(main)


@pytest.mark.req("way.cancel")
def test_a_cancelled_run_is_recorded_and_raised_again_before_the_tool_starts() -> None:
    async def main() -> None:
        counted = Counted()
        invoker = ToolInvoker(Toolbox([counted.tool]))
        async with invoker.open_session() as session:
            with pytest.raises(RunCancelled):
                await invoker.invoke(
                    call(), session=session, ctx=RunContext(cancelled=lambda: True)
                )
            (record,) = session.trace
            assert (record.status, record.reason, record.ran) == ("cancelled", "cancelled", "no")
        assert not counted.runs

    run(main)


@pytest.mark.req("way.announce", "way.outcome", "fault.I28", "S38")
def test_every_call_has_a_closing_step_and_started_ones_an_opening_one() -> None:
    async def main() -> None:
        steps: list[ProgressStep] = []

        async def sink(step: ProgressStep) -> None:
            steps.append(step)

        invoker = ToolInvoker(Toolbox([Counted().tool]))
        async with invoker.open_session() as session:
            await invoker.invoke(call(), session=session, progress_sink=sink)
            await invoker.invoke(ToolCallRequest("nope"), session=session, progress_sink=sink)
        assert [(s.kind, s.status, s.reason) for s in steps] == [
            ("TOOL_CALL", None, None),
            ("TOOL_RESULT", "ok", None),
            ("TOOL_RESULT", "error", "unknown_tool"),
        ]

    run(main)


@pytest.mark.req("once.not-done", "once.key", "way.intent", "way.execute")
def test_a_once_tool_has_a_key_of_its_own_and_may_say_that_nothing_happened() -> None:
    async def main() -> None:
        keys: list[str | None] = []

        @tool(risk="safe", effect="once")
        async def pay(ctx: RunContext) -> None:
            keys.append(ctx.idempotency_key)
            raise NotDone("the bank is closed")

        invoker = ToolInvoker(Toolbox([pay]))
        async with invoker.open_session() as session:
            results = [
                await invoker.invoke(ToolCallRequest("pay"), session=session) for _ in range(2)
            ]
            assert [(r.status, r.ran) for r in results] == [("error", "no")] * 2
            assert len(set(keys)) == 2
            assert await session.journal.in_doubt(session.chain_id) == []

    run(main)


@pytest.mark.req("once.unknown", "clock.late")
def test_a_call_given_up_is_in_doubt_until_it_returns_after_all() -> None:
    async def main() -> None:
        release, done = asyncio.Event(), asyncio.Event()

        @tool(risk="safe", effect="once", timeout=0.05)
        async def pay() -> str:
            while not release.is_set():
                try:
                    await release.wait()
                except asyncio.CancelledError:
                    continue
            done.set()
            return "paid"

        invoker = ToolInvoker(Toolbox([pay]))
        async with invoker.open_session() as session:
            result = await invoker.invoke(ToolCallRequest("pay", {}, "id"), session=session)
            assert (result.reason, result.ran) == ("timeout", "unknown")
            assert [i.call_id for i in await session.journal.in_doubt(session.chain_id)] == ["id"]
            assert invoker.abandoned == ("pay",)
            release.set()
            await done.wait()
            while invoker.abandoned:
                await asyncio.sleep(0)
            assert await session.journal.in_doubt(session.chain_id) == []
            again = await invoker.invoke(ToolCallRequest("pay", {}, "id"), session=session)
            assert (again.reason, again.replayed) == ("timeout", True)

    run(main)


@pytest.mark.req("way.session", "fault.I26")
def test_a_closed_session_and_a_foreign_one_are_refused() -> None:
    async def main() -> None:
        counted = Counted()
        one, two = ToolInvoker(Toolbox([counted.tool])), ToolInvoker(Toolbox([counted.tool]))
        async with one.open_session() as session:
            foreign = await two.invoke(call(), session=session)
        closed = await one.invoke(call(), session=session)
        assert {r.reason for r in (foreign, closed)} == {"session_closed"}
        assert not counted.runs

    run(main)


@pytest.mark.req("artifacts.scope", "artifacts.pins", "artifacts.left", "S33")
def test_refs_live_in_their_scope_and_what_was_kept_outlives_the_session() -> None:
    async def main() -> None:
        @tool(risk="safe")
        def make(text: str) -> str:
            return text * 1000

        @tool(risk="safe")
        def size(text: str) -> int:
            return len(text)

        store = InMemoryBlobStore()
        invoker = ToolInvoker(Toolbox([make, size]), None, store)

        async def made(session: Any, letters: str) -> InvocationResult:
            return await invoker.invoke(ToolCallRequest("make", {"text": letters}), session=session)

        async with invoker.open_session("talk") as session:
            kept, lost = await made(session, "keep!"), await made(session, "lose!")
            assert kept.artifact_ref is not None
            assert lost.artifact_ref is not None
            session.keep([kept.artifact_ref])
        async with invoker.open_session("talk") as session:
            asked = [
                await invoker.invoke(
                    ToolCallRequest("size", {"text": {"$artifact": ref}}), session=session
                )
                for ref in (kept.artifact_ref, lost.artifact_ref)
            ]
            assert (asked[0].structured, asked[1].reason) == (5000, "bad_ref")
        assert (await store.stat(kept.artifact_ref)).size == 5000
        with pytest.raises(LookupError):
            await store.stat(lost.artifact_ref)
        await invoker.close_scope("talk")
        with pytest.raises(LookupError):
            await store.stat(kept.artifact_ref)

    run(main)
