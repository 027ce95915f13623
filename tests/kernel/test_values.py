"""Values that cross keep what they are; digests tell apart what differs."""

from __future__ import annotations

import dataclasses
import datetime as dt
import decimal
import enum
import json
import math
import uuid
from collections import OrderedDict, UserDict
from collections.abc import Mapping
from typing import Any, NoReturn

import msgspec
import pydantic
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from substrate.kernel.values import decode, digest, encode, json_form, json_text, plain

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(-(2**70), 2**70),
    st.sampled_from([2**63 - 1, 2**63, 2**64, -(2**63), -(2**63) - 1, 2**2000]),
    st.floats(),
    texts,
    st.binary(max_size=8),
)
values: st.SearchStrategy[Any] = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=12,
)


def same(one: Any, other: Any) -> bool:
    """Equal in value, type, and, of floats, sign and nan-ness."""
    if type(one) is not type(other):
        return False
    if isinstance(one, float):
        return (math.isnan(one) and math.isnan(other)) or (
            one == other and math.copysign(1, one) == math.copysign(1, other)
        )
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))  # pyright: ignore[reportUnknownArgumentType]
    return one == other


@given(values)
@example([2**60 + 1, 2**64, -(10**1000), math.nan, math.inf, -math.inf, -0.0, b"\xff\0"])
def test_a_plain_value_comes_back_from_its_encoding_as_it_was(value: Any) -> None:
    assert same(plain(value), value)
    assert same(decode(encode(value)), value)


@given(values)
def test_the_plain_form_shares_no_container_with_the_value(value: Any) -> None:
    def containers(found: Any) -> list[int]:
        if isinstance(found, dict):
            return [id(found), *(i for part in found.values() for i in containers(part))]  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
        if isinstance(found, list):
            return [id(found), *(i for part in found for i in containers(part))]  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
        return []

    copy = plain(value)
    assert not set(containers(copy)) & set(containers(value))


@given(st.dictionaries(texts, values, max_size=6), st.randoms())
def test_a_digest_is_independent_of_the_order_of_keys(value: dict[str, Any], order: Any) -> None:
    keys = order.sample(list(value), len(value))
    assert digest("tool", {key: value[key] for key in keys}) == digest("tool", value)


def test_the_plain_form_does_not_follow_what_becomes_of_a_buffer() -> None:
    buffer = bytearray(b"a")
    copies = [plain(buffer), plain({"b": buffer}), plain([(memoryview(buffer),)])]
    buffer[:] = b"b"
    assert copies == [b"a", {"b": b"a"}, [[b"a"]]]


def test_an_int_of_any_size_comes_back() -> None:
    for number in (10**5000, -(10**5000)):
        assert decode(encode([number])) == [number]
        assert digest("tool", number) != digest("tool", -number)


def test_a_digest_tells_apart_what_differs() -> None:
    different = [
        None,
        math.nan,
        math.inf,
        -math.inf,
        "nan",
        "",
        b"",
        "a",
        b"a",
        [],
        {},
        0,
        1,
        True,
        False,
        1.0,
        2**64,
        str(2**64),
        hex(2**64),
        hex(2**64).encode(),
        {"$bytes": "YQ=="},
        {"$float": "nan"},
        [None],
        {"": None},
    ]
    digests = {digest("tool", value) for value in different}
    assert len(digests) == len(different)
    assert digest("other", None) not in digests
    assert all(d.startswith("sha256:") and len(d) == 71 for d in digests)


def test_a_digest_is_the_same_on_every_machine() -> None:
    assert digest("tool", {"b": [1, None], "a": "ä"}) == (
        "sha256:284bb37b6e1cf6f44d7d94526eeb96064d8cf4d91024a4b3ee0c218e01b18a4b"
    )


@given(values)
def test_json_text_is_strict(value: Any) -> None:
    def refuse(constant: str) -> NoReturn:
        raise AssertionError(constant)

    json.loads(json_text(value), parse_constant=refuse)


def test_json_text_tags_what_json_does_not_know() -> None:
    value = {"f": [math.nan, math.inf, -math.inf], "b": b"\xff\0", "t": "ä"}
    assert json_text(value) == (
        '{"f": [{"$float": "nan"}, {"$float": "inf"}, {"$float": "-inf"}],'
        ' "b": {"$bytes": "/wA="}, "t": "ä"}'
    )
    assert json_form([b"a"], tag_bytes=False) == ["YQ=="]


class Colour(enum.Enum):
    RED = "red"


class Level(enum.IntEnum):
    LOW = 1


@dataclasses.dataclass
class Point:
    x: int


class Struct(msgspec.Struct):
    x: int


class Model(pydantic.BaseModel):
    when: dt.date
    data: bytes = b"\xff\0"


class Word(str):
    __slots__ = ()


class Number(int):
    pass


class Measure(float):
    pass


class Data(bytes):
    pass


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (dt.date(2024, 1, 2), "2024-01-02"),
        (dt.datetime(2024, 1, 2, 3, 4, 5, tzinfo=dt.UTC), "2024-01-02T03:04:05Z"),
        (dt.time(3, 4), "03:04:00"),
        (decimal.Decimal("1.10"), "1.10"),
        (uuid.UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (Colour.RED, "red"),
        (Level.LOW, 1),
        ({1}, [1]),
        (frozenset({"a"}), ["a"]),
        ((1, (2,)), [1, [2]]),
        (Point(1), {"x": 1}),
        (Struct(1), {"x": 1}),
        (Model(when=dt.date(2024, 1, 2)), {"when": "2024-01-02", "data": b"\xff\0"}),
        ({1: "a"}, {"1": "a"}),
        (OrderedDict[str, int](a=1), {"a": 1}),
        (UserDict({"a": (1,)}), {"a": [1]}),
        (Word("a"), "a"),
        ([Word("a")], ["a"]),
        ({Word("a"): 1}, {"a": 1}),
        (Number(3), 3),
        (Measure(1.5), 1.5),
        (Data(b"\xff"), b"\xff"),
        ([bytearray(b"\xff"), memoryview(b"a")], [b"\xff", b"a"]),
        (b"\xff", b"\xff"),
    ],
)
def test_a_value_has_its_documented_plain_form(value: Any, expected: Any) -> None:
    assert same(plain(value), expected)
    assert same(decode(encode(plain(value))), expected)


@pytest.mark.parametrize("value", [len, int, object(), iter(()), {(1, 2): 3}, {None: 1}])
def test_what_has_no_plain_form_is_refused(value: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        plain(value)
    with pytest.raises((TypeError, ValueError)):
        plain([{"a": value}])


def test_cyclic_and_deep_values_are_refused() -> None:
    cyclic: list[Any] = []
    cyclic.append(cyclic)
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    mapping: Mapping[str, Any] = UserDict[str, Any]()
    mapping["itself"] = mapping  # type: ignore[index]
    for value in (cyclic, deep, mapping):
        with pytest.raises(ValueError, match="cyclic or nested too deeply"):
            plain(value)


def test_text_with_lone_surrogates_cannot_be_encoded() -> None:
    for value in ("\ud800", {"\ud800": 1}, ["a\udfff", 2**70]):
        with pytest.raises(ValueError, match="surrogate"):
            encode(value)
        with pytest.raises(ValueError, match="surrogate"):
            digest("tool", value)
