"""substrate: the tools layer for AI agents.

A `Toolbox` holds an agent's tools, a `ToolInvoker` is the one door through which every
call of them passes, and a `ToolChainTool` runs a model's script whose calls pass it.
Names are imported when they are first used; importing the package imports nothing else.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from substrate.agents.hooks import HookEvent, HookManager
    from substrate.agents.tools.declare import tool
    from substrate.agents.tools.invoker import ToolInvoker
    from substrate.agents.tools.toolbox import Toolbox
    from substrate.capabilities.tools.chain import ToolChainTool
    from substrate.kernel.content import ImageBlock, TextBlock
    from substrate.kernel.errors import NotDone, Refused
    from substrate.kernel.secrets import Secret
    from substrate.kernel.tools.approval import ApprovalAnswer, ApprovalDecision
    from substrate.kernel.tools.chain import ChainPolicy
    from substrate.kernel.tools.tools import (
        ToolCallRequest,
        ToolEffect,
        ToolExecutionResult,
        ToolRisk,
    )
    from substrate.scripts import run_script, run_script_sync
    from substrate.storage import FileBlobStore, InMemoryBlobStore

__all__ = [
    "ApprovalAnswer",
    "ApprovalDecision",
    "ChainPolicy",
    "FileBlobStore",
    "HookEvent",
    "HookManager",
    "ImageBlock",
    "InMemoryBlobStore",
    "NotDone",
    "Refused",
    "Secret",
    "TextBlock",
    "ToolCallRequest",
    "ToolChainTool",
    "ToolEffect",
    "ToolExecutionResult",
    "ToolInvoker",
    "ToolRisk",
    "Toolbox",
    "run_script",
    "run_script_sync",
    "tool",
]

_PLACES = {
    "ApprovalAnswer": "substrate.kernel.tools.approval",
    "ApprovalDecision": "substrate.kernel.tools.approval",
    "ChainPolicy": "substrate.kernel.tools.chain",
    "FileBlobStore": "substrate.storage",
    "HookEvent": "substrate.agents.hooks",
    "HookManager": "substrate.agents.hooks",
    "ImageBlock": "substrate.kernel.content",
    "InMemoryBlobStore": "substrate.storage",
    "NotDone": "substrate.kernel.errors",
    "Refused": "substrate.kernel.errors",
    "Secret": "substrate.kernel.secrets",
    "TextBlock": "substrate.kernel.content",
    "ToolCallRequest": "substrate.kernel.tools.tools",
    "ToolChainTool": "substrate.capabilities.tools.chain",
    "ToolEffect": "substrate.kernel.tools.tools",
    "ToolExecutionResult": "substrate.kernel.tools.tools",
    "ToolInvoker": "substrate.agents.tools.invoker",
    "ToolRisk": "substrate.kernel.tools.tools",
    "Toolbox": "substrate.agents.tools.toolbox",
    "run_script": "substrate.scripts",
    "run_script_sync": "substrate.scripts",
    "tool": "substrate.agents.tools.declare",
}


def __getattr__(name: str) -> Any:
    place = _PLACES.get(name)
    if place is None:
        msg = f"module 'substrate' has no attribute {name!r}"
        raise AttributeError(msg)
    value = globals()[name] = getattr(import_module(place), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
