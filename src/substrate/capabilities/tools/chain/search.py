"""Finding tools by words, for toolboxes that are too large to be shown whole.

A script asks `tool_search` and `tool_schema`; neither is a call of a tool. The index is
SQLite's FTS5 in memory, which the standard library brings; where it lacks FTS5, words
are counted.
"""

from __future__ import annotations

import re
import sqlite3
import weakref
from collections.abc import Mapping
from typing import Any, cast

from substrate.agents.tools.traits import Traits
from substrate.capabilities.tools.chain.stubs import first_line, stub_of
from substrate.kernel.names import did_you_mean

__all__ = ["SEARCH_STUBS", "ToolIndex"]

SEARCH_STUBS = {
    "tool_search": '''\
async def tool_search(query: str, limit: int = 10) -> list[dict[str, str]]:
    """The tools that fit the words best, each with `name` and `does`."""
    ...
''',
    "tool_schema": '''\
async def tool_schema(name: str) -> str:
    """The whole stub of a tool: parameters, their words, and what it returns."""
    ...
''',
}
"""By name, for a tool of that name comes first."""

_WORD = re.compile(r"[^\W_]+")
_MOST = 50
_LONGEST = 1000  # characters of a query


class ToolIndex:
    """The tools of one toolbox by identifier."""

    def __init__(self, tools: Mapping[str, Traits]) -> None:
        self._tools = dict(tools)
        self._texts = {name: _text(name, traits) for name, traits in tools.items()}
        self._database: sqlite3.Connection | None = sqlite3.connect(
            ":memory:", check_same_thread=False
        )
        weakref.finalize(self, self._database.close)
        try:
            self._database.execute("CREATE VIRTUAL TABLE tools USING fts5(name, text)")
            self._database.executemany(
                "INSERT INTO tools VALUES (?, ?)",
                [(name, _spaced(text)) for name, text in self._texts.items()],
            )
        except sqlite3.OperationalError:  # no FTS5 here
            self._database = None

    def search(self, query: str, limit: int = 10) -> list[dict[str, str]]:
        """The best matches first: `name` to call it by, `does` its first line.

        Raises ValueError for what is no text of at most 1,000 characters, or no number.
        """
        _require(query, limit)
        words = [word.lower() for word in _WORD.findall(_spaced(query))][:32]
        if not words:
            return []
        most = max(1, min(limit, _MOST))
        names = self._by_index(words, most) if self._database is not None else None
        if names is None:
            names = self._by_count(words, most)
        return [{"name": name, "does": first_line(self._tools[name])} for name in names]

    def _by_index(self, words: list[str], most: int) -> list[str]:
        assert self._database is not None
        query = " OR ".join(f'"{word}"*' for word in words)
        rows = self._database.execute(
            "SELECT name FROM tools WHERE tools MATCH ? ORDER BY bm25(tools, 4.0, 1.0) LIMIT ?",
            (query, most),
        )
        return [str(row[0]) for row in rows]

    def _by_count(self, words: list[str], most: int) -> list[str]:
        scores = {
            name: sum(word in text.lower() for word in words) for name, text in self._texts.items()
        }
        found = sorted((name for name, score in scores.items() if score), key=lambda n: -scores[n])
        return found[:most]

    def schema(self, name: str) -> str:
        """The stub of one tool; LookupError names the nearest ones, ValueError tells of no name."""
        _require(name)
        traits = self._tools.get(name)
        if traits is None:
            by_name = {traits.name: identifier for identifier, traits in self._tools.items()}
            name = by_name.get(name, name)
            traits = self._tools.get(name)
        if traits is None:
            msg = f"no tool named {name!r:.80}{did_you_mean(name, self._tools)}"
            raise LookupError(msg)
        return stub_of(name, traits)


def _require(text: object, limit: object = 1) -> None:
    """What a script gives is whatever it likes."""
    if not isinstance(text, str) or len(text) > _LONGEST:
        msg = f"a text of at most {_LONGEST} characters is wanted"
        raise ValueError(msg)
    if not isinstance(limit, int) or isinstance(limit, bool):
        msg = "the limit must be a whole number"
        raise ValueError(msg)  # noqa: TRY004  # what a script gives is no type error of ours


def _text(name: str, traits: Traits) -> str:
    properties = cast("Mapping[str, Any]", traits.input_schema.get("properties") or {})
    words = [
        str(cast("Mapping[str, Any]", part).get("description") or "")
        for part in properties.values()
        if isinstance(part, Mapping)
    ]
    return " ".join([name, traits.name, traits.description, *properties, *words])


def _spaced(text: str) -> str:
    """Words of names apart: `listOpenIssues` and `list_open_issues` alike."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", text).replace("_", " ")
