"""`visible`: text of a model or a server, made harmless for a terminal."""

from __future__ import annotations

import unicodedata

__all__ = ["visible"]

_HIDDEN = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}


def visible(text: str) -> str:
    r"""`text` with control, bidi and zero-width characters as escapes; `\n` stays."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        char
        if char == "\n" or unicodedata.category(char) not in _HIDDEN
        else char.encode("unicode_escape").decode()
        for char in text
    )
