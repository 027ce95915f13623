"""What is shown of a value to a model, a person, a log or a hook: bounded and valid text.

Everything shown goes through here, so that one place decides what is withheld.
Limits are bytes of UTF-8 and include the marker; cuts fall between code points.
"""

from __future__ import annotations

import math
from typing import Any, cast

import msgspec

from substrate.agents.tools.own_task import ToolExitError
from substrate.kernel.content import ContentBlock, ResourceLink
from substrate.kernel.secrets import hide
from substrate.kernel.tools.chain import InvocationResult
from substrate.kernel.values import json_text

__all__ = ["NOTHING", "clean", "cut", "preview", "said", "said_type", "shown_result"]

NOTHING = "(the tool returned nothing)"
_EMPTY = "(the tool returned an empty text)"
_BLANK = "(the tool returned only white space)"


def clean(text: str) -> str:
    """`text` without lone surrogates: they become visible escapes, the rest stays."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode(errors="backslashreplace").decode()
    return text


def cut(text: str, limit: int, size: int | None = None) -> str:
    """`text` where it fits into `limit` bytes, else its beginning and a marker with the size.

    `size` is the whole size in bytes where `text` is already only a part.
    """
    if size is None and len(text) <= limit and text.isascii():
        return text
    head = text[: limit + 1].encode(errors="backslashreplace")
    if size is None:
        if len(head) <= limit and len(text) <= limit:
            return clean(text)
        size = len(text.encode(errors="backslashreplace"))
        if size <= limit:
            return clean(text)
    marker = f"… [cut: {size} bytes in all]".encode()
    room = limit - len(marker)
    if room <= 0:
        return _whole(head[:limit])
    return _whole(head[:room]) + marker.decode()


def _whole(data: bytes) -> str:
    """The longest prefix of valid UTF-8 that ends between code points."""
    return data.decode(errors="ignore")


_json = msgspec.json.Encoder()
_BRIEF = 4


def preview(value: Any, limit: int) -> str:
    """A plain value as JSON-like text of at most `limit` bytes, without walking all of it."""
    brief = _brief(value, limit, _BRIEF)
    try:
        text = _json.encode(brief).decode()
    except (TypeError, ValueError, OverflowError, UnicodeEncodeError):
        text = clean(json_text(brief))
    return cut(text, limit)


def _brief(value: Any, limit: int, depth: int) -> Any:
    """A part of `value` that is enough for a preview of `limit` bytes."""
    if isinstance(value, str):
        return value if len(value) <= limit else clean(value[:limit]) + "…"
    if isinstance(value, bytes | bytearray | memoryview):
        return f"<{len(cast('bytes', value))} bytes>"
    if isinstance(value, dict):
        if depth == 0:
            return f"{{… {len(cast('dict[str, Any]', value))} entries}}"
        items = list(cast("dict[str, Any]", value).items())[: limit // 4 + 1]
        return {key: _brief(item, limit, depth - 1) for key, item in items}
    if isinstance(value, list | tuple):
        if depth == 0:
            return f"[… {len(cast('list[Any]', value))} items]"
        return [
            _brief(item, limit, depth - 1) for item in cast("list[Any]", value)[: limit // 2 + 1]
        ]
    if isinstance(value, float) and not math.isfinite(value):
        return repr(value)  # JSON would say null
    return value


def _place(block: ContentBlock) -> str:
    """Where a block that came without its bytes can be had."""
    if isinstance(block, ResourceLink):
        return f"resource {block.name or ''} {block.uri}".replace("  ", " ")
    kind = type(block).__name__.removesuffix("Block").lower()
    return f"{kind} {getattr(block, 'url', None) or getattr(block, 'file_id', None) or ''}".strip()


def said(error: BaseException) -> str:
    """An error in words: of a group, its leaves; of what was contained, what it was."""
    if isinstance(error, BaseExceptionGroup):
        group = cast("BaseExceptionGroup[BaseException]", error)
        return "; ".join(said(leaf) for leaf in group.exceptions[:_MOST_LEAVES])
    if isinstance(error, ToolExitError):
        return said(error.error)
    try:
        text = str(error)[:_MOST_SAID]
    except BaseException:  # a hostile __str__
        text = ""
    return f"{said_type(error)}: {text}" if text else said_type(error)


_MOST_LEAVES = 20
_MOST_SAID = 64 * 1024  # characters; what is shown is cut to far less


def said_type(error: BaseException) -> str:
    """The name of an error's type."""
    return type(error.error if isinstance(error, ToolExitError) else error).__name__


def shown_result(result: InvocationResult) -> str:
    """A result as a model reads it: never empty, and telling None from the empty text."""
    if result.status != "ok":
        return result.text or f"({result.status})"
    parts = [result.text or result.preview or ""]
    if result.text and result.preview is not None and result.artifact_ref is None:
        parts.append(result.preview)  # it says why the whole was not kept
    if result.artifact_ref is not None:
        parts.append(f"[the whole is the artifact {result.artifact_ref}]")
    if result.told is not None:
        parts.append(f"[{result.told}]")
    parts.extend(f"[file {file.path}, {file.media_type}]" for file in result.files)
    parts.extend(f"[{_place(block)}]" for block in result.content if not result.files)
    text = "\n".join(part for part in parts if part)
    if text.strip():
        return text
    if result.structured is not None:
        return json_text(hide(result.structured))
    if result.empty:
        return NOTHING
    return _BLANK if text else _EMPTY
