"""Faults that users of tool layers reported, each shown to be absent."""

from __future__ import annotations

import asyncio
import contextvars
import dataclasses
import datetime as dt
import decimal
import enum
import logging
import math
import time
import uuid
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from pydantic import BaseModel

from substrate import (
    ApprovalAnswer,
    ApprovalDecision,
    ChainPolicy,
    HookEvent,
    HookManager,
    ImageBlock,
    InMemoryBlobStore,
    TextBlock,
    Toolbox,
    ToolCallRequest,
    ToolExecutionResult,
    ToolInvoker,
    ToolRisk,
    run_script_sync,
    tool,
)
from substrate.agents.tools.invoker import InvokerSession
from substrate.agents.tools.shown import shown_result
from substrate.kernel.blobs import ArtifactStream, BlobData
from substrate.kernel.tools.chain import InvocationResult

Test = Callable[[ToolInvoker, InvokerSession], Awaitable[None]]


class Taker:
    """A tool that takes anything, keeps it, and returns what it was made with."""

    description = "takes"
    risk: Any = "safe"

    def __init__(
        self,
        output: Any = None,
        *,
        name: str = "t",
        properties: dict[str, Any] | None = None,
        risk: Any = "safe",
    ) -> None:
        self.name = name
        self.risk = risk
        self.output = ToolExecutionResult() if output is None else output
        self.taken: list[dict[str, Any]] = []
        self.input_schema = {"type": "object", "properties": properties or {}}

    async def execute(self, *, ctx: object = None, **kwargs: Any) -> Any:
        self.taken.append(kwargs)
        output: Any = self.output
        if isinstance(output, BaseException):
            raise output
        return output


def text(words: str) -> ToolExecutionResult:
    return ToolExecutionResult([TextBlock(words)])


def through(main: Test, tools: list[Any], **options: Any) -> None:
    policy = options.pop("policy", None)

    async def bounded() -> None:
        async with asyncio.timeout(20):
            invoker = ToolInvoker(
                Toolbox(tools), options.pop("handler", None),
                options.pop("store", None) or InMemoryBlobStore(), policy, **options,
            )  # fmt: skip
            async with invoker.open_session() as session:
                await main(invoker, session)

    asyncio.run(bounded())


def invoked(tools: list[Any], arguments: Any = None, **options: Any) -> InvocationResult:
    results: list[InvocationResult] = []

    async def main(invoker: ToolInvoker, session: InvokerSession) -> None:
        call = ToolCallRequest(tools[0].name, {} if arguments is None else arguments)
        results.append(await invoker.invoke(call, session=session))
        (record,) = session.trace
        assert record.ran == results[0].ran

    through(main, tools, **options)
    return results[0]


@pytest.mark.req("case.C3", "way.repair")
@pytest.mark.parametrize(
    ("sent", "taken", "repaired"),
    [
        ('{"items": [1, 2]}', {"items": [1, 2]}, ("$",)),
        ({"items": "[1,2]"}, {"items": [1, 2]}, ("items",)),
        ({"note": "[3]"}, {"note": "[3]"}, ()),
        ({"deep": [{"items": "[1]"}]}, {"deep": [{"items": [1]}]}, ("deep[0].items",)),
        ({"maybe": "[1]"}, {"maybe": [1]}, ("maybe",)),
    ],
)
def test_json_text_is_decoded_once_where_no_text_is_wanted(
    sent: Any, taken: Any, repaired: tuple[str, ...]
) -> None:
    numbers = {"type": "array", "items": {"type": "integer"}}
    deep = {"type": "object", "properties": {"items": numbers}}
    taker = Taker(
        properties={
            "items": numbers,
            "note": {"type": "string"},
            "deep": {"type": "array", "items": deep},
            "maybe": {"anyOf": [numbers, {"type": "null"}]},
        }
    )

    async def main(invoker: ToolInvoker, session: InvokerSession) -> None:
        result = await invoker.invoke(ToolCallRequest("t", sent), session=session)
        assert result.status == "ok", result.text
        assert session.trace[0].repaired == repaired

    through(main, [taker])
    assert taker.taken == [taken]


@pytest.mark.req("case.C3")
@pytest.mark.parametrize("wrong", ["[1,2", '"[1,2]"', "[NaN]", "[1,2] x", '["a"]', "7"])
def test_text_that_is_no_json_of_the_wanted_kind_is_refused_by_its_path(wrong: str) -> None:
    taker = Taker(properties={"items": {"type": "array", "items": {"type": "integer"}}})
    result = invoked([taker], {"items": wrong})
    assert (result.reason, result.ran) == ("invalid_arguments", "no")
    assert "items" in result.text
    assert not taker.taken


class Colour(enum.Enum):
    RED = "red"


@dataclasses.dataclass
class Point:
    x: int


class Model(BaseModel):
    y: int


@pytest.mark.req("case.C4")
def test_values_of_all_kinds_come_back_in_their_documented_form() -> None:
    when, key = dt.datetime(2026, 1, 2, 3, 4, tzinfo=dt.UTC), uuid.uuid4()
    value = {
        "when": when, "amount": decimal.Decimal("1.10"), "key": key, "colour": Colour.RED,
        "set": {1}, "point": Point(1), "model": Model(y=2), "data": b"\xff\x00",
        "nan": math.nan, "inf": -math.inf, "big": 2**60 + 1, "zero": -0.0,
    }  # fmt: skip
    result = invoked([Taker(ToolExecutionResult([], value))])
    got = result.structured
    assert result.status == "ok"
    assert (got["amount"], got["key"], got["colour"]) == ("1.10", str(key), "red")
    assert dt.datetime.fromisoformat(got["when"]) == when
    assert (got["set"], got["point"], got["model"], got["data"]) == (
        [1], {"x": 1}, {"y": 2}, b"\xff\x00",
    )  # fmt: skip
    assert math.isnan(got["nan"])
    assert (got["inf"], got["big"]) == (-math.inf, 2**60 + 1)
    assert math.copysign(1, got["zero"]) == -1


class Unspeakable:
    def __repr__(self) -> str:
        raise RuntimeError("no words")


@pytest.mark.req("case.C4", "fault.I18")
@pytest.mark.parametrize("odd", [Unspeakable(), int, (i for i in ()), lambda: 1, {"a": object()}])
def test_a_value_without_a_form_leaves_the_call_ok_and_says_so(odd: Any) -> None:
    result = invoked([Taker(ToolExecutionResult([], odd))])
    assert (result.status, result.ran) == ("ok", "yes")
    assert "no plain form" in str(result.structured)


@pytest.mark.req("fault.I18")
@pytest.mark.parametrize("odd", [None, {"a": 1}, "text", 3])
def test_what_is_no_result_is_an_error_of_a_tool_that_ran(odd: Any) -> None:
    taker = Taker()
    taker.output = odd
    result = invoked([taker])
    assert (result.status, result.reason, result.ran) == ("error", "tool_error", "yes")
    assert "instead of a ToolExecutionResult" in result.text


@pytest.mark.req("fault.I18", "fault.I7")
def test_lone_surrogates_are_refused_as_arguments_and_escaped_in_results() -> None:
    refused = invoked([Taker()], {"text": "\ud800"})
    assert (refused.reason, refused.ran) == ("invalid_arguments", "no")
    assert invoked([Taker(text("a\ud800"))]).text == "a\\ud800"
    assert invoked([Taker(ToolExecutionResult([], {"a": "\udfff"}))]).structured == {"a": "\\udfff"}


@pytest.mark.req("fault.I7")
@pytest.mark.parametrize("odd", [{"f": object()}, {"f": len}, {(1, 2): 3}, 7, [1]])
def test_arguments_that_cannot_be_passed_are_refused_with_a_record(odd: Any) -> None:
    result = invoked([Taker()], odd)
    assert (result.status, result.reason, result.ran) == ("error", "invalid_arguments", "no")


@pytest.mark.req("fault.I7")
def test_arguments_that_hold_themselves_are_refused() -> None:
    cycle: dict[str, Any] = {}
    cycle["me"] = cycle
    assert invoked([Taker()], cycle).reason == "invalid_arguments"


@pytest.mark.req("case.C5")
def test_nothing_empty_and_blank_are_told_apart_and_run_once() -> None:
    shown: list[str] = []
    for output in (ToolExecutionResult(), text(""), text("  \n"), ToolExecutionResult([], [])):
        taker = Taker(output)
        result = invoked([taker])
        assert (result.status, len(taker.taken)) == ("ok", 1)
        shown.append(shown_result(result))
    assert all(words.strip() for words in shown)
    assert len(set(shown)) == 4


@pytest.mark.req("case.C7", "way.refs", "way.bad-ref", "fault.I9", "fault.I10", "fault.I11")
@pytest.mark.req("fault.I12", "fault.I14")
def test_refs_resolve_at_depth_and_whatever_does_not_fails_before_the_tool() -> None:
    words = "ü" * 5000
    maker, taker = Taker(text(words), name="make"), Taker()

    async def main(invoker: ToolInvoker, session: InvokerSession) -> None:
        made = await invoker.invoke(ToolCallRequest("make"), session=session)

        async def sent(argument: Any) -> InvocationResult:
            return await invoker.invoke(ToolCallRequest("t", {"a": argument}), session=session)

        ref = {"$artifact": made.artifact_ref}
        assert (await sent([{"body": ref}, ref])).status == "ok"
        assert (await sent("$artifact")).status == "ok"
        assert taker.taken == [{"a": [{"body": words}, words]}, {"a": "$artifact"}]
        for wrong in (
            {"$artifact": "nope"}, {"$artifact": made.artifact_ref, "b": 1}, {"$artifact": 3},
            [{"$artifact": "sha256:" + "0" * 64}], {"$artifact": None},
        ):  # fmt: skip
            refused = await sent(wrong)
            assert (refused.reason, refused.ran) == ("bad_ref", "no"), wrong
        async with invoker.open_session() as other:
            call = ToolCallRequest("t", {"a": ref})
            assert (await invoker.invoke(call, session=other)).reason == "bad_ref"
        assert len(taker.taken) == 2

    through(main, [maker, taker])


class Store(InMemoryBlobStore):
    """A store that fails when it is told to."""

    def __init__(self, failing: str) -> None:
        super().__init__()
        self.failing = failing

    async def put(self, data: BlobData, media_type: str | None = None) -> str:
        if self.failing == "put":
            raise OSError("disk full")
        if self.failing == "hang":
            await asyncio.Event().wait()
        return await super().put(data, media_type)

    async def resolve(self, ref: str) -> bytes:
        if self.failing == "resolve":
            raise OSError("bad disk")
        return await super().resolve(ref)


@pytest.mark.req("case.C8", "fault.I19", "way.store-fails")
def test_a_store_that_cannot_write_leaves_the_call_ok_with_a_preview_that_says_so() -> None:
    for output in (text("x" * 9000), ToolExecutionResult([], {"a": "x" * 9000})):
        result = invoked([Taker(output)], store=Store("put"))
        assert (result.status, result.ran, result.artifact_ref) == ("ok", "yes", None)
        assert "the artifact store failed (OSError)" in (result.preview or "")
        assert len((result.preview or "").encode()) <= 4096


@pytest.mark.req("case.C7", "fault.I10")
def test_a_store_that_cannot_read_fails_the_call_before_its_tool() -> None:
    taker = Taker()

    async def main(invoker: ToolInvoker, session: InvokerSession) -> None:
        made = await invoker.invoke(ToolCallRequest("make"), session=session)
        call = ToolCallRequest("t", {"a": {"$artifact": made.artifact_ref}})
        refused = await invoker.invoke(call, session=session)
        assert (refused.reason, refused.ran) == ("bad_ref", "no")
        assert "bad disk" in refused.text

    through(main, [Taker(text("x" * 9000), name="make"), taker], store=Store("resolve"))
    assert not taker.taken


@pytest.mark.req("fault.I13")
def test_closing_a_session_drops_nothing_that_another_has_pinned() -> None:
    async def main(invoker: ToolInvoker, session: InvokerSession) -> None:
        taken = ToolCallRequest("make")
        async with invoker.open_session() as other:
            await invoker.invoke(taken, session=other)
            mine = await invoker.invoke(taken, session=session)
        call = ToolCallRequest("t", {"a": {"$artifact": mine.artifact_ref}})
        assert (await invoker.invoke(call, session=session)).status == "ok"

    through(main, [Taker(text("x" * 9000), name="make"), Taker()])


@pytest.mark.req("way.stream", "artifacts.streams")
def test_a_parameter_that_wants_a_stream_gets_the_content_in_chunks() -> None:
    async def count(data: ArtifactStream, note: str = "") -> list[int]:
        return [data.size, sum([len(chunk) async for chunk in data])]

    async def main(invoker: ToolInvoker, session: InvokerSession) -> None:
        made = await invoker.invoke(ToolCallRequest("make"), session=session)
        call = ToolCallRequest("count", {"data": {"$artifact": made.artifact_ref}})
        assert (await invoker.invoke(call, session=session)).structured == [9000, 9000]

    through(main, [Taker(text("x" * 9000), name="make"), count])


@pytest.mark.req("fault.I16", "fault.I17", "way.shaping", "artifacts.kind")
def test_large_text_and_large_structure_go_by_reference_each_with_a_bounded_preview() -> None:
    words, rows = "🎉" * 3000, [{"n": n} for n in range(3000)]

    async def main(invoker: ToolInvoker, session: InvokerSession) -> None:
        one = await invoker.invoke(ToolCallRequest("text"), session=session)
        two = await invoker.invoke(ToolCallRequest("rows"), session=session)
        assert (two.structured, two.text) == (None, "small")
        for result in (one, two):
            assert result.artifact_ref is not None
            assert result.preview is not None
            assert len(result.preview.encode()) <= 1001
            assert "\ufffd" not in result.preview
        call = ToolCallRequest("t", {"a": {"$artifact": two.artifact_ref}})
        await invoker.invoke(call, session=session)

    taker = Taker()
    both = ToolExecutionResult([TextBlock("small")], rows)
    through(
        main, [Taker(text(words), name="text"), Taker(both, name="rows"), taker],
        policy=ChainPolicy(max_inline_result_bytes=1001),
    )  # fmt: skip
    assert taker.taken == [{"a": rows}]


@pytest.mark.req("case.C9", "tools.threads")
def test_sync_tools_run_side_by_side_off_the_loop_with_the_callers_variables() -> None:
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable")
    lags: list[float] = []

    @tool(risk="safe")
    def block() -> str:
        time.sleep(0.3)
        return variable.get()

    async def tick() -> None:
        while True:
            before = time.perf_counter()
            await asyncio.sleep(0.005)
            lags.append(time.perf_counter() - before)

    async def main(invoker: ToolInvoker, session: InvokerSession) -> None:
        variable.set("seen")
        ticker = asyncio.create_task(tick())
        begun = time.perf_counter()
        results = await asyncio.gather(
            *(invoker.invoke(ToolCallRequest("block"), session=session) for _ in range(3))
        )
        assert time.perf_counter() - begun < 0.6
        ticker.cancel()
        assert {r.text for r in results} == {"seen"}
        assert max(lags) < 0.1

    through(main, [block])


@pytest.mark.req("case.C10", "fault.I3", "fault.I4", "way.ran")
@pytest.mark.parametrize("manner", ["swallows", "cleans up", "blocks a thread"])
def test_a_tool_that_does_not_stop_is_left_at_its_deadline(manner: str) -> None:
    async def swallows() -> str:
        try:
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            await asyncio.sleep(0.6)
        return "late"

    async def cleans_up() -> None:
        try:
            await asyncio.sleep(30)
        finally:
            await asyncio.sleep(0.6)

    def blocks() -> str:
        time.sleep(0.6)
        return "late"

    body: Any = {"swallows": swallows, "cleans up": cleans_up, "blocks a thread": blocks}[manner]

    async def main(invoker: ToolInvoker, session: InvokerSession) -> None:
        begun = time.perf_counter()
        result = await invoker.invoke(ToolCallRequest("t"), session=session)
        assert time.perf_counter() - begun < 0.5
        assert (result.status, result.reason, result.ran) == ("error", "timeout", "unknown")
        assert session.trace[0].status == "timeout"
        assert "late" not in result.text

    through(main, [tool(name="t", risk="safe")(body)], policy=ChainPolicy(call_timeout_s=0.1))


@pytest.mark.req("case.C10", "fault.I5", "case.C11", "fault.I2")
@pytest.mark.parametrize(
    ("error", "words"),
    [
        (TimeoutError("db pool"), "db pool"),
        (asyncio.CancelledError("inner"), "CancelledError: inner"),
        (SystemExit(0), "SystemExit"),
        (KeyboardInterrupt(), "KeyboardInterrupt"),
        (ExceptionGroup("in a TaskGroup", [ValueError("real reason")]), "ValueError: real reason"),
        (
            BaseExceptionGroup("g", [ExceptionGroup("h", [OSError("deep")]), KeyError("k")]),
            "OSError: deep; KeyError",
        ),
        (GeneratorExit("odd"), "odd"),
    ],
)
def test_what_a_tool_raises_is_its_error_in_its_own_words(error: BaseException, words: str) -> None:
    async def main(invoker: ToolInvoker, session: InvokerSession) -> None:
        failed, fine = await asyncio.gather(
            invoker.invoke(ToolCallRequest("t"), session=session),
            invoker.invoke(ToolCallRequest("fine"), session=session),
        )
        assert (failed.status, failed.reason, failed.ran) == ("error", "tool_error", "yes")
        assert words in failed.text
        assert fine.status == "ok"

    taker = Taker()
    taker.output = error
    through(main, [taker, Taker(name="fine")])


@pytest.mark.req("case.C11", "fault.I1")
@pytest.mark.parametrize("suspended_before", [False, True])
def test_a_cancelled_caller_is_cancelled_and_the_call_recorded_so(
    *, suspended_before: bool
) -> None:
    started = asyncio.Event()
    first = [suspended_before]

    @tool(name="t", risk="safe", effect="once")
    async def wait() -> None:
        if first.pop() if first else False:
            await asyncio.sleep(0)
            return
        started.set()
        await asyncio.Event().wait()

    async def main(invoker: ToolInvoker, session: InvokerSession) -> None:
        if suspended_before:
            await invoker.invoke(ToolCallRequest("t"), session=session)
        else:
            first.clear()
        task = asyncio.create_task(invoker.invoke(ToolCallRequest("t"), session=session))
        await started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        record = session.trace[-1]
        assert (record.status, record.reason, record.ran) == ("cancelled", "cancelled", "unknown")

    through(main, [wait])


class Answers:
    """An approver that waits for an answer to each request by its argument."""

    def __init__(self) -> None:
        self.waiting: dict[str, asyncio.Future[Any]] = {}
        self.changed = asyncio.Event()

    async def request(self, req: Any, /) -> Any:
        answer = self.waiting[req.call.call_id] = asyncio.get_running_loop().create_future()
        self.changed.set()
        return await answer


@pytest.mark.req("case.C15", "fault.I21")
def test_each_parallel_call_gets_its_own_decision_in_any_order() -> None:
    answers, taker = Answers(), Taker(risk="high")

    async def main(invoker: ToolInvoker, session: InvokerSession) -> None:
        calls = [ToolCallRequest("t", {"x": x}, name) for name, x in (("1", 1), ("2", 2), ("3", 1))]
        tasks = [asyncio.create_task(invoker.invoke(c, session=session)) for c in calls]
        while len(answers.waiting) < 3:
            answers.changed.clear()
            await answers.changed.wait()
        answers.waiting["3"].set_result(ApprovalDecision.APPROVED)
        answers.waiting["2"].set_result(ApprovalAnswer(ApprovalDecision.APPROVED))
        answers.waiting["1"].set_result(ApprovalDecision.DENIED)
        results = await asyncio.gather(*tasks)
        assert [r.status for r in results] == ["denied", "ok", "ok"]

    through(main, [taker], handler=answers)
    assert sorted(each["x"] for each in taker.taken) == [1, 2]


@pytest.mark.req("case.C16", "way.snapshot", "fault.I21")
def test_what_others_change_while_a_call_waits_does_not_run() -> None:
    answers, taker = Answers(), Taker(risk="high")
    sent = {"to": ["alice"]}
    hooks = HookManager()

    @hooks.on(HookEvent.TOOL_START)
    async def meddle(_: Any) -> None:
        sent["to"].append("mallory")

    async def main(invoker: ToolInvoker, session: InvokerSession) -> None:
        call = ToolCallRequest("t", sent, "id")
        task = asyncio.create_task(invoker.invoke(call, session=session))
        while not answers.waiting:
            await asyncio.sleep(0)
        sent["to"].append("eve")
        answers.waiting["id"].set_result(ApprovalDecision.APPROVED)
        await task

    through(main, [taker], handler=answers, hooks=hooks)
    assert taker.taken == [{"to": ["alice"]}]


class Says:
    def __init__(self, answer: Any) -> None:
        self.answer = answer

    async def request(self, req: Any, /) -> Any:
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer


@pytest.mark.req("fault.I24", "fault.I5", "case.C14", "approval.answers")
@pytest.mark.parametrize(
    "answer",
    [
        True, "approved", None, RuntimeError("broken"), TimeoutError("own"), SystemExit(),
        asyncio.CancelledError(), ApprovalDecision.MODIFIED, ApprovalAnswer("approved"),  # type: ignore[arg-type]
        ApprovalAnswer(ApprovalDecision.MODIFIED),
    ],
)  # fmt: skip
def test_an_answer_that_is_no_decision_denies(answer: Any) -> None:
    taker = Taker(risk="high")
    result = invoked([taker], handler=Says(answer))
    assert (result.status, result.reason, result.ran) == ("denied", "handler_error", "no")
    assert "timed out" not in result.text
    assert not taker.taken


@pytest.mark.req("S14", "S22", "way.risk")
@pytest.mark.parametrize("risk", list(ToolRisk))
@pytest.mark.parametrize("most", list(ToolRisk))
def test_without_a_handler_every_tool_above_the_limit_is_denied(
    risk: ToolRisk, most: ToolRisk
) -> None:
    taker = Taker(risk=risk)
    result = invoked([taker], policy=ChainPolicy(max_risk_unapproved=most))
    assert result.status == ("ok" if risk <= most else "denied")
    assert result.reason == (None if risk <= most else "no_handler")
    assert len(taker.taken) == (risk <= most)


@pytest.mark.req("S15")
def test_without_a_store_results_come_whole_with_one_warning_a_session(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main() -> None:
        invoker = ToolInvoker(Toolbox([Taker(text("x" * 9000))]))
        async with invoker.open_session() as session:
            for _ in range(3):
                result = await invoker.invoke(ToolCallRequest("t"), session=session)
                assert (len(result.text), result.artifact_ref) == (9000, None)

    with caplog.at_level(logging.WARNING, "substrate"):
        asyncio.run(main())
    assert caplog.text.count("no artifact store") == 1


@pytest.mark.req("S23")
def test_an_undeclared_risk_is_safe_shown_so_and_runs_at_most_once() -> None:
    @tool
    def plain() -> int:
        return 1

    traits = Toolbox([plain]).traits("plain")
    assert traits is not None
    assert (traits.risk_label, traits.effect) == ("SAFE (undeclared)", "once")


@pytest.mark.req("fault.I27", "way.budget")
def test_refused_calls_use_the_budget_alike_in_parallel_and_in_turn() -> None:
    async def main(invoker: ToolInvoker, session: InvokerSession) -> None:
        names = ["nope", "risky", "t", "t", "t"]
        calls = [invoker.invoke(ToolCallRequest(n), session=session) for n in names]
        results = await asyncio.gather(*calls)
        assert [r.reason for r in results] == [
            "unknown_tool",
            "no_handler",
            None,
            "budget",
            "budget",
        ]

    through(
        main, [Taker(), Taker(name="risky", risk="high")], policy=ChainPolicy(max_tool_calls=3)
    )  # fmt: skip


@pytest.mark.req("fault.I6", "S16", "S13")
def test_hooks_fire_for_calls_of_every_end() -> None:
    told: list[tuple[str, Any]] = []
    hooks = HookManager()

    @hooks.on(HookEvent.TOOL_END)
    async def end(context: Any) -> None:
        told.append((context["tool_name"], context["reason"]))
        assert context["duration_ms"] >= 0
        assert {"call_id", "status", "ran"} <= set(context)

    async def main() -> None:
        box = Toolbox([Taker(), Taker(name="risky", risk="high")])
        invoker = ToolInvoker(box, None, None, ChainPolicy(), hooks)
        async with invoker.open_session() as session:
            for name in ("t", "risky", "nope"):
                await invoker.invoke(ToolCallRequest(name), session=session)

    asyncio.run(main())
    assert told == [("t", None), ("risky", "no_handler"), ("nope", "unknown_tool")]


@pytest.mark.req("fault.I29")
def test_a_run_cancelled_while_a_person_was_asked_starts_nothing() -> None:
    from substrate.kernel.context import RunContext
    from substrate.kernel.errors import RunCancelled

    cancelled, taker = [False], Taker(risk="high")

    class Cancels:
        async def request(self, req: Any, /) -> Any:
            cancelled[0] = True
            return ApprovalDecision.APPROVED

    async def main(invoker: ToolInvoker, session: InvokerSession) -> None:
        ctx = RunContext(cancelled=lambda: cancelled[0])
        with pytest.raises(RunCancelled):
            await invoker.invoke(ToolCallRequest("t"), session=session, ctx=ctx)

    through(main, [taker], handler=Cancels())
    assert not taker.taken


@pytest.mark.req("way.record", "S20")
def test_a_record_tells_what_a_reader_asks_of_a_call() -> None:
    async def main(invoker: ToolInvoker, session: InvokerSession) -> None:
        call = ToolCallRequest("t", {"x": 1, "long": "y" * 5000}, "id", 4)
        await invoker.invoke(call, session=session)
        (record,) = session.trace
        assert (record.call_id, record.seq, record.tool, record.status) == ("id", 4, "t", "ok")
        assert record.args_digest.startswith("sha256:")
        assert len(record.args_preview.encode()) <= 200
        assert len(record.result_preview.encode()) <= 200
        assert (record.risk, record.effect, record.decision) == (ToolRisk.HIGH, "once", "approved")
        assert record.decided_by == "alice"
        assert record.wait_ms >= 0 <= record.run_ms
        assert abs(record.started_at - time.time()) < 60

    yes = ApprovalAnswer(ApprovalDecision.APPROVED, decided_by="alice")
    through(main, [Taker(text("z" * 900), risk="high")], handler=Says(yes))


@pytest.mark.req("clock.policy")
def test_the_limits_have_their_defaults_are_frozen_and_refuse_nonsense() -> None:
    policy = ChainPolicy()
    assert (policy.max_tool_calls, policy.max_parallel_calls, policy.call_timeout_s) == (50, 16, 60)
    assert (policy.approval_timeout_s, policy.total_timeout_s) == (55, 300)
    assert (policy.max_inline_result_bytes, policy.max_output_bytes) == (4096, 20_000)
    assert ChainPolicy(max_risk_unapproved="high").max_risk_unapproved is ToolRisk.HIGH  # type: ignore[arg-type]
    with pytest.raises(AttributeError):
        policy.max_tool_calls = 1  # type: ignore[misc]
    for wrong in ({"max_tool_calls": -1}, {"call_timeout_s": 0}, {"total_timeout_s": "1"}):
        with pytest.raises(ValueError, match="ChainPolicy"):
            ChainPolicy(**wrong)  # type: ignore[arg-type]


@pytest.mark.req("S35", "S37", "S43")
def test_the_names_stand_at_their_fixed_places() -> None:
    import substrate.kernel.tools.chain as values
    from substrate.agents import hooks
    from substrate.agents.tools import invoker, toolbox
    from substrate.capabilities.tools import chain
    from substrate.kernel.tools import approval, tools

    for module, names in (
        (hooks, "HookEvent HookManager"), (invoker, "ToolInvoker InvokerSession"),
        (toolbox, "Toolbox"), (chain, "ToolChainTool"),
        (approval, "ApprovalRequest ApprovalDecision ApprovalAnswer ApprovalHandler"),
        (values, "ChainPolicy InvocationResult ChainFile ChainCallRecord ChainRunResult"),
        (tools, "Tool HostedTool ProviderDefinedTool AnyTool ToolRisk ToolEffect ToolCallRequest"),
        (tools, "ToolExecutionResult ToolRegistry ToolSpec spec_of is_hosted_tool"),
        (tools, "is_provider_defined_tool"),
    ):  # fmt: skip
        assert [n for n in names.split() if not hasattr(module, n)] == []


@pytest.mark.req("way.types", "S39")
def test_hosted_tools_never_run_and_provider_defined_ones_only_directly() -> None:
    class Hosted:
        name = "hosted"
        provider_specs = {"p": {"type": "x"}}  # noqa: RUF012

    class Provided(Hosted):
        name = "provided"
        call_types = ("x_call",)

        async def handle_call(self, *, ctx: object = None, **kwargs: Any) -> ToolExecutionResult:
            return text("handled")

    async def main(invoker: ToolInvoker, session: InvokerSession) -> None:
        async with invoker.open_session(direct=True) as direct:
            for each, name, expected in (
                (session, "hosted", "not_callable_from_chain"),
                (direct, "hosted", "not_callable_from_chain"),
                (session, "provided", "not_callable_from_chain"),
                (direct, "provided", None),
            ):
                result = await invoker.invoke(ToolCallRequest(name), session=each)
                assert result.reason == expected

    through(main, [Hosted(), Provided()])


@pytest.mark.req("fault.I30")
def test_media_without_a_store_stay_whole_and_are_named_by_what_they_are() -> None:
    jpeg = b"\xff\xd8\xff\xe0" + b"\0" * 20

    @tool(risk="safe", name="get-photo")
    async def photo() -> ImageBlock:
        return ImageBlock(jpeg, media_type="image/png")

    result = run_script_sync("(await get_photo())['files'][0]['path']", [photo])
    assert result.value == "/workspace/media/get_photo_0.jpg"
