"""`TerminalApproval`: a person at a terminal decides.

Shown before a yes: the tool, its risk and why it asks, and the whole arguments.
Whatever a model or a server wrote is made visible and stands behind a margin; only
what was typed after a question is an answer to it. End of input, no terminal and the
end of the time deny at once. One question at a time.
"""

from __future__ import annotations

import asyncio
import contextlib
import getpass
import os
import select
import shlex
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Generator, Mapping
from pathlib import Path
from typing import Any, TextIO, cast

from rich.console import Console
from rich.text import Text

from substrate.capabilities.approval.editing import can_be_edited, editable, from_json, to_json
from substrate.capabilities.approval.screen import Screen
from substrate.capabilities.approval.visible import quoted, visible
from substrate.kernel.secrets import hide
from substrate.kernel.tools.approval import ApprovalAnswer, ApprovalDecision, ApprovalRequest

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
        self._console = console if console is not None else Screen(stderr=True)
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
        except (OSError, ValueError) as error:
            return _denied(f"the question could not be shown: {error}")
        finally:
            self._turn.release()

    def expired(self, req: ApprovalRequest, /) -> None:
        """Say that the question is no longer open."""
        self._console.print(Text("expired, and was not run:", "dim"))
        for line in quoted("tool", visible(req.call.name), self._console.width):
            self._console.print(Text(line, "dim"), soft_wrap=True)


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
        self._arguments = dict(cast("Mapping[str, Any]", req.call.arguments))
        self._secrets = frozenset[str](req.context.get("secrets") or ())
        self._until = until
        self._withdrawn = withdrawn

    def is_over(self) -> bool:
        return self._withdrawn.is_set() or time.monotonic() >= self._until

    def put(self) -> ApprovalAnswer:
        hidden = hide(self._arguments, self._secrets)
        self._introduce()
        self._show(hidden)
        is_hiding = hidden is not self._arguments
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
                self._show(self._arguments)
                continue
            if word in ("e", "edit"):
                edited = self._edit()
                if edited is not None:
                    return _answer(ApprovalDecision.MODIFIED, arguments=edited)
            else:
                self._say("please answer y, n, s, e or a")

    def _introduce(self) -> None:
        """Which tool asks and why."""
        req = self._req
        self._say(f"May this run?  risk {req.risk.name}", "bold")
        told = {
            "tool": visible(req.call.name),
            "why": visible(req.why),
            "says": str(req.context.get("description") or ""),
        }
        for label, text in told.items():
            if text:
                self._quote(label, text)

    def _show(self, arguments: Mapping[str, Any]) -> None:
        self._quote("with", to_json(arguments))

    def _edit(self) -> dict[str, Any] | None:
        """Other arguments, where the person gives some and confirms them."""
        if not can_be_edited(self._arguments):
            self._say('these cannot be edited: an object in them looks like {"$bytes": "..."}')
            return None
        text = self._edited(to_json(self._arguments))
        if not text.strip():
            return None
        try:
            arguments = from_json(text)
            self._show(hide(arguments, self._secrets))
        except (ValueError, RecursionError) as error:
            self._say(visible(str(error)))
            return None
        sure = self._line("run with these (yes, no)? ").strip().lower()
        return arguments if sure in ("y", "yes") else None

    def _edited(self, before: str) -> str:
        """The text that the person gives; empty where there is none."""
        editor = os.environ.get("EDITOR", "").strip()
        if editor:
            try:
                return _in_editor(editor, editable(before), self._descriptor)
            except subprocess.CalledProcessError as error:
                self._say(f"the editor ended with code {error.returncode}: nothing was edited")
                return ""
            except (OSError, ValueError) as error:
                self._say(f"the editor {visible(editor)} cannot be used: {visible(str(error))}")
        return self._line("new arguments as JSON: ")

    def _quote(self, label: str, text: str) -> None:
        """The whole of what somebody else wrote, page by page: never only a cut preview."""
        lines = list(quoted(label, text, self._console.width))
        for start in range(0, len(lines), _PAGE):
            if start:
                self._line(f"-- line {start} of {len(lines)}; Enter for more -- ")
            for line in lines[start : start + _PAGE]:
                self._say(line)

    def _say(self, text: str, style: str = "", end: str = "\n") -> None:
        """Write a text as it is: no markup, no emoji codes, no wrapping."""
        self._console.print(Text(text, style), end=end, soft_wrap=True)

    def _line(self, prompt: str) -> str:
        """A line of input; EOFError at its end, TimeoutError when the time is over.

        What was typed before the prompt was there is no answer to it.
        """
        _drop_what_was_typed(self._descriptor)
        self._say(prompt, end="")
        try:
            return self._typed().decode(errors="replace")
        except (EOFError, TimeoutError):
            self._console.print()  # what comes next does not stand behind the prompt
            raise

    def _typed(self) -> bytes:
        data = b""
        while not data.endswith(b"\n"):
            if self.is_over():
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
        return data


def _drop_what_was_typed(descriptor: int) -> None:
    """Empty the terminal's queue; what a reader of `sys.stdin` holds is never looked at."""
    try:
        import termios
    except ImportError:  # not on this platform
        return
    with contextlib.suppress(termios.error):
        termios.tcflush(descriptor, termios.TCIFLUSH)


def _in_editor(editor: str, text: str, descriptor: int) -> str:
    """What the person's editor, at the terminal of `descriptor`, makes of a text."""
    made, name = tempfile.mkstemp(suffix=".json")
    path = Path(name)
    try:
        with os.fdopen(made, "w", encoding="utf-8") as file:
            file.write(text)
        with _terminal(descriptor) as at:
            subprocess.run([*shlex.split(editor), name], check=True, stdin=at, stdout=at)  # noqa: S603  # the person's own editor
        return path.read_text("utf-8")
    finally:
        path.unlink(missing_ok=True)


@contextlib.contextmanager
def _terminal(descriptor: int) -> Generator[int | None]:
    """The terminal to read and write, wherever the output of the program goes."""
    try:
        at = os.open(os.ttyname(descriptor), os.O_RDWR | os.O_NOCTTY)
    except OSError:  # it has no name here
        yield None
        return
    try:
        yield at
    finally:
        os.close(at)


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
        except BaseException as error:  # a console that ends the program where nobody reads
            failure = RuntimeError(f"{type(error).__name__} in the question")
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(settle, answer, failure)

    threading.Thread(target=work, name="substrate-approval", daemon=True).start()
    return await future
