"""Whatever a tool, a guard, a sink or an approver does, a call ends once and tells of itself once."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
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
    TextBlock,
    Toolbox,
    ToolCallRequest,
    ToolChainTool,
    ToolExecutionResult,
    ToolInvoker,
    ToolRisk,
    run_script_sync,
    tool,
)
from substrate.agents.tools.artifacts import put_artifact
from substrate.agents.tools.invoker import InvokerSession
from substrate.agents.tools.session import MemoryJournal
from substrate.kernel.blobs import ArtifactStream
from substrate.kernel.content import ResourceLink
from substrate.kernel.errors import Refused
from substrate.kernel.journal import CallOutcome
from substrate.kernel.tools.approval import ApprovalRequest
from substrate.kernel.tools.chain import ChainCallRecord, InvocationResult

ENDS = [
    SystemExit(3),
    KeyboardInterrupt(),
    asyncio.CancelledError("inner"),
    GeneratorExit(),
    RecursionError("deep"),
    BaseExceptionGroup("group", [SystemExit(1)]),
]


class Run:
    """One call on an invoker that is watched: its result, records and events."""

    def __init__(self, *tools: Any, policy: ChainPolicy | None = None, **options: Any) -> None:
        self.events: list[str] = []
        self.record = ChainCallRecord(call_id="", tool="")
        self.hooks = HookManager()
        for event in (HookEvent.TOOL_START, HookEvent.TOOL_END):
            self.hooks.register(event, self._note(event))
        self.invoker = ToolInvoker(
            Toolbox(tools), options.pop("handler", None),
            options.pop("store", None) or InMemoryBlobStore(), policy, self.hooks, **options,
        )  # fmt: skip

    def _note(self, event: HookEvent) -> Callable[[Mapping[str, Any]], Awaitable[None]]:
        async def note(_: Mapping[str, Any]) -> None:
            self.events.append(event)

        return note

    async def call(
        self, session: InvokerSession, arguments: Any = None, **how: Any
    ) -> InvocationResult:
        call = ToolCallRequest("t", {} if arguments is None else arguments)
        return await self.invoker.invoke(call, session=session, **how)

    def once(self, arguments: Any = None, **how: Any) -> InvocationResult:
        """The result of one call; the promise of one record, one start and one end is checked."""

        async def main() -> InvocationResult:
            async with asyncio.timeout(20), self.invoker.open_session() as session:
                result = await self.call(session, arguments, **how)
                (self.record,) = session.trace
                assert self.record.ran == result.ran
                return result

        result = asyncio.run(main())
        assert self.events == [HookEvent.TOOL_START, HookEvent.TOOL_END]
        return result


class Tool:
    name = "t"
    description = "a tool"
    risk: Any = "safe"
    input_schema: Mapping[str, Any] = {"type": "object"}

    def __init__(
        self, execute: Callable[..., Awaitable[Any]] | None = None, **members: Any
    ) -> None:
        self._execute = execute
        self.taken: list[dict[str, Any]] = []
        for name, value in members.items():
            setattr(self, name, value)

    async def execute(self, *, ctx: object = None, **kwargs: Any) -> Any:
        self.taken.append(kwargs)
        if self._execute is None:
            return ToolExecutionResult([TextBlock("done")])
        return await self._execute()


# tools that reach for their task --------------------------------------------------------


async def cancels_itself() -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    await asyncio.sleep(60)


async def cancels_itself_later() -> None:
    await asyncio.sleep(0)
    await cancels_itself()


async def cleans_up_slowly() -> ToolExecutionResult:
    try:
        async with asyncio.timeout(0.01):
            try:
                await asyncio.sleep(60)
            finally:
                await asyncio.sleep(0.4)
    except TimeoutError:
        return ToolExecutionResult([TextBlock("done")])
    return ToolExecutionResult()


async def fails_in_a_group() -> ToolExecutionResult:
    async def fail() -> None:
        raise ValueError

    async def slow() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0.4)

    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(slow())
            group.create_task(fail())
    except* ValueError:
        pass
    return ToolExecutionResult([TextBlock("done")])


REACHING = {
    "cancels itself": (cancels_itself, "error"),
    "cancels itself later": (cancels_itself_later, "error"),
    "cleans up slowly": (cleans_up_slowly, "ok"),
    "fails in a group": (fails_in_a_group, "ok"),
}


@pytest.mark.req("invariant.1", "invariant.4", "invariant.8")
@pytest.mark.parametrize("name", REACHING)
def test_what_a_tool_does_to_its_task_is_not_done_to_the_callers(name: str) -> None:
    execute, status = REACHING[name]
    run = Run(Tool(execute))

    async def main() -> list[InvocationResult]:
        async with asyncio.timeout(20), run.invoker.open_session() as session:
            first = await run.call(session)
            return [first, *await asyncio.gather(run.call(session), run.call(session))]

    results = asyncio.run(main())
    assert [result.status for result in results] == [status] * 3
    assert run.events.count("tool_start") == run.events.count("tool_end") == 3


@pytest.mark.req("invariant.4", "invariant.8")
@pytest.mark.parametrize("name", REACHING)
def test_a_chain_does_not_wait_for_calls_that_were_cancelled_by_nobody(name: str) -> None:
    execute, status = REACHING[name]
    code = "import asyncio\nasync def one():\n    try:\n        return await t()\n"
    code += "    except RuntimeError:\n        return 'error'\nawait asyncio.gather(one(), one())"
    result = run_script_sync(code, [Tool(execute)], policy=ChainPolicy(total_timeout_s=10))
    assert result.value == ["done" if status == "ok" else "error"] * 2, result.output_text


# what is raised -------------------------------------------------------------------------


@pytest.mark.req("invariant.1", "way.guards")
@pytest.mark.parametrize("error", ENDS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("where", ["execute", "classify_risk", "requires_approval"])
def test_what_a_tools_member_raises_ends_the_call_alone(where: str, error: BaseException) -> None:
    def fail(*_: object, **__: object) -> Any:
        raise error

    asked = Tool(**{where: fail})
    result = Run(asked).once()
    expected = ("error", "tool_error") if where == "execute" else ("denied", "no_handler")
    assert (result.status, result.reason) == expected
    assert len(asked.taken) == 0 or where == "execute"


@pytest.mark.req("invariant.1")
@pytest.mark.parametrize("error", ENDS, ids=lambda error: type(error).__name__)
def test_what_guards_sinks_and_approvers_raise_ends_the_call_alone(error: BaseException) -> None:
    def fail(*_: object) -> Any:
        raise error

    class Guard:
        check = saw = staticmethod(fail)

    class Seeing:
        async def check(self, _: Any) -> None:
            return

        saw = staticmethod(fail)

    class Handler:
        request = staticmethod(fail)

    guarded: Any = Guard()
    assert Run(Tool(), guards=[guarded]).once().reason == "guard"
    assert Run(Tool(), guards=[Seeing()]).once().status == "ok"
    sink: Any = fail
    assert Run(Tool()).once(progress_sink=sink).status == "ok"
    assert Run(Tool(risk="high"), handler=Handler()).once().reason == "handler_error"


class Walked(Mapping[str, Any]):
    """Arguments that fail where they are looked through."""

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def __getitem__(self, _: str) -> Any:
        raise self.error

    def __iter__(self) -> Iterator[str]:
        raise self.error

    def __len__(self) -> int:
        return 1


class Dumped:
    def __init__(self, error: BaseException) -> None:
        self.error = error

    def model_dump(self, **_: Any) -> Any:
        raise self.error


ODD = [KeyError("k"), AttributeError("a"), ZeroDivisionError(), RuntimeError("changed"), *ENDS[:3]]


@pytest.mark.req("invariant.1", "way.snapshot")
@pytest.mark.parametrize("error", ODD, ids=lambda error: type(error).__name__)
def test_arguments_that_cannot_be_looked_through_are_refused(error: BaseException) -> None:
    asked = Tool()
    for sent in (Walked(error), {"a": Dumped(error)}, {"a": [Dumped(error)]}):
        result = Run(asked).once(sent)
        assert (result.status, result.reason, result.ran) == ("error", "invalid_arguments", "no")
    assert asked.taken == []


@pytest.mark.req("way.shaping")
@pytest.mark.parametrize("error", ODD, ids=lambda error: type(error).__name__)
def test_a_result_that_cannot_be_carried_leaves_the_success_of_its_tool(
    error: BaseException,
) -> None:
    async def odd() -> ToolExecutionResult:
        return ToolExecutionResult(structured_content={"a": Dumped(error)})

    result = Run(Tool(odd)).once()
    assert (result.status, result.ran) == ("ok", "yes")
    assert "no plain form" in str(result.structured)


@pytest.mark.parametrize(
    "content",
    [[TextBlock(None)], [object()], [None]],  # pyright: ignore[reportArgumentType]
)
def test_blocks_that_are_none_leave_the_success_of_their_tool(content: Any) -> None:
    async def odd() -> ToolExecutionResult:
        return ToolExecutionResult(content)

    result = Run(Tool(odd)).once()
    assert (result.status, result.ran) == ("ok", "yes")


def test_a_bare_text_is_one_block_of_it_and_anything_else_is_the_tools_error() -> None:
    bare: Any = "hello"
    assert ToolExecutionResult(bare).text == "hello"
    nothing: Any = 5
    with pytest.raises(TypeError, match="a list of blocks, not a int"):
        ToolExecutionResult(nothing)


def test_a_link_alone_is_shown_where_it_leads() -> None:
    async def link() -> ToolExecutionResult:
        return ToolExecutionResult([ResourceLink("https://example.com/a", "a report")])

    from substrate.agents.tools.shown import shown_result

    shown = shown_result(Run(Tool(link)).once())
    assert shown == "[resource a report https://example.com/a]"


@pytest.mark.parametrize("depth", [200, 255, 256, 300, 450])
def test_arguments_that_are_nested_too_deeply_do_not_fit(depth: int) -> None:
    deep: Any = 1
    for _ in range(depth):
        deep = {"a": deep}
    schema = {"type": "object", "properties": {"x": {"type": "integer"}}}
    assert Run(Tool(input_schema=schema)).once({"x": deep}).reason == "invalid_arguments"


def test_media_that_could_not_be_stored_are_kept_with_the_result() -> None:
    class Full(InMemoryBlobStore):
        async def put(self, *_: Any, **__: Any) -> str:
            raise OSError

    async def picture() -> ToolExecutionResult:
        return ToolExecutionResult([ImageBlock(b"\x89PNG\r\n\x1a\n" + bytes(9))])

    result = Run(Tool(picture), store=Full()).once()
    (file,) = result.files
    assert file.artifact_ref is None
    assert [type(block) for block in result.content] == [ImageBlock]


# ints and words without end ---------------------------------------------------------------


@pytest.mark.req("script.values-cross")
def test_an_int_of_any_length_goes_in_and_out() -> None:
    asked = Tool()
    assert Run(asked).once({"x": 10**5000}).status == "ok"
    assert asked.taken == [{"x": 10**5000}]

    async def big() -> ToolExecutionResult:
        return ToolExecutionResult(structured_content=[10**5000])

    policy = ChainPolicy(max_inline_result_bytes=10_000)
    assert Run(Tool(big), policy=policy).once().structured == [10**5000]
    code = "[await t(), 10 ** 5000, 10 ** 4300]"
    result = run_script_sync(code, [Tool(big)], policy=policy)
    assert result.status == "ok"
    assert result.value == [[10**5000], 10**5000, 10**4300]


@pytest.mark.req("invariant.6")
def test_the_words_of_a_failure_are_bounded() -> None:
    async def fail() -> None:
        raise ValueError("x" * 3_000_000)

    class Guard:
        async def check(self, _: Any) -> None:
            raise Refused("y" * 3_000_000)

    for run in (Run(Tool(fail)), Run(Tool(), guards=[Guard()])):
        assert len(run.once().text) <= 4096
        assert len(run.record.message) <= 4096


# approvals --------------------------------------------------------------------------------


class Handler:
    def __init__(self, answer: Any) -> None:
        self.answer = answer
        self.asked = 0

    async def request(self, _: ApprovalRequest) -> Any:
        self.asked += 1
        return self.answer


@pytest.mark.req("approval.answers", "approval.grant")
@pytest.mark.parametrize(
    "grant", [False, True, 0, 1, "", "once", "everything", object(), ["chain"]]
)
def test_a_grant_that_is_none_denies(grant: Any) -> None:
    answer = ApprovalAnswer(ApprovalDecision.APPROVED, grant=grant)
    asked = Tool(risk="critical")
    assert Run(asked, handler=Handler(answer)).once().reason == "handler_error"
    assert asked.taken == []


@pytest.mark.req("approval.edit")
def test_what_was_edited_is_told_with_the_result_the_failure_and_in_the_record() -> None:
    answer = ApprovalAnswer(ApprovalDecision.MODIFIED, {"n": 5, "password": "s3cret99"}, "ann")

    async def fail() -> None:
        raise ValueError

    for execute in (None, fail):
        run = Run(Tool(execute, risk="high"), handler=Handler(answer))
        result = run.once({"n": 500, "password": "s3cret99"})
        told = result.told or result.text
        assert 'ann edited the arguments in approval: {"n":5}' in told
        assert run.record.edited == ("n",)
        assert '"n":5' in run.record.args_preview
        assert "s3cret99" not in repr(run.record) + told


@pytest.mark.req("secrets.mask")
def test_a_secret_that_the_approver_wrote_is_hidden_too() -> None:
    answer = ApprovalAnswer(ApprovalDecision.MODIFIED, {"password": 'new"pass\\word'}, "ann")

    class Telling(Tool):
        async def execute(self, *, ctx: object = None, **kwargs: Any) -> Any:
            raise ValueError(f"cannot log in with {kwargs!r}")

    run = Run(Telling(risk="high"), handler=Handler(answer))
    result = run.once({"password": "old-pass"})
    for hidden in ('new"pass', "pass\\word", "old-pass", 'new\\"pass'):
        assert hidden not in result.text + repr(run.record)


@pytest.mark.req("secrets.mask")
@pytest.mark.parametrize("password", ['a"b\\c\nd', "ü" * 400, "p" * 5000, "-----KEY-----\nabc"])
def test_a_secret_that_does_not_fit_is_told_without_its_value(password: str) -> None:
    schema = {
        "type": "object",
        "properties": {
            "password": {"type": "string", "pattern": "^never$"},
            "n": {"type": "integer"},
        },
        "anyOf": [{"properties": {"n": {"const": 1}}, "required": ["n"]}],
    }
    import json

    arguments = {"password": password, "n": 2}
    for sent in (arguments, json.dumps(arguments)):
        run = Run(Tool(input_schema=schema))
        result = run.once(sent)
        assert result.reason == "invalid_arguments"
        shown = result.text + repr(run.record)
        assert password[:20] not in shown
        assert password[-20:] not in shown
        assert json.dumps(password)[1:20] not in shown


@pytest.mark.req("way.session", "approval.once")
def test_a_yes_after_the_session_was_closed_starts_nothing() -> None:
    asked = Tool(risk="high")

    async def main() -> InvocationResult:
        opened, closed = asyncio.Event(), asyncio.Event()

        class Late:
            async def request(self, _: ApprovalRequest) -> ApprovalDecision:
                opened.set()
                await closed.wait()
                return ApprovalDecision.APPROVED

        run = Run(asked, handler=Late())
        session = run.invoker.open_session()
        calling = asyncio.create_task(run.call(session))
        await opened.wait()
        await session.close()
        closed.set()
        return await calling

    assert asyncio.run(main()).reason == "session_closed"
    assert asked.taken == []


@pytest.mark.req("clock.total")
def test_the_clock_stands_still_for_a_call_sent_twice_while_a_person_is_asked() -> None:
    async def main() -> list[str]:
        class Slow:
            async def request(self, _: ApprovalRequest) -> ApprovalDecision:
                await asyncio.sleep(0.3)
                return ApprovalDecision.APPROVED

        run = Run(Tool(risk="high"), handler=Slow(), policy=ChainPolicy(total_timeout_s=0.2))
        async with run.invoker.open_session() as session:
            call = ToolCallRequest("t", {}, "same")
            both = [run.invoker.invoke(call, session=session) for _ in range(2)]
            return [result.status for result in await asyncio.gather(*both)]

    assert asyncio.run(main()) == ["ok", "ok"]


@pytest.mark.req("way.recall")
def test_a_recalled_answer_is_nobody_elses_to_change() -> None:
    async def data() -> ToolExecutionResult:
        return ToolExecutionResult(structured_content={"v": [1]})

    async def main() -> None:
        run = Run(Tool(data))
        async with run.invoker.open_session() as session:
            call = ToolCallRequest("t", {}, "same")
            for _ in range(3):
                result = await run.invoker.invoke(call, session=session)
                assert result.structured == {"v": [1]}
                result.structured["v"].append(2)

    asyncio.run(main())


# guards -----------------------------------------------------------------------------------


@pytest.mark.req("invariant.3")
@pytest.mark.parametrize("bound", [False, True])
def test_nothing_that_a_guard_changes_is_what_runs(bound: bool) -> None:
    taken: list[Any] = []

    @tool(name="t", risk="safe")
    async def typed(to: str, items: list[int]) -> str:
        taken.append((to, items))
        return "done"

    class Guard:
        async def check(self, cleared: Any) -> None:
            places: list[dict[str, Any]] = [
                cleared.call.arguments,
                cleared.arguments,
                cleared.checked.snapshot.plain,
                cleared.checked.bound or {},
            ]
            for held in places:
                held["to"] = "mallory"
                held.setdefault("items", []).append(9)

        saw = check

    plain = Tool()
    sent = {"to": "bob", "items": [1]}
    Run(typed if bound else plain, guards=[Guard()]).once(sent)
    assert sent == {"to": "bob", "items": [1]}
    assert (taken if bound else plain.taken) == [("bob", [1]) if bound else sent]


# what is left behind ----------------------------------------------------------------------


@pytest.mark.req("clock.abandon", "clock.late")
def test_a_thread_that_was_given_up_is_counted_and_its_return_settles_the_doubt() -> None:
    release = threading.Event()

    @tool(name="t", effect="once", risk="safe")
    def slow() -> str:
        release.wait(20)
        return "done"

    class Journal(MemoryJournal):
        def __init__(self) -> None:
            super().__init__()
            self.settled: asyncio.Queue[CallOutcome] = asyncio.Queue()

        async def settle(self, outcome: CallOutcome) -> None:
            await super().settle(outcome)
            self.settled.put_nowait(outcome)

    async def main() -> None:
        journal = Journal()
        run = Run(slow, journal=journal, policy=ChainPolicy(call_timeout_s=0.1))
        async with asyncio.timeout(20), run.invoker.open_session() as session:
            assert (await run.call(session)).reason == "timeout"
            assert (await journal.settled.get()).ran == "unknown"
            while not run.invoker.abandoned:
                await asyncio.sleep(0)
            assert run.invoker.abandoned == ("t",)
            release.set()
            late = await journal.settled.get()
            assert (late.status, late.ran, late.late) == ("ok", "yes", True)
            while run.invoker.abandoned:
                await asyncio.sleep(0)

    asyncio.run(main())


@pytest.mark.req("invariant.1")
@pytest.mark.parametrize("cancels", [1, 2])
@pytest.mark.parametrize("refused", [False, True])
def test_a_start_that_was_told_has_its_end_told_however_the_caller_is_cancelled(
    cancels: int,
    refused: bool,
) -> None:
    run = Run(Tool(input_schema={"type": "object", "required": ["x"]} if refused else {}))

    async def main() -> int:
        reached = asyncio.Event()

        async def sink(step: Any) -> None:
            if step.kind == "TOOL_RESULT":
                reached.set()
                await asyncio.sleep(60)

        async with asyncio.timeout(20), run.invoker.open_session() as session:
            calling = asyncio.create_task(run.call(session, progress_sink=sink))
            await reached.wait()
            for _ in range(cancels):
                calling.cancel()
                await asyncio.sleep(0)
            with pytest.raises(asyncio.CancelledError):
                await calling
            return len(session.trace)

    assert asyncio.run(main()) == 1
    assert run.events == [HookEvent.TOOL_START, HookEvent.TOOL_END]


@pytest.mark.req("invariant.4")
def test_no_call_waits_for_the_threads_of_others() -> None:
    async def rows() -> ToolExecutionResult:
        return ToolExecutionResult(structured_content=[[n] for n in range(5000)])

    async def main() -> None:
        release = threading.Event()
        loop = asyncio.get_running_loop()
        with ThreadPoolExecutor(1) as full:
            loop.set_default_executor(full)
            loop.run_in_executor(None, release.wait, 20)
            try:
                run = Run(Tool(rows))
                async with asyncio.timeout(10), run.invoker.open_session() as session:
                    assert (await run.call(session)).status == "ok"
            finally:
                release.set()

    asyncio.run(main())


# artifacts --------------------------------------------------------------------------------


@pytest.fixture
def streaming() -> tuple[list[str], Any]:
    started: list[str] = []

    @tool(name="t", effect="once", risk="safe")
    async def upload(data: ArtifactStream) -> str:
        started.append("upload")
        return b"".join([part async for part in data]).decode()

    return started, upload


@pytest.mark.req("invariant.5", "artifacts.refs")
def test_a_stream_of_nothing_does_not_start_its_tool(streaming: tuple[list[str], Any]) -> None:
    started, upload = streaming

    async def main() -> None:
        store = InMemoryBlobStore()
        run = Run(upload, store=store)
        async with run.invoker.open_session() as session:
            made = await put_artifact(session, "text")
            fine = await run.call(session, {"data": {"$artifact": made.ref}})
            assert fine.text == "text"
            for sent in ("text", 5, [made.ref], {"ref": made.ref}):
                result = await run.call(session, {"data": sent})
                assert result.reason == "invalid_arguments", sent
            await store.unpin(made.ref, f"session:{session.chain_id}")
            gone = await run.call(session, {"data": {"$artifact": made.ref}})
            assert (gone.reason, gone.ran) == ("bad_ref", "no")

    asyncio.run(main())
    assert started == ["upload"]


@pytest.mark.req("artifacts.refs")
@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"x": {"contains": {"const": 3}}}},
        {"properties": {"x": {"type": "array", "uniqueItems": True}}},
        {"properties": {"x": {"enum": [["abc"]]}}},
        {
            "if": {"properties": {"x": {"contains": {"type": "object"}}}},
            "then": {"required": ["z"]},
        },
        {
            "properties": {
                "x": {"items": {"type": "string"}, "not": {"contains": {"type": "object"}}}
            }
        },
    ],
)
def test_what_a_schema_says_above_a_ref_is_judged_when_its_content_is_there(
    schema: dict[str, Any],
) -> None:
    async def main() -> None:
        asked = Tool(input_schema={"type": "object", **schema})
        run = Run(asked)
        async with run.invoker.open_session() as session:
            number, word = await put_artifact(session, [3]), await put_artifact(session, "abc")
            is_number = "contains" in str(schema["properties"]) if "properties" in schema else False
            made = number if is_number and "not" not in str(schema) else word
            inside: Any = {"$artifact": made.ref}
            sent = {"x": inside if made is number else [inside]}
            assert (await run.call(session, sent)).status == "ok"
            assert asked.taken == [{"x": [3] if made is number else ["abc"]}]

    asyncio.run(main())


@pytest.mark.req("invariant.9")
def test_a_script_cannot_fill_the_hosts_memory_with_artifacts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from substrate.agents.tools import artifacts, refs

    monkeypatch.setattr(artifacts, "MOST_PUT_IN_ALL", 50_000)
    code = "while True:\n    await artifacts.put('x' * 20_000)"
    result = run_script_sync(code, [], store=InMemoryBlobStore())
    assert "ValueError: the artifacts of one script may have 50000 bytes together" in str(
        result.error
    )
    monkeypatch.setattr(refs, "_MOST_TOGETHER", 50_000)
    asked = Tool()
    code = "a = await artifacts.put('x' * 20_000)\nb = await artifacts.put([1] * 9_000)\n"
    code += "await t(x=[a] * 1000)\nawait t(x=[b] * 10)"
    result = run_script_sync(code, [asked], store=InMemoryBlobStore())
    assert "pass fewer at a time" in str(result.error)
    assert [len(taken["x"]) for taken in asked.taken] == [1000]


@pytest.mark.req("script.artifact-methods")
def test_lines_far_down_a_large_artifact_are_read_without_what_is_before_them() -> None:
    async def long() -> ToolExecutionResult:
        return ToolExecutionResult([TextBlock("\n".join(f"line {n} ü" for n in range(400_000)))])

    code = "a = await t()\n[await a.lines(n, n + 2) for n in (0, 1, 99_999, 399_998, 399_999, 400_000)]"
    result = run_script_sync(code, [Tool(long)], store=InMemoryBlobStore())
    expected = [[f"line {n} ü" for n in (k, k + 1) if n < 400_000]
                for k in (0, 1, 99_999, 399_998, 399_999, 400_000)]  # fmt: skip
    assert result.value == expected, result.output_text


@pytest.mark.req("script.keep-state", "artifacts.scope")
def test_the_artifacts_of_kept_variables_live_on() -> None:
    from substrate.kernel.context import RunContext

    async def long() -> ToolExecutionResult:
        return ToolExecutionResult([TextBlock("z" * 9000)])

    async def main() -> None:
        run = Run(Tool(long))
        chain = ToolChainTool(run.invoker, keep_state=True)
        ctx = RunContext(session_id="conversation")
        first = await chain.run("a = await t()\nb = [await artifacts.put('mine')]\n1", ctx=ctx)
        assert first.value == 1, first.output_text
        again = await chain.run("[await a.text(0, 3), await b[0].text()]", ctx=ctx)
        assert again.value == ["zzz", "mine"], again.output_text

    asyncio.run(main())


# limits -----------------------------------------------------------------------------------


@pytest.mark.parametrize("seconds", [float("inf"), 1e300, 10**9])
def test_a_time_without_end_is_one(seconds: float) -> None:
    policy = ChainPolicy(
        total_timeout_s=seconds, call_timeout_s=seconds, approval_timeout_s=seconds
    )
    result = run_script_sync("await t()", [Tool()], policy=policy)
    assert result.value == "done", result.output_text


@pytest.mark.parametrize(
    "question",
    [
        "tool_search('x', 1.5)", "tool_search('x', True)", "tool_search('x' * 2000)",
        "tool_search(5)", "tool_search(['x'])", "tool_search()", "tool_schema(None)",
        "tool_schema('x' * 2000)", "tool_search('x', limit='9')", "tool_search(x=1)",
    ],
)  # fmt: skip
def test_an_odd_question_about_the_tools_is_a_value_error(question: str) -> None:
    code = f"try:\n    out = await {question}\nexcept ValueError as error:\n    out = 'ValueError'\nout"
    result = run_script_sync(code, [Tool(risk=ToolRisk.SAFE, effect="pure")])
    assert result.value == "ValueError", result.output_text
