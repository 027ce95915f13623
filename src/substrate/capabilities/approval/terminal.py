"""`TerminalApproval`: a person at a terminal decides.

Shown before a yes: the tool, its risk and why it asks, and the whole arguments.
Whatever a model or a server wrote is made visible first. End of input, no terminal
and the end of the time deny at once. One question at a time.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import getpass
import json
import os
import select
import shlex
import subprocess
import sys
import tempfile
import termios
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TextIO, cast

from rich.console import Console
from rich.text import Text

from substrate.capabilities.approval.visible import visible
from substrate.kernel.secrets import hide
from substrate.kernel.tools.approval import ApprovalAnswer, ApprovalDecision, ApprovalRequest
from substrate.kernel.values import json_form, plain

__all__ = ["TerminalApproval"]

_TICK_S = 0.05
_PAGE = 40


class TerminalApproval:
    """Asks the person at the terminal.

    Args:
        console: Where questions are written; None: standard error.
        source: Where answers are read; None: standard input, if it is a terminal.
    """

    def __init__(self, console: Console | None = None, source: TextIO | None = None) -> None:
        self._console = console if console is not None else Console(stderr=True)
        self._source = source
        self._turn = threading.Lock()

    async def request(self, req: ApprovalRequest, /) -> ApprovalAnswer:
        """Ask about one call; on cancellation the question is withdrawn."""
        source = self._source if self._source is not None else sys.stdin
        if not _is_terminal(source):
            return _denied("there is no terminal to ask at")
        withdrawn = threading.Event()
        until = time.monotonic() + (req.expires_in_s or 1e9)
        question = _Question(self._console, source.fileno(), req, until, withdrawn)
        try:
            return await _in_daemon_thread(lambda: self._ask(question))
        finally:
            withdrawn.set()

    def _ask(self, question: _Question) -> ApprovalAnswer:
        while not self._turn.acquire(timeout=_TICK_S):
            if question.is_over():
                return _denied("the time for an answer was over")
        try:
            return question.put()
        except EOFError:
            return _denied("the input ended")
        except TimeoutError:
            return _denied("the time for an answer was over")
        finally:
            self._turn.release()

    def expired(self, req: ApprovalRequest, /) -> None:
        """Say that the question is no longer open."""
        self._console.print(Text(f"expired: {visible(req.call.name)} was not run", "dim"))


class _Question:
    """One question, put to the person in a thread."""

    def __init__(
        self,
        console: Console,
        descriptor: int,
        req: ApprovalRequest,
        until: float,
        withdrawn: threading.Event,
    ) -> None:
        self._console = console
        self._descriptor = descriptor
        self._req = req
        self._until = until
        self._withdrawn = withdrawn

    def is_over(self) -> bool:
        return self._withdrawn.is_set() or time.monotonic() >= self._until

    def put(self) -> ApprovalAnswer:
        arguments = cast("Mapping[str, Any]", self._req.call.arguments)
        hidden = self._hidden(arguments)
        self._introduce()
        self._show(hidden)
        is_hiding = _text(hidden) != _text(arguments)
        reveal = ", reveal what is hidden" if is_hiding else ""
        while True:
            asked = f"yes, no, skip, edit, always (in this chain){reveal}? "
            word = self._line(asked).strip().lower()
            if word in ("y", "yes"):
                return _answer(ApprovalDecision.APPROVED)
            if word in ("a", "always"):
                return _answer(ApprovalDecision.APPROVED, grant="chain")
            if word in ("n", "no"):
                return _answer(ApprovalDecision.DENIED)
            if word in ("s", "skip"):
                return _answer(ApprovalDecision.SKIPPED)
            if is_hiding and word in ("r", "reveal"):
                self._show(arguments)
                continue
            if word in ("e", "edit"):
                edited = self._edit()
                if edited is not None:
                    return _answer(ApprovalDecision.MODIFIED, arguments=edited)
            else:
                self._say("please answer y, n, s, e or a")

    def _introduce(self) -> None:
        """Which tool asks and why; a text of somebody else begins no line of its own."""
        req = self._req
        self._say(f"May {visible(req.call.name)} run?  risk {req.risk.name}", "bold")
        if req.why:
            self._say(f"why: {visible(req.why)}")
        description = str(req.context.get("description") or "")
        for line in description.splitlines():
            self._say(f"its own words: {visible(line)}")

    def _show(self, arguments: Mapping[str, Any]) -> None:
        """The whole arguments, page by page: never only a cut preview."""
        lines = visible(_text(arguments), lines=True).split("\n")
        for start in range(0, len(lines), _PAGE):
            if start:
                self._line(f"-- line {start} of {len(lines)}; Enter for more -- ")
            for line in lines[start : start + _PAGE]:
                self._say(f"  {line}")

    def _edit(self) -> dict[str, Any] | None:
        before = _text(cast("Mapping[str, Any]", self._req.call.arguments))
        text = self._edited(before)
        try:
            edited = _given(json.loads(text))
        except ValueError as error:
            self._say(f"that is no JSON: {visible(str(error))}")
            return None
        if not isinstance(edited, dict):
            self._say("the arguments must be a JSON object")
            return None
        arguments = cast("dict[str, Any]", edited)
        self._show(self._hidden(arguments))
        sure = self._line("run with these (yes, no)? ").strip().lower()
        return arguments if sure in ("y", "yes") else None

    def _edited(self, before: str) -> str:
        editor = os.environ.get("EDITOR")
        if editor:
            try:
                return _in_editor(editor, before)
            except (OSError, ValueError) as error:
                self._say(f"the editor {visible(editor)} cannot be used: {visible(str(error))}")
        return self._line("new arguments as JSON: ")

    def _hidden(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        return hide(dict(arguments), frozenset(self._req.context.get("secrets") or ()))

    def _say(self, text: str, style: str = "", end: str = "\n") -> None:
        """Write a text as it is: no markup, no emoji codes, no wrapping."""
        self._console.print(Text(text, style), end=end, soft_wrap=True)

    def _line(self, prompt: str) -> str:
        """A line of input; EOFError at its end, TimeoutError when the time is over.

        What was typed before the prompt was there is no answer to it.
        """
        with contextlib.suppress(termios.error):
            termios.tcflush(self._descriptor, termios.TCIFLUSH)
        self._say(prompt, end="")
        data = b""
        while not data.endswith(b"\n"):
            if self.is_over():
                self._console.print()
                raise TimeoutError
            ready, _, _ = select.select([self._descriptor], [], [], _TICK_S)
            if ready:
                try:
                    byte = os.read(self._descriptor, 1)
                except OSError as error:  # the terminal is gone
                    raise EOFError from error
                if not byte:
                    raise EOFError
                data += byte
        return data.decode(errors="replace")


def _text(arguments: Mapping[str, Any]) -> str:
    return json.dumps(json_form(plain(arguments)), indent=2, ensure_ascii=False, default=str)


def _given(value: Any) -> Any:
    """Edited JSON as arguments: bytes are bytes again."""
    if isinstance(value, dict):
        entries = cast("dict[str, Any]", value)
        if entries.keys() == {"$bytes"}:
            return base64.b64decode(str(entries["$bytes"]), validate=True)
        return {key: _given(item) for key, item in entries.items()}
    return [_given(item) for item in cast("list[Any]", value)] if isinstance(value, list) else value


def _in_editor(editor: str, text: str) -> str:
    descriptor, name = tempfile.mkstemp(suffix=".json")
    path = Path(name)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        subprocess.run([*shlex.split(editor), name], check=False)  # noqa: S603  # the person's own editor
        return path.read_text("utf-8")
    finally:
        path.unlink(missing_ok=True)


def _answer(
    decision: ApprovalDecision, *, arguments: dict[str, Any] | None = None, grant: Any = None
) -> ApprovalAnswer:
    with contextlib.suppress(Exception):
        return ApprovalAnswer(decision, arguments, getpass.getuser(), time.time(), None, grant)
    return ApprovalAnswer(decision, arguments, "terminal", time.time(), None, grant)


def _denied(reason: str) -> ApprovalAnswer:
    return ApprovalAnswer(ApprovalDecision.DENIED, decided_by="terminal", reason=reason)


def _is_terminal(source: TextIO | None) -> bool:
    try:
        return source is not None and source.isatty()
    except (ValueError, OSError):
        return False


async def _in_daemon_thread(function: Callable[[], ApprovalAnswer]) -> ApprovalAnswer:
    """The wait can be abandoned, and does not hold up the end of the program."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[ApprovalAnswer] = loop.create_future()

    def settle(answer: ApprovalAnswer | None, error: BaseException | None) -> None:
        if future.done():
            return
        if answer is not None:
            future.set_result(answer)
        else:
            future.set_exception(error or RuntimeError("no answer"))

    def work() -> None:
        answer: ApprovalAnswer | None = None
        failure: BaseException | None = None
        try:
            answer = function()
        except Exception as error:
            failure = error
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(settle, answer, failure)

    threading.Thread(target=work, name="substrate-approval", daemon=True).start()
    return await future
