"""A deadline holds whatever the awaited code does."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Awaitable
from typing import Any, TypeVar

import pytest

from substrate.agents.tools.deadline import (
    DeadlineExceededError,
    ToolExitError,
    ended,
    run_bounded,
)

T = TypeVar("T")

LONG = 30.0
SHORT = 0.05


class Left:
    """Collects what was left behind, and waits for its end."""

    def __init__(self) -> None:
        self.tasks: list[asyncio.Future[Any]] = []

    def __call__(self, task: asyncio.Future[Any]) -> None:
        self.tasks.append(task)

    async def end(self) -> list[Any]:
        await asyncio.wait(self.tasks)
        return [one.value if one.error is None else one.error for one in map(ended, self.tasks)]


def run(main: Awaitable[T]) -> T:
    async def bounded() -> T:
        async with asyncio.timeout(20):
            return await main

    return asyncio.run(bounded())


async def swallow() -> str:
    """Absorbs every cancellation until it has been cancelled once, then takes its time."""
    event = asyncio.Event()
    try:
        await event.wait()
    except asyncio.CancelledError:
        for _ in range(3):
            await asyncio.sleep(0)
    return "late"


def test_what_does_not_suspend_gives_its_value() -> None:
    async def quick() -> int:
        return 7

    left = Left()
    assert run(run_bounded(quick(), LONG, left)) == 7
    assert not left.tasks


def test_what_suspends_gives_its_value() -> None:
    async def slow() -> int:
        await asyncio.sleep(0)
        await asyncio.sleep(0.001)
        return 7

    assert run(run_bounded(slow(), LONG, Left())) == 7


def test_an_error_of_the_awaited_code_comes_through() -> None:
    async def fail() -> None:
        await asyncio.sleep(0)
        raise TimeoutError("db pool")

    with pytest.raises(TimeoutError, match="db pool"):
        run(run_bounded(fail(), LONG, Left()))


@pytest.mark.req("clock.abandon", "invariant.4")
def test_the_deadline_holds_for_code_that_swallows_cancellation() -> None:
    async def main() -> list[Any]:
        left = Left()
        with pytest.raises(DeadlineExceededError):
            await run_bounded(swallow(), SHORT, left)
        assert len(left.tasks) == 1
        return await left.end()

    assert run(main()) == ["late"]


def test_the_deadline_holds_for_a_slow_finally() -> None:
    release = asyncio.Event()
    cleaned: list[str] = []

    async def tidy() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await release.wait()
            cleaned.append("yes")

    async def main() -> None:
        left = Left()
        with pytest.raises(DeadlineExceededError):
            await run_bounded(tidy(), SHORT, left)
        assert not cleaned
        release.set()
        await left.end()

    run(main())
    assert cleaned == ["yes"]


def test_a_timeout_of_its_own_is_its_own_error() -> None:
    async def own() -> str:
        try:
            async with asyncio.timeout(0.01):
                await asyncio.Event().wait()
        except TimeoutError:
            return "mine"
        return "not"

    async def main() -> str:
        task = asyncio.current_task()
        assert task is not None
        answer = await run_bounded(own(), LONG, Left())
        assert task.cancelling() == 0
        return answer

    assert run(main()) == "mine"


@pytest.mark.req("clock.caller")
def test_a_cancellation_of_the_caller_comes_through() -> None:
    seen: list[str] = []

    async def wait(started: asyncio.Event) -> None:
        try:
            started.set()
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise

    async def main() -> None:
        started, left = asyncio.Event(), Left()
        task = asyncio.create_task(run_bounded(wait(started), LONG, left))
        await started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert [type(ended(task).error) for task in left.tasks] == [asyncio.CancelledError]

    run(main())
    assert seen == ["cancelled"]


def test_a_cancelled_caller_is_back_after_the_grace_whatever_the_code_does() -> None:
    release = asyncio.Event()

    async def stubborn(started: asyncio.Event) -> None:
        started.set()
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue

    async def main() -> None:
        started, left = asyncio.Event(), Left()
        task = asyncio.create_task(run_bounded(stubborn(started), LONG, left))
        await started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert len(left.tasks) == 1
        release.set()
        await left.end()

    run(main())


def test_a_caller_that_was_cancelled_is_cancelled_also_where_the_code_returns() -> None:
    async def main() -> None:
        started = asyncio.Event()

        async def hide() -> str:
            started.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                return "swallowed"
            return "not"

        task = asyncio.create_task(run_bounded(hide(), LONG, Left()))
        await started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run(main())


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt()])
def test_an_exit_of_the_code_does_not_end_the_loop(error: BaseException) -> None:
    async def leave() -> None:
        raise error

    with pytest.raises(ToolExitError, match=type(error).__name__):
        run(run_bounded(leave(), LONG, Left()))


def test_a_cancellation_that_the_code_raises_is_not_the_callers() -> None:
    async def cancel_itself() -> None:
        await asyncio.sleep(0)
        raise asyncio.CancelledError("inner")

    async def main() -> int:
        task = asyncio.current_task()
        assert task is not None
        with pytest.raises(ToolExitError, match="CancelledError"):
            await run_bounded(cancel_itself(), LONG, Left())
        return task.cancelling()

    assert run(main()) == 0


def test_task_groups_and_threads_work_inside() -> None:
    async def busy() -> int:
        async with asyncio.TaskGroup() as group:
            one = group.create_task(asyncio.sleep(0, 1))
            two = group.create_task(asyncio.to_thread(lambda: 2))
        return one.result() + two.result() + await asyncio.wait_for(asyncio.sleep(0, 3), LONG)

    assert run(run_bounded(busy(), LONG, Left())) == 6


def test_the_error_of_a_task_group_is_the_codes_own() -> None:
    async def fail() -> None:
        await asyncio.sleep(0)
        raise ValueError("real reason")

    async def group() -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(fail())
            await asyncio.Event().wait()

    async def main() -> int:
        task = asyncio.current_task()
        assert task is not None
        with pytest.raises(ExceptionGroup):
            await run_bounded(group(), LONG, Left())
        return task.cancelling()

    assert run(main()) == 0


def test_the_callers_context_variables_are_seen() -> None:
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="none")

    async def read() -> str:
        await asyncio.sleep(0)
        return variable.get()

    async def main() -> str:
        variable.set("the caller's")
        return await run_bounded(read(), LONG, Left())

    assert run(main()) == "the caller's"


def test_a_task_that_swallows_cancellation_inside_does_not_hold_the_deadline() -> None:
    async def main() -> None:
        left, release = Left(), asyncio.Event()

        async def stubborn() -> str:
            while not release.is_set():
                try:
                    await release.wait()
                except asyncio.CancelledError:
                    continue
            return "done"

        async def outer() -> str:
            return await asyncio.create_task(stubborn())

        with pytest.raises(DeadlineExceededError):
            await run_bounded(outer(), SHORT, left)
        release.set()
        await left.end()

    run(main())


def test_a_cancellation_during_the_first_step_is_the_callers() -> None:
    """As a signal does it, whose handler runs between any two steps of the interpreter."""

    async def interrupted(caller: asyncio.Future[Any]) -> None:
        caller.cancel()
        await asyncio.Event().wait()

    async def inner() -> None:
        caller = asyncio.current_task()
        assert caller is not None
        await run_bounded(interrupted(caller), LONG, Left())

    async def main() -> None:
        task = asyncio.create_task(inner())
        with pytest.raises(asyncio.CancelledError):
            await task

    run(main())
