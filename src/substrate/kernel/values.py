"""Values that cross: one plain form, one encoding, one digest.

The *plain form* of a value consists of None, bool, int, float, str, bytes, list
and dict with text keys. Dates, times, UUID and Decimal become their text, enums
their value, sets lists, dataclasses, msgspec structs and pydantic models dicts;
ints of any size, nan and the infinities stay what they are. Keys become their
text, which is hex for an int of more digits than Python writes (4,300 by default).

The *encoding* of a plain value is msgpack, where an int beyond 64 bits is
extension type 1 holding its text in hex: that of a long int in decimal would take
time in the square of its length. The *digest* is sha256 over the encoding with
sorted keys, which tells nan, None, text and bytes apart.
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
    "int_text",
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
        try:
            known = _built(value, str_keys=True)
        except ValueError:  # perhaps a key that is an int too long for its text
            known = _with_text_keys(_built(value, str_keys=False))
        return _owned(known) if type(known) in _SHARED else known
    except RecursionError as error:
        msg = "the value is cyclic or nested too deeply"
        raise ValueError(msg) from error


_SHARED = frozenset({dict, list, tuple, bytearray, memoryview})


def _built(value: Any, *, str_keys: bool) -> Any:
    return msgspec.to_builtins(value, builtin_types=_NATURAL, str_keys=str_keys, enc_hook=_hook)


def _with_text_keys(value: Any) -> Any:
    if isinstance(value, dict):
        items = cast("dict[Any, Any]", value).items()
        return {_key_text(key): _with_text_keys(item) for key, item in items}
    if isinstance(value, list | tuple):
        return [_with_text_keys(item) for item in cast("list[Any]", value)]
    return value


def _key_text(key: Any) -> str:
    if isinstance(key, int) and _is_long(key):
        return int_text(key)
    (text,) = _built({key: None}, str_keys=True)
    return text


def int_text(value: int) -> str:
    """An int in decimal; in hex where it has more digits than Python writes."""
    return hex(value) if _is_long(value) else str(value)


_SHORT_BITS = 2000  # fewer than the 640 digits that the limit is at least
_LONG_BITS = 16_000  # more than 4,300 digits; to try it would take long where there is no limit


def _is_long(value: int) -> bool:
    """Whether an int has more digits than Python writes."""
    bits = value.bit_length()
    if not _SHORT_BITS < bits <= _LONG_BITS:
        return bits > _LONG_BITS
    try:
        str(value)
    except ValueError:
        return True
    return False


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
    return int(bytes(data), 16)


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
        return msgspec.msgpack.Ext(_BIG_INT, hex(value).encode())
    return value


def json_form(value: Any, *, tag_bytes: bool = True) -> Any:
    """A plain value as JSON knows it.

    Bytes are `{"$bytes": base64}`, and an int of more digits than Python writes (4,300
    by default) is `{"$int": hex}`; without `tag_bytes` bytes are the bare base64
    text, and every int stays what it is.
    """
    if isinstance(value, dict):
        items = cast("dict[str, Any]", value).items()
        return {_json_key(key): json_form(item, tag_bytes=tag_bytes) for key, item in items}
    if isinstance(value, list | tuple):
        return [json_form(item, tag_bytes=tag_bytes) for item in cast("list[Any]", value)]
    if isinstance(value, _NATURAL):
        text = base64.b64encode(bytes(cast("bytes", value))).decode()
        return {"$bytes": text} if tag_bytes else text
    if tag_bytes and isinstance(value, int) and _is_long(value):
        return {"$int": hex(value)}
    return value


def _json_key(key: Any) -> Any:
    return int_text(key) if type(key) is int and _is_long(key) else key


def json_text(value: Any) -> str:
    """Strict JSON of a plain value.

    What JSON does not know is tagged: bytes and very long ints as in `json_form`, nan
    and the infinities as `{"$float": "nan"}` and so on.
    """
    try:
        return _strict(value)
    except (TypeError, ValueError):  # bytes, nan, the infinities, a very long int
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
