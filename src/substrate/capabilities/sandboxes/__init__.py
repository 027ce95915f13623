"""Where scripts run, one sandbox a file; `default_sandbox` is the process-wide one."""

from __future__ import annotations

import functools

from substrate.capabilities.sandboxes.monty import MontySandbox

__all__ = ["MontySandbox", "default_sandbox"]


@functools.cache
def default_sandbox() -> MontySandbox:
    """The process-wide pool; started when first used, gone when the interpreter ends."""
    return MontySandbox()
