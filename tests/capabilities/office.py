"""The tools of a small company, as a script of a model meets them: simple, typed, without a net."""

from __future__ import annotations

import asyncio
import sqlite3
import struct
import zlib
from collections import Counter
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel, Field
from typing_extensions import TypedDict

from substrate import ApprovalDecision, ImageBlock, tool
from substrate.kernel.tools.approval import ApprovalRequest

__all__ = ["TOOLS", "fresh", "manager"]


async def manager(request: ApprovalRequest) -> ApprovalDecision:
    """Says yes, but to large refunds, to mail for the boss and to what is new for Acme."""
    given = request.call.arguments
    too_much = given.get("amount", 0) > 500 or given.get("to") == "ceo@office.example"
    if too_much or (request.call.name == "update_customer" and given.get("customer_id") == "c1"):
        return ApprovalDecision.DENIED
    return ApprovalDecision.APPROVED


attempts: Counter[str] = Counter()
written: dict[str, str] = {}
reserved: Counter[str] = Counter()


def fresh() -> None:
    """The office as it is in the morning."""
    attempts.clear()
    written.clear()
    reserved.clear()


# customers --------------------------------------------------------------------------------

Tier = Literal["free", "pro", "enterprise"]


class Customer(TypedDict):
    id: str
    name: str
    email: str
    tier: Tier
    mrr: float
    country: str
    last_seen: str
    owner: str | None


class CustomerPage(TypedDict):
    items: list[Customer]
    page: int
    next_page: int | None
    total: int


def _customer(
    key: str, name: str, box: str, tier: Tier, mrr: float, land: str, seen: str, owner: str | None
) -> Customer:
    return {
        "id": key, "name": name, "email": f"{box}.example", "tier": tier, "mrr": mrr,
        "country": land, "last_seen": seen, "owner": owner,
    }  # fmt: skip


CUSTOMERS = {
    each["id"]: each
    for each in [
        _customer("c1", "Acme GmbH", "ops@acme", "enterprise", 4200.0, "DE", "2025-05-28", "ines"),
        _customer("c2", "Bluebird Ltd", "hello@bluebird", "pro", 380.0, "GB", "2025-03-02", "tom"),
        _customer("c3", "Corvid SA", "it@corvid", "pro", 520.5, "FR", "2025-05-30", None),
        _customer("c4", "Dunes Inc", "team@dunes", "free", 0.0, "US", "2024-12-11", None),
        _customer("c5", "Elm & Sons", "office@elm", "enterprise", 2950, "GB", "2025-06-01", "ines"),
        _customer("c6", "Fjord AS", "post@fjord", "pro", 410.0, "NO", "2025-01-19", "tom"),
        _customer("c7", "Gale KG", "info@gale", "free", 0.0, "DE", "2025-06-01", None),
    ]
}


@tool(risk="safe")
async def list_customers(
    tier: Tier | None = None, page: int = 1, per_page: int = 3
) -> CustomerPage:
    """List customers, a page at a time; `next_page` is null on the last page."""
    found = [each for each in CUSTOMERS.values() if tier in (None, each["tier"])]
    stop = page * per_page
    return {
        "items": found[stop - per_page : stop],
        "page": page,
        "next_page": page + 1 if stop < len(found) else None,
        "total": len(found),
    }


@tool(risk="safe")
async def get_customer(customer_id: str) -> Customer:
    """Get one customer by id."""
    if customer_id not in CUSTOMERS:
        msg = f"no customer {customer_id!r}"
        raise LookupError(msg)
    return CUSTOMERS[customer_id]


@tool(risk="high")
async def update_customer(customer_id: str, fields: dict[str, Any]) -> Customer:
    """Change fields of a customer."""
    changed: Any = {**CUSTOMERS[customer_id], **fields}
    return changed


@tool(risk="high")
async def add_note(customer_id: str, text: str, pinned: bool = False) -> None:
    """Add a note to a customer's history."""


# mail -------------------------------------------------------------------------------------


class Mail(TypedDict):
    id: str
    sender: str
    subject: str
    body: str
    received_at: str
    labels: list[str]


MAILS: list[Mail] = [
    {
        "id": "m1", "sender": "billing@acme.example", "subject": "Invoice INV-1041 is wrong",
        "body": "Hello,\nINV-1041 shows 1,250.00 EUR, but we agreed on 1,150.00 EUR for ORD-5003.\n"
        "Please correct it.\n-- \nJana Roth", "received_at": "2025-06-01T08:15:00+00:00",
        "labels": ["billing"],
    },
    {
        "id": "m2", "sender": "IT <it@corvid.example>", "subject": "Password reset loop",
        "body": "The reset link sends us back to the login page. URGENT!",
        "received_at": "2025-06-01T09:40:00+00:00", "labels": [],
    },
    {
        "id": "m3", "sender": "news@weekly.example", "subject": "10 tips for June",
        "body": "Read on our site. Unsubscribe: https://weekly.example/u?id=77",
        "received_at": "2025-06-01T11:00:00+00:00", "labels": ["newsletter"],
    },
    {
        "id": "m4", "sender": "hello@bluebird.example", "subject": "Cancel our plan",
        "body": "We would like to cancel by the end of the month.",
        "received_at": "2025-05-31T16:05:00+00:00", "labels": [],
    },
    {
        "id": "m5", "sender": "post@fjord.example", "subject": "Re: Delivery",
        "body": "ORD-5001 came, ORD-5002 did not. ORD-5001 was fine, thank you.",
        "received_at": "2025-05-30T07:30:00+00:00", "labels": ["support"],
    },
    {
        "id": "m6", "sender": "alerts@monitor.example", "subject": "ALERT: disk 91% on db-2",
        "body": "host=db-2 disk=91 threshold=85", "received_at": "2025-06-01T23:59:00+00:00",
        "labels": ["ops"],
    },
]  # fmt: skip


@tool(risk="safe")
async def search_mail(query: str = "", label: str | None = None, limit: int = 20) -> list[Mail]:
    """Search the inbox; newest first."""
    found = [
        mail
        for mail in MAILS
        if query.lower() in f"{mail['subject']} {mail['body']} {mail['sender']}".lower()
        and (label is None or label in mail["labels"])
    ]
    return sorted(found, key=lambda mail: mail["received_at"], reverse=True)[:limit]


@tool(risk="safe")
async def read_mail(mail_id: str) -> Mail:
    """Read one mail."""
    return next(mail for mail in MAILS if mail["id"] == mail_id)


@tool(risk="high")
async def send_mail(
    to: str, subject: str, body: str, cc: list[str] | None = None, attachment: Any = None
) -> str:
    """Send a mail; the id of the sent mail is given back."""
    attempts["mail"] += 1
    return f"sent-{attempts['mail']}"


@tool(risk="high")
async def label_mail(mail_id: str, labels: list[str]) -> list[str]:
    """Set the labels of a mail."""
    return sorted(labels)


# calendar ---------------------------------------------------------------------------------


class Event(BaseModel):
    id: str
    title: str
    start: str = Field(description="ISO 8601")
    end: str = Field(description="ISO 8601")
    attendees: list[str] = []
    location: str | None = None


EVENTS = [
    Event(id="e1", title="Stand-up", start="2025-06-02T09:00", end="2025-06-02T09:30",
          attendees=["ines", "tom", "mia"]),
    Event(id="e2", title="Acme call", start="2025-06-02T09:15", end="2025-06-02T10:00",
          attendees=["ines"], location="Zoom"),
    Event(id="e3", title="Hiring", start="2025-06-02T11:00", end="2025-06-02T12:00",
          attendees=["mia", "tom"], location="Room 2"),
    Event(id="e4", title="Review", start="2025-06-02T14:00", end="2025-06-02T15:30",
          attendees=["ines", "mia"]),
    Event(id="e5", title="Stand-up", start="2025-06-03T09:00", end="2025-06-03T09:30",
          attendees=["ines", "tom", "mia"]),
    Event(id="e6", title="Planning", start="2025-06-03T13:00", end="2025-06-03T15:00",
          attendees=["tom", "ines"], location="Room 1"),
]  # fmt: skip


@tool(risk="safe")
async def list_events(start: str, end: str, attendee: str | None = None) -> list[Event]:
    """List events that begin between two ISO dates (the end is not included)."""
    return [
        event
        for event in EVENTS
        if start <= event.start < end and (attendee is None or attendee in event.attendees)
    ]


@tool(risk="high")
async def create_event(
    title: str, start: str, end: str, attendees: list[str], location: str | None = None
) -> Event:
    """Create an event; times are ISO 8601."""
    return Event(id="e9", title=title, start=start, end=end, attendees=attendees, location=location)


# files ------------------------------------------------------------------------------------


class FileInfo(TypedDict):
    path: str
    size: int
    modified: str


LOG = "".join(
    f"2025-06-01T{n // 60:02}:{n % 60:02}:00 {'ERROR' if n % 250 == 7 else 'INFO'} "
    f"worker-{n % 3} request took {n % 97} ms\n"
    for n in range(1000)
)
FILES = {
    "reports/may.csv": "region,amount,units\nnorth,120.50,3\nsouth,80.00,2\nnorth,19.50,1\n",
    "config/base.json": '{"debug": false, "limits": {"cpu": 2, "memory": 512}, "tags": ["a"]}',
    "config/prod.json": '{"limits": {"memory": 2048}, "tags": ["b", "c"]}',
    "src/app.py": "import os\n# TODO: drop python 2\ndef run():\n    pass  # FIXME(tom) leaks\n",
    "src/util.py": "# TODO(ines): tests\nVALUE = 1\n",
    "notes/todo.md": "- [x] call Acme\n- [ ] order bolts\n- [ ] mail Tom\n",
    "logs/app.log": LOG,
}


@tool(risk="safe")
async def list_files(folder: str = "") -> list[FileInfo]:
    """List the files in a folder and below it."""
    held = {**FILES, **written}
    return [
        {"path": path, "size": len(held[path]), "modified": f"2025-05-{20 + n:02}"}
        for n, path in enumerate(sorted(held))
        if path.startswith(folder)
    ]


@tool(risk="safe")
async def read_file(path: str) -> str:
    """Read a text file."""
    held = {**FILES, **written}
    if path not in held:
        raise FileNotFoundError(path)
    return held[path]


@tool(risk="high")
async def write_file(path: str, content: str) -> int:
    """Write a text file; the number of characters is given back."""
    written[path] = content
    return len(content)


@tool(risk="safe")
async def count_words(text: str) -> int:
    """Count the words of a text of any length."""
    return len(text.split())


# issues -----------------------------------------------------------------------------------


@dataclass
class Issue:
    number: int
    title: str
    state: Literal["open", "closed"]
    author: str
    labels: list[str]
    comments: int
    created_at: str
    assignee: str | None = None


ISSUES = [
    Issue(11, "Crash on empty upload", "open", "kim", ["bug", "p1"], 4, "2025-05-30T10:00:00Z"),
    Issue(12, "Dark mode", "open", "lee", ["feature"], 12, "2024-11-02T10:00:00Z", "mia"),
    Issue(13, "Typo in docs", "closed", "kim", ["docs"], 0, "2025-04-01T10:00:00Z"),
    Issue(14, "Crash on empty uploads", "open", "ann", ["bug"], 1, "2025-05-31T10:00:00Z"),
    Issue(15, "Slow search", "open", "bob", ["bug", "perf"], 7, "2025-01-15T10:00:00Z", "tom"),
    Issue(16, "Export as CSV", "open", "lee", [], 2, "2025-03-03T10:00:00Z"),
    Issue(17, "Login fails, see #15 and #11", "closed", "kim", ["bug"], 3, "2025-02-01T10:00:00Z"),
]


@tool(risk="safe")
async def list_issues(
    repo: str,
    state: Literal["open", "closed", "all"] = "open",
    labels: list[str] | None = None,
    page: int = 1,
    per_page: int = 100,
) -> list[Issue]:
    """List issues of a repository; an empty list after the last page."""
    found = [
        issue
        for issue in ISSUES
        if state in ("all", issue.state) and set(labels or []) <= set(issue.labels)
    ]
    return found[(page - 1) * per_page : page * per_page]


@tool(risk="safe")
async def get_issue(repo: str, number: int) -> Issue:
    """Get one issue."""
    return next(issue for issue in ISSUES if issue.number == number)


@tool(risk="high")
async def comment_issue(repo: str, number: int, body: str) -> dict[str, Any]:
    """Write a comment."""
    return {"id": 900 + number, "url": f"https://git.example/{repo}/{number}", "body": body}


@tool(risk="high")
async def add_labels(repo: str, number: int, labels: list[str]) -> list[str]:
    """Add labels to an issue; all of its labels are given back."""
    (issue,) = [one for one in ISSUES if one.number == number]
    return sorted({*issue.labels, *labels})


@tool(risk="high")
async def close_issue(
    repo: str, number: int, reason: Literal["completed", "not_planned", "duplicate"]
) -> bool:
    """Close an issue."""
    return True


# the web ----------------------------------------------------------------------------------


class Hit(TypedDict):
    title: str
    url: str
    snippet: str


PAGES = {
    "https://a.example/": "<html><head><title>Alpha &amp; Co</title></head><body><h1>Alpha</h1>"
    '<p>Solar power is cheap. Solar grows.</p><a href="/b">B</a> <a href="https://c.example/">C</a>'
    "</body></html>",
    "https://a.example/b": "<title> Beta </title><p>Wind power, 35 % of the mix</p>"
    '<a href="https://a.example/">home</a>',
    "https://c.example/": "<title>Gamma</title><p>Power from waves.</p>",
}
HITS: list[Hit] = [
    {"title": "Alpha", "url": "https://a.example/", "snippet": "Solar power"},
    {"title": "Lost", "url": "https://gone.example/", "snippet": "404"},
    {"title": "Gamma", "url": "https://c.example/", "snippet": "Waves"},
]


@tool(risk="safe")
async def web_search(query: str, limit: int = 10) -> list[Hit]:
    """Search the web."""
    return HITS[:limit]


@tool(risk="safe")
async def fetch_page(url: str) -> str:
    """The HTML of a page."""
    if url not in PAGES:
        msg = f"404 for {url}"
        raise RuntimeError(msg)
    return PAGES[url]


class HttpResponse(TypedDict):
    status: int
    headers: dict[str, str]
    body: str


@tool(risk="safe")
async def http_get(url: str, params: dict[str, Any] | None = None) -> HttpResponse:
    """GET a URL."""
    attempts[url] += 1
    kind = {"content-type": "application/json"}
    if url.endswith("/users"):
        at = int((params or {}).get("offset", 0))
        users = [{"id": n, "name": f"user{n}", "active": n % 2 == 0} for n in range(at, at + 2)]
        after = f'"https://api.example/users?offset={at + 2}"' if at < 4 else "null"
        text = str(users).replace("'", '"').replace("True", "true").replace("False", "false")
        return {"status": 200, "headers": kind, "body": f'{{"data": {text}, "next": {after}}}'}
    if url.endswith("/busy") and attempts[url] < 3:
        return {"status": 429, "headers": {"retry-after": "0.01"}, "body": ""}
    if url.endswith("/busy"):
        return {"status": 200, "headers": kind, "body": '{"ok": true}'}
    return {"status": 404, "headers": {}, "body": "not found"}


# weather ----------------------------------------------------------------------------------


class Day(TypedDict):
    date: str
    high: float
    low: float
    rain_mm: float
    summary: str


HIGHS = {"Rome": [27.5, 29.0, 31.0], "Oslo": [14.0, 17.5, 12.5], "Lima": [19.0, 19.5, 18.5]}


@tool(risk="safe", name="get-forecast")
async def forecast(city: str, days: int = 3) -> list[Day]:
    """The forecast for a city, from tomorrow on."""
    attempts[city] += 1
    if city == "Oslo" and attempts[city] < 3:
        msg = "the station does not answer"
        raise ConnectionError(msg)
    if city not in HIGHS:
        msg = f"unknown city: {city}"
        raise ValueError(msg)
    return [
        {
            "date": f"2025-06-0{n + 2}", "high": high, "low": high - 9,
            "rain_mm": round(max(0.0, 20 - high), 1), "summary": "sun" if high > 18 else "rain",
        }
        for n, high in enumerate(HIGHS[city][:days])
    ]  # fmt: skip


@tool(risk="safe", timeout=0.05)
async def read_station(station: str) -> dict[str, float]:
    """The values of a weather station now."""
    if station == "north":
        await asyncio.Event().wait()
    return {"temperature": 18.25, "wind": 4.0}


# orders -----------------------------------------------------------------------------------


class Item(TypedDict):
    sku: str
    quantity: int
    price: float


class Order(TypedDict):
    id: str
    customer_id: str
    status: Literal["open", "shipped", "returned"]
    items: list[Item]
    placed_on: str


class OrderPage(TypedDict):
    orders: list[Order]
    cursor: str | None


def _item(sku: str, quantity: int, price: float) -> Item:
    return {"sku": sku, "quantity": quantity, "price": price}


ORDERS: list[Order] = [
    {"id": "ORD-5001", "customer_id": "c6", "status": "shipped", "placed_on": "2025-05-20",
     "items": [_item("bolt", 100, 0.1), _item("nut", 100, 0.05)]},
    {"id": "ORD-5002", "customer_id": "c6", "status": "open", "placed_on": "2025-05-22",
     "items": [_item("cog", 3, 19.99)]},
    {"id": "ORD-5003", "customer_id": "c1", "status": "open", "placed_on": "2025-05-25",
     "items": [_item("cog", 40, 19.99), _item("axle", 4, 87.6)]},
    {"id": "ORD-5004", "customer_id": "c2", "status": "returned", "placed_on": "2025-05-27",
     "items": [_item("axle", 1, 87.6)]},
    {"id": "ORD-5005", "customer_id": "c5", "status": "open", "placed_on": "2025-06-01",
     "items": [_item("bolt", 500, 0.09)]},
]  # fmt: skip
STOCK = {"bolt": 450, "nut": 12, "cog": 20, "axle": 0}


@tool(risk="safe")
async def list_orders(
    status: Literal["open", "shipped", "returned"] | None = None,
    cursor: str | None = None,
    limit: int = 2,
) -> OrderPage:
    """List orders; give `cursor` back for the next page, it is null after the last."""
    found = [order for order in ORDERS if status in (None, order["status"])]
    start = int(cursor or 0)
    after = start + limit
    return {
        "orders": found[start:after],
        "cursor": str(after) if after < len(found) else None,
    }


@tool(risk="safe")
async def get_order(order_id: str) -> Order | None:
    """Get an order, or null."""
    return next((order for order in ORDERS if order["id"] == order_id), None)


@tool(risk="safe")
async def get_stock(sku: str) -> int:
    """How many of a part are in stock."""
    return STOCK[sku] - reserved[sku]


@tool(risk="high")
async def reserve(sku: str, quantity: int) -> str:
    """Put parts aside; a RuntimeError when there are not enough."""
    if quantity > STOCK[sku] - reserved[sku]:
        msg = f"only {STOCK[sku] - reserved[sku]} of {sku}"
        raise RuntimeError(msg)
    reserved[sku] += quantity
    return f"R-{sku}-{quantity}"


@tool(risk="high")
async def release(reservation: str) -> None:
    """Give reserved parts back."""
    _, sku, quantity = reservation.split("-")
    reserved[sku] -= int(quantity)


@tool(risk="high")
async def place_order(sku: str, quantity: int, express: bool = False) -> dict[str, Any]:
    """Order parts from the supplier."""
    return {"id": f"P-{sku}", "sku": sku, "quantity": quantity, "eta_days": 1 if express else 5}


@tool(risk="high")
async def refund(order_id: str, amount: float, reason: str = "") -> dict[str, Any]:
    """Pay money back."""
    return {"order_id": order_id, "amount": amount, "status": "refunded"}


# rows -------------------------------------------------------------------------------------

SALES = [
    ("2025-01", "north", "bolt", 120), ("2025-01", "south", "bolt", 80),
    ("2025-02", "north", "bolt", 150), ("2025-02", "south", "cog", 40),
    ("2025-03", "north", "cog", 90), ("2025-03", "south", "bolt", 100),
]  # fmt: skip


@tool(risk="safe")
async def run_sql(query: str, params: list[Any] | None = None) -> list[dict[str, Any]]:
    """Run a SELECT on the table sales(month, region, product, amount)."""
    base = sqlite3.connect(":memory:")
    try:
        base.execute("CREATE TABLE sales (month TEXT, region TEXT, product TEXT, amount INTEGER)")
        base.executemany("INSERT INTO sales VALUES (?, ?, ?, ?)", SALES)
        rows = base.execute(query, params or [])
        names = [column[0] for column in rows.description]
        return [dict(zip(names, row, strict=True)) for row in rows]
    finally:
        base.close()


# media ------------------------------------------------------------------------------------


def _png(width: int, height: int) -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        checksum = struct.pack(">I", zlib.crc32(kind + data))
        return struct.pack(">I", len(data)) + kind + data + checksum

    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    rows = zlib.compress((b"\0" + b"\xff" * width) * height)
    parts = chunk(b"IHDR", head) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + parts


@tool(risk="safe")
async def render_chart(title: str, values: dict[str, float], width: int = 64) -> ImageBlock:
    """Draw a bar chart as a PNG."""
    return ImageBlock(_png(width, len(values)), media_type="image/png")


@tool(risk="safe")
async def screenshot(url: str) -> ImageBlock:
    """Take a picture of a page."""
    return ImageBlock(_png(8, len(url)), media_type="image/png")


@tool(risk="safe")
async def image_size(image: bytes) -> dict[str, int]:
    """The size of a PNG."""
    width, height = struct.unpack(">II", image[16:24])
    return {"width": width, "height": height}


@tool(risk="safe")
async def transcribe(recording: str) -> str:
    """The words of a recording."""
    return "".join(
        f"[{n:02}:00] Speaker {n % 2 + 1}: we talk about item {n}.\n" for n in range(120)
    )


@tool(risk="safe")
async def summarize(text: str, max_words: int = 10) -> str:
    """Summarize a text of any length."""
    return " ".join(text.split()[:max_words])


TOOLS = [
    list_customers, get_customer, update_customer, add_note, search_mail, read_mail, send_mail,
    label_mail, list_events, create_event, list_files, read_file, write_file, count_words,
    list_issues, get_issue, comment_issue, add_labels, close_issue, web_search, fetch_page,
    http_get, forecast, read_station, list_orders, get_order, get_stock, reserve, release,
    place_order, refund, run_sql, render_chart, screenshot, image_size, transcribe, summarize,
]  # fmt: skip
