"""The Berkeley function calling leaderboard's data (`bfcl-eval`, Apache-2.0), read where it lies.

`make corpora` installs it into `.corpora`, without what it depends on. Its documents are
written in a dialect of their own, whose type names are mapped to those of JSON Schema.
"""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator, Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any, NamedTuple, cast

import jsonschema_rs

__all__ = [
    "FOLDER",
    "MULTI_TURN",
    "Task",
    "accepted_calls",
    "documents",
    "schema_of",
    "state_of",
    "tasks",
]

FOLDER = Path(__file__).parents[2] / ".corpora"
DATA = FOLDER / "bfcl_eval" / "data"
MULTI_TURN = ("base", "miss_func", "miss_param", "long_context")

_TYPES = {
    "dict": "object", "HashMap": "object", "Hashtable": "object",
    "float": "number", "double": "number", "long": "integer", "char": "string",
    "String": "string", "Boolean": "boolean",
    "tuple": "array", "Array": "array", "ArrayList": "array",
    "any": None, "": None,
}  # fmt: skip
_KEPT = (
    "description",
    "enum",
    "default",
    "items",
    "properties",
    "required",
    "additionalProperties",
)


def schema_of(part: Mapping[str, Any]) -> dict[str, Any]:
    """JSON Schema of a part in the leaderboard's dialect."""
    schema = {key: part[key] for key in _KEPT if key in part and part[key] is not None}
    kind = part.get("type", "object" if "properties" in part else None)
    known = _TYPES.get(kind, kind) if isinstance(kind, str) else None
    if known is not None:
        schema["type"] = known
    if "properties" in schema:
        parts = cast("Mapping[str, Any]", schema["properties"])
        schema["properties"] = {name: schema_of(one) for name, one in parts.items()}
    if isinstance(schema.get("items"), Mapping):
        schema["items"] = schema_of(schema["items"])
    choices = schema.pop("enum", None)
    if isinstance(choices, list):  # some are of another type, or those of the items
        plain = {key: schema[key] for key in ("type",) if key in schema}
        fitting = [one for one in cast("list[Any]", choices) if jsonschema_rs.is_valid(plain, one)]
        if fitting:
            schema["enum"] = fitting
    return schema


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    with path.open(encoding="utf-8") as file:
        for line in file:
            yield json.loads(line)


def _entries() -> Iterator[dict[str, Any]]:
    for path in sorted(DATA.glob("BFCL_v4_*.json")):
        if "format_sensitivity" not in path.name:  # it lists other files' entries
            yield from _lines(path)


def documents() -> list[dict[str, Any]]:
    """Every distinct function document."""
    found: dict[str, dict[str, Any]] = {}
    for entry in _entries():
        for document in entry.get("function", ()):
            found.setdefault(json.dumps(document, sort_keys=True), document)
    for path in sorted((DATA / "multi_turn_func_doc").glob("*.json")):
        for document in _lines(path):
            found.setdefault(json.dumps(document, sort_keys=True), document)
    return list(found.values())


class Accepted(NamedTuple):
    """A call that the leaderboard accepts for an entry: the first of every value it takes."""

    entry: str
    document: dict[str, Any]
    arguments: dict[str, Any]


def accepted_calls() -> Iterator[Accepted]:
    """The accepted calls of the single-turn entries."""
    offered = {
        entry["id"]: {one["name"]: one for one in entry.get("function", ())} for entry in _entries()
    }
    for path in sorted((DATA / "possible_answer").glob("*.json")):
        if "multi_turn" in path.name:
            continue
        for entry in _lines(path):
            truth: Any = entry["ground_truth"]
            calls = [cast("Mapping[str, Any]", call) for call in truth if isinstance(call, Mapping)]
            for call in calls:
                for name, taken in call.items():
                    document = offered.get(entry["id"], {}).get(name)
                    if document is not None:
                        yield Accepted(entry["id"], document, _first(taken))


def _first(taken: Mapping[str, Any]) -> dict[str, Any]:
    """The first accepted value of each parameter; an empty text stands for leaving it out."""
    return {name: _value(values[0]) for name, values in taken.items() if values and values[0] != ""}


def _value(value: Any) -> Any:
    if isinstance(value, Mapping):
        parts = cast("Mapping[str, Any]", value)
        if all(isinstance(one, list) for one in parts.values()):
            return _first(parts)
        return {name: _value(one) for name, one in parts.items()}
    return [_value(one) for one in cast("list[Any]", value)] if isinstance(value, list) else value


class Task(NamedTuple):
    """A conversation of several turns over simulated systems, and the calls that solve it."""

    id: str
    classes: tuple[str, ...]
    config: Mapping[str, Any]
    turns: list[list[str]]
    is_long: bool

    def systems(self) -> list[Any]:
        """The simulated systems as they are at first."""
        return [_system(name, self.config, is_long=self.is_long) for name in self.classes]

    def documents(self) -> list[dict[str, Any]]:
        """What the leaderboard says of their functions."""
        known = _constants().MULTI_TURN_FUNC_DOC_FILE_MAPPING
        return [
            document
            for name in self.classes
            for document in _lines(DATA / "multi_turn_func_doc" / known[name])
        ]


def tasks() -> list[Task]:
    """Every multi-turn task, those with the same systems together."""
    found: list[Task] = []
    for category in MULTI_TURN:
        name = f"BFCL_v4_multi_turn_{category}.json"
        turns = {one["id"]: one["ground_truth"] for one in _lines(DATA / "possible_answer" / name)}
        found += [
            Task(
                entry["id"], tuple(sorted(entry["involved_classes"])), entry["initial_config"],
                turns[entry["id"]], category == "long_context",
            )
            for entry in _lines(DATA / name)
        ]  # fmt: skip
    return sorted(found, key=lambda task: task.classes)


def _constants() -> Any:
    return _module("bfcl_eval.constants.executable_backend_config")


def _module(name: str) -> Any:
    if str(FOLDER) not in sys.path:
        sys.path.append(str(FOLDER))
    return importlib.import_module(name)


def _system(name: str, config: Mapping[str, Any], *, is_long: bool) -> Any:
    known = _constants()
    made = getattr(_module(known.CLASS_FILE_PATH_MAPPING[name]), name)()
    if name not in known.STATELESS_CLASSES:
        made._load_scenario(deepcopy(config.get(name, {})), long_context=is_long)
    return made


def state_of(value: Any, above: tuple[int, ...] = ()) -> Any:
    """The public state of a system, as data."""
    if id(value) in above:
        return "…"  # a folder knows the one that holds it
    inside = (*above, id(value))
    if isinstance(value, Mapping):
        entries = cast("Mapping[Any, Any]", value)
        return {key: state_of(one, inside) for key, one in entries.items()}
    if isinstance(value, list | tuple | set):
        return [state_of(one, inside) for one in cast("list[Any]", value)]
    if hasattr(value, "__dict__") and not callable(value):
        held = cast("dict[str, Any]", vars(value))
        public = {key: one for key, one in held.items() if not key.startswith("_")}
        return {type(value).__name__: state_of(public, inside)}
    return value
