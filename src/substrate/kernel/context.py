"""`RunContext`: who is calling, until when, and whether the run still goes on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from substrate.kernel.errors import RunCancelled

__all__ = ["RunContext"]


class RunContext(msgspec.Struct):
    """Handed to a tool as `ctx`; every call gets a copy of its own.

    `session_id` is the scope of artifacts: the conversation, or an MCP client's
    session. `deadline` is on the clock of `time.monotonic()`, in seconds.
    `idempotency_key` is this call's, to be passed on to backends that take one.
    `cancelled` answers whether the run was cancelled meanwhile. `extra` belongs
    to the caller and is shared, not copied.
    """

    run_id: str | None = None
    agent_id: str | None = None
    session_id: str | None = None
    deadline: float | None = None
    idempotency_key: str | None = None
    cancelled: Callable[[], bool] | None = None
    extra: dict[str, Any] = {}  # msgspec gives each its own

    def check(self) -> None:
        """Raise `RunCancelled` where the run was cancelled."""
        if self.cancelled is not None and self.cancelled():
            msg = "the run was cancelled"
            raise RunCancelled(msg)
