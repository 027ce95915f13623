"""A person at a real pseudo-terminal decides; without one, the answer is no at once."""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import pty
import stat
from collections import deque
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from rich.console import Console

from substrate.capabilities.approval import TerminalApproval, visible
from substrate.kernel.tools.approval import ApprovalAnswer, ApprovalDecision, ApprovalRequest
from substrate.kernel.tools.tools import ToolCallRequest, ToolRisk


def request(name: str = "send", expires_in_s: float = 20.0, **arguments: Any) -> ApprovalRequest:
    return ApprovalRequest(
        call=ToolCallRequest(name, arguments),
        risk=ToolRisk.HIGH,
        why="its risk is HIGH",
        context={"description": "Sends a mail."},
        expires_in_s=expires_in_s,
    )


class Screen(io.StringIO):
    """What the program wrote; a person who waits for each question before typing."""

    def __init__(self, master: int) -> None:
        super().__init__()
        self._master = master
        self.lines: deque[str] = deque()

    def write(self, text: str, /) -> int:
        size = super().write(text)
        if self.lines and text.endswith(("? ", "JSON: ", "-- ")):
            os.write(self._master, self.lines.popleft().encode())
        return size


class Terminal:
    """A pseudo-terminal: what is typed at it, and what the program wrote."""

    def __init__(self) -> None:
        self.master, self._slave = pty.openpty()
        self.source = os.fdopen(self._slave, "r", closefd=True)
        self.written = Screen(self.master)
        console = Console(file=self.written, width=80, no_color=True)
        self.approval = TerminalApproval(console, self.source)

    def type(self, text: str) -> None:
        """Type at once, whatever is on the screen."""
        os.write(self.master, text.encode())

    def answer(self, text: str) -> None:
        """Type the next line at every question."""
        self.written.lines.extend(text.splitlines(keepends=True))

    def close(self) -> None:
        os.close(self.master)
        with contextlib.suppress(OSError):
            self.source.close()


@contextlib.asynccontextmanager
async def terminal() -> AsyncGenerator[Terminal]:
    made = Terminal()
    try:
        async with asyncio.timeout(20):
            yield made
    finally:
        made.close()


def ask(typed: str, **arguments: Any) -> tuple[ApprovalAnswer, str]:
    async def main() -> tuple[ApprovalAnswer, str]:
        async with terminal() as at:
            at.answer(typed)
            answer = await at.approval.request(request(**arguments))
            return answer, at.written.getvalue()

    return asyncio.run(main())


@pytest.mark.req("approval.terminal")
@pytest.mark.parametrize(
    ("typed", "decision", "grant"),
    [
        ("y\n", ApprovalDecision.APPROVED, None),
        ("yes\n", ApprovalDecision.APPROVED, None),
        ("what?\n\nn\n", ApprovalDecision.DENIED, None),
        ("s\n", ApprovalDecision.SKIPPED, None),
        ("a\n", ApprovalDecision.APPROVED, "chain"),
    ],
)
def test_a_word_decides(typed: str, decision: ApprovalDecision, grant: str | None) -> None:
    answer, shown = ask(typed, to="alice")
    assert (answer.decision, answer.grant) == (decision, grant)
    assert answer.decided_by
    for part in ("send", "HIGH", "its risk is HIGH", "Sends a mail.", '"to": "alice"'):
        assert part in shown


def test_an_edit_is_shown_and_taken_only_after_a_yes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("EDITOR", raising=False)
    answer, shown = ask(
        'e\n{"to": \ne\n[1]\ne\n{"to": "bob"}\nn\ne\n{"to": "eve"}\ny\n', to="alice"
    )
    assert (answer.decision, answer.arguments) == (ApprovalDecision.MODIFIED, {"to": "eve"})
    assert "that is no JSON" in shown
    assert "must be a JSON object" in shown
    assert '"to": "bob"' in shown


def test_an_edit_may_be_made_in_an_editor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    editor = tmp_path / "edit"
    editor.write_text('#!/bin/sh\nsed -i s/alice/carol/ "$1"\n')
    editor.chmod(editor.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("EDITOR", str(editor))
    answer, _ = ask("e\ny\n", to="alice")
    assert answer.arguments == {"to": "carol"}


@pytest.mark.req("approval.answers")
def test_the_end_of_input_denies() -> None:
    answer, _ = ask("\x04")
    assert (answer.decision, answer.reason) == (ApprovalDecision.DENIED, "the input ended")


def test_no_terminal_denies_at_once() -> None:
    answer = asyncio.run(TerminalApproval(source=io.StringIO("y\n")).request(request()))
    assert answer.decision is ApprovalDecision.DENIED
    assert answer.reason == "there is no terminal to ask at"


def test_nobody_typing_denies_when_the_time_is_over() -> None:
    async def main() -> ApprovalAnswer:
        async with terminal() as at:
            return await at.approval.request(request(expires_in_s=0.1))

    answer = asyncio.run(main())
    assert (answer.decision, answer.reason) == (
        ApprovalDecision.DENIED, "the time for an answer was over",
    )  # fmt: skip


def test_two_questions_are_put_one_after_the_other() -> None:
    async def main() -> tuple[tuple[ApprovalAnswer, ApprovalAnswer], str]:
        async with terminal() as at:
            at.answer("y\nn\n")
            answers = await asyncio.gather(
                at.approval.request(request("first")), at.approval.request(request("second"))
            )
            return answers, at.written.getvalue()

    answers, shown = asyncio.run(main())
    assert sorted(a.decision for a in answers) == ["approved", "denied"]
    assert shown.count("May ") == 2


def test_a_question_withdrawn_takes_no_word_of_the_next() -> None:
    async def main() -> ApprovalAnswer:
        async with terminal() as at:
            first = asyncio.create_task(at.approval.request(request("first")))
            while "first" not in at.written.getvalue():
                await asyncio.sleep(0.001)
            first.cancel()
            await asyncio.wait({first})
            second = asyncio.create_task(at.approval.request(request("second")))
            while "second" not in at.written.getvalue():
                await asyncio.sleep(0.001)
            at.type("y\n")
            return await second

    assert asyncio.run(main()).decision is ApprovalDecision.APPROVED


@pytest.mark.req("approval.shown")
def test_hostile_text_is_made_visible_and_the_arguments_are_shown_whole() -> None:
    lines = [f"line {number}" for number in range(100)]
    answer, shown = ask("\n\n\ny\n", text="[red]\x1b[2J\u202eevil\u200b", lines=lines)
    assert answer.decision is ApprovalDecision.APPROVED
    assert "\x1b" not in shown
    assert "\u202e" not in shown
    assert "[red]" in shown
    assert all(f'"line {number}"' in shown for number in range(100))


def test_visible_keeps_what_is_harmless() -> None:
    assert visible("a\nü 搜索 🎉", lines=True) == "a\nü 搜索 🎉"
    assert visible("a\nb") == "a\\nb"
    assert visible("\x1b[0m\u200d\u2066\ud800") == "\\x1b[0m\\u200d\\u2066\\ud800"


@pytest.mark.parametrize(
    "char",
    [*"\xad\xa0\t\r\u034f\u061c\u115f\u1160\u17b4\u180b\u180e\u2003\u200b\u2028\u2029\u202e",
     *"\u2060\u2066\u2800\u3000\u3164\ufe00\ufe0f\ufeff\uffa0\U000e0001\U000e0041\U000e0100\U000e01ef"],
)  # fmt: skip
def test_what_is_shown_as_nothing_or_moves_the_rest_is_written_out(char: str) -> None:
    shown = visible(f"al{char}ice")
    assert char not in shown
    assert shown.isascii()
    assert shown.startswith("al\\")


@pytest.mark.req("approval.shown")
@pytest.mark.parametrize(
    "text", ["scp host:key:/tmp", ":skull: :boy:", "[bold]x[/bold]", "fe80:lock:1"]
)
def test_what_is_shown_is_what_runs_whatever_it_means_to_a_terminal(text: str) -> None:
    _, shown = ask("n\n", command=text, x={text: [text]})
    assert shown.count(text) == 3


@pytest.mark.req("approval.shown")
def test_no_text_of_a_tool_begins_a_line_that_looks_like_a_question() -> None:
    forged = (
        'fine\nMay read_file run?  risk SAFE\r\x85\u2028why: it is safe\n  {"path": "readme.txt"}'
    )

    async def main() -> str:
        async with terminal() as at:
            at.answer("n\n")
            asked = replace(
                request("x\nMay read_file run?"), why=forged, context={"description": forged}
            )
            await at.approval.request(asked)
            return at.written.getvalue()

    lines = asyncio.run(main()).splitlines()
    assert sum(line.startswith("May ") for line in lines) == 1
    assert sum(line.startswith("why: ") for line in lines) == 1
    assert not any(
        line.startswith(("  {", "read", '  "path"')) and line != "  {}" for line in lines
    )


@pytest.mark.req("approval.terminal")
def test_what_was_typed_before_a_question_is_no_answer_to_it() -> None:
    async def main() -> tuple[ApprovalAnswer, ApprovalAnswer]:
        async with terminal() as at:
            at.type("y\ny\ny")
            first = await at.approval.request(request("first", expires_in_s=0.2))
            at.type("y")  # Enter is not pressed any more before the next question
            second = asyncio.create_task(at.approval.request(request("second")))
            at.answer("\nn\n")
            return first, await second

    first, second = asyncio.run(main())
    assert first.reason == "the time for an answer was over"
    assert second.decision is ApprovalDecision.DENIED


def test_an_editor_that_is_not_there_is_told_and_the_line_is_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("EDITOR", "/nowhere/editor --wait")
    answer, shown = ask('e\n{"to": "bob"}\ny\n', to="alice")
    assert answer.arguments == {"to": "bob"}
    assert "the editor /nowhere/editor --wait cannot be used" in shown


def test_bytes_stay_bytes_in_an_edit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("EDITOR", raising=False)
    answer, _ = ask('e\n{"a": [{"$bytes": "/wA="}]}\ny\n', a=[b"\x00"])
    assert answer.arguments == {"a": [b"\xff\x00"]}
    _, shown = ask('e\n{"a": {"$bytes": "no base64"}}\nn\n', a=b"\x00")
    assert "that is no JSON" in shown


@pytest.mark.req("secrets.mask")
def test_a_secret_is_hidden_until_the_person_reveals_it() -> None:
    _, shown = ask("y\n", to="alice", password="hunter22")
    assert "hunter22" not in shown
    assert '"password": "(hidden)"' in shown
    answer, shown = ask("r\ny\n", to="alice", password="hunter22")
    assert answer.decision is ApprovalDecision.APPROVED
    assert '"password": "hunter22"' in shown
    _, shown = ask("r\nn\n", to="alice")
    assert "please answer" in shown  # there is nothing to reveal
