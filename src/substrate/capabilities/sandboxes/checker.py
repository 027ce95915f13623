"""The type check of a script before it runs, in a checker session that is kept.

The script is wrapped into the body of a function, so that nothing of it is executed
and `return` is legal at its top level. Of what the checker says, only that is a problem
which will fail for certain: it knows less of a value than the script that made it, and
a script that would run must not be refused.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import re
import threading
from collections.abc import Iterable, Mapping
from typing import Any, cast

import pydantic_monty as monty

from substrate.capabilities.sandboxes.dialect import BUILTINS, with_way_round
from substrate.capabilities.sandboxes.forked import is_forked
from substrate.capabilities.sandboxes.launcher import launcher
from substrate.capabilities.sandboxes.worker import Worker
from substrate.kernel.names import did_you_mean
from substrate.kernel.sandbox import Problem, Script

__all__ = ["Checker"]

_FEEDS = 40  # a session keeps what it was fed: from 1 ms a check creeps to 5 by 60 of them
_SESSIONS = 2  # about 30 MB each
_LONGEST_S = 5.0
_MOST = 8  # problems that are told
_LINE = re.compile(r'File "<python-input-\d+>", line (\d+)')
_QUOTED = re.compile(r"`([^`]+)`")
_VAGUE = re.compile(r"\||Unknown|Literal\[[^]]*,")  # one of several types
_OF_ARTIFACTS = frozenset(["ref", "preview", "size", "media_type", "text", "lines"])
_PASSED_ON = frozenset(["Artifact", "bytes"])  # they fit where a schema says text
_CALL_RULES = frozenset(
    [
        "invalid-argument-type",
        "missing-argument",
        "unknown-argument",
        "too-many-positional-arguments",
        "parameter-already-assigned",
    ]
)
_CERTAIN_RULES = frozenset(
    [
        "unresolved-reference",
        "unresolved-import",
        "unresolved-attribute",
        "unused-awaitable",
        "invalid-await",
        "not-iterable",
        "not-subscriptable",
        "call-non-callable",
        "unsupported-operator",
    ]
)
_WRAPPING = ("only allowed at module level", "__future__")  # legal where the script really runs


class Checker:
    """Checks scripts, one at a time, each in the session that holds its stubs."""

    def __init__(self) -> None:
        self._pool: monty.Monty | None = None
        self._sessions: dict[str, _Session] = {}
        self._lock = threading.Lock()
        self._now: tuple[Script, _Session] | None = None

    def check(self, script: Script) -> list[Problem]:
        """What will fail for certain (blocking). A script that the checker cannot end is let by."""
        with self._lock:
            try:
                session = self._session(script.stubs or "")
                self._now = script, session
                found = session.check(script)
            except (monty.MontyError, ValueError, LookupError):
                found = []
                self._drop(script.stubs or "")
            finally:
                self._now = None
            return found

    def give_up(self, script: Script) -> None:
        """End the check of a script that takes too long, if it is going on."""
        now = self._now
        if now is not None and now[0] is script:
            now[1].kill()

    def close(self) -> None:
        """End the sessions and their workers."""
        if is_forked():
            return  # they are the parent's
        with self._lock:
            for stubs in list(self._sessions):
                self._drop(stubs)
            pool, self._pool = self._pool, None
            atexit.unregister(self.close)
            if pool is not None:
                pool.__exit__(None, None, None)

    def _session(self, stubs: str) -> _Session:
        session = self._sessions.pop(stubs, None)
        if session is not None and session.feeds >= _FEEDS:
            session.close()
            session = None
        if session is None:
            while len(self._sessions) >= _SESSIONS:
                self._drop(next(iter(self._sessions)))
            if self._pool is None:
                path = launcher().path
                self._pool = monty.Monty(binary_path=path, max_processes=_SESSIONS + 1).__enter__()
                atexit.register(self.close)
            session = _Session(self._pool, stubs)
        self._sessions[stubs] = session  # the last one used is the last one dropped
        return session

    def _drop(self, stubs: str) -> None:
        session = self._sessions.pop(stubs, None)
        if session is not None:
            session.close()


class _Session:
    def __init__(self, pool: monty.Monty, stubs: str) -> None:
        self.feeds = 0
        self._session = pool.checkout(
            script_name="script.py",
            type_check=True,
            type_check_stubs=f"from typing import Any\n{BUILTINS}{stubs}",
            type_check_format="json",
            limits={"max_feed_duration_secs": _LONGEST_S},
        ).__enter__()
        self._worker = Worker(self._session.worker_pid)

    def kill(self) -> None:
        """End the worker wherever it is; the check that it is at fails."""
        self._worker.kill()

    def check(self, script: Script) -> list[Problem]:
        wrapped = _wrapped(script.code)
        unsupported = self._fed(wrapped, skip_type_check=True)
        if unsupported:
            return unsupported
        self.feeds += 1
        return self._fed(wrapped, skip_type_check=False, tools=script.tools)

    def _fed(
        self, wrapped: str, *, skip_type_check: bool, tools: Mapping[str, str] | None = None
    ) -> list[Problem]:
        try:
            self._session.feed_run(wrapped, skip_type_check=skip_type_check)
        except monty.MontyTypingError as error:
            return list(_problems(json.loads(error.display()), tools or {}))
        except monty.MontySyntaxError:
            return []  # the run says it, in the script's own lines
        except monty.MontyRuntimeError as error:
            if isinstance(error.exception(), NotImplementedError):
                return [_unsupported(error)]
            raise
        return []

    def close(self) -> None:
        self._worker.let_go()
        with contextlib.suppress(Exception):
            self._session.__exit__(None, None, None)


def _wrapped(code: str) -> str:
    """The script as the body of a function: every line one column further in, one line lower."""
    body = "\n ".join(code.split("\n"))
    return f"async def __script_body__():\n {body}\n pass\n"


def _unsupported(error: monty.MontyRuntimeError) -> Problem:
    lines = [int(number) for number in _LINE.findall(error.display())]
    message = with_way_round(str(error.exception()))
    return Problem("unsupported", message, lines[-1] - 1 if lines else None)


def _problems(found: list[Any], tools: Mapping[str, str]) -> Iterable[Problem]:
    certain = [cast("dict[str, Any]", one) for one in found if _is_certain(one, tools)]
    for one in certain[:_MOST]:
        message = str(one["message"])
        if one["name"] == "unresolved-reference":
            named = [str(name) for name in _QUOTED.findall(message)]
            message += did_you_mean(named[0], tools, 1) if named else ""
        reason = "not_awaited" if one["name"] == "unused-awaitable" else "type_check"
        yield Problem(reason, with_way_round(message), int(one["location"]["row"]) - 1)


def _is_private(name: str) -> bool:
    return name.startswith("__") and not name.endswith("__")


def _is_certain(one: Mapping[str, Any], tools: Mapping[str, str]) -> bool:
    """Whether this fails whatever the values are."""
    rule, message = str(one["name"]), str(one["message"])
    if one["severity"] != "error" or any(part in message for part in _WRAPPING):
        return False
    named = _QUOTED.findall(message)
    if not named:
        return rule in _CERTAIN_RULES
    if any(map(_is_private, named)):
        return False  # the checker has rules of its own for such names, which Monty has not
    if rule in _CALL_RULES:
        vague = rule == "invalid-argument-type" and _VAGUE.search(named[-1]) is not None
        vague = vague or named[-1] in _PASSED_ON
        return any(name in tools for name in named) and not vague
    if rule not in _CERTAIN_RULES:
        return False
    if rule == "unresolved-attribute" and named[-1] in _OF_ARTIFACTS:
        return False  # a large result is an artifact, whatever the tool's return type
    return not any(" | " in name or name == "None" for name in named)
