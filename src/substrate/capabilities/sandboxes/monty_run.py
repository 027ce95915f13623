"""`MontyRun`: one run of one script in a Monty worker.

One step of a run is one job in a thread: answer what is answered, let the script go
on, collect the calls it makes, until it waits or ends. Every tool call is answered
with a future, so that failures arrive where the script awaits.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, NamedTuple, Protocol, Self

import pydantic_monty as monty

from substrate.capabilities.sandboxes.dialect import with_way_round
from substrate.capabilities.sandboxes.monty_asks import asked
from substrate.capabilities.sandboxes.monty_values import (
    ARTIFACT_CLASS,
    ARTIFACTS,
    from_guest,
    to_guest,
)
from substrate.capabilities.sandboxes.script_value import with_value
from substrate.capabilities.sandboxes.worker import Worker
from substrate.capabilities.sandboxes.workers import Places, Workers
from substrate.kernel.errors import SandboxUnavailable
from substrate.kernel.names import did_you_mean
from substrate.kernel.sandbox import (
    MEDIA_ROOT,
    Answer,
    ArtifactPut,
    ArtifactRead,
    Blocked,
    Done,
    Failed,
    Returned,
    SandboxCall,
    SandboxEvent,
    Script,
)
from substrate.kernel.tools.chain import ChainReason
from substrate.kernel.tools.tools import CallSite

__all__ = ["MontyRun"]

_SUSPENSIONS = 1_000_000
_SHOWN_VALUE = 1000
_HANDLE = 500  # bytes of a handle beside its preview, about
_NAMES: dict[str, Any] = {"artifacts": ARTIFACTS, "Artifact": ARTIFACT_CLASS}


class Pool(Protocol):
    """What a run needs of its sandbox."""

    @property
    def places(self) -> Places:
        """The bound on worker processes."""
        ...

    @property
    def workers(self) -> Workers:
        """The threads that drive them."""
        ...

    def pool(self) -> monty.Monty:
        """Monty's own pool (blocking)."""
        ...


class MontyRun:
    """One run of one script."""

    def __init__(self, sandbox: Pool, script: Script) -> None:
        self._sandbox = sandbox
        self._script = script
        self._bytes = script.code.encode()
        self._raw = frozenset(script.tools.values())
        self._printed = _Printed(script.limits.output_bytes, self._kill)
        self._session: monty.MontySession | None = None
        self._mount: monty.MountDir | None = None
        self._worker: Worker | None = None
        self._snapshot: Any = None
        self._calls: list[SandboxCall] = []
        self._asks: list[ArtifactRead | ArtifactPut] = []
        self._handles: dict[uuid.UUID, monty.ClassInstance] = {}
        self._settled: dict[int, Any] = {}
        self._sleeps: dict[int, float] = {}
        self._asleep: float | None = None
        state = script.state if isinstance(script.state, _State) else None
        self._before = state
        self._saved: _State | None = None
        self._feed = 0 if state is None else state.feeds
        if state is not None:
            self._handles.update(state.handles)
        self._turn = threading.Lock()
        self._held = self._killed = False

    @property
    def output(self) -> str:
        """What was printed so far."""
        return self._printed.text

    @property
    def saved(self) -> _State | None:
        """The session as the script left it, if it was asked for."""
        return self._saved

    async def start(self) -> SandboxEvent:
        """Run the script until it waits or ends."""
        await self._sandbox.places.take()
        self._held = True
        return await self._in_thread(self._begin)

    async def answer(self, answers: Mapping[int, Answer]) -> SandboxEvent:
        """Answer some of the open calls and run on."""
        for call_id, answer in answers.items():
            self._settled[call_id] = _settled(answer, self._handles)
        return await self._in_thread(self._go_on)

    async def _in_thread(self, step: Callable[[], SandboxEvent]) -> SandboxEvent:
        return await self._sandbox.workers.run(lambda: self._contained(step))

    def _contained(self, step: Callable[[], SandboxEvent]) -> SandboxEvent:
        """A step, its end told as an event; a run that has ended is closed in the same job."""
        with self._turn:
            return self._stepped(step)

    def _stepped(self, step: Callable[[], SandboxEvent]) -> SandboxEvent:
        try:
            event = step()
        except SandboxUnavailable:
            self._close()
            raise
        except monty.MontyError as error:
            event = self._failed(error)
        except (ValueError, TypeError, RuntimeError, RecursionError) as error:
            event = Failed(reason="protocol", error=f"{type(error).__name__}: {error}")
        if self._printed.is_over:
            text = f"more than {self._script.limits.output_bytes} bytes were printed"
            event = Failed(reason="output", error=text, calls=tuple(self._calls))
        if not isinstance(event, Blocked):
            self._save(event)
            self._close()
        return event

    def _save(self, event: Done | Failed) -> None:
        session = self._session
        ended = isinstance(event, Done) or event.reason == "script_error"
        if self._script.keeps and ended and session is not None:
            with contextlib.suppress(monty.MontyError):  # then the state before stays
                self._saved = _State(session.dump(), dict(self._handles), self._feed + 1)

    def _begin(self) -> SandboxEvent:
        limits = self._script.limits
        session = self._sandbox.pool().checkout(
            script_name="script",
            limits={
                "max_feed_duration_secs": limits.compute_s,
                "max_memory": limits.memory_bytes,
                "max_recursion_depth": limits.recursion,
                "max_suspensions": _SUSPENSIONS,
            },
            os_policy={"sleep": "call_host"},
        )
        self._session = session.__enter__()
        self._worker = Worker(self._session.worker_pid)
        if self._killed:  # looked at after the worker is known: see `__aexit__`
            return Failed(reason="crash", error="the run was ended before it began")
        if self._before is not None:
            self._session.load_session(self._before.data)
        if self._script.files is not None:
            self._mount = monty.MountDir(
                host_path=self._script.files, virtual_path=MEDIA_ROOT, mode="read-only"
            )
        self._snapshot = self._session.feed_start(
            with_value(self._script.code), print_callback=self._printed, mount=self._mount
        )
        return self._advance()

    def _go_on(self) -> SandboxEvent:
        now = time.monotonic()
        for call_id, until in list(self._sleeps.items()):
            if until <= now:
                del self._sleeps[call_id]
                self._settled[call_id] = {"return_value": None}
        return self._advance()

    def _advance(self) -> SandboxEvent:
        """Let the script go on until it waits for the host or ends."""
        while True:
            snapshot = self._snapshot
            if isinstance(snapshot, monty.MontyComplete):
                return Done(value=_value(snapshot, self._handles), calls=tuple(self._calls))
            if isinstance(snapshot, monty.FutureSnapshot):
                due = {
                    i: self._settled.pop(i) for i in snapshot.pending_call_ids if i in self._settled
                }
                if not due:
                    return self._blocked(snapshot.pending_call_ids)
                self._snapshot = snapshot.resume(due)
            elif isinstance(snapshot, monty.NameLookupSnapshot):
                self._snapshot = self._look_up(snapshot)
            elif self._asleep is not None:
                if self._asleep > time.monotonic():
                    return self._blocked([])
                self._asleep = None
                self._snapshot = snapshot.resume({"return_value": None})
            elif snapshot.is_os_function:
                self._system_call(snapshot)
            else:
                self._call(snapshot)

    def _blocked(self, pending: list[int]) -> Blocked:
        calls, self._calls = tuple(self._calls), []
        asks, self._asks = tuple(self._asks), []
        sleeps = [self._sleeps[i] for i in pending if i in self._sleeps]
        until = self._asleep if self._asleep is not None else min(sleeps, default=None)
        waiting = tuple(i for i in pending if i not in self._sleeps)
        return Blocked(calls=calls, asks=asks, waiting=waiting, until=until)

    def _look_up(self, snapshot: monty.NameLookupSnapshot) -> Any:
        name = snapshot.variable_name
        if snapshot.object_id is None and name in _NAMES:
            return snapshot.resume(value=_NAMES[name])
        if snapshot.object_id is None and name == "tools":
            return snapshot.resume(value={raw: _function(raw) for raw in self._raw})
        if snapshot.object_id is None and name in self._script.tools:
            return snapshot.resume(value=_function(name))
        return snapshot.resume()

    def _system_call(self, snapshot: monty.FunctionSnapshot) -> None:
        if snapshot.function_name not in ("asyncio.sleep", "time.sleep"):
            self._snapshot = snapshot.resume_auto()
            return
        seconds = snapshot.args[0] if snapshot.args else snapshot.kwargs.get("delay", 0)
        until = time.monotonic() + max(float(seconds), 0.0)
        if snapshot.function_name == "asyncio.sleep":
            self._sleeps[snapshot.call_id] = until
            self._snapshot = snapshot.resume({"future": ...})
        else:
            self._asleep = until

    def _call(self, snapshot: monty.FunctionSnapshot) -> None:
        name = snapshot.function_name
        if snapshot.object_id is not None:
            self._ask(snapshot)
            return
        raw = self._script.tools.get(name, name if name in self._raw else None)
        if raw is None:
            hint = did_you_mean(name, self._script.tools, 1)
            message = f"name {name!r} is not defined{hint}"
            self._snapshot = snapshot.resume({"exc_type": "NameError", "message": message})
            return
        try:
            args = tuple(from_guest(arg, self._handles) for arg in snapshot.args)
            kwargs = {str(k): from_guest(v, self._handles) for k, v in snapshot.kwargs.items()}
        except ValueError as error:
            message = f"an argument of {raw!r} cannot be passed: {error}. It was not run."
            self._settled[snapshot.call_id] = {"exc_type": "ValueError", "message": message}
        else:
            call_id, site = snapshot.call_id, self._site(snapshot.position)
            self._calls.append(
                SandboxCall(id=call_id, name=raw, args=args, kwargs=kwargs, site=site)
            )
        self._snapshot = snapshot.resume({"future": ...})

    def _ask(self, snapshot: monty.FunctionSnapshot) -> None:
        """A method of a handle, or of `artifacts`."""
        try:
            self._asks.append(asked(snapshot, self._handles))
        except (AttributeError, TypeError, ValueError) as error:
            self._snapshot = snapshot.resume({"exception": error})
        else:
            self._snapshot = snapshot.resume({"future": ...})

    @property
    def _name(self) -> str:
        """How Monty names this script."""
        return f"<python-input-{self._feed}>"

    def _site(self, position: monty.SourceRange) -> CallSite | None:
        if position.filename != self._name or position.end > len(self._bytes):
            return None  # in `eval`, or in a function of an earlier script
        line = self._bytes.count(b"\n", 0, position.start) + 1
        return CallSite(position.start, position.end, line)

    def _failed(self, error: monty.MontyError) -> Failed:
        reason = _reason(error)
        text = error.display() if isinstance(error, _DISPLAYED) else str(error)
        text = text.replace(f'File "{self._name}"', 'File "script"')
        text = with_way_round(_EARLIER.sub('File "an earlier script"', text).rstrip())
        return Failed(reason=reason, error=text, calls=tuple(self._calls))

    def _close(self) -> None:
        """Hand the worker back, and the place with it (in a thread)."""
        session, self._session = self._session, None
        self._snapshot = None
        if self._worker is not None:
            self._worker.let_go()
        if session is not None:
            with contextlib.suppress(Exception):
                session.__exit__(None, None, None)
        if self._mount is not None:
            self._mount.close()
        if self._held:
            self._held = False
            self._sandbox.places.free()

    def _kill(self) -> None:
        if self._worker is not None:
            self._worker.kill()

    def _close_after_step(self) -> None:
        with self._turn:  # a step whose worker is dead ends at once
            self._close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        """End the run wherever it is: its worker is killed, and the pool replaces it."""
        if not self._held:
            return
        self._killed = True
        self._kill()
        await asyncio.wait((self._sandbox.workers.run(self._close_after_step),))


class _State(NamedTuple):
    """A session at rest. The dump is not authenticated: it never leaves this process."""

    data: bytes
    handles: dict[uuid.UUID, monty.ClassInstance]
    feeds: int

    @property
    def size(self) -> int:
        previews = sum(len(handle.value.preview) for handle in self.handles.values())
        return len(self.data) + previews + _HANDLE * len(self.handles)

    @property
    def refs(self) -> frozenset[str]:
        return frozenset(str(handle.value.ref) for handle in self.handles.values())


class _Printed:
    """What a script printed, up to a limit of bytes; then it is killed, for it would print on."""

    def __init__(self, limit: int, kill: Callable[[], None]) -> None:
        self._room = limit
        self._kill = kill
        self._parts: list[str] = []
        self.is_over = False

    @property
    def text(self) -> str:
        return "".join(self._parts)

    def __call__(self, _stream: str, text: str) -> None:
        data = text.encode()
        self._parts.append(data[: self._room].decode(errors="ignore"))
        if len(data) > self._room and not self.is_over:
            self.is_over = True
            self._kill()
        self._room = max(self._room - len(data), 0)


_EARLIER = re.compile(r'File "<python-input-\d+>"')
_DISPLAYED = (monty.MontyRuntimeError, monty.MontySyntaxError, monty.MontyTypingError)


def _reason(error: monty.MontyError) -> ChainReason:
    if isinstance(error, monty.MontySyntaxError):
        return "syntax"
    if isinstance(error, monty.MontyCrashedError):
        return "time" if error.timed_out else "crash"
    inner, text = error.exception(), str(error)
    if isinstance(inner, TimeoutError) and "time limit exceeded" in text:
        return "time"
    if isinstance(inner, NotImplementedError):
        return "unsupported"
    if isinstance(inner, MemoryError) and "memory limit exceeded" in text:
        return "memory"
    return "recursion" if isinstance(inner, RecursionError) else "script_error"


def _function(name: str) -> Any:
    def granted() -> None:
        """A name that the script may call."""

    granted.__name__ = name
    return granted


def _settled(answer: Answer, handles: dict[uuid.UUID, monty.ClassInstance]) -> Any:
    if isinstance(answer, Returned):
        return {"return_value": to_guest(answer.value, handles)}
    message = answer.message.encode(errors="backslashreplace").decode()
    return {"exc_type": answer.exc_type, "message": message}


def _value(done: monty.MontyComplete, handles: Mapping[uuid.UUID, monty.ClassInstance]) -> Any:
    """The script's value as data; what is none is told as a text."""
    output = done.output
    try:
        return from_guest(output, handles)
    except ValueError:
        return f"{output!r}"[:_SHOWN_VALUE]
