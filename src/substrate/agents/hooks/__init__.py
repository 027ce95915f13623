"""Observers of what an agent and the invoker do: they watch and change nothing."""

from substrate.agents.hooks.manager import HookManager
from substrate.kernel.hooks import Hook, HookEvent

__all__ = ["Hook", "HookEvent", "HookManager"]
