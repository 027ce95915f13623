"""What is shown is bounded, valid and says what is there."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from substrate.agents.tools.shown import clean, cut, preview

TEXT = st.text(st.characters(codec=None, exclude_categories=()))
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXT | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(TEXT, inner),
    max_leaves=20,
)


@given(VALUES, st.integers(0, 200))
def test_a_preview_is_valid_text_within_its_limit(value: object, limit: int) -> None:
    assert len(preview(value, limit).encode()) <= limit


@settings(max_examples=1000)
@given(TEXT, st.integers(0, 100))
@example("\ud800", 6)
@example("\ud800", 5)
def test_a_cut_text_is_its_own_beginning_and_says_so(text: str, limit: int) -> None:
    shown, whole = cut(text, limit), clean(text)
    assert len(shown.encode()) <= limit
    if len(whole.encode()) <= limit:
        assert shown == whole
    head = shown.partition("… [cut: ")[0]
    assert whole.startswith(head)
    assert len(head.encode()) + 40 >= min(limit, len(whole.encode()))  # as much as there is room


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_number_that_json_does_not_know_is_not_shown_as_nothing(value: float) -> None:
    assert json.loads(preview({"x": value, "y": None}, 200)) == {"x": repr(value), "y": None}
