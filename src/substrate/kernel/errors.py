"""The errors of substrate.

    SubstrateError
    ├── Refused             a gate said no; the invoker turns it into a result
    │   └── (reason tells which gate)
    ├── NotDone             raised by a tool: "nothing happened"
    ├── BadRef (LookupError)        an artifact ref that does not resolve
    │   └── BlobNotFound
    ├── DeclarationError (ValueError)   a tool is declared wrongly
    ├── SessionError (RuntimeError)     a session is closed or of another invoker
    ├── SandboxUnavailable (RuntimeError)  a sandbox cannot establish its walls
    ├── InDoubt             an intent without an outcome
    └── Fenced              another worker owns the chain

Outside the tree, because it is no error: `RunCancelled` (a BaseException),
raised by `RunContext.check()` when the run was cancelled.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from substrate.kernel.tools.chain import CallStatus, Ran, Reason

__all__ = [
    "BadRef",
    "BlobNotFound",
    "DeclarationError",
    "Fenced",
    "InDoubt",
    "NotDone",
    "Refused",
    "RunCancelled",
    "SandboxUnavailable",
    "SessionError",
    "SubstrateError",
]


class SubstrateError(Exception):
    """Parent of every error that substrate raises."""


class Refused(SubstrateError):
    """A call may not go on; raised by gates and guards, answered as a result.

    `message` is read by the model: it names the thing, what was found and what
    to do. A guard may raise it with the message alone.
    """

    def __init__(
        self,
        message: str,
        *,
        reason: Reason = "guard",
        status: CallStatus = "denied",
        ran: Ran = "no",
    ) -> None:
        super().__init__(message)
        self.message = message
        self.reason: Reason = reason
        self.status: CallStatus = status
        self.ran: Ran = ran


class NotDone(SubstrateError):
    """Raised by a tool to say for certain that nothing happened (`ran: no`)."""


class BadRef(SubstrateError, LookupError):
    """An artifact ref that cannot be resolved here."""


class BlobNotFound(BadRef):
    """The store holds no blob under this ref."""


class DeclarationError(SubstrateError, ValueError):
    """A tool is declared wrongly; raised when it is added, not when it is called."""


class SessionError(SubstrateError, RuntimeError):
    """A session is closed, or belongs to another invoker."""


class SandboxUnavailable(SubstrateError, RuntimeError):
    """A sandbox cannot establish what it promises, and so refuses to run."""


class InDoubt(SubstrateError):
    """An earlier start of this call left no outcome: it may have happened."""


class Fenced(SubstrateError):
    """Another worker owns this chain now; nothing may be started here."""


class RunCancelled(BaseException):
    """The run was cancelled; recorded as `cancelled` and raised again."""
