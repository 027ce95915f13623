"""Values that cross: one plain form, one encoding, one digest.

The *plain form* of a value consists of None, bool, int, float, str, bytes, list
and dict with text keys. Dates, times, UUID and Decimal become their text, enums
their value, sets lists, dataclasses, msgspec structs and pydantic models dicts;
ints of any size, nan and the infinities stay what they are.

The *encoding* of a plain value is msgpack, where an int beyond 64 bits is
extension type 1 holding its decimal text. The *digest* is sha256 over the
encoding with sorted keys, which tells nan, None, text and bytes apart.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
from collections.abc import Callable, Mapping
from typing import Any, cast

import msgspec

__all__ = [
    "canonical",
    "decode",
    "digest",
    "digest_of",
    "encode",
    "json_form",
    "json_text",
    "plain",
]

_BIG_INT = 1
_NATURAL = (bytes, bytearray, memoryview)


def plain(value: Any) -> Any:
    """The plain form of `value`, sharing no container with it.

    Raises TypeError or ValueError for what has none (functions, classes, open
    files, keys that are no text), also where it is cyclic or nested too deeply.
    """
    try:
        known = msgspec.to_builtins(value, builtin_types=_NATURAL, str_keys=True, enc_hook=_hook)
        return _owned(known) if type(known) in _SHARED else known
    except RecursionError as error:
        msg = "the value is cyclic or nested too deeply"
        raise ValueError(msg) from error


_SHARED = frozenset({dict, list, tuple, bytearray, memoryview})


def _owned(value: Any) -> Any:
    """What msgspec made, with lists for tuples and bytes for buffers, which it hands through."""
    kind = cast("type[Any]", type(value))
    if kind is dict:
        return {k: _owned(item) if type(item) in _SHARED else item for k, item in value.items()}
    if kind is list or kind is tuple:
        return [_owned(item) if type(item) in _SHARED else item for item in value]
    return bytes(value)


def _hook(value: Any) -> Any:
    """What msgspec does not know of itself."""
    kind = cast("type[Any]", type(value))
    dump: Callable[..., Any] | None = getattr(kind, "model_dump", None)
    if dump is not None:  # a pydantic model
        return dump(value, mode="python")
    for base in cast("tuple[Any, ...]", (str, int, float, bytes)):  # a subclass of these
        if isinstance(value, base):
            return base(value)
    if isinstance(value, Mapping):
        return dict(cast("Mapping[Any, Any]", value))
    msg = f"a value of type {type(value).__name__} cannot be passed"
    raise TypeError(msg)


_encoder = msgspec.msgpack.Encoder()
_canonical = msgspec.msgpack.Encoder(order="deterministic")


def _from_ext(code: int, data: memoryview) -> Any:
    if code != _BIG_INT:
        msg = f"unknown extension type {code}"
        raise ValueError(msg)
    return _int_of(bytes(data).decode())


_decoder = msgspec.msgpack.Decoder(ext_hook=_from_ext)


def encode(value: Any) -> bytes:
    """Encode a plain value. Raises ValueError where text holds lone surrogates."""
    try:
        return _encoder.encode(value)
    except OverflowError:
        return _encoder.encode(_without_big_ints(value))


def decode(data: bytes) -> Any:
    """A fresh copy of what was encoded."""
    return _decoder.decode(data)


def canonical(name: str, value: Any) -> bytes:
    """The encoding of a name and a plain value, whatever the order of its keys."""
    try:
        return _canonical.encode((name, value))
    except OverflowError:
        return _canonical.encode((name, _without_big_ints(value)))


def digest_of(data: bytes) -> str:
    """`sha256:<hex>` of some bytes."""
    hasher = _fresh.copy()  # quicker than to make one
    hasher.update(data)
    return "sha256:" + hasher.hexdigest()


_fresh = hashlib.sha256()


def digest(name: str, value: Any) -> str:
    """`sha256:<hex>` over a name and a plain value."""
    return digest_of(canonical(name, value))


def _without_big_ints(value: Any) -> Any:
    if isinstance(value, dict):
        items = cast("dict[str, Any]", value).items()
        return {key: _without_big_ints(item) for key, item in items}
    if isinstance(value, list | tuple):
        return [_without_big_ints(item) for item in cast("list[Any]", value)]
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        return msgspec.msgpack.Ext(_BIG_INT, _text_of(value).encode())
    return value


def _text_of(value: int) -> str:
    # hex has no limit on digits; str() of an int over 4300 digits raises
    return hex(value)


def _int_of(text: str) -> int:
    return int(text, 16)


def json_form(value: Any, *, tag_bytes: bool = True) -> Any:
    """A plain value as JSON knows it: bytes as `{"$bytes": base64}` (or the bare base64 text)."""
    if isinstance(value, dict):
        items = cast("dict[str, Any]", value).items()
        return {key: json_form(item, tag_bytes=tag_bytes) for key, item in items}
    if isinstance(value, list | tuple):
        return [json_form(item, tag_bytes=tag_bytes) for item in cast("list[Any]", value)]
    if isinstance(value, _NATURAL):
        text = base64.b64encode(bytes(cast("bytes", value))).decode()
        return {"$bytes": text} if tag_bytes else text
    return value


def json_text(value: Any) -> str:
    """Strict JSON of a plain value: nan and the infinities become `{"$float": "nan"}` and so on."""
    try:
        return _strict(value)
    except (TypeError, ValueError):  # bytes, nan or the infinities
        return _strict(_finite(json_form(value)))


_strict = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in cast("dict[str, Any]", value).items()}
    if isinstance(value, list):
        return [_finite(item) for item in cast("list[Any]", value)]
    if isinstance(value, float) and not math.isfinite(value):
        return {"$float": repr(value)}
    return value
