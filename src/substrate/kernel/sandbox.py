"""`Sandbox`: where a model's script runs, and what crosses its wall.

A run is a conversation. `start` and `answer` each let the script run until it
waits for something or ends, and return one event: `Blocked` (it made these
calls and waits for some of all its open ones), `Done` or `Failed`. The guest
holds nothing of the host but the names it was granted; every event it causes is
hostile input.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Any, Literal, Protocol, Self, TypeAlias, runtime_checkable

import msgspec

from substrate.kernel.tools.chain import ChainReason
from substrate.kernel.tools.tools import CallSite

__all__ = [
    "MEDIA_ROOT",
    "Answer",
    "Artifact",
    "ArtifactPut",
    "ArtifactRead",
    "Blocked",
    "Done",
    "Failed",
    "Problem",
    "Raised",
    "Returned",
    "Sandbox",
    "SandboxCall",
    "SandboxCapabilities",
    "SandboxEvent",
    "SandboxLimits",
    "SandboxRun",
    "SavedState",
    "Script",
]

MEDIA_ROOT = "/workspace/media"
"""Where a script finds media files."""


class SandboxCapabilities(msgspec.Struct, frozen=True, kw_only=True):
    """What a sandbox can do, and the layers of its wall that are active on this machine."""

    name: str
    python: Literal["subset", "full"]
    snapshot: bool = False
    type_check: bool = False
    layers: tuple[str, ...] = ()


class SandboxLimits(msgspec.Struct, frozen=True, kw_only=True):
    """What a script may use. Times count only while it computes.

    `compute_s` is the whole of its computing, in seconds; `memory_bytes` its heap;
    `output_bytes` what it may print.
    """

    compute_s: float = 60.0
    memory_bytes: int = 256 * 1024 * 1024
    recursion: int = 500
    output_bytes: int = 1024 * 1024


class SavedState(Protocol):
    """What a script left behind for a later one: opaque, and of the sandbox that made it."""

    @property
    def size(self) -> int:
        """Bytes that it holds."""
        ...

    @property
    def refs(self) -> frozenset[str]:
        """The artifacts whose handles it holds."""
        ...


class Script(msgspec.Struct, frozen=True, kw_only=True):
    """A script and what it is granted.

    `tools` maps each callable identifier to the tool's raw name; nothing else can
    be called. `files` is a host folder shown read-only at `/workspace/media`. `stubs`
    declare the granted names; None: the script is not type-checked. `keeps` asks the run
    for its state at the end; `state` is that of an earlier run of the same sandbox.
    """

    code: str
    tools: Mapping[str, str]
    limits: SandboxLimits = SandboxLimits()
    files: str | None = None
    stubs: str | None = None
    keeps: bool = False
    state: SavedState | None = None


class Artifact(msgspec.Struct, frozen=True, kw_only=True):
    """A result that stayed outside, as the script sees it: shown, never its content."""

    ref: str
    preview: str
    size: int
    media_type: str


class SandboxCall(msgspec.Struct, frozen=True, kw_only=True):
    """A call that the script made. `id` rises within a run; `name` is the tool's raw name."""

    id: int
    name: str
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = msgspec.field(default_factory=dict[str, Any])
    site: CallSite | None = None


class ArtifactRead(msgspec.Struct, frozen=True, kw_only=True):
    """The script reads a part of an artifact: bytes of its text, or lines by number.

    Answered with a text or a list of lines. `id` rises together with those of calls.
    """

    id: int
    ref: str
    unit: Literal["text", "lines"]
    start: int = 0
    stop: int | None = None


class ArtifactPut(msgspec.Struct, frozen=True, kw_only=True):
    """The script makes an artifact of its own; answered with an `Artifact`."""

    id: int
    data: Any
    media_type: str | None = None


class Blocked(msgspec.Struct, frozen=True, kw_only=True):
    """The script waits. `calls` and `asks` were made since the last event; `waiting` are open.

    `until` is the time (of `time.monotonic()`) when a sleep of the script ends: then it
    wants `answer({})`, if no call has ended before.
    """

    calls: tuple[SandboxCall, ...]
    asks: tuple[ArtifactRead | ArtifactPut, ...] = ()
    waiting: tuple[int, ...] = ()
    until: float | None = None


class Done(msgspec.Struct, frozen=True, kw_only=True):
    """The script ended with a value. `calls` were made and never waited for."""

    value: Any
    calls: tuple[SandboxCall, ...] = ()


class Failed(msgspec.Struct, frozen=True, kw_only=True):
    """The script ended in an error or at a limit. `error` is what a person reads."""

    reason: ChainReason
    error: str
    calls: tuple[SandboxCall, ...] = ()


SandboxEvent: TypeAlias = Blocked | Done | Failed


class Returned(msgspec.Struct, frozen=True):
    """A call's answer: a plain value, or an `Artifact`."""

    value: Any


class Raised(msgspec.Struct, frozen=True):
    """A call's failure, delivered as an ordinary exception of this built-in type."""

    exc_type: Literal[
        "PermissionError", "TimeoutError", "ValueError", "LookupError", "RuntimeError"
    ]
    message: str


Answer: TypeAlias = Returned | Raised


class Problem(msgspec.Struct, frozen=True):
    """Something that a sandbox cannot run, found before anything ran."""

    reason: ChainReason
    message: str
    line: int | None = None


@runtime_checkable
class SandboxRun(Protocol):
    """One run of one script; an async context manager that leaves nothing behind."""

    @property
    def output(self) -> str:
        """What was printed so far."""
        ...

    @property
    def saved(self) -> SavedState | None:
        """The state that the script left, where that was asked for and it ended by itself."""
        ...

    async def start(self) -> SandboxEvent:
        """Run the script until it waits or ends. Once."""
        ...

    async def answer(self, answers: Mapping[int, Answer]) -> SandboxEvent:
        """Answer some of the open calls and run on."""
        ...

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        tb: TracebackType | None,
    ) -> None: ...


@runtime_checkable
class Sandbox(Protocol):
    """Where scripts run. One instance serves many runs at once."""

    def capabilities(self) -> SandboxCapabilities:
        """What it can do here; raises `SandboxUnavailable` where it cannot hold its walls."""
        ...

    async def preflight(self, script: Script) -> list[Problem]:
        """What cannot run, by name and line; nothing is executed."""
        ...

    def run(self, script: Script) -> SandboxRun:
        """A new run of `script`, not yet started."""
        ...

    async def aclose(self) -> None:
        """End every worker."""
        ...
