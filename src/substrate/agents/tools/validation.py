"""Arguments against a JSON Schema (2020-12): whether they fit, and every fault by its path."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

from substrate.kernel.values import json_form

__all__ = ["BindError", "Fault", "faults_by", "validity_by"]


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault of the arguments: where, in words, and which keyword of the schema found it."""

    path: tuple[str | int, ...]
    message: str
    keyword: str = ""
    is_combinator: bool = False
    instance: Any = None


class BindError(Exception):
    """The arguments do not fit the type hints of a function."""

    def __init__(self, faults: list[Fault]) -> None:
        super().__init__("; ".join(fault.message for fault in faults))
        self.faults = faults


_MOST_MESSAGE = 16 * 1024  # characters; it is shortened where it is shown
_COMBINATORS = frozenset(
    [
        "AllOf", "AnyOf", "Constant", "Contains", "Enum", "FalseSchema", "Not", "OneOfMultipleValid",
        "OneOfNotValid", "UnevaluatedItems", "UnevaluatedProperties", "UniqueItems",
    ]
)  # fmt: skip
_BRANCHES = frozenset(["if", "then", "else", "dependentSchemas", "not", "anyOf", "oneOf"])
_KEYWORDS = {"Type": "type", "AnyOf": "anyOf", "OneOfNotValid": "oneOf"}


def validity_by(validator: Any) -> Callable[[Any], bool]:
    """Whether arguments fit, by a compiled schema; quicker than `faults_by`."""
    check, faults = validator.is_valid, faults_by(validator)

    def is_valid(values: Any) -> bool:
        try:
            return check(values) or (_is_unbounded(values) and not faults(values))
        except ValueError:  # bytes, which JSON Schema does not know, or lone surrogates
            return not faults(values)

    return is_valid


def faults_by(validator: Any) -> Callable[[Any], list[Fault]]:
    """All that does not fit, by a compiled schema."""

    def faults(values: Any) -> list[Fault]:
        judged = _bounded(json_form(values, tag_bytes=False))
        try:
            return [_fault(error) for error in validator.iter_errors(judged)]
        except UnicodeEncodeError:
            return [Fault((), "a text holds a lone surrogate, which is no character")]
        except (ValueError, RecursionError):
            return [Fault((), "the arguments are nested too deeply to be checked")]

    return faults


_FAR = 2.0**52 - 0.5
"""The greatest float that is no whole number."""


def _is_unbounded(value: Any) -> bool:
    if isinstance(value, dict):
        return any(map(_is_unbounded, cast("dict[str, Any]", value).values()))
    if isinstance(value, list):
        return any(map(_is_unbounded, cast("list[Any]", value)))
    return isinstance(value, float) and not math.isfinite(value)


def _bounded(value: Any) -> Any:
    """`value` with fractions for nan and the infinities, which the validator takes for null."""
    if isinstance(value, dict):
        return {key: _bounded(item) for key, item in cast("dict[str, Any]", value).items()}
    if isinstance(value, list):
        return [_bounded(item) for item in cast("list[Any]", value)]
    if isinstance(value, float) and not math.isfinite(value):
        return 0.5 if math.isnan(value) else math.copysign(_FAR, value)
    return value


def _fault(error: Any) -> Fault:
    path = tuple(error.instance_path)
    kind = type(error.kind).__name__.rsplit("_", 1)[-1]
    return Fault(
        path,
        str(error.message)[:_MOST_MESSAGE],
        _KEYWORDS.get(kind, kind[:1].lower() + kind[1:]),
        kind in _COMBINATORS or not _BRANCHES.isdisjoint(map(str, error.schema_path)),
        error.instance,
    )
