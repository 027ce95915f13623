"""Artifacts in a script: shown, read in parts, passed on, and made."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from substrate import (
    InMemoryBlobStore,
    Toolbox,
    ToolChainTool,
    ToolInvoker,
    run_script_sync,
    tool,
)
from substrate.agents.tools.artifacts import MOST_READ, put_artifact, read_lines, read_text
from substrate.agents.tools.invoker import InvokerSession
from substrate.kernel.blobs import BlobData
from substrate.kernel.context import RunContext
from substrate.kernel.tools.chain import ChainRunResult

LINES = "".join(f"line {n}: ä 搜 🙂\n" for n in range(2000))
ROWS = [{"n": n, "name": "ä" * 10} for n in range(500)]


@tool(risk="safe")
async def lines() -> str:
    return LINES


@tool(risk="safe")
async def rows() -> list[dict[str, Any]]:
    return ROWS


@tool(risk="safe")
async def raw() -> bytes:
    return b"\x00\xff" * 9000


@tool(risk="safe")
async def kind(x: Any) -> str:
    return f"{type(x).__name__} {len(x)}"


TOOLS = [lines, rows, raw, kind]


def run(code: str, store: InMemoryBlobStore | None = None) -> ChainRunResult:
    return run_script_sync(code, tools=TOOLS, store=store or InMemoryBlobStore())


@pytest.mark.req("script.artifact-methods", "fault.chain.C7")
def test_a_large_result_is_read_in_parts_and_passed_on() -> None:
    result = run("""
a = await lines()
head = await a.text(0, 6)
tail = await a.text(a.size - 5)
some = await a.lines(10, 12)
last = (await a.lines(1990))[-1]
[isinstance(a, Artifact), a.size, a.media_type, head, tail, some, last, await kind(x={"in": [a]}),
 await kind(x=a)]
""")
    assert result.status == "ok", result.output_text
    assert result.value == [
        True, len(LINES.encode()), "text/plain; charset=utf-8", "line 0", "🙂\n",
        ["line 10: ä 搜 🙂", "line 11: ä 搜 🙂"], "line 1999: ä 搜 🙂", "dict 1", f"str {len(LINES)}",
    ]  # fmt: skip


@pytest.mark.req("script.artifact-methods", "fault.chain.C7")
def test_structured_data_is_read_as_its_json() -> None:
    result = run("a = await rows()\nimport json\njson.loads(await a.text())[3]")
    assert result.status == "ok", result.output_text
    assert result.value == ROWS[3]


@pytest.mark.req("script.artifact-methods", "fault.chain.C7")
def test_a_script_makes_artifacts_of_its_own() -> None:
    result = run("""
text = await artifacts.put("ä" * 9000)
data = await artifacts.put(b"ab", media_type="image/x-own")
value = await artifacts.put({"a": [1, None]})
kinds = [await kind(x=one) for one in (text, data, value)]
[kinds, text.size, data.media_type, value.media_type, await text.text(1, 3), await value.text()]
""")
    assert result.status == "ok", result.output_text
    assert result.value == [
        ["str 9000", "bytes 2", "dict 1"], 18000, "image/x-own", "application/json", "ää",
        '{"a": [1, null]}',
    ]  # fmt: skip


@pytest.mark.req("script.artifact-methods", "fault.chain.C7")
@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("a = await lines()\nawait a.text(-1)", "cannot be negative"),
        ("a = await lines()\nawait a.lines(0, -1)", "cannot be negative"),
        ("a = await lines()\nawait a.text('x')", "whole numbers"),
        ("a = await lines()\nawait a.text(True)", "whole numbers"),
        ("a = await lines()\nawait a.text(0, 1, 2)", "takes start, stop"),
        (
            "a = (await raw())['files'][0]['artifact']\nawait a.text(0, 1)",
            "no text but application/octet-stream",
        ),
        ("await artifacts.put(int)", "no data"),
        ("await artifacts.put()", "takes the data"),
        ("await artifacts.put('x', 5)", "takes the data"),
        ("a = await artifacts.put('x' * 300000)\nawait a.text()", "read a part"),
        ("a = await artifacts.put('x' * 300000)\nawait a.lines()", "read fewer"),
        ("a = await artifacts.put('x\\n' * 200000)\nawait a.lines()", "read fewer"),
        ("a = await lines()\na[0]", "pass it on to a tool as it is"),
        ("a = await lines()\nlen(a)", "pass it on to a tool as it is"),
        ("a = await lines()\na.delete()", "AttributeError"),
        ("artifacts.get('sha256:ab')", "AttributeError"),
        ("Artifact('sha256:ab')", ""),
    ],
)
def test_what_cannot_be_is_an_ordinary_error_of_the_script(code: str, said: str) -> None:
    result = run(code)
    assert (result.status, result.reason) == ("error", "script_error")
    assert said in (result.error or ""), result.error


def test_a_handle_that_a_script_changed_is_still_the_one_that_was_issued() -> None:
    code = "a = await lines()\na.ref = 'sha256:ab'\n[await kind(x=a), await a.text(0, 4)]"
    assert run(code).value == [f"str {len(LINES)}", "line"]


def test_an_error_is_caught_where_the_script_awaits_and_names_nothing_of_the_store() -> None:
    class Failing(InMemoryBlobStore):
        async def put(self, data: BlobData, media_type: str | None = None) -> str:
            msg = "secret path"
            raise OSError(msg)

    code = "try:\n    await artifacts.put('x')\nexcept RuntimeError as e:\n    told = str(e)\ntold"
    result = run(code, Failing())
    assert result.value == "the artifact store failed (OSError)"
    no_store = run_script_sync("await artifacts.put('x')", tools=[])
    assert "there is no artifact store" in (no_store.error or "")


@pytest.mark.req("invariant.5")
def test_a_scripts_artifact_is_nothing_in_another_scope() -> None:
    async def main() -> list[ChainRunResult]:
        chain = ToolChainTool(ToolInvoker(Toolbox(TOOLS), None, InMemoryBlobStore()))
        made = await chain.run("await artifacts.put('mine')", ctx=RunContext(session_id="a"))
        ref = made.value["$artifact"]
        code = f"await kind(x={{'$artifact': {ref!r}}})"
        same = await chain.run(code, ctx=RunContext(session_id="a"))
        other = await chain.run(code, ctx=RunContext(session_id="b"))
        return [made, same, other]

    made, same, other = asyncio.run(main())
    assert made.status == "ok"
    assert same.value == "str 4"
    assert (other.status, other.call_trace[0].reason) == ("error", "bad_ref")


def test_reads_run_beside_calls_in_the_order_in_which_they_end() -> None:
    result = run("""
import asyncio
a = await lines()
texts = await asyncio.gather(*[a.text(i, i + 1) for i in range(30)], kind(x="abc"))
[''.join(texts[:30])[:8], texts[-1]]
""")
    assert result.value == ["line 0: ", "str 3"]
    assert len(result.call_trace) == 2  # a read is no call


# the functions ----------------------------------------------------------------------------


async def _session() -> InvokerSession:
    return ToolInvoker(Toolbox([]), None, InMemoryBlobStore()).open_session()


@settings(max_examples=100, deadline=None)
@given(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=40),
    st.integers(0, 80),
    st.integers(0, 80) | st.none(),
)
def test_a_range_of_bytes_is_widened_to_whole_code_points(
    text: str, start: int, stop: int | None
) -> None:
    async def main() -> str:
        async with await _session() as session:
            made = await put_artifact(session, text)
            return await read_text(session, made.ref, start, stop)

    got, data = asyncio.run(main()), text.encode()
    low, high = min(start, len(data)), len(data) if stop is None else min(stop, len(data))
    if low >= high:
        assert got == ""
        return
    wanted = data[low:high]
    assert wanted in got.encode()
    assert len(got.encode()) <= len(wanted) + 6
    assert got in text


@settings(max_examples=100, deadline=None)
@given(
    st.text(st.sampled_from("aä🙂\n\r"), max_size=60),
    st.integers(0, 12),
    st.integers(0, 12) | st.none(),
)
def test_lines_are_those_of_the_whole_text(text: str, start: int, stop: int | None) -> None:
    async def main() -> list[str]:
        async with await _session() as session:
            made = await put_artifact(session, text)
            return await read_lines(session, made.ref, start, stop)

    whole = [line.removesuffix("\r") for line in text.split("\n")]
    whole = whole[:-1] if text.endswith("\n") or not text else whole
    assert asyncio.run(main()) == whole[start:stop]


def test_one_read_is_bounded_in_bytes_and_a_far_part_is_read_alone() -> None:
    async def main() -> None:
        async with await _session() as session:
            made = await put_artifact(session, "ü" * 1_000_000)
            assert len((await read_text(session, made.ref, 0, MOST_READ)).encode()) == MOST_READ
            assert await read_text(session, made.ref, 1_999_998) == "ü"
            with pytest.raises(ValueError, match="read a part"):
                await read_text(session, made.ref, 0, MOST_READ + 1)

    asyncio.run(main())
