"""`MontySandbox` alone, driven by its contract: no invoker, real workers."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import decimal
import math
import os
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from substrate.capabilities.sandboxes import MontySandbox
from substrate.kernel.sandbox import (
    Answer,
    Artifact,
    Blocked,
    Done,
    Failed,
    Raised,
    Returned,
    Sandbox,
    SandboxCall,
    SandboxEvent,
    SandboxLimits,
    Script,
)

Reply = Callable[[SandboxCall], Answer]
TOOLS = {"echo": "echo", "other": "raw-name"}
ART = Artifact(ref="sha256:ab", preview="ab", size=2, media_type="text/plain")


@pytest.fixture(scope="module")
def sandbox() -> Iterator[MontySandbox]:
    made = MontySandbox(processes=4)
    yield made
    asyncio.run(made.aclose())


def echo(call: SandboxCall) -> Answer:
    return Returned(call.args[0] if call.args else call.kwargs.get("x"))


async def drive(
    sandbox: Sandbox, code: str, reply: Reply = echo, limits: SandboxLimits | None = None
) -> SandboxEvent:
    """Run a script to its end, answering every call as it is seen."""
    script = Script(code=code, tools=TOOLS, limits=limits or SandboxLimits())
    async with sandbox.run(script) as run:
        event = await run.start()
        while isinstance(event, Blocked):
            if event.until is not None:
                await asyncio.sleep(0.01)
            event = await run.answer({call.id: reply(call) for call in event.calls})
        return event


def ended(sandbox: Sandbox, code: str, reply: Reply = echo, **limits: Any) -> SandboxEvent:
    async def main() -> SandboxEvent:
        async with asyncio.timeout(60):
            return await drive(sandbox, code, reply, SandboxLimits(**limits))

    return asyncio.run(main())


@pytest.mark.req("sandbox.contract")
def test_it_keeps_the_contract_and_says_what_it_can(sandbox: MontySandbox) -> None:
    assert isinstance(sandbox, Sandbox)
    found = sandbox.capabilities()
    assert (found.name, found.python) == ("monty", "subset")
    assert {"process", "empty-env"} <= set(found.layers)


# values -----------------------------------------------------------------------------------

LEAVES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(-(2**200), 2**200)
    | st.floats(allow_nan=False)
    | st.text(st.characters(exclude_categories=["Cs"]))
    | st.binary()
)
PLAIN = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(
        st.characters(exclude_categories=["Cs"])), inner, max_size=4), max_leaves=12
)  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(value=PLAIN)
def test_a_plain_value_goes_in_and_comes_back_the_same(sandbox: MontySandbox, value: Any) -> None:
    sent: list[Any] = []

    def reply(call: SandboxCall) -> Answer:
        sent.append(call.args)
        return Returned(value)

    event = ended(sandbox, "x = await echo()\nawait echo(x)\nx", reply)
    assert event == Done(value=value)
    assert sent == [(), (value,)]


def test_nan_and_the_sign_of_zero_are_kept(sandbox: MontySandbox) -> None:
    event = ended(sandbox, "await echo([float('nan'), -0.0, float('-inf')])")
    assert isinstance(event, Done)
    nan, zero, infinity = event.value
    assert math.isnan(nan)
    assert math.copysign(1, zero) == -1
    assert infinity == -math.inf


@pytest.mark.parametrize(
    ("written", "arrives"),
    [
        ("(1, (2,))", [1, [2]]),
        ("{3, 1, 2}", [1, 2, 3]),
        ("frozenset([1])", [1]),
        ("{1: 2, 1.5: 3}", {1: 2, 1.5: 3}),
        ("{None: 1, True: 2}", {"None": 1, "True": 2}),
        ("dt.date(2024, 2, 29)", dt.date(2024, 2, 29)),
        (
            "dt.datetime(2024, 2, 29, tzinfo=dt.timezone.utc)",
            dt.datetime(2024, 2, 29, tzinfo=dt.UTC),
        ),
        ("dt.timedelta(seconds=90)", dt.timedelta(seconds=90)),
        ("Path('/a/b')", "/a/b"),
        ("b'\\x00\\xff'", b"\0\xff"),
        ("2 ** 100", 2**100),
    ],
)
def test_what_is_data_in_a_script_arrives_in_its_documented_form(
    sandbox: MontySandbox, written: str, arrives: Any
) -> None:
    head = "import datetime as dt\nfrom pathlib import Path\n"
    assert ended(sandbox, f"{head}await echo({written})") == Done(value=arrives)
    assert ended(sandbox, f"{head}{written}") == Done(value=arrives)


@pytest.mark.parametrize("value", [decimal.Decimal("1.10"), dt.date(2024, 2, 29), 2**70])
def test_what_a_host_answers_is_data_in_the_script(sandbox: MontySandbox, value: Any) -> None:
    assert ended(sandbox, "await echo()", lambda _: Returned(value)) == Done(value=value)


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("int", "no data"),
        ("print", "no data"),
        ("Thing()", "no data"),
        ("deep", "nested deeper"),
        ("{(1, 2): 3}", "a key must be"),
    ],
)
def test_what_is_no_data_is_a_value_error_at_the_await_and_the_script_goes_on(
    sandbox: MontySandbox, written: str, said: str
) -> None:
    calls: list[SandboxCall] = []
    code = f"""
class Thing:
    pass
deep = []
for _ in range(150):
    deep = [deep]
try:
    await echo([{written}])
except ValueError as error:
    told = str(error)
await echo(told)
"""

    def reply(call: SandboxCall) -> Answer:
        calls.append(call)
        return echo(call)

    event = ended(sandbox, code, reply)
    assert isinstance(event, Done), event
    assert said in event.value
    assert len(calls) == 1


# artifacts --------------------------------------------------------------------------------


def test_an_artifact_is_shown_by_its_handle_and_comes_back_as_its_ref(
    sandbox: MontySandbox,
) -> None:
    seen: list[Any] = []

    def reply(call: SandboxCall) -> Answer:
        if not call.args:
            return Returned(ART)
        seen.append(call.args[0])
        return Returned(None)

    code = "a = await echo()\nawait echo({'at': [a]})\n[a.preview, a.size, a.media_type]"
    assert ended(sandbox, code, reply) == Done(value=["ab", 2, "text/plain"])
    assert seen == [{"at": [{"$artifact": "sha256:ab"}]}]


@pytest.mark.parametrize(
    "forged",
    [
        "class ArtifactHandle:\n    ref = 'sha256:cd'\nmade = ArtifactHandle()",
        "made = type(await echo())",
        """
import dataclasses

@dataclasses.dataclass
class ArtifactHandle:
    ref: str

made = ArtifactHandle('sha256:cd')
""",
    ],
)
def test_a_forged_handle_is_no_data(sandbox: MontySandbox, forged: str) -> None:
    seen: list[Any] = []

    def reply(call: SandboxCall) -> Answer:
        if not call.args:
            return Returned(ART)
        seen.append(call.args[0])
        return Returned(None)

    event = ended(sandbox, f"{forged}\nawait echo(made)", reply)
    assert isinstance(event, Failed)
    assert not any(isinstance(value, dict) and "$artifact" in value for value in seen)


# calls ------------------------------------------------------------------------------------


@pytest.mark.req("sandbox.contract")
def test_calls_are_told_in_the_order_made_when_the_script_waits(sandbox: MontySandbox) -> None:
    async def main() -> None:
        code = "import asyncio\na = echo(1)\nb = tools['raw-name'](x=2)\nawait asyncio.gather(b, a)"
        async with sandbox.run(Script(code=code, tools=TOOLS)) as run:
            event = await run.start()
            assert isinstance(event, Blocked)
            first, second = event.calls
            assert (first.name, first.args, second.name, second.kwargs) == (
                "echo", (1,), "raw-name", {"x": 2},
            )  # fmt: skip
            assert first.id < second.id
            assert first.site is not None
            assert code[first.site.start : first.site.end] == "echo(1)"
            assert first.site.line == 2
            event = await run.answer({second.id: Returned("late")})
            assert event == Blocked(calls=(), waiting=(first.id,))
            assert await run.answer({first.id: Returned("first")}) == Done(value=["late", "first"])

    asyncio.run(main())


def test_a_failure_arrives_where_the_script_awaits(sandbox: MontySandbox) -> None:
    code = "try:\n    await echo(1)\nexcept PermissionError as error:\n    told = str(error)\ntold"
    event = ended(sandbox, code, lambda _: Raised("PermissionError", "not \ud800 you"))
    assert event == Done(value="not \\ud800 you")


@pytest.mark.parametrize("code", ["await median([1])", "median", "await tools['none']()"])
def test_a_name_that_was_not_granted_never_reaches_the_host(
    sandbox: MontySandbox, code: str
) -> None:
    event = ended(sandbox, code)
    assert isinstance(event, Failed)
    assert event.reason == "script_error"
    assert "Error" in event.error
    assert event.calls == ()


def test_a_call_that_nobody_waits_for_is_told_at_the_end(sandbox: MontySandbox) -> None:
    event = ended(sandbox, "def f():\n    return echo(1)\nx = [f()]\n1")
    assert isinstance(event, Done)
    assert [call.name for call in event.calls] == ["echo"]


def test_sleeps_run_side_by_side_and_block_no_thread() -> None:
    code = "import asyncio\nawait asyncio.gather(*[asyncio.sleep(0.2) for _ in range(20)])\n'slept'"

    async def main() -> list[SandboxEvent]:
        async with MontySandbox(processes=8, threads=1) as sandbox, asyncio.timeout(30):
            return await asyncio.gather(*(drive(sandbox, code) for _ in range(8)))

    assert asyncio.run(main()) == [Done(value="slept")] * 8


# ends -------------------------------------------------------------------------------------


@pytest.mark.req("sandbox.limits")
@pytest.mark.parametrize(
    ("code", "reason", "limits"),
    [
        ("1 +", "syntax", {}),
        ("class A(int):\n    pass", "unsupported", {}),
        ("while True:\n    pass", "time", {"compute_s": 0.1}),
        ("10 ** (10 ** 9)", "memory", {}),
        ("x = [0] * 10 ** 9", "memory", {}),
        ("x = 'a'\nwhile True:\n    x += x", "memory", {}),
        ("def f():\n    return f()\nf()", "recursion", {}),
        ("while True:\n    print('x' * 1000)", "output", {"output_bytes": 10_000}),
        ("print('x' * 10 ** 8)", "output", {}),
        ("for _ in range(3):\n    print('x' * 9000)", "output", {"output_bytes": 20_000}),
        ("raise MemoryError('full')", "script_error", {}),
        ("1 / 0", "script_error", {}),
        ("raise SystemExit", "script_error", {}),
    ],
)
def test_every_end_has_its_reason_and_the_pool_goes_on(
    sandbox: MontySandbox, code: str, reason: str, limits: dict[str, Any]
) -> None:
    event = ended(sandbox, code, echo, **{"compute_s": 20.0, **limits})
    assert isinstance(event, Failed), event
    assert event.reason == reason, event
    assert event.error.strip()
    assert ended(sandbox, "1 + 1") == Done(value=2)


def test_what_was_printed_before_a_limit_is_kept(sandbox: MontySandbox) -> None:
    async def main() -> str:
        limits = SandboxLimits(output_bytes=5)
        async with sandbox.run(Script(code="print('äää')", tools={}, limits=limits)) as run:
            event = await run.start()
            assert isinstance(event, Failed)
            assert event.reason == "output"
            return run.output

    assert asyncio.run(main()) == "ää"


@pytest.mark.parametrize("code", ["\0", "x = '\ud800'", "x\n" * 600_000])
def test_what_is_no_script_is_a_problem_before_anything_runs(
    sandbox: MontySandbox, code: str
) -> None:
    problems = asyncio.run(sandbox.preflight(Script(code=code, tools={})))
    assert [problem.reason for problem in problems] == ["syntax"]


# processes --------------------------------------------------------------------------------


def workers_of(pid: int | str = "self") -> set[int]:
    """Every process below this one."""
    found: set[int] = set()
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
        for task in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                for child in (task / "children").read_text().split():
                    found |= {int(child)} | workers_of(child)
    return found


linux = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0.01)


def alone(main: Callable[[MontySandbox], Awaitable[None]], **options: int) -> None:
    """Run with a sandbox of its own, which leaves neither process nor descriptor."""

    async def inside() -> None:
        async with MontySandbox(**options) as sandbox:
            await main(sandbox)

    asyncio.run(drive_once())  # what is started once a process is started
    before, open_before = workers_of(), len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    asyncio.run(inside())
    assert workers_of() <= before
    assert len(os.listdir("/proc/self/fd")) <= open_before  # noqa: PTH208


async def drive_once() -> None:
    async with MontySandbox(processes=1, threads=1) as sandbox:
        await drive(sandbox, "1")


@linux
def test_a_busy_script_is_killed_with_its_run() -> None:
    async def main(sandbox: MontySandbox) -> None:
        script = Script(code="while True:\n    pass", tools={})
        async with asyncio.timeout(20), sandbox.run(script) as run:
            running = asyncio.create_task(run.start())
            await until(lambda: _computes(workers_of()))
        assert isinstance(await running, Failed)
        assert await drive(sandbox, "1 + 1") == Done(value=2)

    alone(main, processes=1)


def _computes(pids: set[int]) -> bool:
    for pid in pids:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            if int(fields[11]) > 10:  # ticks of user time
                return True
    return False


@linux
def test_a_worker_that_dies_fails_its_script_alone_and_is_replaced() -> None:
    async def main(sandbox: MontySandbox) -> None:
        before = workers_of()
        script = Script(code="await echo(1)", tools=TOOLS)
        async with sandbox.run(script) as run:
            event = await run.start()
            assert isinstance(event, Blocked)
            for pid in workers_of() - before:
                os.kill(pid, 9)
            event = await run.answer({event.calls[0].id: Returned(1)})
            assert isinstance(event, Failed)
            assert event.reason == "crash"
        assert await drive(sandbox, "1 + 1") == Done(value=2)

    alone(main, processes=2)


@linux
def test_a_start_waits_for_a_process_and_can_be_cancelled_while_it_waits() -> None:
    async def main(sandbox: MontySandbox) -> None:
        script = Script(code="await echo(1)", tools=TOOLS)
        async with sandbox.run(script) as one:
            blocked = await one.start()
            assert isinstance(blocked, Blocked)
            waiting = [asyncio.create_task(drive(sandbox, f"{n}")) for n in range(3)]
            await asyncio.sleep(0)
            waiting[0].cancel()
            await asyncio.wait(waiting, timeout=0.1)
            assert [task.done() for task in waiting] == [True, False, False]
            assert await one.answer({blocked.calls[0].id: Returned(1)}) == Done(value=1)
        assert await asyncio.gather(*waiting[1:]) == [Done(value=1), Done(value=2)]

    alone(main, processes=1)


@linux
def test_a_closed_sandbox_starts_again_and_leaves_nothing() -> None:
    async def main(sandbox: MontySandbox) -> None:
        for _ in range(3):
            assert await drive(sandbox, "1") == Done(value=1)
            await sandbox.aclose()

    alone(main, processes=2)


@pytest.mark.req("sandbox.pool")
def test_one_sandbox_serves_event_loops_one_after_another_and_at_once() -> None:
    sandbox = MontySandbox(processes=2)
    seen: list[SandboxEvent] = []

    def use() -> None:
        async def many() -> list[SandboxEvent]:
            return await asyncio.gather(*(drive(sandbox, f"await echo({n})") for n in range(20)))

        seen.extend(asyncio.run(many()))

    use()
    threads = [threading.Thread(target=use) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    asyncio.run(sandbox.aclose())
    assert seen == [Done(value=n) for n in range(20)] * 4


@pytest.mark.req("sandbox.pool")
@pytest.mark.parametrize("number", range(5))
def test_an_interpreter_ends_cleanly_with_its_pool_open(number: int) -> None:
    code = """
import asyncio
from substrate.capabilities.sandboxes import default_sandbox
from substrate.kernel.sandbox import Script

async def main():
    sandbox = default_sandbox()
    runs = [sandbox.run(Script(code="await echo(1)", tools={"echo": "echo"})) for _ in range(3)]
    await asyncio.gather(*(run.start() for run in runs))
    print(*(run._worker._pid for run in runs))

asyncio.run(main())
"""
    del number
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    if sys.platform == "linux":
        assert not any(Path(f"/proc/{pid}/exe").exists() for pid in done.stdout.split())


@pytest.mark.parametrize(
    ("code", "value"),
    [
        ("x = 1", 1),
        ("x = 1\n# said\n\n", 1),
        ("x = 1; y = 2", 2),
        ("x: int = 3", 3),
        ("x = 1\nx += 1", 2),
        ("x = y = 4", 4),
        ("x = (\n1,\n2\n)", [1, 2]),
        ("x = [1,\n2]", [1, 2]),
        ("x = '''\na\nb'''", "\na\nb"),
        ("'''\nx = 1'''", "\nx = 1"),
        ("x = 1 + \\\n2", 3),
        ("if True:\n    x = 1", None),
        ("for x in [1]: pass", None),
        ("x = 5 # = 6", 5),
        ("x = 'a=b'\nx", "a=b"),
        ("def f():\n    return 1\nx = f()", 1),
        ("", None),
    ],
)
def test_the_value_is_the_name_that_the_last_statement_assigns(
    sandbox: MontySandbox, code: str, value: Any
) -> None:
    assert ended(sandbox, code) == Done(value=value)


def test_no_run_is_hurt_by_the_end_of_another() -> None:
    """A worker that was killed is not used again; one that was handed back is not killed."""

    async def left(sandbox: MontySandbox, code: str, answers: int) -> None:
        async with sandbox.run(Script(code=code, tools=TOOLS)) as run:
            event = await run.start()
            for _ in range(answers):
                if isinstance(event, Blocked):
                    event = await run.answer({call.id: Returned(1) for call in event.calls})

    async def cancelled(sandbox: MontySandbox, steps: int) -> None:
        running = asyncio.create_task(drive(sandbox, "await echo(1)"))
        for _ in range(steps):
            await asyncio.sleep(0)
        running.cancel()
        await asyncio.wait((running,))

    async def printing(sandbox: MontySandbox) -> None:
        event = await drive(sandbox, "print('x' * 9)\n1", limits=SandboxLimits(output_bytes=5))
        assert isinstance(event, Failed)
        assert event.reason == "output"

    async def main() -> None:
        async with MontySandbox(processes=3) as sandbox, asyncio.timeout(60):
            harm = [
                task
                for n in range(20)
                for task in (
                    left(sandbox, "await echo(1)\nawait echo(2)", n % 3),
                    cancelled(sandbox, n),
                    printing(sandbox),
                )
            ]
            good = [drive(sandbox, f"await echo({n})") for n in range(60)]
            mixed = [one for pair in zip(harm, good, strict=True) for one in pair]
            ended = await asyncio.gather(*mixed)
            assert ended[1::2] == [Done(value=n) for n in range(60)]

    asyncio.run(main())


def test_the_event_loop_goes_on_while_scripts_compute() -> None:
    async def main() -> tuple[list[float], list[SandboxEvent]]:
        lags: list[float] = []

        async def tick() -> None:
            loop = asyncio.get_running_loop()
            while True:
                before = loop.time()
                await asyncio.sleep(0.005)
                lags.append(loop.time() - before - 0.005)

        busy = SandboxLimits(compute_s=0.5)
        async with MontySandbox(processes=2) as sandbox, asyncio.timeout(30):
            await drive(sandbox, "1")
            ticking = asyncio.create_task(tick())
            events = await asyncio.gather(
                *(drive(sandbox, "while True:\n    pass", limits=busy) for _ in range(2))
            )
            ticking.cancel()
        return lags, list(events)

    lags, events = asyncio.run(main())
    assert [event.reason for event in events if isinstance(event, Failed)] == ["time", "time"]
    assert len(lags) > 20  # a loop that a script holds up would tick once
    assert sorted(lags)[len(lags) // 2] < 0.05
