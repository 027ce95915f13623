"""Text of a model or a server, made harmless for a terminal.

`visible` writes out what is not seen, and `quoted` sets a margin before every line, so that
no foreign text looks like ours, also where a terminal would have wrapped it.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

__all__ = ["is_hidden", "quoted", "visible"]

_HIDDEN = frozenset(["Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp", "Zs"])

_IGNORABLE = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e"
    "\u2060-\u206f\u2800\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufff8\U0001bca0-\U0001bca3"
    "\U0001d159\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
"""What is shown as nothing: Default_Ignorable_Code_Point of Unicode's DerivedCoreProperties
(the same in 14.0 to 16.0), the blank pattern of braille, and the null notehead."""


def visible(text: str, *, lines: bool = False) -> str:
    r"""`text` with all that is not seen, or moves what is, as escapes of the form `\u{200b}`.

    These are control, bidi, unassigned and zero-width characters (every one that is
    Default_Ignorable_Code_Point in Unicode's DerivedCoreProperties) and every space but the
    usual one; also `\n`, which could begin a line that looks like ours, unless `lines` keeps it.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        char if (char == "\n" and lines) or not is_hidden(char) else f"\\u{{{ord(char):x}}}"
        for char in text
    )


def is_hidden(char: str) -> bool:
    """Whether a character is shown as nothing, as a blank, or moves what stands around it."""
    if " " <= char <= "~":
        return False
    return unicodedata.category(char) in _HIDDEN or _IGNORABLE.match(char) is not None


_MARGIN = 4
_LEAST = 16


def quoted(label: str, text: str, width: int) -> Iterator[str]:
    """The visible lines of a foreign text, each behind a margin and at most `width` cells wide.

    The label stands before the first line, `|` before every line, and `:` before what only
    the width has parted from the line above.
    """
    room = max(width - _MARGIN - 3, _LEAST)
    for line in visible(text, lines=True).split("\n"):
        mark = "|"
        for part in _folded(line, room):
            yield f"{label:<{_MARGIN}} {mark} {part}"
            label, mark = "", ":"


def _folded(line: str, room: int) -> Iterator[str]:
    """`line` in parts of at most `room` cells; what is not ASCII counts as two, to be safe."""
    start = used = 0
    if line.isascii():
        for start in range(0, len(line) or 1, room):
            yield line[start : start + room]
        return
    for place, char in enumerate(line):
        cells = 1 if char.isascii() else 2
        if used + cells > room:
            yield line[start:place]
            start, used = place, 0
        used += cells
    yield line[start:]
