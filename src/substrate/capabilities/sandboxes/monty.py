"""`MontySandbox`: scripts in pydantic-monty, an interpreter for a subset of Python.

A pool of worker processes is kept, driven by the synchronous snapshot API from a few
threads of our own: a thread is held only while a script computes, a process also
while it waits. Its async client can abort the host at exit, so it is not used.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import functools
import os
import threading
from types import TracebackType
from typing import Self

import pydantic_monty as monty

from substrate.capabilities.sandboxes.checker import Checker
from substrate.capabilities.sandboxes.foresight import foreseen
from substrate.capabilities.sandboxes.forked import is_forked, require_own_process
from substrate.capabilities.sandboxes.launcher import launcher
from substrate.capabilities.sandboxes.monty_run import MontyRun
from substrate.capabilities.sandboxes.untraced import cut_short
from substrate.capabilities.sandboxes.worker import KILL_AFTER_S
from substrate.capabilities.sandboxes.workers import Places, Workers
from substrate.kernel.errors import SandboxUnavailable
from substrate.kernel.sandbox import Problem, SandboxCapabilities, Script

__all__ = ["MontySandbox"]

_MOST_CODE = 1024 * 1024
_LONGEST_CHECK_S = 2.0  # seconds; most checks take milliseconds
_MOST_CHECKED = 64 * 1024  # characters; longer ones take the type checker seconds


class MontySandbox:
    """A kept pool of Monty workers.

    Args:
        processes: Workers at once; a waiting script holds one (about 1 MB).
        threads: Threads that drive them, beside those that a script holds by computing
            on and on; None: one more than there are cores.
    """

    def __init__(self, processes: int = 64, threads: int | None = None) -> None:
        self._processes = processes
        self._places = Places(processes)
        count = threads if threads is not None else (os.cpu_count() or 1) + 1
        self._workers = Workers(count, cut_short, processes + 1)
        self._pool: monty.Monty | None = None
        self._checker = Checker()
        self._checking = Workers(1, cut_short)  # its own, so that no script waits for a check
        self._lock = threading.Lock()

    def capabilities(self) -> SandboxCapabilities:
        """A subset of Python in a process of its own, behind every layer found here."""
        return _capabilities()

    async def preflight(self, script: Script) -> list[Problem]:
        """What can be told without running it: no text, too long, unsupported, wrongly typed.

        Raises SandboxUnavailable in a process that was forked after scripts ran.
        """
        require_own_process()
        if self._pool is None:  # the launcher is looked for off the loop
            await self._workers.run(launcher)
        code = script.code
        if len(code) > _MOST_CODE:
            text = f"the script has {len(code)} characters; at most {_MOST_CODE} are taken"
            return [Problem("syntax", text)]
        for number, line in enumerate(code.split("\n"), 1):
            if "\0" in line:
                return [Problem("syntax", "a NUL character is no Python", number)]
            if not line.isascii() and any("\ud800" <= char <= "\udfff" for char in line):
                return [Problem("syntax", "a lone surrogate is no character", number)]
        if len(code) > _MOST_CHECKED:
            return []
        lacking = foreseen(code)
        if lacking or script.stubs is None:
            return lacking
        check = self._checking.run(lambda: self._checker.check(script))
        await asyncio.wait((check,), timeout=_LONGEST_CHECK_S)
        if check.done():
            return check.result()
        self._checker.give_up(script)
        return []

    def run(self, script: Script) -> MontyRun:
        """A new run of `script`, not yet started."""
        require_own_process()
        return MontyRun(self, script)

    def pool(self) -> monty.Monty:
        """The pool, started when first wanted (blocking: called from a thread)."""
        with self._lock:
            if self._pool is None:
                pool = monty.Monty(
                    binary_path=launcher().path,
                    max_processes=self._processes,
                    feed_duration_limit_grace=KILL_AFTER_S,
                )
                try:
                    self._pool = pool.__enter__()
                except Exception as error:
                    msg = f"the Monty workers cannot be started: {error}"
                    raise SandboxUnavailable(msg) from error
                atexit.register(self._close)
            return self._pool

    @property
    def places(self) -> Places:
        """The bound on worker processes."""
        return self._places

    @property
    def workers(self) -> Workers:
        """The threads."""
        return self._workers

    def _close(self) -> None:
        if is_forked():
            return  # it is the parent's to close
        atexit.unregister(self._close)
        with self._lock:
            pool, self._pool = self._pool, None
        self._checker.close()
        if pool is not None:
            with contextlib.suppress(Exception):
                pool.__exit__(None, None, None)

    async def aclose(self) -> None:
        """End every worker; a later run starts them anew."""
        await self._workers.run(self._close)
        self._workers.close()
        self._checking.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        await self.aclose()


@functools.cache
def _capabilities() -> SandboxCapabilities:
    layers = launcher().layers
    return SandboxCapabilities(
        name="monty", python="subset", snapshot=True, type_check=True, layers=layers
    )
