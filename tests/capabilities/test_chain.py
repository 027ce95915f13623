"""A model's script, run as it is written, with every call in it past the door."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from substrate import (
    ApprovalDecision,
    ChainPolicy,
    ImageBlock,
    InMemoryBlobStore,
    Toolbox,
    ToolCallRequest,
    ToolChainTool,
    ToolExecutionResult,
    ToolInvoker,
    run_script,
    run_script_sync,
    tool,
)
from substrate.agents.tools.shown import shown_result
from substrate.kernel.context import RunContext
from substrate.kernel.errors import SandboxUnavailable
from substrate.kernel.sandbox import Problem, SandboxCapabilities, SandboxRun, Script
from substrate.kernel.tools.chain import ChainRunResult

PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 30


@tool(risk="safe")
async def add(a: int, b: int = 0) -> int:
    return a + b


@tool(risk="safe")
async def echo(value: Any = None) -> Any:
    return value


@tool(risk="safe")
async def boom(why: str = "no") -> None:
    raise RuntimeError(why)


@tool(risk="high")
async def pay(amount: int) -> str:
    return f"paid {amount}"


@tool(risk="safe")
async def large(size: int = 10_000) -> str:
    return "ü" * size


@tool(risk="safe")
async def length(text: str) -> int:
    return len(text)


@tool(risk="safe")
async def lengths(texts: list[dict[str, str]]) -> list[int]:
    return [len(each["text"]) for each in texts]


@tool(risk="safe")
async def picture() -> ImageBlock:
    return ImageBlock(PNG, media_type="image/jpeg")


@tool(risk="safe", name="get-weather")
async def weather(city: str) -> str:
    return f"rain in {city}"


TOOLS = [add, echo, boom, pay, large, length, lengths, picture, weather]


async def yes(_: Any) -> ApprovalDecision:
    return ApprovalDecision.APPROVED


def run(code: str, **options: Any) -> ChainRunResult:
    options.setdefault("store", InMemoryBlobStore())
    return run_script_sync(code, TOOLS, **options)


def value(code: str, **options: Any) -> Any:
    result = run(code, **options)
    assert result.status == "ok", result.output_text
    return result.value


@pytest.mark.req("script.run", "script.calls", "S36", "fault.chain.C1", "fault.chain.C6")
@pytest.mark.req("script.gather", "script.raw-names")
@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("await add(a=1, b=2)", 3),
        ("await add(1, 2)", 3),
        ("await add(1, b=2)", 3),
        ("await get_weather(city='Rome')", "rain in Rome"),
        ("await tools['get-weather'](city='Rome')", "rain in Rome"),
        ("f = add\nawait f(a=1)", 1),
        (
            "import asyncio\nawait asyncio.gather(add(a=1), add(a=2), echo(value=None))",
            [1, 2, None],
        ),
        ("import asyncio\nawait asyncio.gather(*[add(a=i) for i in range(20)])", list(range(20))),
        ("await echo(**{'value': [1, {'a': None}]})", [1, {"a": None}]),
        ("total = 0\nfor i in range(3):\n    total += await add(a=i)\ntotal", 3),
        ("import asyncio\nasync def main():\n    return await add(a=2)\nasyncio.run(main())", 2),
    ],
)
def test_a_script_calls_tools_as_async_functions(code: str, expected: Any) -> None:
    assert value(code) == expected


@pytest.mark.req("case.C20", "script.result", "fault.chain.C5")
@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("1 + 1", 2),
        ("x = await add(a=4)", 4),
        ("x = 1\nx += 4", 5),
        ("print('only this')", None),
        ("return {'a': 1}", {"a": 1}),
        ("# nothing but a comment", None),
        ("", None),
        ("await echo(value='''a\nb\n    c''')", "a\nb\n    c"),
        ("x = '''\na\n'''\nx", "\na\n"),
        ("if True:\n    y = 3\ny", 3),
    ],
)
def test_a_script_of_every_ending_has_its_value(code: str, expected: Any) -> None:
    assert value(code) == expected


@pytest.mark.req("script.result", "fault.chain.C9", "script.bounded")
def test_prints_are_captured_apart_from_the_value_and_bounded_for_the_model() -> None:
    result = run(
        "print('__value__: 999')\nfor i in range(3000):\n    print('ü' * 50)\n7",
        policy=ChainPolicy(max_output_bytes=1000),
    )
    assert result.value == 7
    assert result.logs.startswith("__value__: 999\n")
    assert len(result.output_text.encode()) <= 1000
    assert result.output_text.endswith("bytes in all]")
    assert result.artifact_ref is not None


@pytest.mark.req("script.exceptions")
@pytest.mark.parametrize(
    ("call", "kind", "words"),
    [
        ("pay(amount=1)", "PermissionError", "It was not run."),
        ("add(a='x')", "ValueError", "a: "),
        ("add(a={'$artifact': 'nope'})", "ValueError", "was not issued in this scope"),
        ("boom(why='the reason')", "RuntimeError", "the reason"),
        ("add(1, 2, 3)", "ValueError", "takes 2 arguments"),
        ("add(1, a=2)", "ValueError", "twice"),
        ("nope()", "NameError", "nope"),
    ],
)
@pytest.mark.parametrize("style", ["alone", "gathered"])
def test_a_failed_call_raises_an_ordinary_exception_where_it_is_awaited(
    call: str, kind: str, words: str, style: str
) -> None:
    guarded = f"""
import asyncio
async def safe(call):
    try:
        return await call
    except {kind} as error:
        return str(error)
"""
    if kind == "NameError":
        code = f"try:\n    await {call}\nexcept NameError as error:\n    said = str(error)\nsaid"
    elif style == "alone":
        code = f"{guarded}\nawait safe({call})"
    else:
        code = f"{guarded}\n(await asyncio.gather(add(a=1), safe({call})))[1]"
    assert words in value(code)


@pytest.mark.req("script.exceptions")
def test_a_call_out_of_time_is_a_timeout_error_that_tells_it_may_have_happened() -> None:
    @tool(risk="safe", timeout=0.05)
    async def hang() -> None:
        await asyncio.Event().wait()

    code = "try:\n    await hang()\nexcept TimeoutError as error:\n    said = str(error)\nsaid"
    said = run_script_sync(code, [hang]).value
    assert "no answer within 0.05s" in said
    assert "[Whether it happened is not known.]" in said


@pytest.mark.req("script.failure", "S21", "fault.chain.C3", "script.traceback")
def test_a_failed_script_tells_its_error_and_what_was_done() -> None:
    result = run("a = await pay(amount=1)\nb = await boom(why='because')", approve=yes)
    assert (result.status, result.reason) == ("error", "script_error")
    text = result.output_text
    assert "b = await boom(why='because')" in text
    assert "line 2" in text
    assert "RuntimeError: 'boom' failed: RuntimeError: because" in text
    assert f"Calls made in {result.chain_id}: 2 (2 ran)." in text
    assert 'pay {"amount":1}: ok, ran: paid 1' in text
    assert [r.tool for r in result.call_trace] == ["pay", "boom"]
    assert [r.site.line if r.site else None for r in result.call_trace] == [1, 2]


@pytest.mark.req("script.artifact", "S27", "artifacts.kind", "fault.I9", "fault.I14")
def test_a_large_result_travels_by_reference_at_any_depth() -> None:
    assert value("a = await large()\n[a.size, a.preview[:2], await length(text=a)]") == [
        20_000, "üü", 10_000,
    ]  # fmt: skip
    assert value("a = await large()\nawait lengths(texts=[{'text': a}, {'text': 'b'}])") == [
        10_000,
        1,
    ]


@pytest.mark.req("artifacts.left")
def test_a_ref_in_the_value_of_a_run_lives_on_in_the_store() -> None:
    store = InMemoryBlobStore()

    async def main() -> bytes:
        result = await run_script("{'text': await large()}", TOOLS, store=store)
        return await store.resolve(result.value["text"]["$artifact"])

    assert asyncio.run(main()).decode() == "ü" * 10_000


@pytest.mark.req("S28", "fault.chain.C8", "artifacts.media-path", "artifacts.open", "fault.I30")
def test_media_are_files_that_the_script_opens_and_passes_on() -> None:
    code = """
from pathlib import Path
one = await picture()
two = await picture()
paths = [one["files"][0]["path"], two["files"][0]["path"]]
with open(paths[0], "rb") as file:
    head = file.read(4)
[paths, one["files"][0]["media_type"], head, len(Path(paths[1]).read_bytes())]
"""
    result = run(code)
    assert result.status == "ok", result.output_text
    paths, media_type, head, size = result.value
    assert paths == ["/workspace/media/picture_0.png", "/workspace/media/picture_1.png"]
    assert (media_type, head, size) == ("image/png", b"\x89PNG", len(PNG))
    assert [f.path for f in result.files] == paths
    with_write = run("f = await picture()\nopen(f['files'][0]['path'], 'w')")
    assert with_write.status == "error"


@pytest.mark.req("script.in-flight", "fault.chain.C2")
def test_calls_in_flight_when_a_script_ends_are_finished_and_recorded() -> None:
    done: list[str] = []

    @tool(risk="safe")
    async def slow() -> str:
        await asyncio.sleep(0.02)
        done.append("slow")
        return "slow"

    code = "import asyncio\nawait asyncio.gather(slow(), boom())"
    result = run_script_sync(code, [slow, boom])
    assert result.status == "error"
    assert done == ["slow"]
    assert sorted((r.tool, r.status) for r in result.call_trace) == [
        ("boom", "error"),
        ("slow", "ok"),
    ]


@pytest.mark.req("fault.chain.C2", "fault.chain.C4")
def test_a_chain_out_of_time_is_a_timeout_with_its_open_calls_in_the_trace() -> None:
    @tool(risk="safe")
    async def hang() -> None:
        await asyncio.Event().wait()

    result = run_script_sync("await hang()", [hang], policy=ChainPolicy(total_timeout_s=0.3))
    (record,) = result.call_trace
    assert (record.status, record.ran) == ("timeout", "unknown")
    assert (result.status, result.reason) == ("timeout", "time")
    assert 250 <= result.duration_ms < 5000
    looping = run("while True:\n    pass", policy=ChainPolicy(total_timeout_s=0.3))
    assert (looping.status, looping.reason) == ("timeout", "time")


def test_a_call_that_is_never_awaited_is_not_run_and_named_with_its_line() -> None:
    result = run("x = 1\npay(amount=3)\nx", approve=yes)
    assert (result.status, result.reason) == ("error", "not_awaited")
    assert result.error == (
        "line 2: pay(amount=3) is never awaited, so it would not run; write: await pay(amount=3)"
    )
    assert result.tool_calls == 0


@pytest.mark.req("script.budget-ends")
def test_a_second_call_after_the_budget_ends_the_run() -> None:
    code = """
while True:
    try:
        await add(a=1)
    except Exception:
        pass
"""
    result = run(code, policy=ChainPolicy(max_tool_calls=3))
    assert (result.status, result.reason) == ("error", "budget")
    assert [r.status for r in result.call_trace] == ["ok"] * 3 + ["error"] * 2


@pytest.mark.req("S44", "way.types", "S11")
def test_the_chain_tool_is_an_ordinary_tool_that_no_chain_can_start() -> None:
    async def main() -> None:
        box = Toolbox(TOOLS)
        invoker = ToolInvoker(box, None, InMemoryBlobStore())
        box.add(ToolChainTool(invoker))
        async with invoker.open_session("talk", direct=True) as session:
            call = ToolCallRequest("tool_chain", {"code": "await add(a=1, b=1)"})
            result = await invoker.invoke(call, session=session, ctx=RunContext(session_id="talk"))
            assert (result.status, result.text) == ("ok", "2")
            assert result.structured["value"] == 2
            assert result.structured["call_trace"][0]["tool"] == "add"
            json.dumps(result.structured)
            nested = ToolCallRequest("tool_chain", {"code": "await tool_chain(code='1')"})
            refused = await invoker.invoke(nested, session=session)
            assert refused.status == "error"
            assert "NameError" in refused.text
        async with invoker.open_session() as session:
            refused = await invoker.invoke(
                ToolCallRequest("tool_chain", {"code": "1"}), session=session
            )
            assert (refused.reason, refused.ran) == ("not_callable_from_chain", "no")

    asyncio.run(main())


@pytest.mark.req("fault.chain.C11", "S12")
def test_chains_that_run_at_once_share_neither_budget_nor_trace_nor_refs() -> None:
    async def main() -> None:
        invoker = ToolInvoker(
            Toolbox(TOOLS), None, InMemoryBlobStore(), ChainPolicy(max_tool_calls=3)
        )
        chain = ToolChainTool(invoker)
        code = "a = await large()\nawait add(a=1)\nawait length(text=a)"
        results = await asyncio.gather(*(chain.run(code) for _ in range(12)))
        assert {r.value for r in results} == {10_000}
        assert {r.tool_calls for r in results} == {3}
        assert len({r.chain_id for r in results}) == 12

    asyncio.run(main())


@pytest.mark.req("fault.chain.C10", "sandbox.granted")
@pytest.mark.parametrize("name", ["admin", "invoker", "session", "__file__x", "ctx"])
def test_a_name_that_was_not_granted_is_a_name_error_without_a_record(name: str) -> None:
    result = run(f"await {name}()")
    assert result.status == "error"
    assert "NameError" in (result.error or "")
    assert result.call_trace == ()


class NoWalls:
    """A sandbox that cannot establish its walls here."""

    def capabilities(self) -> SandboxCapabilities:
        msg = "no walls on this machine"
        raise SandboxUnavailable(msg)

    async def preflight(self, script: Script) -> list[Problem]:
        return []

    def run(self, script: Script) -> SandboxRun:
        raise AssertionError

    async def aclose(self) -> None: ...


@pytest.mark.req("sandbox.refuses", "sandbox.layers")
def test_without_its_walls_nothing_runs() -> None:
    result = asyncio.run(run_script("1", [], sandbox=NoWalls()))
    assert (result.status, result.reason, result.error) == (
        "error", "no_sandbox", "no walls on this machine",
    )  # fmt: skip
    refused = run("1", policy=ChainPolicy(require_layers=frozenset({"moat"})))
    assert refused.reason == "no_sandbox"
    assert "moat" in (refused.error or "")
    assert "process" in run("1").sandbox["layers"]


@pytest.mark.req("sandbox.kill", "invariant.8")
@pytest.mark.parametrize(
    "code", ["while True: pass", "await hang()", "import asyncio\nawait asyncio.sleep(99)"]
)
def test_a_cancelled_chain_leaves_no_task_and_no_call(code: str) -> None:
    async def main() -> None:
        started = asyncio.Event()

        @tool(risk="safe")
        async def hang() -> None:
            started.set()
            await asyncio.Event().wait()

        invoker = ToolInvoker(Toolbox([hang]))
        task = asyncio.create_task(ToolChainTool(invoker).run(code))
        if "hang" in code:
            await started.wait()
        else:
            await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.sleep(0)
        assert asyncio.all_tasks() == {asyncio.current_task()}
        assert invoker.abandoned == ()

    asyncio.run(main())


@pytest.mark.req("script.value", "S32")
@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (lambda: None, None),
        (lambda: "", ""),
        (lambda: 0, 0),
        (list, []),
        (lambda: {"a": [1, None]}, {"a": [1, None]}),
        (ToolExecutionResult, None),
        (lambda: 2**70, 2**70),
        (lambda: float("inf"), float("inf")),
    ],
)
def test_a_call_gives_the_natural_value(made: Callable[[], Any], expected: Any) -> None:
    @tool(risk="safe")
    def give() -> Any:
        return made()

    result = run_script_sync("await give()", [give])
    assert result.value == expected
    assert type(result.value) is type(expected)
    assert result.output_text.strip()


def test_an_agent_that_runs_the_chain_tool_reads_its_text_and_not_its_data() -> None:
    async def main() -> None:
        store = InMemoryBlobStore()
        inner = ToolInvoker(Toolbox(TOOLS), None, store)
        outer = ToolInvoker(Toolbox([ToolChainTool(inner)]), None, store)
        code = "for n in range(40):\n    await add(a=n)\nprint('x' * 9000)\n'the value'"
        async with outer.open_session(direct=True) as session:
            call = ToolCallRequest("tool_chain", {"code": code})
            result = await outer.invoke(call, session=session)
        text = shown_result(result)
        assert text.startswith("the value\n[printed]\nxxx")
        assert text.count("x") == 9000
        assert "call_trace" not in text
        assert result.artifact_ref is not None  # the data is kept

    asyncio.run(main())
