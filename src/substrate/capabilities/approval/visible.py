"""`visible`: text of a model or a server, made harmless for a terminal."""

from __future__ import annotations

import re
import unicodedata

__all__ = ["visible"]

_HIDDEN = frozenset(["Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp", "Zs"])

_IGNORABLE = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e"
    "\u2060-\u206f\u2800\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufff8\U0001bca0-\U0001bca3"
    "\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
"""What is shown as nothing: Default_Ignorable_Code_Point of Unicode's DerivedCoreProperties
(16.0), and the blank pattern of braille."""


def visible(text: str, *, lines: bool = False) -> str:
    r"""`text` with all that is not seen, or moves what is, as escapes.

    These are control, bidi and zero-width characters and every space but the usual one,
    also `\n`, which could begin a line that looks like ours, unless `lines` keeps it.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        char if (char == "\n" and lines) or not _is_hidden(char) else _escaped(char)
        for char in text
    )


def _is_hidden(char: str) -> bool:
    if char == " ":
        return False
    return unicodedata.category(char) in _HIDDEN or _IGNORABLE.match(char) is not None


def _escaped(char: str) -> str:
    return char.encode("unicode_escape").decode()
