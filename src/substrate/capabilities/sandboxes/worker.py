"""A worker process of a pool, for as long as a run holds it."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import threading

__all__ = ["KILL_AFTER_S", "Worker"]

KILL_AFTER_S = 1.0
"""A step that never reaches a check of the clock is killed so many seconds later."""


class Worker:
    """A worker process, held by a descriptor: its number may be given to another process."""

    def __init__(self, pid: int | None) -> None:
        self._fd: int | None = None
        if pid is not None and hasattr(os, "pidfd_open"):
            with contextlib.suppress(OSError):
                self._fd = os.pidfd_open(pid)
        self._pid = pid
        self._killed = False
        self._lock = threading.Lock()

    def kill(self) -> None:
        """Kill it, unless it was let go: then it may already run another script."""
        with self._lock, contextlib.suppress(OSError):
            if self._fd is not None:
                self._killed = True
                signal.pidfd_send_signal(self._fd, signal.SIGKILL)
            elif self._pid is not None:
                self._killed = True
                os.kill(self._pid, signal.SIGKILL)

    def let_go(self) -> None:
        """From now on it is the pool's. One that was killed is dead by then: the pool looks."""
        with self._lock:
            fd, self._fd, self._pid = self._fd, None, None
        if fd is None:
            return
        if self._killed:
            ended = select.poll()
            ended.register(fd, select.POLLIN)
            ended.poll(KILL_AFTER_S * 1000)
        os.close(fd)
