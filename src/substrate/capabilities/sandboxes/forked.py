"""Monty's client does not survive a fork: its threads are the parent's."""

from __future__ import annotations

import os

from substrate.kernel.errors import SandboxUnavailable

__all__ = ["is_forked", "require_own_process"]

_started_in: list[int] = []


def require_own_process() -> None:
    """From now on Monty runs in this process; raises `SandboxUnavailable` in a child of it."""
    if not _started_in:
        _started_in.append(os.getpid())
    if is_forked():
        msg = (
            "scripts ran in the process from which this one was forked, and cannot run in both;"
            " start this process anew (multiprocessing: the method 'spawn' or 'forkserver')"
        )
        raise SandboxUnavailable(msg)


def is_forked() -> bool:
    """Whether what was started belongs to the process from which this one was forked."""
    return bool(_started_in) and _started_in[0] != os.getpid()
