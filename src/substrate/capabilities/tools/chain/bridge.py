"""The bridge: carries every call of a running script to the invoker, and its answer back.

It knows the sandbox only by its events and tools only by the invoker. A call is
started when the script next waits, in the order in which calls were made; answers
go back in the order in which calls end.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from operator import itemgetter
from typing import Any, TypeAlias

from substrate.agents.tools.artifacts import put_artifact, read_lines, read_text
from substrate.agents.tools.deadline import DeadlineExceededError, run_bounded
from substrate.agents.tools.invoker import InvokerSession, ToolInvoker
from substrate.agents.tools.session import Clock
from substrate.agents.tools.shown import shown_result
from substrate.capabilities.tools.chain.stubs import is_parameter
from substrate.kernel.context import RunContext
from substrate.kernel.hooks import ProgressSink
from substrate.kernel.sandbox import (
    Answer,
    Artifact,
    ArtifactPut,
    ArtifactRead,
    Blocked,
    Done,
    Failed,
    Raised,
    Returned,
    SandboxCall,
    SandboxRun,
)
from substrate.kernel.tools.chain import ChainFile, InvocationResult
from substrate.kernel.tools.tools import ToolCallRequest

__all__ = ["Bridge", "Ending", "answer_of"]

Ask: TypeAlias = ArtifactRead | ArtifactPut

_log = logging.getLogger("substrate.chain")

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


@dataclass(slots=True)
class Bridge:
    """Drives one run of one script."""

    invoker: ToolInvoker
    session: InvokerSession
    run: SandboxRun
    ctx: RunContext | None = None
    sink: ProgressSink | None = None
    lookups: Mapping[str, Callable[..., Any]] = field(default_factory=dict[str, Any])
    files: list[ChainFile] = field(default_factory=list[ChainFile])
    _waiting: deque[tuple[int, ToolCallRequest | Ask]] = field(
        default_factory=deque[tuple[int, "ToolCallRequest | Ask"]]
    )
    _open: dict[int, asyncio.Task[Answer]] = field(
        default_factory=dict[int, "asyncio.Task[Answer]"]
    )
    _answers: dict[int, Answer] = field(default_factory=dict[int, Answer])
    _woken: asyncio.Event = field(default_factory=asyncio.Event)
    _seq: int = 0
    _over_budget: int = 0
    _broken: BaseException | None = None

    async def drive(self) -> Ending:
        """Run the script to its end, whatever end that is, or to that of the chain's time.

        The clock runs but while a call is waited for, which keeps it itself. Raises the
        caller's own cancellation, after every open call was cancelled.
        """
        self.session.clock.computing(True)
        limit = asyncio.timeout(None)
        watch = _Watch(self.session.clock, limit)
        try:
            async with limit:
                watch.look()
                return await self._drive()
        except TimeoutError:
            if not limit.expired():
                raise
            await self._cancel_open()
            text = f"the chain's {self.session.policy.total_timeout_s:g}s are over"
            return Ending(Failed(reason="time", error=text))
        except BaseException:
            await self._cancel_open()
            raise
        finally:
            watch.stop()
            self.session.clock.computing(False)

    async def _drive(self) -> Ending:
        event = await self.run.start()
        while isinstance(event, Blocked):
            made = self._made(event)
            if len(made) == 1 and not (event.asks or self._open or event.until):
                await self._call_alone(*made[0])
            else:
                self._waiting.extend(made)
                self._start_waiting()
                await self._some_answer(event.until)
            if self._over_budget > 1:
                self._waiting.clear()
                return await self._end(Failed(reason="budget", error=_OVER_BUDGET))
            answers, self._answers = self._answers, {}
            event = await self.run.answer(answers)
        return await self._end(event)

    async def _call_alone(self, call_id: int, request: Any) -> None:
        """The script waits for this one call and nothing else: no task is needed."""
        with self._waiting_for_calls():
            self._answers[call_id] = await self._call(request)

    @contextmanager
    def _waiting_for_calls(self) -> Generator[None]:
        """The script does not compute: what it waits for keeps the clock."""
        self.session.clock.computing(False)
        try:
            yield
        finally:
            self.session.clock.computing(True)

    def _made(self, event: Blocked) -> list[tuple[int, ToolCallRequest | Ask]]:
        """What the script asks for since the last event, in the order in which it asked."""
        made: list[tuple[int, ToolCallRequest | Ask]] = []
        for call in event.calls:
            request = self._request(call)
            if request is not None:
                made.append((call.id, request))
        if event.asks:
            made += [(ask.id, ask) for ask in event.asks]
            made.sort(key=itemgetter(0))
        return made

    def _start_waiting(self) -> None:
        """Start what waits, in order; no more at once than can be told of a spent budget."""
        most = self.session.policy.max_tool_calls + 2
        while self._waiting and len(self._open) < most:
            call_id, made = self._waiting.popleft()
            work = self._call(made) if isinstance(made, ToolCallRequest) else self._serve(made)
            task = self._open[call_id] = asyncio.create_task(work)
            task.add_done_callback(partial(self._ended, call_id))

    def _ended(self, call_id: int, task: asyncio.Task[Answer]) -> None:
        """Called in the order in which calls end, which is that of their answers."""
        if self._open.pop(call_id, None) is None:
            return  # the chain gave it up
        error = None if task.cancelled() else task.exception()
        if task.cancelled():
            self._answers[call_id] = Raised("RuntimeError", "the call was cancelled")
        elif error is None:
            self._answers[call_id] = task.result()
        else:
            self._broken = error
        self._woken.set()
        self._start_waiting()

    async def _call(self, request: ToolCallRequest) -> Answer:
        result = await self.invoker.invoke(
            request, session=self.session, ctx=self.ctx, progress_sink=self.sink
        )
        self.files.extend(result.files)
        if result.reason == "budget":
            self._over_budget += 1
        return answer_of(result, self.session)

    async def _serve(self, ask: Ask) -> Answer:
        """A part of an artifact, or a new one; on the chain's clock, as a call is."""
        self.session.clock.enter_call()
        try:
            left = max(self.session.clock.left(), 0.0)
            work = run_bounded(served(ask, self.session), left, self.invoker.leaver("artifacts"))
            return Returned(await work)
        except DeadlineExceededError:
            return Raised("TimeoutError", "the artifact store gave no answer in time")
        except ValueError as error:
            return Raised("ValueError", str(error))
        except Exception as error:  # the store's own words may hold what is not the script's
            _log.warning("the artifact store failed (%s)", type(error).__name__)
            return Raised("RuntimeError", f"the artifact store failed ({type(error).__name__})")
        finally:
            self.session.clock.leave_call()

    async def _some_answer(self, until: float | None) -> None:
        """Wait for the first answer, or for the time when a sleep of the script ends."""
        while not self._answers:
            if self._broken is not None:
                raise self._broken
            self._woken.clear()
            if until is None:
                with self._waiting_for_calls():
                    await self._woken.wait()
            elif until <= time.monotonic():
                return
            else:  # a sleeping script counts as computing
                with suppress(TimeoutError):
                    async with asyncio.timeout(until - time.monotonic()):
                        await self._woken.wait()

    def _request(self, call: SandboxCall) -> ToolCallRequest | None:
        """The call as a request; None where it cannot be one, and was answered so."""
        if call.name in self.lookups:
            self._answers[call.id] = _looked_up(self.lookups[call.name], call)
            return None
        arguments = self._arguments(call)
        if isinstance(arguments, Raised):
            self._answers[call.id] = arguments
            return None
        self._seq += 1
        call_id = f"{self.session.chain_id}:{self._seq}"
        return ToolCallRequest(call.name, arguments, call_id, self._seq, call.site)

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

    async def _end(self, event: Done | Failed) -> Ending:
        """Calls in flight are finished within their own deadlines, or by the chain's clock."""
        while self._open:
            self._woken.clear()
            with self._waiting_for_calls():
                await self._woken.wait()
        return Ending(event, unstarted=event.calls)

    async def _cancel_open(self) -> None:
        self._waiting.clear()
        tasks = list(self._open.values())
        self._open.clear()
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=_CANCEL_S)


class _Watch:
    """Ends a chain when its clock does, which may stand still meanwhile."""

    def __init__(self, clock: Clock, limit: asyncio.Timeout) -> None:
        self._clock = clock
        self._limit = limit
        self._timer: asyncio.TimerHandle | None = None

    def look(self) -> None:
        """Look at the clock, and look again when it can be over at the earliest."""
        loop = asyncio.get_running_loop()
        left = self._clock.left() + _GRACE_S
        if left <= 0:
            self._limit.reschedule(loop.time())
        else:
            self._timer = loop.call_later(left, self.look)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()


_GRACE_S = 0.2
"""Seconds for calls to come back by their own deadlines, which end with the chain's."""
_CANCEL_S = 7.0
"""A cancelled call is back by its grace and the named bounds of sinks and hooks."""

_OVER_BUDGET = "the budget of tool calls is spent, and the script went on calling: it was ended"


def _looked_up(ask: Callable[..., Any], call: SandboxCall) -> Answer:
    """What a script asks about its tools is no call of a tool."""
    try:
        return Returned(ask(*call.args, **call.kwargs))
    except LookupError as error:
        return Raised("LookupError", str(error))
    except Exception as error:
        return Raised("ValueError", f"{call.name} takes other arguments: {error}")


async def served(ask: Ask, session: InvokerSession) -> Any:
    """What the script asked for."""
    if isinstance(ask, ArtifactPut):
        return await put_artifact(session, ask.data, ask.media_type)
    read = read_text if ask.unit == "text" else read_lines
    return await read(session, ask.ref, ask.start, ask.stop)


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
