"""Texts without the secrets that stand in them, however somebody has escaped them.

A text is looked through for each secret as it is and as JSON, Python, a URL and logs
write it, in the cost of one search for each of these forms. What is cut must be
scrubbed first (`scrub_cut`); what somebody else has cut may end in the beginning of a
secret (`scrub_rest`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from urllib.parse import quote, quote_plus

__all__ = ["HIDDEN", "scrub", "scrub_cut", "scrub_rest"]

HIDDEN = "(hidden)"
"""What is shown instead."""

_LEAST_BEGINNING = 8  # characters
_MOST_SECRETS = 1000
_LONG = 20_000  # characters; what is longer is not looked for in what is escaped twice
_MARK = "…"


def scrub(text: str, secrets: Iterable[str]) -> str:
    """`text` with every one of `secrets` hidden, in each form that it may be written in.

    All of it is hidden where there are more than a thousand secrets.
    """
    forms = _forms_of(secrets)
    return HIDDEN if forms is None else _without(text, _found(text, forms))


def scrub_cut(text: str, secrets: Iterable[str], limit: int) -> str:
    """At most `limit` characters of `text`, scrubbed before they are cut, with a `…` for the rest.

    No more of the text is looked at than may be shown.
    """
    forms = _forms_of(secrets)
    if forms is None:
        return HIDDEN[:limit]
    seen = text[: limit + max(map(len, forms), default=0)]
    spans = _found(seen, forms)
    if len(seen) == len(text):
        whole = _without(text, spans)
        if len(whole) <= limit:
            return whole
    # What is hidden may be longer than its mark; what comes after it is not shown instead.
    spans = [(start, min(end, limit)) for start, end in spans if start < limit]
    return _without(text[:limit], spans)[: max(limit - len(_MARK), 0)] + _MARK[:limit]


def scrub_rest(text: str, secrets: Iterable[str]) -> str:
    """Like `scrub`, for a text that was cut: its end may be the beginning of a secret."""
    forms = _forms_of(secrets)
    if forms is None:
        return HIDDEN
    spans = _found(text, forms)
    starts = [start for form in forms if (start := _beginning_at(text, form)) is not None]
    if starts:
        spans.append((min(starts), len(text)))
    return _without(text, spans)


def _beginning_at(text: str, form: str) -> int | None:
    """Where the longest beginning of `form` starts that is the end of `text`."""
    if len(form) <= _LEAST_BEGINNING:
        return None
    begins = form[:_LEAST_BEGINNING]
    at = text.find(begins, max(len(text) - len(form) + 1, 0))
    while at >= 0 and not form.startswith(text[at:]):
        at = text.find(begins, at + 1)
    return at if at >= 0 else None


def _found(text: str, forms: Iterable[str]) -> list[tuple[int, int]]:
    spans: list[tuple[int, int]] = []
    for form in forms:
        at = text.find(form)
        while at >= 0:
            spans.append((at, at + len(form)))
            at = text.find(form, at + len(form))
    return spans


def _without(text: str, spans: list[tuple[int, int]]) -> str:
    """The text with the spans hidden, those that touch or overlap as one."""
    shown: list[str] = []
    until = 0
    for start, end in sorted(spans):
        if start > until or not shown:
            shown += (text[until:start], HIDDEN)
        until = max(until, end)
    return "".join([*shown, text[until:]])


def _forms_of(secrets: Iterable[str]) -> set[str] | None:
    """Every form of every secret; None where they are too many to look for."""
    known = set(secrets) - {""}
    if len(known) > _MOST_SECRETS:
        return None
    return {form for secret in known for form in _forms(secret)}


def _forms(secret: str) -> set[str]:
    """How a secret may be written, also twice escaped: as a JSON text in a message, say."""
    if secret.isascii() and secret.replace("-", "").replace("_", "").isalnum():
        return {secret}  # it needs no escapes anywhere
    once = {secret, *_escaped(secret), *_quoted(secret)}
    if len(secret) > _LONG:
        return once
    return once | {twice for form in once for twice in _escaped(form)}


def _escaped(text: str) -> tuple[str, ...]:
    """As JSON and Python write it in quotes, and as logs write what they cannot."""
    in_json = json.dumps(text)[1:-1]
    bare = json.dumps(text, ensure_ascii=False)[1:-1]
    in_python = repr("'\"" + text)[4:-1]  # with both quotes in it, the single one is escaped
    return (
        in_json,
        bare,
        bare.encode(errors="backslashreplace").decode(),
        in_python,
        in_python.replace("\\'", "'"),
        text.encode("unicode_escape").decode(),
        text.encode(errors="backslashreplace").decode(),
        text.encode("ascii", "backslashreplace").decode(),
    )


def _quoted(text: str) -> tuple[str, ...]:
    """As a URL writes it, in its path and in its query, with hex of either case."""
    whole = [
        quote(text, errors="surrogatepass"),
        quote(text, safe="", errors="surrogatepass"),
        quote_plus(text, errors="surrogatepass"),
    ]
    return (*whole, *map(_lower_hex, whole))


def _lower_hex(quoted: str) -> str:
    first, *rest = quoted.split("%")
    return "%".join([first, *(part[:2].lower() + part[2:] for part in rest)])
