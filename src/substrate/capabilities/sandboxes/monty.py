"""`MontySandbox`: scripts in pydantic-monty, an interpreter for a subset of Python.

A pool of worker processes is kept, driven by the synchronous snapshot API from a few
threads of our own: a thread is held only while a script computes, a process also
while it waits. Its async client can abort the host at exit, so it is not used.

One step of a run is one job in a thread: answer what is answered, let the script go
on, collect the calls it makes, until it waits or ends. Every tool call is answered
with a future, so that failures arrive where the script awaits.
"""

from __future__ import annotations

import ast
import asyncio
import atexit
import contextlib
import functools
import os
import re
import select
import signal
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, NamedTuple, Self

import pydantic_monty as monty

from substrate.capabilities.sandboxes.checker import Checker
from substrate.capabilities.sandboxes.dialect import with_way_round
from substrate.capabilities.sandboxes.launcher import launcher
from substrate.capabilities.sandboxes.monty_values import (
    ARTIFACT_CLASS,
    ARTIFACTS,
    from_guest,
    to_guest,
)
from substrate.capabilities.sandboxes.untraced import cut_short
from substrate.capabilities.sandboxes.workers import Places, Workers
from substrate.kernel.errors import SandboxUnavailable
from substrate.kernel.sandbox import (
    Answer,
    ArtifactPut,
    ArtifactRead,
    Blocked,
    Done,
    Failed,
    Problem,
    Returned,
    SandboxCall,
    SandboxCapabilities,
    SandboxEvent,
    Script,
)
from substrate.kernel.tools.chain import ChainReason
from substrate.kernel.tools.tools import CallSite

__all__ = ["MontySandbox"]

_MEDIA = "/workspace/media"
_MOST_CODE = 1024 * 1024
_SUSPENSIONS = 1_000_000
_KILL_AFTER_S = 1.0  # a step that never reaches a check of the clock is killed so much later
_SHOWN_VALUE = 1000


class MontySandbox:
    """A kept pool of Monty workers.

    Args:
        processes: Workers at once; a waiting script holds one (about 1 MB).
        threads: Threads that drive them; None: one more than there are cores.
    """

    def __init__(self, processes: int = 64, threads: int | None = None) -> None:
        self._processes = processes
        self._places = Places(processes)
        count = threads if threads is not None else (os.cpu_count() or 1) + 1
        self._workers = Workers(count, cut_short)
        self._pool: monty.Monty | None = None
        self._checker = Checker()
        self._lock = threading.Lock()

    def capabilities(self) -> SandboxCapabilities:
        """A subset of Python in a process of its own, behind every layer found here."""
        return _capabilities()

    async def preflight(self, script: Script) -> list[Problem]:
        """What can be told without running it: no text, too long, unsupported, wrongly typed."""
        if self._pool is None:  # the launcher is looked for off the loop
            await self._workers.run(launcher)
        code = script.code
        if len(code) > _MOST_CODE:
            text = f"the script has {len(code)} characters; at most {_MOST_CODE} are taken"
            return [Problem("syntax", text)]
        for number, line in enumerate(code.split("\n"), 1):
            if "\0" in line:
                return [Problem("syntax", "a NUL character is no Python", number)]
            if not line.isascii() and any("\ud800" <= char <= "\udfff" for char in line):
                return [Problem("syntax", "a lone surrogate is no character", number)]
        if script.stubs is None:
            return []
        return await self._workers.run(lambda: self._checker.check(script))

    def run(self, script: Script) -> MontyRun:
        """A new run of `script`, not yet started."""
        return MontyRun(self, script)

    def pool(self) -> monty.Monty:
        """The pool, started when first wanted (blocking: called from a thread)."""
        with self._lock:
            if self._pool is None:
                pool = monty.Monty(
                    binary_path=launcher().path,
                    max_processes=self._processes,
                    feed_duration_limit_grace=_KILL_AFTER_S,
                )
                try:
                    self._pool = pool.__enter__()
                except Exception as error:
                    msg = f"the Monty workers cannot be started: {error}"
                    raise SandboxUnavailable(msg) from error
                atexit.register(self._close)
            return self._pool

    @property
    def places(self) -> Places:
        """The bound on worker processes."""
        return self._places

    @property
    def workers(self) -> Workers:
        """The threads."""
        return self._workers

    def _close(self) -> None:
        atexit.unregister(self._close)
        with self._lock:
            pool, self._pool = self._pool, None
        self._checker.close()
        if pool is not None:
            with contextlib.suppress(Exception):
                pool.__exit__(None, None, None)

    async def aclose(self) -> None:
        """End every worker; a later run starts them anew."""
        await self._workers.run(self._close)
        self._workers.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        await self.aclose()


@functools.cache
def _capabilities() -> SandboxCapabilities:
    layers = launcher().layers
    return SandboxCapabilities(
        name="monty", python="subset", snapshot=True, type_check=True, layers=layers
    )


class MontyRun:
    """One run of one script."""

    def __init__(self, sandbox: MontySandbox, script: Script) -> None:
        self._sandbox = sandbox
        self._script = script
        self._bytes = script.code.encode()
        self._raw = frozenset(script.tools.values())
        self._printed = _Printed(script.limits.output_bytes, self._kill)
        self._session: monty.MontySession | None = None
        self._mount: monty.MountDir | None = None
        self._worker: _Worker | None = None
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
        self._worker = _Worker(self._session.worker_pid)
        if self._killed:  # looked at after the worker is known: see `__aexit__`
            return Failed(reason="crash", error="the run was ended before it began")
        if self._before is not None:
            self._session.load_session(self._before.data)
        if self._script.files is not None:
            self._mount = monty.MountDir(
                host_path=self._script.files, virtual_path=_MEDIA, mode="read-only"
            )
        self._snapshot = self._session.feed_start(
            _with_value(self._script.code), print_callback=self._printed, mount=self._mount
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
            message = f"name {name!r} is not defined"
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
            self._asks.append(_asked(snapshot, self._handles))
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
        return len(self.data)


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


class _Worker:
    """A worker process, held by a descriptor: its number may be given to another process."""

    def __init__(self, pid: int | None) -> None:
        self._fd: int | None = None
        if pid is not None and hasattr(os, "pidfd_open"):
            with contextlib.suppress(OSError):
                self._fd = os.pidfd_open(pid)
        self._pid = pid
        self._killed = False
        self._lock = threading.Lock()

    def kill(self) -> None:
        """Kill it, unless it was let go: then it may already run another script."""
        with self._lock, contextlib.suppress(OSError):
            if self._fd is not None:
                self._killed = True
                signal.pidfd_send_signal(self._fd, signal.SIGKILL)
            elif self._pid is not None:
                self._killed = True
                os.kill(self._pid, signal.SIGKILL)

    def let_go(self) -> None:
        """From now on it is the pool's. One that was killed is dead by then: the pool looks."""
        with self._lock:
            fd, self._fd, self._pid = self._fd, None, None
        if fd is None:
            return
        if self._killed:
            ended = select.poll()
            ended.register(fd, select.POLLIN)
            ended.poll(_KILL_AFTER_S * 1000)
        os.close(fd)


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


_NAMES: dict[str, Any] = {"artifacts": ARTIFACTS, "Artifact": ARTIFACT_CLASS}


def _asked(
    snapshot: monty.FunctionSnapshot, handles: Mapping[uuid.UUID, monty.ClassInstance]
) -> ArtifactRead | ArtifactPut:
    """What a method call asks for; the guest is not trusted to have checked anything."""
    method, call_id, object_id = snapshot.function_name, snapshot.call_id, snapshot.object_id
    args, kwargs = snapshot.args, dict(snapshot.kwargs)
    if object_id == ARTIFACTS.id and method == "put":
        data, media_type = _bound(args, kwargs, {"data": _MISSING, "media_type": None})
        if data is _MISSING or not isinstance(media_type, str | None):
            msg = "artifacts.put(data, media_type=None) takes the data and a text"
            raise TypeError(msg)
        return ArtifactPut(id=call_id, data=from_guest(data, handles), media_type=media_type)
    handle = handles.get(object_id) if object_id is not None else None
    if handle is None or method not in ("text", "lines"):
        msg = f"there is no method {method!r:.50}"
        raise AttributeError(msg)
    start, stop = _bound(args, kwargs, {"start": 0, "stop": None})
    if type(start) is not int or not (stop is None or type(stop) is int):
        msg = f"{method}(start=0, stop=None) takes whole numbers"
        raise TypeError(msg)
    unit = "text" if method == "text" else "lines"
    return ArtifactRead(id=call_id, ref=handle.value.ref, unit=unit, start=start, stop=stop)


_MISSING = object()


def _bound(args: tuple[Any, ...], kwargs: dict[str, Any], known: dict[str, Any]) -> list[Any]:
    placed = dict(zip(known, args, strict=False))
    if len(args) > len(known) or placed.keys() & kwargs.keys() or kwargs.keys() - known.keys():
        msg = f"takes {', '.join(known)}"
        raise TypeError(msg)
    return list({**known, **placed, **kwargs}.values())


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


def _with_value(code: str) -> str:
    """The script, followed by the name that its last statement assigns.

    Monty's own value of an assignment is None. The host's parser only advises: where
    it cannot read what Monty can, the script stays as it is.
    """
    last = _last_statement(code)
    target: Any = None
    if isinstance(last, ast.Assign):
        target = last.targets[-1]
    elif isinstance(last, ast.AnnAssign | ast.AugAssign):
        target = last.target
    return f"{code}\n{target.id}" if isinstance(target, ast.Name) else code


def _last_statement(code: str) -> ast.stmt | None:
    """The last line by itself where it is whole: no part of a bracket, string or block is."""
    before, _, line = code.rstrip().rpartition("\n")
    is_apart = not line[:1].isspace() and not before.endswith("\\")
    for part in (line, code) if is_apart else (code,):
        try:
            found = ast.parse(part).body
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            continue
        if found:
            return found[-1]
    return None
