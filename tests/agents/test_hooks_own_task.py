"""Whatever an observer does to the task it runs in, the caller's task knows nothing of it."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import os
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import pytest

from substrate import HookEvent, HookManager, Toolbox, ToolCallRequest, ToolInvoker, tool

Hook = Callable[[Mapping[str, Any]], Awaitable[None]]

KINDS: list[BaseException] = [
    ValueError("x"),
    SystemExit(1),
    KeyboardInterrupt(),
    asyncio.CancelledError(),
    GeneratorExit(),
    BaseExceptionGroup("x", [SystemExit(2)]),
]


def cancel_own_task() -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()


async def cancel_and_end(_: Mapping[str, Any]) -> None:
    cancel_own_task()


async def cancel_and_wait(_: Mapping[str, Any]) -> None:
    cancel_own_task()
    await asyncio.sleep(60)


async def cancel_twice_and_yield(_: Mapping[str, Any]) -> None:
    cancel_own_task()
    cancel_own_task()
    await asyncio.sleep(0)


async def wait_and_cancel(_: Mapping[str, Any]) -> None:
    await asyncio.sleep(0)
    cancel_own_task()
    await asyncio.sleep(60)


async def cancel_what_is_waited_for(_: Mapping[str, Any]) -> None:
    future = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_soon(future.cancel)
    await future


async def time_out(_: Mapping[str, Any]) -> None:
    async with asyncio.timeout(0.01):
        await asyncio.sleep(60)


async def time_out_and_clean_up_slowly(_: Mapping[str, Any]) -> None:
    try:
        async with asyncio.timeout(0.01):
            try:
                await asyncio.sleep(60)
            finally:
                await asyncio.sleep(0.4)
    except TimeoutError:
        pass


async def fail_in_a_group(_: Mapping[str, Any]) -> None:
    async def fail() -> None:
        raise KeyError

    async with asyncio.TaskGroup() as group:
        group.create_task(fail())
        await asyncio.sleep(60)


async def wait_for_what_is_no_future(_: Mapping[str, Any]) -> None:
    class Wrong:
        def __await__(self) -> Any:
            yield "no future"

    await Wrong()


HOSTILE: list[Hook] = [
    cancel_and_end,
    cancel_and_wait,
    cancel_twice_and_yield,
    wait_and_cancel,
    cancel_what_is_waited_for,
    time_out,
    time_out_and_clean_up_slowly,
    fail_in_a_group,
    wait_for_what_is_no_future,
]


def raising(error: BaseException, *, at_once: bool) -> Hook:
    async def fail(_: Mapping[str, Any]) -> None:
        if not at_once:
            await asyncio.sleep(0)
        raise error

    return fail


RAISING = [raising(error, at_once=at_once) for error in KINDS for at_once in (True, False)]


@pytest.mark.req("hooks.bounded")
@pytest.mark.parametrize("hook", [*HOSTILE, *RAISING])
@pytest.mark.parametrize("event", [HookEvent.TOOL_START, HookEvent.TOOL_END])
def test_an_observer_ends_no_call_and_cancels_no_caller(hook: Hook, event: HookEvent) -> None:
    @tool(risk="safe")
    async def greet() -> str:
        return "hello"

    told: list[str] = []

    async def note(_: Mapping[str, Any]) -> None:
        told.append("quick")
        await asyncio.sleep(0)
        told.append("slow")

    hooks = HookManager()
    for one in (note, hook, note):
        hooks.register(event, one)
    invoker = ToolInvoker(Toolbox([greet]), hooks=hooks)

    async def main() -> None:
        task = asyncio.current_task()
        assert task is not None
        async with asyncio.timeout(10), invoker.open_session(direct=True) as session:
            for number in range(1, 4):
                result = await invoker.invoke(ToolCallRequest("greet"), session=session)
                assert (result.status, result.text) == ("ok", "hello")
                assert asyncio.current_task() is task
                assert task.cancelling() == 0
                assert [told.count(word) for word in ("quick", "slow")] == [2 * number] * 2
            await asyncio.sleep(0)
            assert asyncio.all_tasks() == {task}

    asyncio.run(main())


@pytest.mark.parametrize("error", KINDS)
@pytest.mark.parametrize("how", ["at once", "later", "sync"])
def test_what_was_raised_is_logged_by_type_and_place_alone(
    error: BaseException, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    class Told(type(error)):  # pyright: ignore[reportGeneralTypeIssues, reportUntypedBaseClass]
        def __str__(self) -> str:
            raise AssertionError

    def fail(_: Mapping[str, Any]) -> None:
        raise Told(*error.args)

    hooks, told = HookManager(), list[str]()
    hook = fail if how == "sync" else raising(Told(*error.args), at_once=how == "at once")
    hooks.register(HookEvent.TOOL_END, hook)
    hooks.register(HookEvent.TOOL_END, lambda _: told.append("after"))
    with caplog.at_level(logging.WARNING):
        asyncio.run(hooks.dispatch(HookEvent.TOOL_END, {}))
        hooks.close()
    (record,) = caplog.records
    assert "Told in fail, " in record.getMessage()
    assert record.exc_info is None
    assert told == ["after"]


def test_an_observer_runs_in_one_task_and_one_context_from_its_first_step_on() -> None:
    var = contextvars.ContextVar("var", default="unset")
    tasks: list[Any] = []

    async def look(_: Mapping[str, Any]) -> None:
        tasks.append(asyncio.current_task())
        assert var.get() == "caller"
        token = var.set("observer")
        for _step in range(3):
            await asyncio.sleep(0)
            assert var.get() == "observer"
            tasks.append(asyncio.current_task())
        var.reset(token)

    async def main() -> None:
        var.set("caller")
        hooks = HookManager()
        hooks.register(HookEvent.TOOL_END, look)
        hooks.register(HookEvent.TOOL_END, look)
        for _ in range(2):
            await hooks.dispatch(HookEvent.TOOL_END, {})
        assert var.get() == "caller"

    asyncio.run(main())
    assert len(tasks) == 16
    assert all(tasks.count(task) == 4 for task in tasks)


def test_a_loop_that_does_not_say_where_it_runs_has_observers_too() -> None:
    class Silent(asyncio.SelectorEventLoop):
        def __getattribute__(self, name: str) -> Any:
            asking = sys._getframe(1).f_globals["__name__"]
            if name == "_thread_id" and not asking.startswith("asyncio"):
                raise AttributeError(name)
            return super().__getattribute__(name)

    hooks, told = HookManager(), list[Any]()

    async def quick(_: Mapping[str, Any]) -> None:
        told.append(asyncio.current_task())

    hooks.register(HookEvent.TOOL_END, quick)
    hooks.register(HookEvent.TOOL_END, time_out)
    hooks.register(HookEvent.TOOL_END, quick)

    async def main() -> None:
        for _ in range(3):
            await hooks.dispatch(HookEvent.TOOL_END, {})
        assert asyncio.current_task() not in told

    for _ in range(2):
        with asyncio.Runner(loop_factory=Silent) as runner:
            runner.run(main())
    assert len(told) == 12


def test_an_observer_may_bring_about_another_event() -> None:
    hooks, told = HookManager(), list[str]()

    async def again(_: Mapping[str, Any]) -> None:
        before = asyncio.current_task()
        await hooks.dispatch(HookEvent.TOOL_END, {})
        assert asyncio.current_task() is before
        told.append("again")

    async def end(_: Mapping[str, Any]) -> None:
        told.append("end")
        await asyncio.sleep(0)
        told.append("ended")

    hooks.register(HookEvent.TOOL_START, again)
    hooks.register(HookEvent.TOOL_END, end)
    asyncio.run(hooks.dispatch(HookEvent.TOOL_START, {}))
    assert told == ["end", "ended", "again"]


def test_a_cancelled_caller_is_gone_at_once_and_observers_keep_their_time() -> None:
    async def main() -> None:
        hooks, told, release = HookManager(), list[str](), asyncio.Event()

        async def wait(_: Mapping[str, Any]) -> None:
            await release.wait()
            told.append("released")

        async def last(_: Mapping[str, Any]) -> None:
            told.append("last")

        hooks.register(HookEvent.TOOL_END, wait)
        hooks.register(HookEvent.TOOL_END, last)
        task = asyncio.create_task(hooks.dispatch(HookEvent.TOOL_END, {}))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert told == ["last"]
        release.set()
        async with asyncio.timeout(5):
            while "released" not in told:
                await asyncio.sleep(0)

    asyncio.run(main())


def test_observers_of_a_cancelled_caller_are_given_up_in_the_end(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main() -> None:
        hooks, gone = HookManager(patience_s=0.05), asyncio.Event()

        async def hang(_: Mapping[str, Any]) -> None:
            try:
                await asyncio.sleep(60)
            finally:
                gone.set()

        hooks.register(HookEvent.TOOL_END, hang)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await hooks.dispatch(HookEvent.TOOL_END, {})
        async with asyncio.timeout(5):
            await gone.wait()

    asyncio.run(main())
    assert "given up" in caplog.text


def test_an_observer_that_swallows_its_cancellation_holds_up_nobody() -> None:
    async def main() -> None:
        hooks, release = HookManager(patience_s=0.05), asyncio.Event()

        async def stay(_: Mapping[str, Any]) -> None:
            while not release.is_set():
                try:
                    await release.wait()
                except asyncio.CancelledError:
                    continue

        hooks.register(HookEvent.TOOL_END, stay)
        async with asyncio.timeout(5):
            await hooks.dispatch(HookEvent.TOOL_END, {})
        release.set()

    asyncio.run(main())


def test_observers_of_two_loops_at_once_are_told_each_in_its_own(
    caplog: pytest.LogCaptureFixture,
) -> None:
    hooks, told = HookManager(), list[tuple[str, bool]]()
    both = threading.Barrier(2)

    async def note(context: Mapping[str, Any]) -> None:
        loop = asyncio.get_running_loop()
        await asyncio.sleep(0)
        told.append((context["who"], loop is asyncio.get_running_loop()))

    async def quick(context: Mapping[str, Any]) -> None:
        told.append((context["who"], True))

    hooks.register(HookEvent.TOOL_END, note)
    hooks.register(HookEvent.TOOL_END, quick)

    async def main(who: str) -> None:
        both.wait(10)
        for _ in range(200):
            await hooks.dispatch(HookEvent.TOOL_END, {"who": who})

    threads = [threading.Thread(target=asyncio.run, args=(main(who),)) for who in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert {(who, told.count((who, True))) for who in "ab"} == {("a", 400), ("b", 400)}
    assert not caplog.records


@pytest.mark.parametrize("ends", ["closed", "run"])
def test_a_loop_that_ends_while_its_observer_still_runs_takes_no_event_from_others(
    ends: str,
) -> None:
    hooks, told = HookManager(patience_s=5), list[str]()

    async def hang(context: Mapping[str, Any]) -> None:
        if context["who"] == "gone":
            await asyncio.sleep(60)

    async def note(context: Mapping[str, Any]) -> None:
        await asyncio.sleep(0)
        told.append(context["who"])

    hooks.register(HookEvent.TOOL_END, hang)
    hooks.register(HookEvent.TOOL_END, note)

    async def leave() -> None:
        task = asyncio.ensure_future(hooks.dispatch(HookEvent.TOOL_END, {"who": "gone"}))
        while not told:
            await asyncio.sleep(0)
        task.cancel()

    if ends == "run":
        asyncio.run(leave())
    else:
        loop = asyncio.new_event_loop()
        loop.run_until_complete(leave())
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()
    asyncio.run(hooks.dispatch(HookEvent.TOOL_END, {"who": "here"}))
    assert told == ["gone", "here"]


def in_a_forked_child(work: Callable[[], bool]) -> bool:
    """Whether `work` is true there, within ten seconds."""
    child = os.fork()
    if child == 0:
        told = 1
        try:
            told = 0 if work() else 2
        finally:
            os._exit(told)
    until = time.monotonic() + 10
    while time.monotonic() < until:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return status == 0
        time.sleep(0.01)
    os.kill(child, 9)
    os.waitpid(child, 0)
    return False


@pytest.mark.req("hooks.sync")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_every_observer_is_told_in_a_forked_child_too() -> None:
    hooks, told = HookManager(), list[str]()

    async def wait(_: Mapping[str, Any]) -> None:
        await asyncio.sleep(0)
        told.append("async")

    hooks.register(HookEvent.TOOL_END, lambda _: told.append("sync"))
    hooks.register(HookEvent.TOOL_END, wait)

    def tell() -> bool:
        told.clear()
        asyncio.run(hooks.dispatch(HookEvent.TOOL_END, {}))
        hooks.close()
        return sorted(told) == ["async", "sync"]

    assert tell()
    asyncio.run(hooks.dispatch(HookEvent.TOOL_END, {}))  # the thread is there
    assert in_a_forked_child(tell)

    async def fork_within_a_loop() -> bool:
        await hooks.dispatch(HookEvent.TOOL_END, {})
        return in_a_forked_child(lambda: _in_a_thread(tell))

    assert asyncio.run(fork_within_a_loop())
    hooks.close()


def _in_a_thread(work: Callable[[], bool]) -> bool:
    held: list[bool] = []
    thread = threading.Thread(target=lambda: held.append(work()))
    thread.start()
    thread.join(5)
    return held == [True]


@pytest.mark.req("hooks.sync")
def test_sync_observers_hear_every_event_though_the_manager_is_closed_meanwhile() -> None:
    hooks, told = HookManager(), list[int]()
    hooks.register(HookEvent.TOOL_END, lambda context: told.append(context["n"]))
    done = threading.Event()

    def close() -> None:
        while not done.is_set():
            hooks.close()

    closer = threading.Thread(target=close)
    closer.start()

    async def main() -> None:
        for n in range(500):
            await hooks.dispatch(HookEvent.TOOL_END, {"n": n})

    asyncio.run(main())
    done.set()
    closer.join(10)
    hooks.close()
    assert sorted(told) == list(range(500))
