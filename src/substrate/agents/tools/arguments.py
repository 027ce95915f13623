"""The arguments of a call: snapshot, check, repair, and where artifact refs stand in them.

A `Snapshot` is taken once, as the arguments were sent. Nobody outside ever holds
what lies in it: consumers get decoded copies, the tool the last one.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, NoReturn, cast

import msgspec

from substrate.agents.tools.shown import cut, preview, said
from substrate.agents.tools.traits import Traits
from substrate.agents.tools.validation import BindError, Fault
from substrate.kernel.blobs import REF_KEY
from substrate.kernel.errors import Refused
from substrate.kernel.secrets import HIDDEN, have_secret, hide, scrub, secrets_in
from substrate.kernel.values import canonical, decode, digest_of, encode, plain

__all__ = [
    "Arguments",
    "Path",
    "Snapshot",
    "check_arguments",
    "find_refs",
    "refuse_faults",
    "snapshot_of",
    "value_at",
]

_json = msgspec.json.Encoder()

Path = tuple[str | int, ...]

_SCALARS = frozenset({str, int, float, bool, type(None), bytes})
_PREVIEW_BYTES = 200
_MOST_FAULTS = 8


class Snapshot(msgspec.Struct, gc=False):
    """The arguments as they were sent, in plain form, and their digest."""

    plain: Any
    digest: str
    size: int
    flat: bool = False
    _data: bytes | None = None

    @property
    def data(self) -> bytes:
        """The encoded arguments."""
        if self._data is None:
            self._data = encode(self.plain)
        return self._data

    def copy(self) -> Any:
        """A copy for a consumer, who may do with it what he likes."""
        return self.plain.copy() if self.flat else decode(self.data)

    def preview(self, secrets: frozenset[str]) -> str:
        """The arguments as bounded text; what stands under secret names is hidden."""
        shown = self.plain
        if not self.flat or have_secret(tuple(shown)) or not secrets.isdisjoint(shown):
            shown = hide(shown, secrets)
        if self.size <= _PREVIEW_BYTES:  # then they may be written whole
            try:
                return cut(_json.encode(shown).decode(), _PREVIEW_BYTES)
            except (TypeError, ValueError, OverflowError):
                pass
        return preview(shown, _PREVIEW_BYTES)


def snapshot_of(name: str, arguments: Any) -> Snapshot:
    """Take the snapshot; refuses what cannot be encoded (`invalid_arguments`)."""
    try:
        flat = _is_flat(arguments)
        values = arguments.copy() if flat else plain(arguments)
        data = canonical(name, values)
        return Snapshot(values, digest_of(data), len(data), flat)
    except BaseException as error:  # of whatever objects lie in them
        message = f"the arguments of {name!r} cannot be passed: {said(error)}"
        raise Refused(message, reason="invalid_arguments", status="error") from None


def _is_flat(arguments: Any) -> bool:
    """A dict of text to scalars is in plain form already, and nothing in it can be changed."""
    if type(arguments) is not dict:
        return False
    for key, item in cast("dict[Any, Any]", arguments).items():
        if type(key) is not str or type(item) not in _SCALARS:
            return False
    return True


class Arguments(msgspec.Struct, frozen=True):
    """Arguments that fit the tool's schema; `refs` are the places of artifact refs.

    `bound` are the values by a function's hints, which nobody but the tool will hold;
    None where there are no hints, or refs stand for values that are not known yet.
    """

    snapshot: Snapshot
    refs: tuple[Path, ...] = ()
    repaired: tuple[str, ...] = ()
    bound: dict[str, Any] | None = None


def check_arguments(traits: Traits, snapshot: Snapshot) -> Arguments:
    """The gate's work: every fault named by path, JSON text decoded once where it must be."""
    values = snapshot.plain
    if isinstance(values, dict) and traits.is_valid(cast("Any", values)):
        refs = () if snapshot.flat else find_refs(cast("dict[str, Any]", values))
        if traits.streams:
            _require_artifacts(traits, cast("Any", values), refs)
        return Arguments(snapshot, refs, (), None if refs else _bound(traits, snapshot))
    return _check_slowly(traits, snapshot)


def _require_artifacts(traits: Traits, values: dict[str, Any], refs: tuple[Path, ...]) -> None:
    """A parameter that takes a stream takes an artifact, or the null that its schema allows."""
    for name in sorted(traits.streams):
        if values.get(name) is not None and (name,) not in refs:
            refuse_faults(traits, [Fault((name,), "an artifact is wanted here: pass its handle")])


def _bound(traits: Traits, snapshot: Snapshot) -> dict[str, Any] | None:
    if traits.bind is None:
        return None
    try:
        return traits.bind(snapshot.copy())
    except BindError as error:
        refuse_faults(traits, error.faults)


def _check_slowly(traits: Traits, snapshot: Snapshot) -> Arguments:
    values, repaired = snapshot.copy(), list[str]()
    if isinstance(values, str):
        decoded = _decode_json(values)
        if not isinstance(decoded, dict):
            _refuse(
                traits, [f"expected an object of arguments, found the text {preview(values, 80)}"]
            )
        values = cast("dict[str, Any]", decoded)
        repaired.append("$")
    if not isinstance(values, dict):
        _refuse(traits, [f"expected an object of arguments, found {type(values).__name__}"])
    refs = find_refs(cast("Any", values))
    faults = _open_faults(traits, values, refs)
    if faults and _repair(traits, values, faults, repaired):
        refs = find_refs(cast("Any", values))
        faults = _open_faults(traits, values, refs)
    if faults:
        refuse_faults(traits, faults)
    _require_artifacts(traits, cast("Any", values), refs)
    checked = Snapshot(values, snapshot.digest, snapshot.size)
    bound = None if refs else _bound(traits, checked)
    return Arguments(checked, refs, tuple(repaired), bound)


def _open_faults(traits: Traits, values: Any, refs: tuple[Path, ...]) -> list[Fault]:
    """The faults that no artifact ref can be the cause of."""
    faults = traits.faults(values)
    if not refs:
        return faults
    return [fault for fault in faults if not any(_may_lie_in(fault, ref) for ref in refs)]


def _may_lie_in(fault: Fault, ref: Path) -> bool:
    below = fault.path[: len(ref)] == ref
    above = fault.is_combinator and ref[: len(fault.path)] == fault.path
    return below or above


def _repair(traits: Traits, values: Any, faults: list[Fault], repaired: list[str]) -> bool:
    """Decode JSON text where the schema wants an object or array and not text; once."""
    for path in dict.fromkeys(f.path for f in faults if isinstance(f.instance, str)):
        if not path:
            continue
        holder = value_at(values, path[:-1])
        decoded = _decode_json(holder[path[-1]])
        if not isinstance(decoded, dict | list):
            continue
        text, holder[path[-1]] = holder[path[-1]], decoded
        before = {fault.path for fault in faults}
        still = [f for f in traits.faults(values) if f.path[: len(path)] == path]
        if any(f.path == path and f.path in before for f in still) or _wants_text(faults, path):
            holder[path[-1]] = text
        else:
            repaired.append(_written(path))
    return bool(repaired)


def _wants_text(faults: list[Fault], path: Path) -> bool:
    """A fault of another kind than the type means that text is what is wanted there."""
    kinds = {fault.keyword for fault in faults if fault.path == path}
    return not kinds <= {"type", "anyOf", "oneOf"}


def _decode_json(text: Any) -> Any:
    """Strict JSON, or None."""
    try:
        return json.loads(text, parse_constant=_no_constant)
    except (ValueError, TypeError, RecursionError):
        return None


def _no_constant(name: str) -> NoReturn:
    msg = f"{name} is not JSON"
    raise ValueError(msg)


def value_at(values: Any, path: Path) -> Any:
    """What stands at a place."""
    for step in path:
        values = values[step]
    return values


def _written(path: Path) -> str:
    text = ""
    for step in path:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else step
    return text


def find_refs(values: dict[str, Any]) -> tuple[Path, ...]:
    """The places of artifact refs in the arguments, at any depth.

    Refuses (`bad_ref`) the key `$artifact` beside others or with a value that is no text.
    """
    refs: list[Path] = []
    for key, item in values.items():
        if isinstance(item, dict | list):
            refs.extend(_refs_in(item, (key,)))
    return tuple(refs)


def _refs_in(value: Any, path: Path) -> Iterator[Path]:
    if isinstance(value, dict):
        entries = cast("Mapping[str, Any]", value)
        if REF_KEY in entries:
            _require_ref(entries, path)
            yield path
        else:
            for key, item in entries.items():
                yield from _refs_in(item, (*path, key))
    elif isinstance(value, list | tuple):
        for index, item in enumerate(cast("list[Any]", value)):
            yield from _refs_in(item, (*path, index))


def _require_ref(entries: Mapping[str, Any], path: Path) -> None:
    place = _written(path)
    if len(entries) > 1:
        message = f"{place}: {{'$artifact': ref}} stands for a whole value; other keys beside it"
    elif not isinstance(entries[REF_KEY], str):
        message = (
            f"{place}: the value of '$artifact' is a ref as text, not {entries[REF_KEY]!r:.80}"
        )
    else:
        return
    raise Refused(message, reason="bad_ref", status="error")


def refuse_faults(traits: Traits, faults: list[Fault]) -> NoReturn:
    """Raise the refusal that names every fault by its path."""
    _refuse(traits, [_worded(fault, traits.secrets) for fault in faults[: _MOST_FAULTS + 1]])


def _worded(fault: Fault, secrets: frozenset[str]) -> str:
    """A fault with its place; of a secret, without its value."""
    names = {step for step in fault.path if isinstance(step, str)}
    inside = secrets_in(fault.instance, secrets)
    is_secret = not secrets.isdisjoint(names) or have_secret(tuple(names))
    if is_secret or (inside and len(fault.message) > _MOST_MESSAGE):
        message = f"the value does not fit ({fault.keyword or 'its type'}); it is {HIDDEN}"
    else:
        message = scrub(fault.message, inside)
    if len(message) > _MOST_MESSAGE:
        message = f"{message[:140]} … {message[-140:]}"
    return f"{_written(fault.path)}: {message}" if fault.path else message


_MOST_MESSAGE = 300  # characters


def _refuse(traits: Traits, faults: list[str]) -> NoReturn:
    shown = faults[:_MOST_FAULTS]
    if len(faults) > len(shown):
        shown.append("and more")
    message = f"invalid arguments for {traits.name!r}: " + "; ".join(shown)
    raise Refused(message, reason="invalid_arguments", status="error")
