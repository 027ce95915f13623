"""The bridge: carries every call of a running script to the invoker, and its answer back.

It knows the sandbox only by its events and tools only by the invoker. A call is
started when the script next waits, in the order in which calls were made; answers
go back in the order in which calls end.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from substrate.agents.tools.invoker import InvokerSession, ToolInvoker
from substrate.agents.tools.shown import shown_result
from substrate.capabilities.tools.chain.stubs import is_parameter
from substrate.kernel.context import RunContext
from substrate.kernel.hooks import ProgressSink
from substrate.kernel.sandbox import (
    Answer,
    Artifact,
    Blocked,
    Done,
    Failed,
    Raised,
    Returned,
    SandboxCall,
    SandboxEvent,
    SandboxRun,
)
from substrate.kernel.tools.chain import ChainFile, InvocationResult
from substrate.kernel.tools.tools import ToolCallRequest

__all__ = ["Bridge", "Ending", "answer_of"]

_EXCEPTIONS = {
    "timeout": "TimeoutError",
    "invalid_arguments": "ValueError",
    "bad_ref": "ValueError",
    "unknown_tool": "LookupError",
    "not_callable_from_chain": "LookupError",
}
_RAN = {
    "no": "It was not run.",
    "yes": "The tool ran.",
    "unknown": "Whether it happened is not known.",
}


@dataclass(slots=True)
class Ending:
    """How a script ended; `unstarted` are calls that were made and never waited for."""

    event: Done | Failed
    unstarted: tuple[SandboxCall, ...] = ()
    timed_out: bool = False


@dataclass(slots=True)
class Bridge:
    """Drives one run of one script."""

    invoker: ToolInvoker
    session: InvokerSession
    run: SandboxRun
    ctx: RunContext | None = None
    sink: ProgressSink | None = None
    files: list[ChainFile] = field(default_factory=list[ChainFile])
    _open: dict[int, asyncio.Task[InvocationResult]] = field(
        default_factory=dict[int, "asyncio.Task[InvocationResult]"]
    )
    _ended: list[int] = field(default_factory=list[int])
    _bad: dict[int, Answer] = field(default_factory=dict[int, Answer])
    _seq: int = 0
    _over_budget: int = 0

    async def drive(self) -> Ending:
        """Run the script to its end, whatever end that is.

        Raises the caller's own cancellation, after every open call was cancelled.
        """
        try:
            event = await self._computing(self.run.start())
            while isinstance(event, Blocked):
                for call in event.calls:
                    self._start(call)
                answers = await self._some_answers(event)
                if answers is None:
                    return await self._out_of_time()
                if self._over_budget > 1:
                    return await self._end(Failed(reason="budget", error=_OVER_BUDGET))
                event = await self._computing(self.run.answer(answers))
            if event is None:
                return await self._out_of_time()
            return await self._end(event)
        except BaseException:
            await self._cancel_open()
            raise

    async def _computing(self, step: Any) -> SandboxEvent | None:
        """Let the script compute; None where the chain's time ends first."""
        clock = self.session.clock
        clock.computing(True)
        task: asyncio.Task[SandboxEvent] = asyncio.ensure_future(step)
        try:
            await asyncio.wait((task,), timeout=max(clock.left(), 0.0))
            if task.done():
                return task.result()
            return None
        finally:
            clock.computing(False)
            if not task.done():
                task.cancel()
                await asyncio.wait((task,), timeout=1.0)

    def _start(self, call: SandboxCall) -> None:
        self._seq += 1
        arguments = self._arguments(call)
        if isinstance(arguments, Raised):
            self._bad[call.id] = arguments
            return
        request = ToolCallRequest(
            call.name, arguments, f"{self.session.chain_id}:{self._seq}", self._seq, call.site
        )
        task = asyncio.create_task(
            self.invoker.invoke(
                request, session=self.session, ctx=self.ctx, progress_sink=self.sink
            )
        )
        self._open[call.id] = task
        task.add_done_callback(lambda _, call_id=call.id: self._ended.append(call_id))

    def _arguments(self, call: SandboxCall) -> dict[str, Any] | Raised:
        """Keyword arguments, and positional ones by the order of the stub."""
        if not call.args:
            return dict(call.kwargs)
        traits = self.invoker.source.traits(call.name)
        names = [n for n in traits.positional if is_parameter(n)] if traits is not None else []
        if len(call.args) > len(names):
            message = f"{call.name!r} takes {len(names)} arguments, {len(call.args)} were given"
            return Raised("ValueError", f"{message}. It was not run.")
        placed = dict(zip(names, call.args, strict=False))
        twice = placed.keys() & call.kwargs.keys()
        if twice:
            message = f"{call.name!r} was given {', '.join(sorted(twice))} twice. It was not run."
            return Raised("ValueError", message)
        return {**placed, **call.kwargs}

    async def _some_answers(self, event: Blocked) -> dict[int, Answer] | None:
        """The answers that are there, waiting for the first; None where the time is over."""
        while not self._ended and not self._bad:
            if event.until is not None and event.until <= time.monotonic():
                break
            self.session.clock.computing(event.until is not None)
            left = self.session.clock.left()
            if left <= 0:
                return None
            rest = left if event.until is None else min(left, event.until - time.monotonic())
            if self._open:
                await asyncio.wait(
                    self._open.values(),
                    timeout=max(rest, 0.0),
                    return_when=asyncio.FIRST_COMPLETED,
                )
            else:
                await asyncio.sleep(max(rest, 0.0))
            await asyncio.sleep(0)  # done callbacks run in the order in which calls ended
        self.session.clock.computing(False)
        return self._collect()

    def _collect(self) -> dict[int, Answer]:
        answers, self._bad = dict(self._bad), {}
        ended, self._ended = self._ended, []
        for call_id in ended:
            result = _result_of(self._open.pop(call_id))
            self.files.extend(result.files)
            if result.reason == "budget":
                self._over_budget += 1
            answers[call_id] = answer_of(result, self.session)
        return answers

    async def _out_of_time(self) -> Ending:
        limit = self.session.policy.total_timeout_s
        await self._cancel_open()
        error = f"the chain's {limit:g}s are over"
        return Ending(Failed(reason="time", error=error), timed_out=True)

    async def _end(self, event: Done | Failed) -> Ending:
        """Calls in flight are finished within their own deadlines, or by the chain's clock."""
        while self._open:
            left = self.session.clock.left()
            if left <= 0:
                break
            await asyncio.wait(
                self._open.values(), timeout=left, return_when=asyncio.FIRST_COMPLETED
            )
            await asyncio.sleep(0)
            self._collect()
        await self._cancel_open()
        return Ending(event, unstarted=event.calls)

    async def _cancel_open(self) -> None:
        for task in self._open.values():
            task.cancel()
        if self._open:
            await asyncio.wait(self._open.values(), timeout=_CANCEL_S)
            self._open.clear()


_CANCEL_S = 7.0
"""A cancelled call is back by its grace and the named bounds of sinks and hooks."""

_OVER_BUDGET = "the budget of tool calls is spent, and the script went on calling: it was ended"


def _result_of(task: asyncio.Task[InvocationResult]) -> InvocationResult:
    try:
        return task.result()
    except asyncio.CancelledError:
        return InvocationResult(
            status="error", reason="cancelled", ran="unknown", text="the call was cancelled"
        )


def answer_of(result: InvocationResult, session: InvokerSession) -> Answer:
    """What the script gets: a plain value, a handle, or an ordinary exception."""
    if result.status == "ok":
        return Returned(_value_of(result, session))
    kind: Any = "PermissionError" if result.status == "denied" else "RuntimeError"
    kind = _EXCEPTIONS.get(result.reason or "", kind) if result.status != "denied" else kind
    message = shown_result(result)
    ran = _RAN[result.ran]
    return Raised(kind, message if message.endswith(ran) else f"{message} [{ran}]")


def _value_of(result: InvocationResult, session: InvokerSession) -> Any:
    value = result.value
    if result.artifact_ref is not None:
        value = _artifact(result.artifact_ref, result.preview or "", session)
    elif result.preview is not None and result.structured is None:
        value = result.preview
    if not result.files:
        return value
    files = [_file_of(file, session) for file in result.files]
    only_media = result.artifact_ref is None and not result.text and result.structured is None
    return {"value": None if only_media else value, "files": files}


def _file_of(file: ChainFile, session: InvokerSession) -> Mapping[str, Any]:
    ref = file.artifact_ref
    artifact = None if ref is None else _artifact(ref, file.path, session)
    return {"path": file.path, "media_type": file.media_type, "artifact": artifact}


def _artifact(ref: str, preview: str, session: InvokerSession) -> Artifact:
    handle = session.handle(ref)
    size, media_type = (handle.size, handle.media_type) if handle else (0, "")
    return Artifact(ref=ref, preview=preview, size=size, media_type=media_type)
