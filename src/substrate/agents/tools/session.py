"""The state of one chain: what it counted, recorded and answered, its clock and its artifacts.

An `InvokerSession` belongs to one chain, a `Scope` to a conversation that may hold
many. Refs, grants and answers live here and nowhere else; the invoker keeps none.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Generator, Iterable
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Literal, Self

import msgspec
from msgspec.structs import replace

from substrate.agents.tools.bounded import attempt
from substrate.agents.tools.deadline import OnLate
from substrate.agents.tools.lanes import Slots
from substrate.kernel.blobs import BlobStore
from substrate.kernel.errors import InDoubt
from substrate.kernel.journal import CallIntent, CallOutcome
from substrate.kernel.tools.chain import ChainCallRecord, ChainPolicy, InvocationResult
from substrate.kernel.tools.tools import ToolRisk, new_call_id
from substrate.kernel.values import decode, encode

__all__ = ["Answered", "Clock", "Handle", "InvokerSession", "MemoryJournal", "Scope", "SessionView"]

Kind = Literal["text", "bytes", "json"]


class Clock:
    """The total clock of a chain, in seconds.

    It runs while the script computes or a tool runs, and stands still while every
    open call waits for a person; without a script, it runs while a call is open.
    """

    __slots__ = ("_computing", "_open", "_since", "_spent", "_waiting", "limit_s")

    def __init__(self, limit_s: float) -> None:
        self.limit_s = limit_s
        self._spent = 0.0
        self._since: float | None = None
        self._open = self._waiting = 0
        self._computing = False

    def left(self) -> float:
        """Seconds that are left; negative when it is over."""
        running = 0.0 if self._since is None else time.monotonic() - self._since
        return self.limit_s - self._spent - running

    def _turn(self) -> None:
        runs = self._computing or self._open > self._waiting
        if runs and self._since is None:
            self._since = time.monotonic()
        elif not runs and self._since is not None:
            self._spent += time.monotonic() - self._since
            self._since = None

    def enter_call(self) -> None:
        """A call is open."""
        self._open += 1
        if self._since is None:
            self._since = time.monotonic()

    def leave_call(self) -> None:
        """A call has ended."""
        self._open -= 1
        if self._open <= self._waiting and not self._computing and self._since is not None:
            self._spent += time.monotonic() - self._since
            self._since = None

    @contextmanager
    def standing_still(self) -> Generator[None]:
        """A call waits for a person, or for the answer of the same call sent before."""
        self._waiting += 1
        self._turn()
        try:
            yield
        finally:
            self._waiting -= 1
            self._turn()

    def computing(self, is_computing: bool) -> None:  # noqa: FBT001  # a switch
        """The script computes, or waits for its calls."""
        self._computing = is_computing
        self._turn()


class Handle:
    """What was issued under a ref: the blob, and what it is."""

    __slots__ = ("blob", "kind", "leases", "media_type", "ref", "size")

    def __init__(self, ref: str, blob: str, kind: Kind, media_type: str, size: int) -> None:
        self.ref = ref
        self.blob = blob
        self.kind: Kind = kind
        self.media_type = media_type
        self.size = size
        self.leases: set[str] = set()


class Scope:
    """What one conversation may refer to: its artifacts and its standing grants."""

    def __init__(self, scope_id: str) -> None:
        self.id = scope_id
        self.lease = f"scope:{scope_id}"
        self.handles: dict[str, Handle] = {}
        self.grants: dict[str, ToolRisk] = {}
        self.sessions: set[InvokerSession] = set()
        self.idle_since = time.monotonic()

    def issue(self, blob: str, kind: Kind, media_type: str, size: int) -> Handle:
        """The handle of a blob; a second kind of one blob gets a ref that names its kind."""
        handle = self.handles.get(blob)
        if handle is not None and handle.kind != kind:
            ref = f"{blob};{kind}"
            handle = self.handles.get(ref)
        else:
            ref = blob
        if handle is None:
            handle = self.handles[ref] = Handle(ref, blob, kind, media_type, size)
        return handle


class Answered(msgspec.Struct, eq=False):
    """A call id that was used: what it was used for, and its answer when there is one."""

    tool: str
    digest: str
    result: InvocationResult | None = None
    waiters: tuple[asyncio.Future[None], ...] = ()
    data: bytes | None = None

    async def answer(self) -> InvocationResult:
        """The answer, when it is there; what can be changed in it is a copy."""
        while self.result is None:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self.waiters = (*self.waiters, waiter)
            await waiter
        if self.data is None:
            return self.result
        return replace(self.result, structured=decode(self.data))

    def settle(self, result: InvocationResult) -> None:
        """Answer everybody who sent the same call again."""
        if type(result.structured) in (dict, list):
            self.data = encode(result.structured)
        self.result = result
        for waiter in self.waiters:
            look_again(waiter)
        self.waiters = ()


class MemoryJournal:
    """The journal of one session: the same rules as a durable one, while the process lives."""

    def __init__(self) -> None:
        self._intents: dict[str, CallIntent] = {}
        self._outcomes: dict[str, CallOutcome] = {}

    async def intend(self, intent: CallIntent) -> None:
        """Raises `InDoubt` for a call that was intended before and has no outcome."""
        if intent.call_id in self._intents:
            msg = f"call {intent.call_id} was started before"
            raise InDoubt(msg)
        self._intents[intent.call_id] = intent

    async def settle(self, outcome: CallOutcome) -> None:
        """A late outcome replaces a doubt, nothing else."""
        known = self._outcomes.get(outcome.call_id)
        if known is None or (outcome.late and known.ran == "unknown"):
            self._outcomes[outcome.call_id] = outcome

    async def in_doubt(self, chain_id: str) -> list[CallIntent]:
        """Intents without an outcome, or with one that could not tell."""
        return [
            intent
            for call_id, intent in self._intents.items()
            if intent.chain_id == chain_id
            and ((known := self._outcomes.get(call_id)) is None or known.ran == "unknown")
        ]


class InvokerSession:
    """What an invoker needs to know of one chain; made by `ToolInvoker.open_session`.

    An async context manager: leaving it closes it and releases what it pinned.
    `scope` is the id of its scope, `script` the source of the chain, if any;
    `direct` marks an agent's own calls, outside a script.
    """

    def __init__(
        self,
        owner: object,
        *,
        scope: Scope,
        own_scope: bool,
        policy: ChainPolicy,
        script: str | None,
        direct: bool,
        store: BlobStore | None,
        on_close: Callable[[InvokerSession], Awaitable[None]],
        leave: OnLate,
    ) -> None:
        self._leave = leave
        self.owner = owner
        self.chain_id = new_call_id().replace("c-", "chain-", 1)
        self.policy = policy
        self.script = script
        self.direct = direct
        self.store = store
        self.clock = Clock(policy.total_timeout_s)
        self.slots = Slots(policy.max_parallel_calls)
        self.journal = MemoryJournal()
        self.answers: dict[str, Answered] = {}
        self.grants: dict[str, ToolRisk] = {}
        self.pending: dict[asyncio.Future[None], tuple[str, ToolRisk]] = {}
        self.repeats: dict[str, int] = {}
        self.media_root: str | None = None
        self.media_count = 0
        self.secrets: frozenset[str] = policy.secret_names
        self.read_last: tuple[str, bytes] | None = None
        self.put_bytes = 0
        self.closed = False
        self.warned = False
        self.view = SessionView(self)
        self._scope = scope
        self._own_scope = own_scope
        self._lease = f"session:{self.chain_id}"
        self._trace: list[ChainCallRecord] = []
        self._count = 0
        self._pinned: set[Handle] = set()
        self._leased: set[str] = set()
        self._kept: set[str] = set()
        self._on_close = on_close
        scope.sessions.add(self)

    @property
    def scope(self) -> str:
        """The id of its scope."""
        return self._scope.id

    @property
    def trace(self) -> tuple[ChainCallRecord, ...]:
        """One record for every call so far, in the order they ended."""
        return tuple(self._trace)

    @property
    def call_count(self) -> int:
        """How many slots of the budget were reserved."""
        return self._count

    def reserve(self) -> bool:
        """Reserve a slot of `max_tool_calls`; False where none is left."""
        if self._count >= self.policy.max_tool_calls:
            return False
        self._count += 1
        return True

    def record(self, record: ChainCallRecord) -> None:
        """Append to the trace."""
        self._trace.append(record)

    def granted(self, tool: str, risk: ToolRisk) -> bool:
        """Whether a standing grant covers a call of this risk."""
        held = (self.grants.get(tool), self._scope.grants.get(tool))
        return any(most is not None and risk <= most for most in held)

    def grant(self, tool: str, risk: ToolRisk, reach: Literal["chain", "scope"]) -> None:
        """Let later calls of `tool` at no higher risk pass; those that wait look again."""
        grants = self.grants if reach == "chain" else self._scope.grants
        grants[tool] = max(risk, grants.get(tool, ToolRisk.SAFE))
        for session in (self,) if reach == "chain" else tuple(self._scope.sessions):
            for waiting, (asked, at) in tuple(session.pending.items()):
                if session.granted(asked, at):
                    look_again(waiting)

    def handle(self, ref: str) -> Handle | None:
        """What was issued in this scope under `ref`, or None."""
        return self._scope.handles.get(ref)

    async def issue(self, blob: str, kind: Kind, media_type: str, size: int) -> str:
        """Pin a blob for this session and give it a ref of this scope."""
        store = self.store
        if store is None or self.closed:
            msg = "the session is closed or has no store"
            raise RuntimeError(msg)
        self._leased.add(blob)  # first: a pin that is cancelled may hold all the same
        await store.pin(blob, self._lease)
        handle = self._scope.issue(blob, kind, media_type, size)
        handle.leases.add(self._lease)
        self._pinned.add(handle)
        if self.direct:
            self._kept.add(handle.ref)
        return handle.ref

    def keep(self, refs: Iterable[str]) -> None:
        """These refs leave the chain (in its value, its output, its files): keep them in the scope."""
        self._kept.update(ref for ref in refs if ref in self._scope.handles)

    async def put(self, data: bytes, kind: Kind, media_type: str) -> str | None:
        """Keep data as an artifact: its ref, or None where the store fails or hangs."""
        store = self.store
        if store is None:
            return None

        async def step() -> str:
            blob = await store.put(data, media_type)
            return await self.issue(blob, kind, media_type, len(data))

        return await attempt("the artifact store", step(), self._leave)

    async def close(self) -> None:
        """End the session; idempotent. What it pinned is released, or passes to the scope.

        A store that fails or hangs is logged, and given 5 seconds a step.
        """
        if self.closed:
            return
        self.closed = True
        self.clock.computing(False)
        self._scope.sessions.discard(self)
        self._scope.idle_since = time.monotonic()
        if self._leased and self.store is not None:
            release = asyncio.ensure_future(self._release(self.store))
            try:
                await asyncio.shield(release)
            except asyncio.CancelledError:
                self._leave(release)  # it goes on: no pin is to stay
                raise
        await self._on_close(self)

    async def _release(self, store: BlobStore) -> None:
        scope, mine = self._scope, self._pinned
        if not self._own_scope:
            for handle in mine:  # all that is kept is pinned before anything is released
                if handle.ref in self._kept:
                    await attempt("a pin", store.pin(handle.blob, scope.lease), self._leave)
                    handle.leases.add(scope.lease)
        for handle in mine:
            handle.leases.discard(self._lease)
            if not handle.leases:
                del scope.handles[handle.ref]
        for blob in self._leased:
            await attempt("an unpin", store.unpin(blob, self._lease), self._leave)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        await self.close()


class SessionView:
    """What a guard may see of the chain: read-only."""

    __slots__ = ("_session",)

    def __init__(self, session: InvokerSession) -> None:
        self._session = session

    @property
    def chain_id(self) -> str:
        """The chain's id."""
        return self._session.chain_id

    @property
    def scope(self) -> str:
        """The id of its scope."""
        return self._session.scope

    @property
    def script(self) -> str | None:
        """The source of the script, where there is one."""
        return self._session.script

    @property
    def trace(self) -> tuple[ChainCallRecord, ...]:
        """The records of the calls that have ended."""
        return self._session.trace


def look_again(waiting: asyncio.Future[None]) -> None:
    """Wake who waits, in whatever loop; one that is closed waits no more."""
    with suppress(RuntimeError):
        waiting.get_loop().call_soon_threadsafe(_wake, waiting)


def _wake(waiting: asyncio.Future[None]) -> None:
    if not waiting.done():
        waiting.set_result(None)
