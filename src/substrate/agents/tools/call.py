"""One call on its way: what is known of it so far, and what one gate hands to the next."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

import msgspec
from msgspec.structs import replace

from substrate.agents.tools.arguments import Arguments, Snapshot
from substrate.agents.tools.session import Answered, SessionView
from substrate.agents.tools.shown import cut
from substrate.agents.tools.traits import Traits
from substrate.kernel.errors import RunCancelled
from substrate.kernel.secrets import scrub, secrets_in
from substrate.kernel.tools.chain import CallStatus, ChainPolicy, InvocationResult, Ran, Reason
from substrate.kernel.tools.tools import CallSite, ToolCallRequest, ToolExecutionResult, ToolRisk

__all__ = ["CallState", "Cleared", "Guard", "Outcome", "Ready"]

_LEAST_WORDS = 256  # bytes; a shorter refusal would say nothing


class CallState:
    """What is known of a call so far. It starts at the worst, and is only improved."""

    status: CallStatus = "error"
    reason: Reason | None = "internal"
    ran: Ran = "no"
    message: str = ""
    snapshot: Snapshot | None = None
    """The arguments as sent."""
    runs: Snapshot | None = None
    """The arguments as they will run: repaired, or edited in approval."""
    traits: Traits | None = None
    risk: ToolRisk | None = None
    decision: str | None = None
    decided_by: str | None = None
    edited: tuple[str, ...] = ()
    repaired: tuple[str, ...] = ()
    run_at: float = 0.0
    ran_until: float = 0.0
    recalled: bool = False
    entry: Answered | None = None
    """Where whoever sends the same call again finds its answer."""
    announced: bool = False
    result: InvocationResult | None = None
    told: str | None = None
    context: dict[str, Any] | None = None
    """What the observers of its start were told; None: they were not told yet."""

    def __init__(self, call: ToolCallRequest, policy: ChainPolicy, started_at: float) -> None:
        self.call = call
        self.tool = call.name
        self.secrets = policy.secret_names
        self.started_at = started_at
        self._policy = policy

    def shown(self, text: str) -> str:
        """Words about the call, bounded and without the secret values of its arguments."""
        for snapshot in (self.snapshot, self.runs):
            if snapshot is not None:
                secrets = secrets_in(snapshot.plain, self.secrets)
                text = scrub(text, secrets) if secrets else text
        return cut(text, max(self._policy.max_inline_result_bytes, _LEAST_WORDS))


class Cleared(msgspec.Struct, frozen=True):
    """A call whose arguments fit and whose risk is accepted: what guards judge."""

    call: ToolCallRequest
    traits: Traits
    checked: Arguments
    risk: ToolRisk
    session: SessionView

    @property
    def arguments(self) -> dict[str, Any]:
        """A copy of the arguments that will run."""
        return self.checked.snapshot.copy()

    @property
    def site(self) -> CallSite | None:
        """Where in the script the call is written."""
        return self.call.site

    def apart(self) -> Cleared:
        """The same, sharing nothing that can be changed with the call that runs."""
        copied = replace(self.checked.snapshot, plain=self.arguments)
        call = replace(self.call, arguments=copied.copy())
        return replace(self, call=call, checked=replace(self.checked, snapshot=copied, bound=None))


@runtime_checkable
class Guard(Protocol):
    """The one extension line: judges a cleared call, in order, and fails closed.

    A guard refuses by raising `Refused("why")`; whatever else it raises, and taking
    longer than five seconds, refuses too. An optional `saw(cleared, output)` is
    called after the tool returned and before its result is shaped.
    """

    async def check(self, cleared: Cleared, /) -> None:
        """Return to let the call pass; raise `Refused` to refuse it."""
        ...


class Ready(msgspec.Struct, frozen=True):
    """A cleared call with its refs resolved: what the tool is run with."""

    cleared: Cleared
    kwargs: Mapping[str, Any]


class Outcome(msgspec.Struct, frozen=True):
    """What became of a started call."""

    status: CallStatus
    ran: Ran
    reason: Reason | None = None
    message: str = ""
    output: ToolExecutionResult | None = None
    raised: RunCancelled | None = None
    """The run's own cancellation, seen by the tool."""
