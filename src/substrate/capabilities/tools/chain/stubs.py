"""Stubs: the tools as a script may call them, in Python.

One text serves both readers: the model that writes the script and whoever checks
it. A tool becomes an async function under its identifier, required parameters
first, with its own words and those of its parameters as the docstring.
"""

from __future__ import annotations

import keyword
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

from substrate.agents.tools.shown import clean
from substrate.agents.tools.traits import Traits

__all__ = ["annotation_of", "first_line", "is_parameter", "lines_of", "stub_of", "stubs_of"]

_NAMES = {
    "string": "str",
    "integer": "int",
    "number": "float",
    "boolean": "bool",
    "null": "None",
    "array": "list",
    "object": "dict",
}
_MOST_LITERALS = 24
_MOST_LINE = 120
_DEPTH = 6
_HEAD = """\
from typing import Any, Literal

tools: dict[str, Any]  # await tools["raw name"](...) calls any tool by its own name

class Artifact:
    \"\"\"A large result that stayed outside: pass it on to tools as it is, or read a part.\"\"\"

    preview: str
    size: int  # bytes, as it is kept
    media_type: str

    async def text(self, start: int = 0, stop: int | None = None) -> str:
        \"\"\"The text from byte `start` up to `stop`; at most 262144 bytes at once.\"\"\"
        ...
    async def lines(self, start: int = 0, stop: int | None = None) -> list[str]:
        \"\"\"The lines from number `start` (0 is the first) up to `stop`.\"\"\"
        ...

class Artifacts:
    async def put(self, data: Any, media_type: str | None = None) -> Artifact:
        \"\"\"Keep text, bytes or other data of the script as an artifact.\"\"\"
        ...

artifacts: Artifacts
"""


def stubs_of(tools: Iterable[tuple[str, Traits]]) -> str:
    """The stubs of all tools, given with their identifiers."""
    return "\n".join([_HEAD, *(stub_of(identifier, traits) for identifier, traits in tools)])


def lines_of(tools: Iterable[tuple[str, Traits]], search: str) -> str:
    """The tools by name and one line each, with the stubs of what finds more about them."""
    lines = [f"# {identifier}: {first_line(traits)}" for identifier, traits in tools]
    return "\n".join([_HEAD, search, "# Tools, each an async function:", *lines]) + "\n"


def first_line(traits: Traits) -> str:
    """The first line of what a tool says of itself, bounded and visible."""
    words = clean(traits.description.strip()).splitlines()
    line = _visible(words[0]) if words else ""
    return line if len(line) <= _MOST_LINE else line[: _MOST_LINE - 1] + "…"


def stub_of(identifier: str, traits: Traits) -> str:
    """One tool as a typed async function."""
    schema = traits.input_schema
    properties = cast("Mapping[str, Any]", schema.get("properties") or {})
    required = set(cast("Iterable[str]", schema.get("required") or ()))
    named = [name for name in traits.positional if is_parameter(name)]
    odd = [name for name in traits.positional if not is_parameter(name)]
    parameters = [
        f"{name}: {annotation_of(properties[name], schema)}"
        + ("" if name in required else " = ...")
        for name in named
    ]
    if odd or (schema.get("additionalProperties", True) not in (False, None) and not properties):
        others = "others"
        while others in named:
            others += "_"
        parameters.append(f"**{others}: Any")
    returned = _returned(traits)
    lines = [f"async def {identifier}({', '.join(parameters)}) -> {returned}:"]
    lines += _docstring(traits, properties, odd)
    return "\n".join(lines) + "\n"


def is_parameter(name: str) -> bool:
    """Whether Python can write `name` as a parameter, and reads it as it is written."""
    return (
        name.isidentifier()
        and not keyword.iskeyword(name)
        and name != "__debug__"
        and unicodedata.is_normalized("NFKC", name)
    )


def _returned(traits: Traits) -> str:
    if traits.output_schema is None:
        return "Any"
    return annotation_of(traits.output_schema, traits.output_schema)


def _docstring(traits: Traits, properties: Mapping[str, Any], odd: Sequence[str]) -> list[str]:
    words = [traits.description.strip() or traits.name]
    told = [(name, _words(properties[name])) for name in traits.positional]
    documented = [f"    {name}: {text}" for name, text in told if text]
    if documented:
        words += ["", "Args:", *documented]
    if odd:
        spelled = ", ".join(f"{name!r}: ..." for name in odd)
        words += ["", f"Pass by name in a dict: **{{{spelled}}}"]
    body = clean("\n".join(words)).replace("\\", "\\\\")
    if '"""' in body or body.endswith('"'):
        body = body.replace('"', '\\"')
    lines = [_visible(line) for line in f'"""{body}"""'.splitlines()]
    return ["    " + line if line else "" for line in lines] + ["    ..."]


_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")


def _visible(line: str) -> str:
    """Control characters as the escapes that Python reads; NUL may not even stand in a source."""
    return _CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", line)


def _words(schema: Any) -> str:
    if not isinstance(schema, Mapping):
        return ""
    part = cast("Mapping[str, Any]", schema)
    words = str(part.get("description") or "").strip().replace("\n", " ")
    if "default" in part:
        words = f"{words} (default {part['default']!r})".strip()
    return words


def annotation_of(schema: Any, root: Mapping[str, Any], depth: int = _DEPTH) -> str:
    """The Python annotation of a JSON Schema; `Any` where it says too much or too little."""
    if not isinstance(schema, Mapping) or depth == 0:
        return "Any"
    part = cast("Mapping[str, Any]", schema)
    if "$ref" in part:
        return annotation_of(_referred(str(part["$ref"]), root), root, depth - 1)
    literal = _literal(part)
    if literal is not None:
        return literal
    for word in ("anyOf", "oneOf"):
        if isinstance(part.get(word), list):
            return _union(annotation_of(one, root, depth - 1) for one in part[word])
    kind = part.get("type")
    if isinstance(kind, list):
        return _union(
            annotation_of({**part, "type": one}, root, depth - 1) for one in cast("list[str]", kind)
        )
    if kind == "array":
        return f"list[{annotation_of(part.get('items'), root, depth - 1)}]"
    if kind == "object":
        return f"dict[str, {annotation_of(part.get('additionalProperties'), root, depth - 1)}]"
    return _NAMES.get(str(kind), "Any")


def _referred(ref: str, root: Mapping[str, Any]) -> Any:
    place: Any = root
    if not ref.startswith("#"):
        return None
    for step in ref.lstrip("#/").split("/") if ref not in {"#", "#/"} else ():
        key = step.replace("~1", "/").replace("~0", "~")
        if not isinstance(place, Mapping) or key not in place:
            return None
        place = cast("Mapping[str, Any]", place)[key]
    return place


def _literal(part: Mapping[str, Any]) -> str | None:
    values = [part["const"]] if "const" in part else part.get("enum")
    if (
        not isinstance(values, list)
        or not values
        or len(cast("list[Any]", values)) > _MOST_LITERALS
    ):
        return None
    listed = cast("list[Any]", values)
    if not all(value is None or isinstance(value, str | int | bool) for value in listed):
        return None
    return f"Literal[{', '.join(repr(value) for value in listed)}]"


def _union(parts: Iterable[str]) -> str:
    kinds = list(dict.fromkeys(parts))
    if not kinds or "Any" in kinds:
        return "Any"
    return " | ".join([k for k in kinds if k != "None"] + [k for k in kinds if k == "None"])
