"""Arguments as JSON that a person edits, and back without loss.

JSON lacks bytes and very long ints: they are written `{"$bytes": base64}` and
`{"$int": hex}`, and read back as what they were.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any, cast

from substrate.capabilities.approval.visible import is_hidden
from substrate.kernel.values import json_form, plain

__all__ = ["ascii_json", "can_be_edited", "editable", "from_json", "to_json"]

_TAGS = frozenset(["$bytes", "$int"])


def to_json(arguments: Mapping[str, Any]) -> str:
    """The whole arguments, over several lines."""
    return json.dumps(json_form(plain(arguments)), indent=2, ensure_ascii=False)


def can_be_edited(value: Any) -> bool:
    """Whether no object in a plain value is written as bytes and long ints are."""
    if isinstance(value, Mapping):
        entries = cast("Mapping[Any, Any]", value)
        is_like_a_tag = len(entries) == 1 and not _TAGS.isdisjoint(entries)
        return not is_like_a_tag and all(map(can_be_edited, entries.values()))
    if isinstance(value, list | tuple):
        return all(map(can_be_edited, cast("list[Any]", value)))
    return True


def editable(text: str) -> str:
    r"""A JSON text with `\u` escapes of JSON for whatever an editor would not show."""
    return "".join(_escaped(char) if char != "\n" and is_hidden(char) else char for char in text)


def ascii_json(text: str) -> str:
    """The same JSON in ASCII alone."""
    return "".join(char if char.isascii() else _escaped(char) for char in text)


def _escaped(char: str) -> str:
    return json.dumps(char)[1:-1] if char != "\x7f" else "\\u007f"


def from_json(text: str) -> dict[str, Any]:
    """The arguments that a person wrote; ValueError says in words what is wrong with them."""
    try:
        edited = json.loads(text, object_pairs_hook=_object)
    except json.JSONDecodeError as error:
        msg = f"that is no JSON: {error}"
        raise ValueError(msg) from error
    except RecursionError as error:
        msg = "that is nested too deeply"
        raise ValueError(msg) from error
    if not isinstance(edited, dict):
        msg = "the arguments must be a JSON object"
        raise ValueError(msg)  # noqa: TRY004  # one kind of fault for the caller
    return cast("dict[str, Any]", edited)


def _object(pairs: list[tuple[str, Any]]) -> Any:
    made = dict(pairs)
    if len(made) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        msg = f"{twice!r} is there twice"
        raise ValueError(msg)
    if len(made) == 1 and not _TAGS.isdisjoint(made):
        ((tag, content),) = made.items()
        return _untagged(tag, content)
    return made


def _untagged(tag: str, content: Any) -> Any:
    try:
        if tag == "$bytes":
            return base64.b64decode(content, validate=True)
        return int(content, 16)
    except (TypeError, ValueError) as error:
        wanted = "base64" if tag == "$bytes" else "hex"
        msg = f"{{{tag!r}: …}} needs a text in {wanted}"
        raise ValueError(msg) from error
