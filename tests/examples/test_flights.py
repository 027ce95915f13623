"""The main job, run as a user runs it."""

from __future__ import annotations

import email
import os
import subprocess
import sys
from email import policy
from pathlib import Path

import pytest

RUN = Path(__file__).parents[2] / "examples" / "flights" / "run.py"
FLIGHTS_BYTES = 2_000_000  # at least: December's flights, far above what is carried inline
PNG = b"\x89PNG\r\n\x1a\n"


def run(out: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(RUN), "--out", str(out), *options],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        start_new_session=True,  # no terminal to ask in, wherever the tests run
        env={**os.environ, "MPLCONFIGDIR": str(out / "matplotlib"), "NO_COLOR": "1"},
        check=False,
    )


def calls(output: str) -> list[list[str]]:
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in output.splitlines()]
    return [row[:4] for row in rows if len(row) == 8]


@pytest.mark.req("example.flights", "S27", "S29")
def test_with_a_yes_the_mail_is_received_with_report_and_chart(tmp_path: Path) -> None:
    done = run(tmp_path, "--yes")
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr

    (mail,) = tmp_path.glob("mail-*.eml")
    message = email.message_from_bytes(mail.read_bytes(), policy=policy.default)
    assert message["To"] == "operations@example.org"
    attached = {part.get_filename(): part for part in message.iter_attachments()}
    assert sorted(map(str, attached)) == ["chart.png", "report.md"]
    (chart,) = tmp_path.glob("*.png")
    assert chart.read_bytes().startswith(PNG)
    assert attached["chart.png"].get_content() == chart.read_bytes()
    report = (tmp_path / "report.md").read_text("utf-8")
    assert attached["report.md"].get_content().split() == report.split()
    assert "Fly from LGA at 6: 1.1 minutes late on average." in report

    assert "14 % never left" in report

    assert "'flights_with_weather': 27203" in done.stdout
    assert "'hours_later_than_in_fair_weather': 695" in done.stdout
    assert "'best': 'LGA at 6'" in done.stdout
    assert "'mail': 'sent'" in done.stdout
    assert str(chart) in done.stdout
    assert str(mail) in done.stdout
    assert sorted(row[0] for row in calls(done.stdout)) == sorted(
        ["load_table"] * 3 + ["query"] * 3 + ["draw_chart", "write_report", "send_email"]
    )
    assert {tuple(row[1:]) for row in calls(done.stdout)} == {("ok", "", "yes")}


@pytest.mark.req("example.flights")
def test_the_flights_travel_by_reference_as_they_were_loaded(tmp_path: Path) -> None:
    done = run(tmp_path)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
    blobs = [path for path in (tmp_path / "artifacts" / "blobs").rglob("*") if path.is_file()]
    (flights,) = (path for path in blobs if path.stat().st_size > FLIGHTS_BYTES)
    header, *rows = flights.read_text("utf-8").splitlines()
    assert "dep_delay" in header.split(",")
    assert len(rows) == 28135


@pytest.mark.req("example.flights", "approval.answers")
def test_without_a_terminal_the_mail_is_denied_and_the_job_ends_well(tmp_path: Path) -> None:
    done = run(tmp_path)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
    assert not list(tmp_path.glob("mail-*.eml"))
    assert "no mail was sent" in done.stdout
    assert "not sent: approval of 'send_email' was denied" in done.stdout
    (sent,) = (row for row in calls(done.stdout) if row[0] == "send_email")
    assert sent == ["send_email", "denied", sent[2], "no"]
    assert (tmp_path / "report.md").exists()
    assert list(tmp_path.glob("*.png"))
