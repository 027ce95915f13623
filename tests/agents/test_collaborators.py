"""Stores, journals, hooks and approvers that fail or hang spoil no call beside them."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Mapping
from typing import Any

import pytest

from substrate import (
    ApprovalAnswer,
    ApprovalDecision,
    ChainPolicy,
    HookEvent,
    HookManager,
    ImageBlock,
    InMemoryBlobStore,
    NotDone,
    TextBlock,
    Toolbox,
    ToolCallRequest,
    ToolChainTool,
    ToolExecutionResult,
    ToolInvoker,
    tool,
)
from substrate.agents.tools import bounded, gates, shaping
from substrate.agents.tools.session import MemoryJournal
from substrate.kernel.context import RunContext
from substrate.kernel.errors import RunCancelled
from substrate.kernel.journal import CallIntent, CallOutcome
from substrate.kernel.tools.approval import ApprovalRequest
from substrate.kernel.tools.chain import ChainRunResult

STEP_S = 0.1


@pytest.fixture(autouse=True)
def quick_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (bounded, gates, shaping):
        monkeypatch.setattr(module, "STEP_S", STEP_S)


async def trouble(how: str) -> None:
    if how == "hangs":
        await asyncio.Event().wait()
    msg = "out of order"
    raise OSError(msg)


@tool(risk="safe")
async def large() -> str:
    return "ä" * 9000


@tool(risk="high")
async def pay(to: str) -> str:
    return f"paid {to}"


class Yes:
    async def request(self, req: ApprovalRequest, /) -> ApprovalDecision:
        return ApprovalDecision.APPROVED


# stores -----------------------------------------------------------------------------------


class Broken(InMemoryBlobStore):
    def __init__(self, step: str, how: str) -> None:
        super().__init__()
        for name in (step,):
            setattr(self, name, lambda *_, **__: trouble(how))  # pyright: ignore[reportUnknownLambdaType]


@pytest.mark.req("invariant.4")
@pytest.mark.parametrize("how", ["hangs", "raises"])
@pytest.mark.parametrize("step", ["put", "pin", "unpin"])
def test_a_chain_comes_back_whatever_its_store_does(step: str, how: str) -> None:
    async def main() -> ChainRunResult:
        invoker = ToolInvoker(Toolbox([large]), None, Broken(step, how))
        chain = ToolChainTool(invoker, policy=ChainPolicy(max_output_bytes=300))
        async with asyncio.timeout(20):
            return await chain.run(
                "a = await large()\nprint('x' * 900)\n'done'", ctx=RunContext(session_id="s")
            )

    result = asyncio.run(main())
    assert (result.status, result.value) == ("ok", "done")
    assert len(result.output_text.encode()) <= 300
    if step != "unpin":
        assert "could not be kept" in result.output_text


def test_a_media_file_that_cannot_be_written_leaves_the_result_of_its_tool() -> None:
    @tool(risk="safe")
    async def draw() -> ToolExecutionResult:
        return ToolExecutionResult([TextBlock("drawn"), ImageBlock(b"\x89PNG\r\n\x1a\n")])

    async def main() -> None:
        invoker = ToolInvoker(Toolbox([draw]), None, InMemoryBlobStore())
        async with invoker.open_session() as session:
            session.media_root = "/nowhere/at/all"
            result = await invoker.invoke(ToolCallRequest("draw"), session=session)
            assert (result.status, result.text) == ("ok", "drawn")
            assert result.files[0].artifact_ref is not None

    asyncio.run(main())


# journals ---------------------------------------------------------------------------------


class Kept(MemoryJournal):
    def __init__(self, step: str = "", how: str = "") -> None:
        super().__init__()
        self.step, self.how = step, how
        self.outcomes: list[CallOutcome] = []

    async def intend(self, intent: CallIntent) -> None:
        if self.step == "intend":
            await trouble(self.how)
        await super().intend(intent)

    async def settle(self, outcome: CallOutcome) -> None:
        if self.step == "settle":
            await trouble(self.how)
        self.outcomes.append(outcome)
        await super().settle(outcome)


@pytest.mark.parametrize("how", ["hangs", "raises"])
def test_a_call_whose_intent_cannot_be_written_is_not_started(how: str) -> None:
    async def main() -> None:
        invoker = ToolInvoker(Toolbox([pay]), Yes(), journal=Kept("intend", how))
        async with invoker.open_session() as session, asyncio.timeout(20):
            result = await invoker.invoke(ToolCallRequest("pay", {"to": "a"}), session=session)
            assert (result.reason, result.ran) == ("internal", "no")
            assert "was not started" in result.text

    asyncio.run(main())


@pytest.mark.parametrize("how", ["hangs", "raises"])
def test_an_outcome_that_cannot_be_written_changes_no_answer(how: str) -> None:
    async def main() -> None:
        invoker = ToolInvoker(Toolbox([pay]), Yes(), journal=Kept("settle", how))
        async with invoker.open_session() as session, asyncio.timeout(20):
            result = await invoker.invoke(ToolCallRequest("pay", {"to": "a"}), session=session)
            assert (result.status, result.text) == ("ok", "paid a")

    asyncio.run(main())


@pytest.mark.parametrize(
    ("ends", "ran"),
    [("runs out", "no"), ("is cancelled", "yes"), ("returns", "yes"), ("not", "no")],
)
def test_what_is_known_to_have_ended_stays_in_no_doubt(ends: str, ran: str) -> None:
    started = asyncio.Event()

    @tool(risk="high")
    async def act() -> str:
        if ends == "is cancelled":
            msg = "the run is over"
            raise RunCancelled(msg)
        started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            if ends == "not":
                msg = "nothing was sent"
                raise NotDone(msg) from None
            return "ended"
        return ""

    class Late(Kept):
        async def intend(self, intent: CallIntent) -> None:
            await super().intend(intent)
            if ends == "runs out":
                await asyncio.sleep(0.08)

    async def main() -> None:
        journal = Late()
        policy = ChainPolicy(total_timeout_s=0.05 if ends == "runs out" else 60)
        invoker = ToolInvoker(Toolbox([act]), Yes(), None, policy, journal=journal)
        async with invoker.open_session() as session:
            calling = asyncio.create_task(invoker.invoke(ToolCallRequest("act"), session=session))
            if ends in ("returns", "not"):
                await started.wait()
                calling.cancel()
            await asyncio.wait((calling,))
            async with asyncio.timeout(10):
                while not journal.outcomes:
                    await asyncio.sleep(0.01)
            assert [outcome.ran for outcome in journal.outcomes] == [ran]
            assert await journal.in_doubt(session.chain_id) == []

    asyncio.run(main())


# hooks ------------------------------------------------------------------------------------


@pytest.mark.req("invariant.1")
def test_an_observer_of_a_wrong_signature_or_kind_stops_no_call(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def too_few() -> None: ...

    async def slow(context: Mapping[str, Any]) -> None: ...

    def gives_a_coroutine(context: Mapping[str, Any]) -> Any:
        return slow(context)

    hooks = HookManager()
    for hook in (too_few, gives_a_coroutine):
        hooks.register(HookEvent.TOOL_START, hook)  # pyright: ignore[reportArgumentType]

    async def main() -> None:
        invoker = ToolInvoker(Toolbox([large]), hooks=hooks)
        async with invoker.open_session() as session:
            result = await invoker.invoke(ToolCallRequest("large"), session=session)
            assert result.status == "ok"

    asyncio.run(main())
    hooks.close()
    gc.collect()
    assert "register an async function" in caplog.text


# approvals --------------------------------------------------------------------------------


def test_a_grant_for_one_tool_leaves_the_questions_about_others_open() -> None:
    def named(name: str) -> Any:
        return tool(name=name, risk="high")(lambda: name)

    class Person:
        def __init__(self) -> None:
            self.asked: dict[str, asyncio.Future[ApprovalAnswer]] = {}

        async def request(self, req: ApprovalRequest, /) -> ApprovalAnswer:
            answer = self.asked[req.call.name] = asyncio.get_running_loop().create_future()
            return await answer

    async def main() -> None:
        person = Person()
        invoker = ToolInvoker(Toolbox([named(n) for n in "abc"]), person)
        async with invoker.open_session() as session:
            calls = [
                asyncio.create_task(invoker.invoke(ToolCallRequest(n), session=session))
                for n in "abc"
            ]
            while len(person.asked) < 3:
                await asyncio.sleep(0)
            first = person.asked["b"]
            for name in "ac":
                always = ApprovalAnswer(ApprovalDecision.APPROVED, grant="chain")
                person.asked[name].set_result(always)
                await asyncio.sleep(0.01)
            assert person.asked["b"] is first  # it was asked once, and still is
            first.set_result(ApprovalAnswer(ApprovalDecision.APPROVED))
            assert [r.status for r in await asyncio.gather(*calls)] == ["ok"] * 3

    asyncio.run(main())


# secrets ----------------------------------------------------------------------------------


@pytest.mark.req("secrets.mask")
@pytest.mark.parametrize("refused", ["budget", "unknown", "conflict", "session"])
@pytest.mark.parametrize("name", ["password", "own", "declared"])
def test_a_call_that_is_refused_early_shows_no_secret(refused: str, name: str) -> None:
    class Login:
        name = "login"
        description = "logs in"
        risk = "safe"
        input_schema = {"properties": {"declared": {"writeOnly": True}}}  # noqa: RUF012

        async def execute(self, *, ctx: object = None, **kwargs: Any) -> ToolExecutionResult:
            return ToolExecutionResult([TextBlock("in")])

    async def main() -> str:
        policy = ChainPolicy(
            max_tool_calls=0 if refused == "budget" else 5, secret_names=frozenset(["own"])
        )
        invoker = ToolInvoker(Toolbox([Login()]), policy=policy)
        async with invoker.open_session() as session:
            called = "logout" if refused == "unknown" else "login"
            call = ToolCallRequest(called, {name: "hunter22"}, call_id="one")
            if refused == "conflict":
                first = ToolCallRequest("login", {name: "other"}, call_id="one")
                await invoker.invoke(first, session=session)
            if refused == "session":
                session.closed = True
            result = await invoker.invoke(call, session=session)
            assert result.status == "error"
            return str(session.trace)

    shown = asyncio.run(main())
    assert "hunter22" not in shown or (refused, name) == ("unknown", "declared")


@pytest.mark.req("secrets.mask")
def test_a_secret_that_a_tool_declares_is_hidden_in_what_a_model_reads_of_the_script() -> None:
    class Card:
        name = "card"
        description = "gives a card"
        risk = "safe"
        input_schema: Mapping[str, Any] = {"properties": {}}
        output_schema = {"properties": {"pin_code": {"writeOnly": True}}}  # noqa: RUF012

        async def execute(self, *, ctx: object = None, **kwargs: Any) -> ToolExecutionResult:
            return ToolExecutionResult([], {"pin_code": "4711-0815", "name": "me"})

    async def main() -> ChainRunResult:
        return await ToolChainTool(ToolInvoker(Toolbox([Card()]))).run("await card()")

    result = asyncio.run(main())
    assert result.value == {"pin_code": "4711-0815", "name": "me"}
    assert "4711" not in result.output_text


# declarations and edits -------------------------------------------------------------------


def test_one_badly_declared_tool_of_a_registry_stops_no_other() -> None:
    class Bad:
        name = "bad"
        description = "is declared wrongly"
        input_schema = {"type": "nonsense"}  # noqa: RUF012

        async def execute(self, *, ctx: object = None, **kwargs: Any) -> ToolExecutionResult:
            raise AssertionError

    class Registry:
        tools: Mapping[str, Any] = {"bad": Bad(), "large": large}

        def get(self, name: str) -> Any:
            return self.tools.get(name)

        def all(self) -> list[Any]:
            return list(self.tools.values())

    async def main() -> None:
        invoker = ToolInvoker(Registry())
        with pytest.warns(UserWarning, match="'bad' is left out of scripts"):
            result = await ToolChainTool(invoker).run("len(await large())")
        assert result.value == 9000, result.output_text
        async with invoker.open_session(direct=True) as session:
            refused = await invoker.invoke(ToolCallRequest("bad"), session=session)
            assert (refused.reason, refused.ran) == ("unknown_tool", "no")
            assert "declared wrongly" in refused.text

    asyncio.run(main())


def test_an_edit_that_is_no_arguments_is_the_approvers_error() -> None:
    class Odd:
        async def request(self, req: ApprovalRequest, /) -> ApprovalAnswer:
            odd: Any = "to=b"
            return ApprovalAnswer(ApprovalDecision.MODIFIED, odd)

    async def main() -> None:
        invoker = ToolInvoker(Toolbox([pay]), Odd())
        async with invoker.open_session() as session:
            result = await invoker.invoke(ToolCallRequest("pay", {"to": "a"}), session=session)
            assert (result.status, result.reason, result.ran) == ("denied", "handler_error", "no")

    asyncio.run(main())


@pytest.mark.req("artifacts.pins", "invariant.8")
@pytest.mark.parametrize("cancels", [1, 2, 3])
def test_a_session_that_is_cancelled_while_it_closes_leaves_no_pin(cancels: int) -> None:
    class Slow(InMemoryBlobStore):
        def __init__(self) -> None:
            super().__init__()
            self.leases: set[str] = set()
            self.unpinning = asyncio.Event()
            self.go_on = asyncio.Event()

        async def pin(self, ref: str, lease: str) -> None:
            await super().pin(ref, lease)
            self.leases.add(lease)

        async def unpin(self, ref: str, lease: str) -> None:
            self.unpinning.set()
            await self.go_on.wait()
            await super().unpin(ref, lease)
            self.leases.discard(lease)

    async def main() -> None:
        store = Slow()
        invoker = ToolInvoker(Toolbox([large]), None, store)
        session = invoker.open_session()
        result = await invoker.invoke(ToolCallRequest("large", {}), session=session)
        assert result.artifact_ref is not None
        closing = asyncio.create_task(session.close())
        await store.unpinning.wait()
        for _ in range(cancels):
            closing.cancel()
            await asyncio.sleep(0)
        await asyncio.wait((closing,))
        store.go_on.set()
        while invoker.abandoned:
            await asyncio.sleep(0)
        assert store.leases == set()

    asyncio.run(main())
