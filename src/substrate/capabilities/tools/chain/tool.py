"""`ToolChainTool`: the tool that runs a model's script, every call in it past the invoker."""

from __future__ import annotations

import asyncio
import re
import time
import warnings
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Literal

from msgspec.structs import asdict, replace

from substrate.agents.tools.identifiers import identifiers_of
from substrate.agents.tools.invoker import InvokerSession, ToolInvoker
from substrate.agents.tools.session import Clock
from substrate.agents.tools.shown import clean, cut
from substrate.agents.tools.threads import run_in_thread
from substrate.agents.tools.traits import Traits
from substrate.capabilities.tools.chain.awaiting import never_awaited
from substrate.capabilities.tools.chain.bridge import Bridge, Ending
from substrate.capabilities.tools.chain.media import give_back, media_folder
from substrate.capabilities.tools.chain.search import SEARCH_STUBS, ToolIndex
from substrate.capabilities.tools.chain.state import Kept, KeptStates
from substrate.capabilities.tools.chain.stubs import lines_of, stubs_of
from substrate.capabilities.tools.chain.telling import tell_failure, tell_success
from substrate.kernel.blobs import REF_KEY
from substrate.kernel.content import TextBlock
from substrate.kernel.context import RunContext
from substrate.kernel.errors import DeclarationError, SandboxUnavailable
from substrate.kernel.hooks import ProgressSink
from substrate.kernel.sandbox import (
    Done,
    Failed,
    Problem,
    Sandbox,
    SandboxCall,
    SandboxLimits,
    SavedState,
    Script,
)
from substrate.kernel.tools.chain import (
    ChainPolicy,
    ChainReason,
    ChainRunResult,
    ChainStatus,
)
from substrate.kernel.tools.tools import ToolEffect, ToolExecutionResult, ToolRisk
from substrate.kernel.values import json_form, plain

__all__ = ["ToolChainTool"]

_WORD = re.compile(r"\w+")
_MOST_STUBS = 24_000  # characters; some 6,000 tokens
_MOST_ADVISED = 100_000  # characters; of a longer script it is told at its end
_SHORT = 10_000  # characters, parsed within a millisecond or two

_TEXT = """\
Run a Python script that calls tools as async functions. The tools below exist only inside the
script. Await every call; use asyncio.gather for calls that do not depend on one another. Large
results come back as Artifact handles: pass them on to other tools as they are. A call that is
refused raises PermissionError; other failures raise ordinary exceptions. The value of the script
is its `return`, its last expression or the name last assigned; print() is captured.

"""


class ToolChainTool:
    """An ordinary tool named `tool_chain` that runs a script against an invoker's tools.

    Args:
        invoker: The door; every call in the script passes it.
        sandbox: `"monty"`, or an object that the caller owns and closes; None takes the
            process-wide default.
        policy: The limits of its chains; None takes the invoker's.
        progress_sink: Told of every call in a script as it happens.
        keep_state: Whether a script starts with what the script before it in its scope
            (`ctx.session_id`) defined: variables, functions and imports.
    """

    name = "tool_chain"
    risk = ToolRisk.SAFE  # it does nothing of itself: every call in it is gated
    effect = ToolEffect.ONCE
    is_chain_tool = True

    def __init__(
        self,
        invoker: ToolInvoker,
        sandbox: Sandbox | Literal["monty"] | None = None,
        *,
        policy: ChainPolicy | None = None,
        progress_sink: ProgressSink | None = None,
        keep_state: bool = False,
    ) -> None:
        self._invoker = invoker
        self._sandbox = _sandbox_of(sandbox)
        self._policy = policy if policy is not None else invoker.policy
        self._sink = progress_sink
        self._states = KeptStates() if keep_state else None
        self._seen: tuple[Traits | None, ...] = ()
        self._callable: dict[str, str] = {}
        self._stubs: str | None = None
        self._index: ToolIndex | None = None

    @property
    def description(self) -> str:
        """What the model reads: how a script is written, and the stubs of its tools.

        More than about 24 kB of stubs are told by name and one line each; the script
        then finds the rest with `tool_search` and `tool_schema`.
        """
        stubs = self.stubs()
        if len(stubs) <= _MOST_STUBS:
            return _TEXT + stubs
        tools = self._tools_by_identifier()
        search = [stub for name, stub in SEARCH_STUBS.items() if name not in tools]
        return _TEXT + lines_of(tools.items(), "\n".join(search))

    @property
    def input_schema(self) -> Mapping[str, Any]:
        """`code`, and optionally `timeout` in seconds."""
        return {
            "type": "object",
            "properties": {
                "code": {"type": "string", "description": "The Python script."},
                "timeout": {
                    "type": "number",
                    "exclusiveMinimum": 0,
                    "description": "Seconds for the whole script; at most the configured limit.",
                },
            },
            "required": ["code"],
            "additionalProperties": False,
        }

    def stubs(self) -> str:
        """The tools that a script may call, as typed Python stubs."""
        tools = self._tools_by_identifier()
        if self._stubs is None:
            self._stubs = stubs_of(tools.items())
        return self._stubs

    def _tools_by_identifier(self) -> dict[str, Traits]:
        source = self._invoker.source
        pairs = ((name, source.traits(raw)) for name, raw in self._granted().items())
        return {name: traits for name, traits in pairs if traits is not None}

    def _lookups(self) -> dict[str, Callable[..., Any]]:
        """What a script may ask about its tools, unless tools have these names."""
        if self._index is None:
            self._index = ToolIndex(self._tools_by_identifier())
        found = {"tool_search": self._index.search, "tool_schema": self._index.schema}
        granted = self._granted()
        return {name: ask for name, ask in found.items() if name not in granted}

    def _granted(self) -> dict[str, str]:
        """Identifier to raw name, of every tool that a script may call."""
        source = self._invoker.source
        names = source.names()
        seen = tuple(map(self._known, names))
        if seen != self._seen:
            identifiers = identifiers_of(names)
            self._callable = {
                identifiers[name]: name
                for name, traits in zip(names, seen, strict=True)
                if traits is not None and traits.kind == "local" and not traits.is_chain
            }
            self._seen, self._stubs, self._index = seen, None, None
        return self._callable

    def _known(self, name: str) -> Traits | None:
        """What is known of a tool; one that is declared wrongly is left out."""
        try:
            return self._invoker.source.traits(name)
        except DeclarationError as error:
            warnings.warn(f"{name!r} is left out of scripts: {error}", stacklevel=2)
            return None

    async def execute(
        self,
        *,
        code: str,
        timeout: float | None = None,
        ctx: RunContext | None = None,  # the model's own word
    ) -> ToolExecutionResult:
        """Run a script; `structured_content` is the `ChainRunResult` as plain data."""
        result = await self.run(code, timeout_s=timeout, ctx=ctx)
        return ToolExecutionResult(
            content=[TextBlock(result.output_text)],
            structured_content=json_form(plain(result)),
            is_error=result.status != "ok",
        )

    async def run(
        self, code: str, *, timeout_s: float | None = None, ctx: RunContext | None = None
    ) -> ChainRunResult:
        """Run a script to whatever end; raises only the caller's own cancellation."""
        policy = self._policy
        if timeout_s is not None:
            policy = replace(policy, total_timeout_s=min(timeout_s, policy.total_timeout_s))
        started = time.perf_counter()
        scope = ctx.session_id if ctx is not None else None
        session = self._invoker.open_session(scope, code, policy=policy)
        async with session:
            ended = await self._run(code, session, ctx, scope)
            duration_ms = (time.perf_counter() - started) * 1000
            return await _result(ended, session, duration_ms, self._described())

    def _described(self) -> Any:
        try:
            found = self._sandbox.capabilities()
        except SandboxUnavailable:
            return None
        return {**asdict(found), "layers": list(found.layers)}

    async def _run(
        self, code: str, session: InvokerSession, ctx: RunContext | None, scope: str | None
    ) -> _Ended:
        folder = media_folder()
        session.media_root = folder
        kept = self._states.of(scope) if self._states is not None else None
        script, lookups = self._script(code, session, folder, kept)
        try:
            problems = await self._preflight(script, kept, session)
            if problems:
                text = "\n".join(
                    f"line {p.line}: {p.message}" if p.line else p.message for p in problems
                )
                return _Ended(Ending(Failed(reason=problems[0].reason, error=text)))
            self._require_layers(session.policy)
            async with self._sandbox.run(script) as run:
                bridge = Bridge(self._invoker, session, run, ctx, self._sink, lookups)
                ending = await bridge.drive()
                told = self._keep(session, scope, code, run.saved)
                return _Ended(ending, run.output, tuple(bridge.files), code, told)
        except SandboxUnavailable as error:
            return _Ended(Ending(Failed(reason="no_sandbox", error=str(error))))
        finally:
            await give_back(folder, is_empty=session.media_count == 0)

    def _keep(
        self, session: InvokerSession, scope: str | None, code: str, state: SavedState | None
    ) -> str | None:
        """Keep what a script left, with its artifacts; why not, where it is not kept."""
        if self._states is None or scope is None or state is None:
            return None
        session.keep(state.refs)
        return self._states.keep(scope, code, state)

    def _script(
        self, code: str, session: InvokerSession, folder: str, kept: Kept | None
    ) -> tuple[Script, dict[str, Callable[..., Any]]]:
        """The script with all that it is granted, and what it may ask about its tools."""
        granted, lookups = self._granted(), {}
        if "tool_s" in code:
            lookups = self._lookups()
            granted = {**granted, **{name: name for name in lookups}}
        stubs: str | None = None
        names = kept.names if kept is not None else frozenset[str]()
        if self._is_worth_a_check(code) and names is not None:
            earlier = "".join(f"{name}: Any\n" for name in sorted(names))
            search = "".join(SEARCH_STUBS[name] for name in lookups)
            stubs = self.stubs() + search + earlier
        script = Script(
            code=code,
            tools=granted,
            limits=_limits(session),
            files=folder,
            stubs=stubs,
            keeps=self._states is not None,
            state=kept.state if kept is not None else None,
        )
        return script, lookups

    async def _in_time(
        self, check: Coroutine[Any, Any, list[Problem]], clock: Clock
    ) -> list[Problem]:
        """A check on the chain's clock; one that takes all of it is as good as none."""
        clock.computing(True)
        try:
            async with asyncio.timeout(max(clock.left(), 0)):
                return await check
        except TimeoutError:
            return []
        finally:
            clock.computing(False)

    async def _preflight(
        self, script: Script, kept: Kept | None, session: InvokerSession
    ) -> list[Problem]:
        """What is wrong with a script before anything of it runs."""
        code, tools = script.code, frozenset(script.tools)
        if kept is not None and kept.names is not None:
            tools -= kept.names  # an earlier script may have given them another meaning
        found = await self._in_time(self._sandbox.preflight(script), session.clock)
        if any(problem.reason in ("syntax", "unsupported") for problem in found):
            return found
        if len(code) < _SHORT or len(code) > _MOST_ADVISED:
            lost = never_awaited(code, tools) if len(code) < _SHORT else []
        else:
            lost = await run_in_thread(never_awaited, code, tools)
        told = {problem.line for problem in lost}  # with the line as it should be
        return [*lost, *(p for p in found if p.reason != "not_awaited" or p.line not in told)]

    def _is_worth_a_check(self, code: str) -> bool:
        """Whether a script may name a tool that is more than `pure`."""
        words = set(_WORD.findall(code))
        named = self._granted().items()
        if "tools" not in words:
            named = [(name, raw) for name, raw in named if name in words]
        found = (self._invoker.source.traits(raw) for _, raw in named)
        return any(traits is not None and traits.effect != "pure" for traits in found)

    def _require_layers(self, policy: ChainPolicy) -> None:
        layers = self._sandbox.capabilities().layers
        missing = sorted(policy.require_layers.difference(layers))
        if missing:
            active = ", ".join(layers) or "none"
            msg = f"the policy requires the layers {', '.join(missing)}; active here: {active}"
            raise SandboxUnavailable(msg)


def _sandbox_of(sandbox: Sandbox | str | None) -> Sandbox:
    if sandbox is None or sandbox == "monty":
        from substrate.capabilities.sandboxes import default_sandbox

        return default_sandbox()
    if isinstance(sandbox, str):
        msg = f"no sandbox named {sandbox!r}; there is 'monty', or give a Sandbox object"
        raise ValueError(msg)  # noqa: TRY004  # the name is wrong, not its type
    return sandbox


def _limits(session: InvokerSession) -> SandboxLimits:
    left = min(max(session.clock.left(), 0.001), _LONGEST_S)
    return SandboxLimits(compute_s=left)


_LONGEST_S = 7 * 86_400.0  # seconds; a limit without end is one a sandbox may not know


class _Ended:
    """A script's end with what it printed and left."""

    def __init__(
        self,
        ending: Ending,
        logs: str = "",
        files: tuple[Any, ...] = (),
        code: str = "",
        told: str | None = None,
    ) -> None:
        self.told = told
        self.ending = ending
        self.logs = logs
        self.files = files
        self.code = code


async def _result(
    ended: _Ended, session: InvokerSession, duration_ms: float, sandbox: Any
) -> ChainRunResult:
    event = ended.ending.event
    value = event.value if isinstance(event, Done) and not ended.ending.unstarted else None
    status: ChainStatus = "ok"
    reason: ChainReason | None = None
    error: str | None = None
    if isinstance(event, Failed):
        over = event.reason == "script_error" and session.clock.left() <= 0
        reason, error = "time" if over else event.reason, clean(event.error)
        status = "timeout" if reason == "time" else "error"
    elif ended.ending.unstarted:
        status, reason = "error", "not_awaited"
        error = _not_awaited(ended.ending.unstarted, ended.code)
    result = ChainRunResult(
        status=status,
        reason=reason,
        value=_plain_value(value),
        logs=clean(ended.logs),
        error=error,
        chain_id=session.chain_id,
        tool_calls=len(session.trace),
        duration_ms=duration_ms,
        call_trace=session.trace,
        files=ended.files,
        sandbox=sandbox,
    )
    text = tell_success(result, session.secrets) if status == "ok" else tell_failure(result)
    if ended.told is not None:
        text = f"{text}\n[{ended.told}]"
    return await _bounded(result, text, session)


def _plain_value(value: Any) -> Any:
    try:
        return plain(value)
    except (TypeError, ValueError) as error:
        return f"(the script's value has no plain form: {error})"


def _not_awaited(calls: tuple[SandboxCall, ...], code: str) -> str:
    lines: list[str] = []
    for call in calls:
        where, written = "", call.name + "(…)"
        if call.site is not None:
            where = f"line {call.site.line}: "
            written = code.encode()[call.site.start : call.site.end].decode(errors="replace")
        lines.append(f"{where}{written} was never awaited and was not run; write: await {written}")
    return "\n".join(lines)


async def _bounded(result: ChainRunResult, text: str, session: InvokerSession) -> ChainRunResult:
    """What the model reads is bounded; the whole of a longer text becomes an artifact."""
    limit = session.policy.max_output_bytes
    refs = set(_refs_in(result.value)) | {f.artifact_ref for f in result.files if f.artifact_ref}
    refs |= {r.artifact_ref for r in result.call_trace if r.artifact_ref and r.artifact_ref in text}
    ref: str | None = None
    shown = cut(text, limit)
    if shown != text and session.store is not None:
        ref = await session.put(text.encode(), "text", "text/plain; charset=utf-8")
        if ref is None:
            lost = "\n[the whole of this text could not be kept]"
            shown = cut(text, max(limit - len(lost), 0)) + lost
        else:
            refs.add(ref)
    session.keep(refs)
    return replace(result, output_text=shown, artifact_ref=ref)


def _refs_in(value: Any) -> list[str]:
    if isinstance(value, dict):
        ref = value.get(REF_KEY)  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
        found = [ref] if isinstance(ref, str) else []
        return found + [r for item in value.values() for r in _refs_in(item)]  # pyright: ignore[reportUnknownVariableType]
    if isinstance(value, list):
        return [r for item in value for r in _refs_in(item)]  # pyright: ignore[reportUnknownVariableType]
    return []
