"""No secret is shown, however it was escaped and wherever the text was cut."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import quote, quote_plus, urlencode

import jsonschema_rs
import msgspec
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from substrate.kernel.scrub import HIDDEN, scrub, scrub_cut, scrub_rest
from substrate.kernel.secrets import hide, secrets_in
from substrate.kernel.values import json_text

AWKWARD = "\"'\\/\n\r\t\b\f\0\x1f\x7f\x85 %+&=?#{}[]<>äß€\u2028\ufeff😀\ud800\udfff"
secrets = st.text(
    st.sampled_from(AWKWARD) | st.characters(codec=None, categories=["L", "N", "P", "Cs", "Cc"]),
    min_size=6,
    max_size=40,
) | st.text(st.sampled_from(AWKWARD), min_size=6, max_size=12).map(lambda part: part * 900)

WAYS: list[Callable[[str], str]] = [
    str,
    json.dumps,
    lambda text: json.dumps(text, ensure_ascii=False),
    lambda text: json_text({"a": [text]}),
    repr,
    ascii,
    lambda text: repr(f"'{text}"),
    lambda text: repr({"a": text}),
    lambda text: json.dumps(json.dumps({"a": text})),
    lambda text: repr(json.dumps([text])),
    lambda text: json.dumps(repr([text])),
    lambda text: quote(text, errors="surrogatepass"),
    lambda text: quote(text, safe="", errors="surrogatepass"),
    lambda text: quote_plus(text, errors="surrogatepass"),
    lambda text: (
        urlencode({"a": text}, errors="surrogatepass").lower()
        if text.isascii() and text == text.lower()
        else quote_plus(text, errors="surrogatepass")
    ),
    lambda text: text.encode(errors="backslashreplace").decode(),
    lambda text: text.encode("ascii", "backslashreplace").decode(),
    lambda text: json.dumps(text, ensure_ascii=False).encode(errors="backslashreplace").decode(),
]


@settings(deadline=None)
@given(secrets, st.sampled_from(WAYS), st.sampled_from(["", "error: ", "𝔘 "]))
@example('pa"ss\nwo\\rd', json.dumps, "")
@example('it\'s "both"', repr, "")
@example("\\'\\\"\\'", repr, "")
def test_a_secret_is_hidden_in_every_form_that_it_is_written_in(
    secret: str, write: Callable[[str], str], around: str
) -> None:
    for text in (write(secret), around + write(secret) + around):
        shown = scrub(text, [secret])
        assert shown.count(HIDDEN) == 1
        assert len(shown) <= len(around + write("") + around + HIDDEN) + 2  # escapes of quotes


@pytest.mark.req("secrets.mask")
@settings(deadline=None)
@given(secrets)
def test_what_a_validator_says_of_a_secret_is_hidden(secret: str) -> None:
    assume(not any("\ud800" <= char <= "\udfff" for char in secret))
    schema = {"properties": {"password": {"maxLength": 3}}}
    instance = {"password": secret}
    errors = list(jsonschema_rs.Draft202012Validator(schema).iter_errors(instance))
    for message in (str(errors[0].message), msgspec.json.encode(instance).decode()):
        shown = scrub(message, secrets_in(instance))
        assert HIDDEN in shown
        assert len(shown) < 80


@settings(deadline=None)
@given(secrets, st.sampled_from(WAYS), st.integers(0, 60), st.integers(0, 80))
def test_cutting_shows_no_part_of_a_secret(
    secret: str, write: Callable[[str], str], before: int, limit: int
) -> None:
    text = "." * before + write(secret) + "." * 30
    whole = scrub(text, [secret])
    shown = scrub_cut(text, [secret], limit)
    assert len(shown) <= limit
    assert shown == whole or whole.startswith(shown.removesuffix("…"))


@settings(deadline=None)
@given(st.text(st.sampled_from('abä"\n\\'), min_size=9, max_size=60), st.data())
def test_the_beginning_of_a_secret_at_the_end_of_a_cut_text_is_hidden(
    secret: str, data: st.DataObject
) -> None:
    written = data.draw(st.sampled_from(WAYS[:4]))(secret)
    kept = data.draw(st.integers(0, len(written)))
    text = "S: " + written[:kept]
    shown = scrub_rest(text, [secret])
    end = shown.removeprefix("S: ").replace(HIDDEN, "")
    quotes = len(written) - len(secret)
    assert shown.startswith("S: ")
    assert len(end) < 8 + quotes
    if kept <= 7:
        assert shown == text


def test_a_long_secret_that_was_cut_somewhere_is_hidden() -> None:
    secret = "sk-" + "0123456789" * 1000
    for kept in (8, 9, 140, 5000, len(secret) - 1):
        assert scrub_rest("key " + secret[:kept], [secret]) == f"key {HIDDEN}"
    assert scrub_rest("key " + secret[:7], [secret]) == "key " + secret[:7]
    assert scrub_cut("key " + secret + " end", [secret], 280) == f"key {HIDDEN} end"
    assert scrub_cut("key " + secret + "x" * 999, [secret], 280) == f"key {HIDDEN}…"
    assert scrub_cut("key " + secret, [secret], 20) == f"key {HIDDEN}"
    assert scrub_cut("x" * 300, [secret], 280) == "x" * 279 + "…"
    assert [scrub_cut("abc", [], limit) for limit in range(4)] == ["", "…", "a…", "abc"]


@given(st.lists(st.text("ab", min_size=4, max_size=6), max_size=4), st.text("ab", max_size=60))
def test_secrets_that_overlap_are_hidden_as_one(known: list[str], text: str) -> None:
    shown = scrub(text, known)
    assert not any(secret in shown for secret in known)
    assert scrub(shown, known) == shown
    assert scrub(text, known[::-1]) == shown


def test_more_secrets_than_can_be_looked_for_hide_all() -> None:
    many = [f"secret{n}" for n in range(2000)]
    assert scrub("hello", many) == scrub_rest("hello", many) == HIDDEN
    assert scrub_cut("hello", many, 3) == HIDDEN[:3]


def test_the_cost_is_bounded() -> None:
    awkward = [f"{n}\"'\\\nä" * 3 for n in range(1000)]
    begun = time.perf_counter()
    scrub("x" * 2000, awkward)
    scrub_rest("a" * 10_000, ["a" * 9_999 + "b", '"\n' * 5000])
    scrub_cut("x" * 5_000_000, ['"' * 10_000], 280)
    assert time.perf_counter() - begun < 5


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=9),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["a", "b"]), inner, max_size=3)
    ),
    max_leaves=6,
)


@pytest.mark.req("secrets.mask")
@settings(deadline=None)
@given(secrets, JSON, st.integers(0, 3))
def test_a_secret_in_a_json_text_is_found_and_hidden(secret: str, beside: Any, times: int) -> None:
    assume(json.loads(json.dumps(secret)) == secret)  # JSON joins two halves of a character
    value: Any = {"beside": beside, "deep": [{"api_key": secret}]}
    for _ in range(times):
        value = {"body": json.dumps(value)}
    assert secret in secrets_in(value)
    assert secret in secrets_in(json.dumps(value))
    for shown in (hide(value), hide(json.dumps(value))):
        assert secrets_in(shown) == {HIDDEN}
        assert HIDDEN in str(shown)


@pytest.mark.parametrize(
    "text",
    ["", "{", "[1,", "{not json}", "plain", '"password"', '{"user": "me"}', "[" * 100_000, "{}"],
)
def test_a_text_without_a_secret_stays_the_very_same(text: str) -> None:
    for value in (text, {"a": text}, [text]):
        assert hide(value) is value
        assert secrets_in(value) == frozenset()


def test_a_key_named_twice_in_json_hides_nothing() -> None:
    text = '{"password": "first one", "password": "second one", "a": 1, "a": 2}'
    assert secrets_in(text) == {"first one", "second one"}
    assert hide(text) == f'{{"password": "{HIDDEN}", "a": [1, 2]}}'


def test_numbers_bytes_and_json_under_a_secret_name_are_secret_too() -> None:
    found = secrets_in({"password": [10**5000, 1234, True, 1.25, b"by\ntes"], "n": 1})
    assert found == {hex(10**5000), "1234", "1.25", "by\\ntes", "YnkKdGVz"}
    assert secrets_in({"credentials": '{"key": "inner key"}'}) == {
        '{"key": "inner key"}',
        "inner key",
    }
    long = "9" * 5000
    assert secrets_in(f'{{"password": {long}}}') == {long}
