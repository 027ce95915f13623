"""The requirements and the tests that show them, held against one another in both directions.

Marks are read from the source of the tests: nothing is collected or run for it.
"""

from __future__ import annotations

import ast
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import msgspec

TESTS = Path(__file__).parent
MANIFEST = TESTS / "requirements.toml"


class Requirement(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    id: str
    text: str
    since: str | None = None
    planned: bool = False


class Manifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    requirement: list[Requirement]


class Mark(msgspec.Struct, frozen=True):
    id: str
    where: str


def requirements() -> list[Requirement]:
    return msgspec.convert(tomllib.loads(MANIFEST.read_text("utf-8")), Manifest).requirement


def marks_in(source: str, name: str) -> Iterator[Mark]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.mark.req":
            where = f"{name}:{node.lineno}"
            for arg in node.args:
                assert isinstance(arg, ast.Constant), f"{where}: {ast.unparse(arg)} is no literal"
                assert isinstance(arg.value, str), f"{where}: {arg.value!r} is no text"
                yield Mark(arg.value, where)


def marks() -> list[Mark]:
    return [
        mark
        for path in sorted(TESTS.rglob("*.py"))
        for mark in marks_in(path.read_text("utf-8"), str(path.relative_to(TESTS.parent)))
    ]


def listed(head: str, lines: list[str]) -> str:
    return "\n  ".join([f"{len(lines)} {head}:", *lines])


def test_marks_are_found_on_functions_classes_modules_and_parameters() -> None:
    source = """
import pytest
pytestmark = [pytest.mark.req("a"), pytest.mark.full]
@pytest.mark.req("b", "c")
class TestIt:
    @pytest.mark.parametrize("x", [pytest.param(1, marks=pytest.mark.req("d"))])
    async def test_it(self, x): ...
"""
    assert sorted(mark.id for mark in marks_in(source, "it.py")) == ["a", "b", "c", "d"]


def test_every_requirement_is_one_sentence_with_a_release_or_a_plan() -> None:
    entries = requirements()
    twice = [name for name, n in Counter(entry.id for entry in entries).items() if n > 1]
    assert not twice, listed("ids stand twice", twice)
    odd = [e.id for e in entries if e.planned == (e.since is not None) or not e.text.endswith(".")]
    assert not odd, listed("entries need a sentence and either `since` or `planned`", odd)


def test_every_mark_names_a_requirement() -> None:
    known = {entry.id for entry in requirements()}
    unknown = [f"{mark.where} {mark.id}" for mark in marks() if mark.id not in known]
    assert not unknown, listed("marks name no entry of tests/requirements.toml", unknown)


def test_every_requirement_that_holds_is_shown_by_a_test() -> None:
    shown = {mark.id for mark in marks()}
    missing = [f"{e.id}: {e.text}" for e in requirements() if not e.planned and e.id not in shown]
    assert not missing, listed("requirements are shown by no test", missing)


def test_no_planned_requirement_is_shown_already() -> None:
    planned = {entry.id for entry in requirements() if entry.planned}
    early = [f"{mark.where} {mark.id}" for mark in marks() if mark.id in planned]
    assert not early, listed("tests show what is planned; give the entry its `since`", early)
