"""Ints of any length cross, in time that grows with their length and no faster."""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from substrate.agents.tools.shown import preview
from substrate.kernel.values import decode, digest, encode, json_form, json_text, plain

LIMIT = 4300
EDGES = [10**LIMIT - 1, 10**LIMIT, 2**14284, 2**14285, 10**5000, 10**100_000 - 1]


@st.composite
def long_ints(draw: st.DrawFn) -> int:
    """Of up to 100,000 digits, most of them at some edge."""
    bits = draw(
        st.sampled_from([0, 64, 2000, 2126, 14_284, 14_285, 16_000]) | st.integers(0, 332_000)
    )
    number = (1 << bits) + draw(st.integers(-(2**70), 2**70))
    return draw(st.sampled_from([number, -number]))


values: st.SearchStrategy[Any] = st.recursive(
    long_ints()
    | st.none()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.binary(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab"), inner, max_size=3),
    max_leaves=6,
)


def untagged(value: Any) -> Any:
    """What a reader of the tagged JSON makes of it."""
    if isinstance(value, list):
        return [untagged(item) for item in value]  # pyright: ignore[reportUnknownVariableType]
    if isinstance(value, dict):
        if list(value) == ["$int"]:  # pyright: ignore[reportUnknownArgumentType]
            return int(value["$int"], 16)  # pyright: ignore[reportUnknownArgumentType]
        return {key: untagged(item) for key, item in value.items()}  # pyright: ignore[reportUnknownVariableType]
    return value


@pytest.mark.req("script.values-cross")
@settings(deadline=None)
@given(values)
@example(EDGES + [-edge for edge in EDGES])
def test_a_value_with_long_ints_has_every_form_and_comes_back(value: Any) -> None:
    assert plain(value) == value
    assert decode(encode(value)) == value
    assert digest("tool", value) == digest("tool", decode(encode(value)))
    assert digest("tool", value) != digest("tool", [value])
    assert json.loads(json_text(value)) == json_form(value)
    assert len(preview(value, 200).encode()) <= 200


@settings(deadline=None)
@given(long_ints())
@example(10**LIMIT)
@example(10**LIMIT - 1)
def test_json_text_says_a_long_int_in_hex_and_any_other_in_decimal(number: int) -> None:
    short = -(10**LIMIT) < number < 10**LIMIT
    form = json.loads(json_text([number]))
    assert form == [number if short else {"$int": hex(number)}]
    assert untagged(form) == [number]
    assert json_form(number, tag_bytes=False) == number


@settings(deadline=None)
@given(st.dictionaries(long_ints(), long_ints(), max_size=3))
@example({10**5000: 10**5000, -(10**5000): 2, 3: 4})
def test_a_long_int_as_a_key_becomes_its_text(value: dict[int, int]) -> None:
    keys = [str(key) if abs(key) < 10**LIMIT else hex(key) for key in value]
    form = plain([value])
    assert list(form[0]) == keys
    assert list(form[0].values()) == list(value.values())
    assert decode(encode(form)) == form
    assert untagged(json.loads(json_text(form))) == form
    assert untagged(json.loads(json_text(value))) == form[0]


@pytest.mark.parametrize("key", [None, True, (1,)])
def test_a_key_that_is_no_text_is_refused_beside_a_long_one_too(key: Any) -> None:
    for value in ({key: 1}, {10**5000: {key: 1}}, {10**5000: 1, key: 1}):
        with pytest.raises((TypeError, ValueError)):
            plain(value)


def test_other_keys_beside_a_long_one_become_what_they_become_alone() -> None:
    keys: list[Any] = [1.5, 1e300, "a", 7]
    (alone,) = [[key for one in keys for key in plain({one: 0})]]
    assert list(plain(dict.fromkeys([*keys, 10**5000], 0))) == [*alone, hex(10**5000)]


def test_a_lower_limit_of_the_process_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    before = sys.get_int_max_str_digits()
    try:
        for limit, tagged in ((640, True), (LIMIT, False)):
            sys.set_int_max_str_digits(limit)
            assert ("$int" in json_text({"n": 10**1000, "b": b""})) is tagged
            assert ("$int" in json_text(10**1000)) is tagged
    finally:
        sys.set_int_max_str_digits(before)


def test_an_int_of_a_million_digits_takes_no_seconds() -> None:
    number = 10**1_000_000
    begun = time.perf_counter()
    value = plain({"n": [number], "k": {number: 1}})
    assert decode(encode(value)) == value
    digest("tool", value)
    json_text(value)
    preview(value, 4096)
    assert time.perf_counter() - begun < 1.0  # its decimal text alone would take longer
