"""What holds of every call, whatever tool, hook, handler, guard, sink and store do."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

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
    ToolCallRequest,
    ToolExecutionResult,
    ToolInvoker,
)
from substrate.agents.tools.gates import Cleared
from substrate.kernel.blobs import BlobData
from substrate.kernel.hooks import ProgressStep

SCHEMA = {
    "type": "object",
    "properties": {"x": {"type": "integer"}, "text": {}},
    "additionalProperties": False,
}
settings.register_profile("calls", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("calls")


class Tool:
    """A tool that does what its mode says."""

    description = "does as it is told"
    input_schema = SCHEMA

    def __init__(self, name: str, mode: str, risk: str = "safe") -> None:
        self.name = name
        self.mode = mode
        self.risk = risk
        self.ran = 0

    async def execute(self, *, ctx: object = None, **kwargs: Any) -> Any:
        self.ran += 1
        match self.mode:
            case "ok":
                return ToolExecutionResult([TextBlock("ok")])
            case "slow":
                await asyncio.sleep(0)
                return ToolExecutionResult([TextBlock("ok")])
            case "hang":
                await asyncio.Event().wait()
            case "swallow":
                try:
                    await asyncio.Event().wait()
                except asyncio.CancelledError:
                    return ToolExecutionResult([TextBlock("late")])
            case "raise":
                raise ValueError("boom")
            case "exit":
                raise SystemExit(1)
            case "cancel":
                raise asyncio.CancelledError("inner")
            case "not_done":
                raise NotDone("nothing happened")
            case "nonsense":
                return object()
            case "error":
                return ToolExecutionResult([TextBlock("no")], is_error=True)
            case "large":
                return ToolExecutionResult([TextBlock("ü" * 9000)])
            case "media":
                return ToolExecutionResult([ImageBlock(b"\x89PNG\r\n\x1a\n" + b"0" * 20)])
            case "odd":
                return ToolExecutionResult([], {"a": object()})
            case "surrogate":
                return ToolExecutionResult([TextBlock("\ud800")], {"a": "\udfff"})
            case _:
                raise AssertionError(self.mode)
        return None


MODES = [
    "ok", "slow", "hang", "swallow", "raise", "exit", "cancel", "not_done", "nonsense",
    "error", "large", "media", "odd", "surrogate",
]  # fmt: skip


class Handler:
    def __init__(self, mode: str) -> None:
        self.mode = mode

    async def request(self, req: Any, /) -> Any:
        match self.mode:
            case "yes":
                return ApprovalDecision.APPROVED
            case "no":
                return ApprovalDecision.DENIED
            case "skip":
                return ApprovalAnswer(ApprovalDecision.SKIPPED)
            case "edit":
                return ApprovalAnswer(ApprovalDecision.MODIFIED, {"x": 5})
            case "bad edit":
                return ApprovalAnswer(ApprovalDecision.MODIFIED, {"x": "no"})
            case "raise":
                raise RuntimeError("handler")
            case "exit":
                raise SystemExit(2)
            case "hang":
                await asyncio.Event().wait()
            case _:
                return "approved"
        return None


class Guard:
    def __init__(self, mode: str) -> None:
        self.mode = mode

    async def check(self, cleared: Cleared, /) -> None:
        if self.mode == "raise":
            raise RuntimeError("guard")
        if self.mode == "exit":
            raise SystemExit(3)

    def saw(self, cleared: Cleared, output: ToolExecutionResult) -> None:
        if self.mode == "saw raises":
            raise RuntimeError("saw")


class FailingStore(InMemoryBlobStore):
    async def put(self, data: BlobData, media_type: str | None = None) -> str:
        raise OSError("disk full")


CALLS = st.lists(
    st.tuples(st.sampled_from(MODES), st.sampled_from(["safe", "high"]), st.sampled_from([
        {}, {"x": 1}, {"x": "no"}, {"y": 1}, {"text": "\ud800"}, {"text": {"$artifact": "nope"}},
        "[]", None, {"text": {"$artifact": "a", "b": 1}},
    ])),
    min_size=1,
    max_size=5,
)  # fmt: skip


@pytest.mark.req("invariant.1", "invariant.2", "invariant.8", "S17", "S18", "S19", "S20")
@settings(max_examples=60)
@given(
    calls=CALLS,
    handler=st.sampled_from(
        ["yes", "no", "skip", "edit", "bad edit", "raise", "exit", "odd", "hang"]
    ),
    guard=st.sampled_from(["pass", "raise", "exit", "saw raises"]),
    hook=st.sampled_from(["watch", "raise"]),
    sink=st.sampled_from(["watch", "raise"]),
    store=st.sampled_from([InMemoryBlobStore, FailingStore, None]),
    budget=st.integers(0, 5),
)
def test_every_call_has_one_result_one_record_one_start_and_one_end(
    calls: list[tuple[str, str, Any]],
    handler: str,
    guard: str,
    hook: str,
    sink: str,
    store: type[InMemoryBlobStore] | None,
    budget: int,
) -> None:
    events: list[tuple[str, str]] = []
    steps: list[ProgressStep] = []
    tools = [Tool(f"t{i}", mode, risk) for i, (mode, risk, _) in enumerate(calls)]

    def note(step: ProgressStep) -> None:
        steps.append(step)
        if sink == "raise":
            raise RuntimeError("sink")

    async def main() -> None:
        hooks = HookManager()

        async def watch(context: Mapping[str, Any]) -> None:
            events.append(("end" if "status" in context else "start", context["call_id"]))
            if hook == "raise":
                raise RuntimeError("hook")

        hooks.register(HookEvent.TOOL_START, watch)
        hooks.register(HookEvent.TOOL_END, watch)
        policy = ChainPolicy(max_tool_calls=budget, call_timeout_s=0.05, approval_timeout_s=0.05)
        invoker = ToolInvoker(
            Registry(tools), Handler(handler), store() if store else None, policy, hooks,
            guards=(Guard(guard),),
        )  # fmt: skip
        async with invoker.open_session() as session:
            sent = [
                ToolCallRequest(f"t{i}", arguments, f"id{i}")
                for i, (_, _, arguments) in enumerate(calls)
            ]
            results = await asyncio.gather(
                *(invoker.invoke(one, session=session, progress_sink=note) for one in sent)
            )
            records = Counter(record.call_id for record in session.trace)
            ids = {one.call_id for one in sent}
            assert records == Counter(ids)
            assert Counter(events) == Counter({(k, i): 1 for k in ("start", "end") for i in ids})
            assert Counter(s.call_id for s in steps if s.kind == "TOOL_RESULT") == Counter(ids)
            assert sum(tool.ran for tool in tools) <= budget
            by_id = {record.call_id: record for record in session.trace}
            for one, tool, result in zip(sent, tools, results, strict=True):
                record = by_id[one.call_id]
                assert (record.ran == "no") <= (tool.ran == 0 or tool.mode == "not_done")
                assert (result.status == "ok") == (record.status == "ok")
                assert result.ran == record.ran
                assert result.reason == record.reason
                assert "late" not in result.text

    asyncio.run(main())


class Registry:
    def __init__(self, tools: list[Tool]) -> None:
        self._tools: dict[str, Any] = {tool.name: tool for tool in tools}

    def get(self, name: str) -> Any:
        return self._tools.get(name)

    def all(self) -> list[Any]:
        return list(self._tools.values())


@pytest.mark.req("invariant.2", "case.C13", "S34")
@settings(max_examples=30)
@given(budget=st.integers(0, 6), sent=st.integers(0, 12), parallel=st.booleans())
def test_never_more_than_the_budget_runs_in_any_interleaving(
    budget: int, sent: int, *, parallel: bool
) -> None:
    tool = Tool("t", "slow")

    async def main() -> None:
        invoker = ToolInvoker(Registry([tool]), policy=ChainPolicy(max_tool_calls=budget))
        async with invoker.open_session() as session:
            calls = [
                invoker.invoke(ToolCallRequest("t", {"x": i}), session=session) for i in range(sent)
            ]
            if parallel:
                await asyncio.gather(*calls)
            else:
                for call in calls:
                    await call
            assert tool.ran == min(budget, sent) == session.call_count
            assert len(session.trace) == sent
            reasons = [record.reason for record in session.trace if record.status != "ok"]
            assert reasons == ["budget"] * max(0, sent - budget)

    asyncio.run(main())


class Texts:
    """A tool that returns the text or the structure it was made with."""

    name = "texts"
    description = "returns"
    risk = "safe"
    input_schema: Mapping[str, Any] = {"type": "object"}

    def __init__(self, output: ToolExecutionResult) -> None:
        self.output = output

    async def execute(self, *, ctx: object = None, **kwargs: Any) -> ToolExecutionResult:
        return self.output


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=80).map(lambda t: t * 9)


@pytest.mark.req("invariant.6", "case.C6", "S30", "S31")
@settings(max_examples=80)
@given(text=TEXT, limit=st.integers(0, 400))
def test_never_more_than_the_inline_limit_crosses_and_the_artifact_is_the_original(
    text: str, limit: int
) -> None:
    async def main() -> None:
        store = InMemoryBlobStore()
        tool = Texts(ToolExecutionResult([TextBlock(text)]))
        policy = ChainPolicy(max_inline_result_bytes=limit)
        invoker = ToolInvoker(Registry([tool]), None, store, policy)  # type: ignore[list-item]
        async with invoker.open_session() as session:
            result = await invoker.invoke(ToolCallRequest("texts"), session=session)
            assert len(result.text.encode()) <= limit
            if len(text.encode()) <= limit:
                assert (result.text, result.artifact_ref) == (text, None)
            else:
                assert result.artifact_ref is not None
                assert await store.resolve(result.artifact_ref) == text.encode()
                assert result.preview is not None
                assert len(result.preview.encode()) <= limit

    asyncio.run(main())


@pytest.mark.req("invariant.5", "S26")
@given(st.sampled_from(["other", "nope", "sha256:" + "0" * 64]))
def test_no_ref_of_another_scope_resolves(kind: str) -> None:
    async def main() -> None:
        tool = Texts(ToolExecutionResult([TextBlock("x" * 10_000)]))
        eater = Tool("eat", "ok")
        invoker = ToolInvoker(Registry([tool, eater]), None, InMemoryBlobStore())  # type: ignore[list-item]
        async with invoker.open_session() as one, invoker.open_session() as two:
            made = await invoker.invoke(ToolCallRequest("texts"), session=one)
            ref = made.artifact_ref if kind == "other" else kind
            call = ToolCallRequest("eat", {"text": [{"deep": {"$artifact": ref}}]})
            refused = await invoker.invoke(call, session=two)
            assert (refused.status, refused.reason, refused.ran) == ("error", "bad_ref", "no")
            assert eater.ran == 0

    asyncio.run(main())


@pytest.mark.req("invariant.3")
@given(st.lists(st.integers(), max_size=3), st.lists(st.integers(), max_size=3))
def test_what_runs_is_what_was_approved_whatever_is_changed_meanwhile(
    before: list[int], after: list[int]
) -> None:
    seen: list[Any] = []

    class Taker(Tool):
        async def execute(self, *, ctx: object = None, **kwargs: Any) -> Any:
            seen.append(kwargs["text"])
            return ToolExecutionResult()

    sent = {"text": {"to": list(before)}}

    class Meddler:
        async def request(self, req: Any, /) -> Any:
            sent["text"]["to"][:] = after
            req.call.arguments["text"]["to"].append("mallory")
            return ApprovalDecision.APPROVED

    async def main() -> None:
        invoker = ToolInvoker(Registry([Taker("t", "ok", "high")]), Meddler())
        async with invoker.open_session() as session:
            await invoker.invoke(ToolCallRequest("t", sent), session=session)

    asyncio.run(main())
    assert seen == [{"to": before}]


@pytest.mark.req("invariant.8", "case.C12")
def test_a_siblings_failure_changes_no_other_result_and_order_is_kept() -> None:
    async def main() -> None:
        tools = [Tool(m, m) for m in ("raise", "hang", "ok", "slow", "large")]
        policy = ChainPolicy(call_timeout_s=0.05)
        invoker = ToolInvoker(Registry(tools), policy=policy)
        async with invoker.open_session() as session:
            results = await asyncio.gather(
                *(invoker.invoke(ToolCallRequest(t.name), session=session) for t in tools)
            )
        assert [r.reason for r in results] == ["tool_error", "timeout", None, None, None]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert invoker.abandoned == ()
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(main())
