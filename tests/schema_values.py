"""Values made from a JSON Schema, and a tool that gives its arguments back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import jsonschema_rs

from substrate.kernel.content import TextBlock
from substrate.kernel.tools.tools import ToolExecutionResult

__all__ = ["Echo", "made"]


class Echo:
    """A tool of any schema, which gives its arguments back as they were sent."""

    risk = "safe"

    def __init__(
        self,
        name: str,
        description: str,
        input_schema: dict[str, Any],
        output_schema: dict[str, Any] | None = None,
        *,
        effect: str = "pure",
    ) -> None:
        self.name = name
        self.description = description
        self.input_schema = input_schema
        self.output_schema = output_schema
        self.effect = effect

    async def execute(self, *, ctx: object = None, **kwargs: Any) -> ToolExecutionResult:
        properties = self.input_schema.get("properties", {})
        renamed = {"ctx_": "ctx", "self_": "self"}
        given = {
            renamed[key] if key in renamed and key not in properties else key: value
            for key, value in kwargs.items()
        }
        return ToolExecutionResult((TextBlock("said"),), {"given": given})


FORMATS = {
    "uuid": "12345678-1234-4234-8234-123456789abc",
    "uri": "https://example.test/a?b=c",
    "json": '{"a": [1]}',
    "date": "2024-02-29",
    "date-time": "2024-02-29T12:00:00Z",
    "email": "a@example.test",
}
WORDS = 'a "b" {"c": 1} \\n ä 搜\n'


def made(schema: Any, root: Mapping[str, Any], *, whole: bool, depth: int = 0) -> Any:
    """A value that fits `schema`; `whole` also fills what is not required, some levels deep."""
    if not isinstance(schema, Mapping) or not schema:
        return WORDS
    part = cast("Mapping[str, Any]", schema)
    if "$ref" in part:
        place: Any = root
        for step in str(part["$ref"]).removeprefix("#").strip("/").split("/"):
            place = place[step.replace("~1", "/").replace("~0", "~")] if step else place
        return made(place, root, whole=whole, depth=depth)
    if "const" in part:
        return part["const"]
    if "enum" in part:
        return part["enum"][-1]
    for word in ("anyOf", "oneOf"):
        if word in part:
            rest = {k: v for k, v in part.items() if k not in {word, "default"}}
            options = [option for option in part[word] if option != {"type": "null"}]
            values = [made({**rest, **o}, root, whole=whole, depth=depth) for o in options]
            fitting = [v for v in values if fits(v, part, root)]
            return fitting[0] if fitting else values[0]
    kinds: Any = part.get("type", "object" if "properties" in part else "string")
    kind: Any = cast("list[str]", kinds)[0] if isinstance(kinds, list) else kinds
    if kind == "object":
        return an_object(part, root, whole=whole, depth=depth)
    if kind == "array":
        count = max(part.get("minItems", 0), 1 if whole and depth < 4 else 0)
        return [made(part.get("items"), root, whole=whole, depth=depth + 1) for _ in range(count)]
    if kind in {"integer", "number"}:
        least = part.get("minimum", part.get("exclusiveMinimum", 0) + 1)
        return min(least + 1, part.get("maximum", least + 1))
    if kind == "string":
        text = FORMATS.get(part.get("format", ""), WORDS)
        if "pattern" in part:
            text = next(
                t for t in (*FORMATS.values(), "2024-02-29", "#a1b2c3") if fits(t, part, root)
            )
        return text
    return {"boolean": True, "null": None}[kind]


def an_object(
    part: Mapping[str, Any], root: Mapping[str, Any], *, whole: bool, depth: int
) -> dict[str, Any]:
    required = set(part.get("required", ()))
    wanted = {
        key: value
        for key, value in part.get("properties", {}).items()
        if key in required or (whole and depth < 4)
    }
    wanted |= {key: {} for key in required if key not in wanted}
    return {key: made(v, root, whole=whole, depth=depth + 1) for key, v in wanted.items()}


def fits(value: Any, part: Mapping[str, Any], root: Mapping[str, Any]) -> bool:
    schema = {**{k: v for k, v in root.items() if k in {"$defs", "definitions"}}, **part}
    return jsonschema_rs.is_valid(schema, value)
