"""Names that are nearly right."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

__all__ = ["did_you_mean", "nearest"]


def nearest(name: str, names: Iterable[str], most: int = 3) -> list[str]:
    """The names that look most like `name`."""
    return difflib.get_close_matches(name, list(names), n=most, cutoff=0.6)


def did_you_mean(name: str, names: Iterable[str], most: int = 3) -> str:
    """The end of a message about a name that is not known; empty where none is near."""
    near = nearest(name, names, most)
    return f"; did you mean {' or '.join(map(repr, near))}?" if near else ""
