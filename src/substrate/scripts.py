"""`run_script`: three lines to a gated script."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, cast

from substrate.agents.tools.invoker import ToolInvoker
from substrate.agents.tools.toolbox import Toolbox
from substrate.capabilities.tools.chain import ToolChainTool
from substrate.kernel.blobs import BlobStore
from substrate.kernel.context import RunContext
from substrate.kernel.hooks import ProgressSink
from substrate.kernel.sandbox import Sandbox
from substrate.kernel.tools.approval import (
    ApprovalAnswer,
    ApprovalDecision,
    ApprovalHandler,
    ApprovalRequest,
)
from substrate.kernel.tools.chain import ChainPolicy, ChainRunResult
from substrate.kernel.tools.tools import AnyTool, ToolRegistry, new_call_id

__all__ = ["Approve", "run_script", "run_script_sync"]

Approve = (
    ApprovalHandler | Callable[[ApprovalRequest], Awaitable[ApprovalDecision | ApprovalAnswer]]
)


class _Asked:
    """An approval function as a handler."""

    def __init__(
        self, function: Callable[[ApprovalRequest], Awaitable[ApprovalDecision | ApprovalAnswer]]
    ) -> None:
        self._function = function

    async def request(self, req: ApprovalRequest, /) -> ApprovalDecision | ApprovalAnswer:
        return await self._function(req)


async def run_script(
    code: str,
    tools: ToolRegistry | Iterable[AnyTool | Callable[..., Any]],
    approve: Approve | None = None,
    policy: ChainPolicy | None = None,
    store: BlobStore | None = None,
    *,
    sandbox: Sandbox | None = None,
    progress_sink: ProgressSink | None = None,
) -> ChainRunResult:
    """Run a model's script against tools, every call in it gated.

    Args:
        code: The script.
        tools: A registry, or tools and plain functions.
        approve: Who is asked about risky calls: an `ApprovalHandler`, or an async
            function of an `ApprovalRequest`; None denies them.
        policy: The limits; None takes the defaults.
        store: Where large results and media go. The run has a scope of its own, so that
            the refs in its result live on in the store.
        sandbox: Where the script runs; None takes the process-wide default.
        progress_sink: Told of every call as it happens.

    Raises nothing of the script's: every end is in the result.
    """
    registry = tools if isinstance(tools, ToolRegistry) else Toolbox(tools)
    if approve is not None and not isinstance(approve, ApprovalHandler):
        if not callable(approve):
            msg = f"approve must be an ApprovalHandler or an async function, not {approve!r}"
            raise TypeError(msg)
        approve = _Asked(approve)
    invoker = ToolInvoker(registry, cast("ApprovalHandler | None", approve), store, policy)
    chain = ToolChainTool(invoker, sandbox, progress_sink=progress_sink)
    return await chain.run(code, ctx=RunContext(session_id=f"run-{new_call_id()}"))


def run_script_sync(
    code: str,
    tools: ToolRegistry | Iterable[AnyTool | Callable[..., Any]],
    approve: Approve | None = None,
    policy: ChainPolicy | None = None,
    store: BlobStore | None = None,
) -> ChainRunResult:
    """`run_script` for code without an event loop; not to be called from within one."""
    return asyncio.run(run_script(code, tools, approve, policy, store))
