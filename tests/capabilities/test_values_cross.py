"""Values of a tool in a script, and of a script in a tool."""

from __future__ import annotations

import dataclasses
import datetime as dt
import decimal
import enum
import math
import uuid
from typing import Any

import msgspec
import pydantic
import pytest

from substrate import tool
from substrate.scripts import run_script_sync


class Colour(enum.Enum):
    RED = "red"


@dataclasses.dataclass
class Point:
    x: int


class Struct(msgspec.Struct):
    x: int


class Model(pydantic.BaseModel):
    when: dt.date


class Strange:
    def __repr__(self) -> str:
        msg = "not even that"
        raise RuntimeError(msg)


GIVEN: dict[str, Any] = {
    "none": None,
    "bytes": b"\xff\0",
    "date": dt.date(2024, 2, 29),
    "time": dt.datetime(2024, 2, 29, 12, tzinfo=dt.UTC),
    "decimal": decimal.Decimal("1.10"),
    "uuid": uuid.UUID(int=1),
    "enum": Colour.RED,
    "set": {1},
    "tuple": (1, (2,)),
    "dataclass": Point(1),
    "struct": Struct(1),
    "model": Model(when=dt.date(2024, 2, 29)),
    "ints": [2**60 + 1, 2**64, -(2**100)],
    "inf": [math.inf, -math.inf],
    "text": "ä 搜 🙂 \x00 \u2028",
}
ARRIVED: dict[str, Any] = {
    **GIVEN,
    "date": "2024-02-29",
    "time": "2024-02-29T12:00:00Z",
    "decimal": "1.10",
    "uuid": "00000000-0000-0000-0000-000000000001",
    "enum": "red",
    "set": [1],
    "tuple": [1, [2]],
    "dataclass": {"x": 1},
    "struct": {"x": 1},
    "model": {"when": "2024-02-29"},
}


@pytest.mark.req("script.values-cross", "case.C4")
def test_values_cross_to_the_script_and_back_to_a_tool_in_their_documented_form() -> None:
    taken: list[Any] = []

    @tool(risk="safe")
    async def give() -> Any:
        return GIVEN

    @tool(risk="safe")
    async def take(value: Any) -> None:
        taken.append(value)

    script = "value = await give()\nawait take(value)\nawait take(value=value['ints'])\nvalue"
    result = run_script_sync(script, [give, take])
    assert result.value == ARRIVED, result.output_text
    assert taken == [ARRIVED, ARRIVED["ints"]]
    assert all(type(value) is int for value in taken[1])


@pytest.mark.req("script.values-cross", "case.C4")
def test_nan_and_the_sign_of_zero_cross_both_ways() -> None:
    taken: list[float] = []

    @tool(risk="safe")
    async def give() -> Any:
        return [math.nan, -0.0]

    @tool(risk="safe")
    async def take(values: list[float]) -> None:
        taken.extend(values)

    script = "values = await give()\nawait take(values)\nvalues"
    result = run_script_sync(script, [give, take])
    for values in (result.value, taken):
        assert math.isnan(values[0]), result.output_text
        assert math.copysign(1, values[1]) == -1


@pytest.mark.req("case.C4")
@pytest.mark.parametrize(
    "what", [Strange, Strange(), iter(()), len], ids=["class", "object", "iterator", "function"]
)
def test_what_has_no_plain_form_ends_no_run(what: Any) -> None:
    @tool(risk="safe")
    async def strange() -> Any:
        return what

    @tool(risk="safe")
    async def after() -> int:
        return 1

    script = "try:\n    await strange()\nexcept Exception:\n    pass\nawait after()"
    result = run_script_sync(script, [strange, after])
    assert result.value == 1, result.output_text
    assert result.call_trace[0].ran == "yes"
