"""Which values are secret, and how they are hidden wherever something is shown.

A value is secret by the name it stands under: one that its tool declares (`writeOnly` or
`format: password` in the schema, `Annotated[str, Secret]` in Python), one that the policy
adds, or one of the usual names below; also within a text that is JSON. Hiding is for
eyes only: what runs is whole.
"""

from __future__ import annotations

import base64
import functools
import json
from collections.abc import Iterable, Mapping
from typing import Any, cast

from substrate.kernel.scrub import HIDDEN, scrub, scrub_cut, scrub_rest
from substrate.kernel.values import int_text, json_text

__all__ = [
    "HIDDEN",
    "Secret",
    "declared_secrets",
    "have_secret",
    "hide",
    "is_secret_name",
    "scrub",
    "scrub_cut",
    "scrub_rest",
    "secrets_in",
]

_NAMES = frozenset(
    [
        "accesskey", "accesstoken", "apikey", "apitoken", "auth", "authorization", "authtoken",
        "bearer", "bearertoken", "clientsecret", "cookie", "credential", "credentials", "csrftoken",
        "cvc", "cvv", "idtoken", "passphrase", "passwd", "password", "privatekey", "pwd",
        "refreshtoken", "secret", "secretkey", "sessiontoken", "setcookie", "signingkey", "token",
        "xapikey", "xauthtoken",
    ]
)  # fmt: skip
_ENDS = ("password", "passphrase", "secret", "apikey", "accesstoken", "privatekey", "secretkey")
_LONGEST = 64  # characters of a name that is remembered
_DEPTH = 32
_LEAST = 4  # characters; a shorter value would hide half of every text
_MOST_JSON = 1 << 20  # characters of a text that is looked into


class Secret:
    """Marks a parameter whose value is never shown: `Annotated[str, Secret]`."""

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: Any, handler: Any) -> Any:
        """As JSON Schema says it."""
        return {**handler(core_schema), "writeOnly": True}


def is_secret_name(name: str) -> bool:
    """Whether a value of this name is usually secret, however the name is written."""
    return _known(name) if len(name) <= _LONGEST else _is_secret(name)


def _is_secret(name: str) -> bool:
    plain = "".join(char for char in name.lower() if char.isalnum())
    return plain in _NAMES or plain.endswith(_ENDS)


_known = functools.lru_cache(4096)(_is_secret)


def have_secret(names: tuple[str, ...]) -> bool:
    """Whether any of these names is usually secret."""
    for name in names:  # noqa: SIM110  # any(…) is slower, and every call comes here
        if _known(name) if len(name) <= _LONGEST else _is_secret(name):
            return True
    return False


def declared_secrets(schema: Any, depth: int = _DEPTH) -> frozenset[str]:
    """The names that a JSON Schema declares as secret, at any depth."""
    found: set[str] = set()
    if depth and isinstance(schema, Mapping):
        for key, part in cast("Mapping[str, Any]", schema).items():
            if key == "properties" and isinstance(part, Mapping):
                for name, one in cast("Mapping[str, Any]", part).items():
                    if isinstance(one, Mapping) and _is_declared(cast("Mapping[str, Any]", one)):
                        found.add(name)
            found |= declared_secrets(part, depth - 1)
    elif depth and isinstance(schema, list | tuple):
        for part in cast("Iterable[Any]", schema):
            found |= declared_secrets(part, depth - 1)
    return frozenset(found)


def _is_declared(schema: Mapping[str, Any]) -> bool:
    if schema.get("writeOnly") is True or schema.get("format") == "password":
        return True
    parts = (schema.get(word) for word in ("anyOf", "oneOf", "allOf"))
    return any(
        isinstance(one, Mapping) and _is_declared(cast("Mapping[str, Any]", one))
        for part in parts
        if isinstance(part, list)
        for one in cast("list[Any]", part)
    )


def hide(value: Any, names: frozenset[str] = frozenset(), depth: int = _DEPTH) -> Any:
    """A plain value to be shown: what stands under a secret name is `HIDDEN`.

    A text that is a JSON object or array is written anew where there is something to
    hide in it. The very same object where there is nothing to hide.
    """
    if type(value) is dict:
        items = cast("dict[Any, Any]", value)
        shown: dict[Any, Any] | None = None
        for key, item in items.items():
            seen = item
            if item is not None and type(key) is str and (key in names or is_secret_name(key)):
                seen = HIDDEN
            elif depth and type(item) in _LOOKED_INTO:
                seen = hide(item, names, depth - 1)
            if seen is not item:
                shown = dict(items) if shown is None else shown
                shown[key] = seen
        return items if shown is None else shown
    if depth and type(value) in _CONTAINERS:
        listed = cast("list[Any]", value)
        parts = [hide(item, names, depth - 1) for item in listed]
        return parts if any(a is not b for a, b in zip(parts, listed, strict=True)) else value
    if depth and type(value) is str:
        found = _decoded(value)
        shown = hide(found, names, depth - 1)
        return value if shown is found else json_text(shown)
    return value


_CONTAINERS = (dict, list, tuple)
_LOOKED_INTO = (dict, list, tuple, str)


def _decoded(text: str) -> Any:
    """The object or array that a text is as JSON, else None."""
    if len(text) > _MOST_JSON or text.lstrip(" \t\r\n")[:1] not in ("{", "["):
        return None
    try:
        return json.loads(text, object_pairs_hook=_with_every_value, parse_int=_int_or_text)
    except (ValueError, RecursionError):
        return None


def _with_every_value(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of JSON; one that names a key twice hides nothing behind the second."""
    values = dict(pairs)
    if len(values) == len(pairs):
        return values
    every: dict[str, list[Any]] = {}
    for key, value in pairs:
        every.setdefault(key, []).append(value)
    return {key: found if len(found) > 1 else found[0] for key, found in every.items()}


def _int_or_text(digits: str) -> Any:
    try:
        return int(digits)
    except ValueError:  # more digits than Python reads
        return digits


def secrets_in(
    value: Any, names: frozenset[str] = frozenset(), depth: int = _DEPTH
) -> frozenset[str]:
    """The texts and numbers that `hide` would hide in a value, as texts."""
    found: set[str] = set()
    if depth and type(value) is str:
        value = _decoded(value)
    if depth and type(value) is dict:
        for key, item in cast("dict[Any, Any]", value).items():
            if type(key) is str and (key in names or is_secret_name(key)):
                found |= _leaves(item, depth)
            else:
                found |= secrets_in(item, names, depth - 1)
    elif depth and type(value) in _CONTAINERS:
        for item in cast("list[Any]", value):
            found |= secrets_in(item, names, depth - 1)
    return frozenset(found)


def _leaves(value: Any, depth: int) -> set[str]:
    if depth and type(value) is dict:
        parts = cast("dict[Any, Any]", value).values()
        return {leaf for part in parts for leaf in _leaves(part, depth - 1)}
    if depth and type(value) in _CONTAINERS:
        return {leaf for part in cast("list[Any]", value) for leaf in _leaves(part, depth - 1)}
    return {text for text in _texts_of(value) if len(text) >= _LEAST}


def _texts_of(value: Any) -> list[str]:
    if isinstance(value, bool):  # every other text says True
        return []
    if isinstance(value, bytes) and len(value) <= _MOST_JSON:
        return [repr(value)[2:-1], base64.b64encode(value).decode()]
    if isinstance(value, int):
        return [int_text(value)]
    if not isinstance(value, str):
        return [repr(value)] if isinstance(value, float) else []
    found = _decoded(value)
    return [value] if found is None else [value, *_leaves(found, _DEPTH)]
