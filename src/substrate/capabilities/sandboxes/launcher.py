"""How a Monty worker is started: behind every layer of wall that this machine can raise.

Monty itself hardens nothing by the OS. So the worker is started by a small shell
script that drops limits, leaves the host's process group (a Ctrl-C in the terminal is
not the worker's) and, where bubblewrap is installed and the kernel lets it, enters
empty namespaces without capabilities, `/proc`, a network or any file but libraries.
Each launcher is tried before its layers are claimed.
"""

from __future__ import annotations

import functools
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

__all__ = ["Launcher", "launcher"]

_TRIAL_S = 10.0
_LIMITS = (
    "ulimit -c 0",  # no core files
    "ulimit -f 0",  # no files written: a worker speaks on its pipes alone
    "ulimit -n 64",
    "ulimit -v 4194304",  # KiB; far above any script's own limit
)
_LIBRARIES = ("/usr/lib", "/usr/lib64", "/lib", "/lib64")
_BUBBLEWRAP = (
    *("--unshare-user", "--uid", "65534", "--gid", "65534", "--cap-drop", "ALL"),
    *("--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts", "--unshare-cgroup-try"),
    *("--die-with-parent", "--clearenv"),
    "--as-pid-1",  # bubblewrap's own process 1 would still hold the host's environment
)


class Launcher(NamedTuple):
    """The program that a pool starts as its worker (None: Monty's own), and its layers."""

    path: str | None
    layers: tuple[str, ...]


@functools.cache
def launcher() -> Launcher:
    """The strongest launcher that works here; found once a process (blocking, some 10 ms)."""
    plain = Launcher(None, ("process", "empty-env"))
    binary = shutil.which("monty", path=str(Path(sys.executable).parent)) or shutil.which("monty")
    if binary is None or not hasattr(os, "memfd_create"):
        return plain
    setsid, bubblewrap = shutil.which("setsid"), shutil.which("bwrap")
    limited = (*plain.layers, "rlimits")
    if setsid is not None:
        apart = (*limited, "process-group")
        if bubblewrap is not None:
            layers = (*apart, "namespaces", "no-capabilities")
            found = _tried([setsid, *_inside(bubblewrap, binary)], layers)
            if found is not None:
                return found
        found = _tried([setsid, binary], apart)
        if found is not None:
            return found
    return _tried([binary], limited) or plain


def _inside(bubblewrap: str, binary: str) -> list[str]:
    shown = [word for path in _LIBRARIES for word in ("--ro-bind-try", path, path)]
    return [bubblewrap, *_BUBBLEWRAP, *shown, "--ro-bind", binary, "/monty", "--", "/monty"]


def _tried(command: list[str], layers: tuple[str, ...]) -> Launcher | None:
    lines = ("#!/bin/sh", *_LIMITS, f'exec {shlex.join(command)} "$@"', "")
    file = os.memfd_create("substrate-monty")  # gone with this process, however it ends
    os.write(file, "\n".join(lines).encode())
    path = f"/proc/{os.getpid()}/fd/{file}"
    os.fchmod(file, 0o500)
    try:
        subprocess.run(  # noqa: S603  # our own script
            [path, "--version"], check=True, capture_output=True, timeout=_TRIAL_S, env={}
        )
    except (OSError, subprocess.SubprocessError):
        os.close(file)
        return None
    return Launcher(path, layers)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=launcher.cache_clear)  # the path names this process
