"""`@tool` and plain functions: a function's hints and docstring become a tool.

pydantic makes the schema and turns plain arguments into the values that the hints
name. The injected context (a parameter annotated `RunContext`, or one named `ctx`
without a type) is never in the schema and never taken from the model.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import functools
import inspect
import re
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Generic, ParamSpec, TypeVar, cast, overload

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    GetPydanticSchema,
    TypeAdapter,
    ValidationError,
    WithJsonSchema,
    create_model,
)
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaWarningKind
from pydantic_core import core_schema

from substrate.agents.tools.threads import run_in_thread
from substrate.agents.tools.validation import BindError, Fault
from substrate.kernel.blobs import ArtifactStream
from substrate.kernel.content import (
    AudioBlock,
    ContentBlock,
    FileBlock,
    ImageBlock,
    JsonBlock,
    ResourceLink,
    TextBlock,
)
from substrate.kernel.context import RunContext
from substrate.kernel.errors import DeclarationError
from substrate.kernel.tools.tools import ToolEffect, ToolExecutionResult, ToolRisk

__all__ = ["FunctionTool", "tool"]

P = ParamSpec("P")
R = TypeVar("R")

_BLOCKS = (TextBlock, ImageBlock, AudioBlock, FileBlock, ResourceLink, JsonBlock)


class FunctionTool(Generic[P, R]):
    """A function as a tool; calling it calls the function."""

    def __init__(
        self,
        function: Callable[P, R],
        *,
        name: str | None = None,
        description: str | None = None,
        risk: ToolRisk | str | None = None,
        effect: ToolEffect | str | None = None,
        timeout: float | None = None,
        requires_approval: bool | Callable[[dict[str, Any]], Any] = False,
        classify_risk: Callable[[dict[str, Any]], Any] | None = None,
        verify: Callable[..., Any] | None = None,
        concurrency: int | None = None,
        rate: str | None = None,
        defer_loading: bool = False,
        thread: bool = False,
    ) -> None:
        doc = inspect.getdoc(_inner(function)) or ""
        words, documented = _split_doc(doc)
        self.function = function
        self.name = name if name is not None else _name_of(function)
        self.description = description if description is not None else words
        self.risk = risk
        self.effect = effect
        self.timeout = timeout
        self.requires_approval = requires_approval
        self.classify_risk = classify_risk
        self.verify = verify
        self.concurrency = concurrency
        self.rate = rate
        self.defer_loading = defer_loading
        self._thread = thread
        self._is_async = _is_async(function)
        self._signature = _Signature(self.name, function, documented)
        self.input_schema = self._signature.input_schema
        self.output_schema = self._signature.output_schema
        functools.update_wrapper(self, function)  # pyright: ignore[reportArgumentType]

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function itself, past no gate."""
        return self.function(*args, **kwargs)

    def bind_arguments(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Plain arguments as the values that the hints name; raises `BindError`."""
        return self._signature.bind(arguments)

    async def execute(self, *, ctx: RunContext | None = None, **kwargs: Any) -> ToolExecutionResult:
        """Call the function; sync ones run in a thread."""
        if self._signature.context is not None:
            kwargs[self._signature.context] = ctx
        for given, own in _GIVEN_BACK:
            if given in kwargs and own in self._signature.names:
                kwargs[own] = kwargs.pop(given)
        function = cast("Callable[..., Any]", self.function)
        if self._thread and self._is_async:
            value = await run_in_thread(_run_apart, function, kwargs)
        elif self._is_async:
            value = await function(**kwargs)
        else:
            value = await run_in_thread(functools.partial(function, **kwargs))
            if inspect.isawaitable(value):
                value = await value
        return _result_of(value)

    def __repr__(self) -> str:
        return f"<tool {self.name!r}>"


_GIVEN_BACK = (("ctx_", "ctx"), ("self_", "self"))


def _run_apart(function: Callable[..., Any], kwargs: dict[str, Any]) -> Any:
    return asyncio.run(function(**kwargs))


def _inner(function: Callable[..., Any]) -> Callable[..., Any]:
    return function.func if isinstance(function, functools.partial) else function


def _name_of(function: Callable[..., Any]) -> str:
    inner = _inner(function)
    return getattr(inner, "__name__", type(inner).__name__)


def _is_async(function: Callable[..., Any]) -> bool:
    call = getattr(function, "__call__", function)  # noqa: B004  # an object with an async __call__
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call)


def _result_of(value: Any) -> ToolExecutionResult:
    """What a function returned, as a tool's result."""
    if isinstance(value, ToolExecutionResult):
        return value
    if value is None:
        return ToolExecutionResult()
    if isinstance(value, str):
        return ToolExecutionResult((TextBlock(value),))
    if isinstance(value, bytes | bytearray):
        return ToolExecutionResult((FileBlock(bytes(value)),))
    if isinstance(value, _BLOCKS):
        return ToolExecutionResult((value,))
    if isinstance(value, list | tuple):
        items = cast("Sequence[Any]", value)
        blocks: list[ContentBlock] = [item for item in items if isinstance(item, _BLOCKS)]
        if blocks:
            rest = [item for item in items if not isinstance(item, _BLOCKS)]
            texts: list[ContentBlock] = [TextBlock(i) for i in rest if isinstance(i, str)]
            data = [item for item in rest if not isinstance(item, str)]
            one = data[0] if len(data) == 1 else data or None
            return ToolExecutionResult((*texts, *blocks), one)
    return ToolExecutionResult((), value)


# the signature ---------------------------------------------------------------------------


def _from_base64(value: Any) -> Any:
    """Bytes as they are; text, which is all that a model can write, as base64."""
    if not isinstance(value, str):
        return value
    try:
        return base64.b64decode(value, validate=True)
    except binascii.Error as error:
        msg = f"text for a bytes parameter must be base64: {error}"
        raise ValueError(msg) from None


_Bytes = Annotated[
    bytes,
    BeforeValidator(_from_base64),
    WithJsonSchema({"type": "string", "contentEncoding": "base64"}),
]
_Stream = Annotated[
    Any,
    GetPydanticSchema(lambda _source, _handler: core_schema.any_schema()),
    WithJsonSchema({"x-substrate-stream": True}),
]


class _SchemaMaker(GenerateJsonSchema):
    """A default that is no JSON is the function's own affair: it is left out without a word."""

    ignored_warning_kinds: set[JsonSchemaWarningKind] = {  # noqa: RUF012  # as pydantic has it
        "skipped-choice",
        "non-serializable-default",
    }


class _Signature:
    """The parameters of a function: their schema, and their values."""

    def __init__(
        self, name: str, function: Callable[..., Any], documented: Mapping[str, str]
    ) -> None:
        self._name = name
        hints = _hints(name, function)
        self.context: str | None = None
        fields: dict[str, Any] = {}
        for parameter in inspect.signature(function).parameters.values():
            hint = hints.get(parameter.name, Any)
            if _is_context(parameter, hints):
                self.context = parameter.name
            elif parameter.kind is parameter.VAR_KEYWORD:
                continue
            else:
                self._require_named(parameter)
                fields[parameter.name] = _field(parameter, hint, documented)
        self.names = frozenset(fields)
        self._keys = {f"p{index}": key for index, key in enumerate(fields)}
        self._model = self._build(fields)
        self.input_schema = self._schema()
        self.output_schema = _output_schema(hints.get("return"))

    def _require_named(self, parameter: inspect.Parameter) -> None:
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.POSITIONAL_ONLY):
            msg = (
                f"tool {self._name!r}: parameter {parameter.name!r} cannot be given by name;"
                " a tool's parameters must be"
            )
            raise DeclarationError(msg)

    def _build(self, fields: dict[str, Any]) -> type[BaseModel]:
        # the fields are numbered, since pydantic forbids some names; aliases carry the real ones
        numbered: dict[str, Any] = {}
        for number, key in self._keys.items():
            hint, info = fields[key]
            info.alias = info.validation_alias = info.serialization_alias = key
            numbered[number] = (hint, info)
        try:
            return create_model(
                "Arguments",
                __config__=ConfigDict(extra="forbid", arbitrary_types_allowed=True),
                **numbered,
            )
        except Exception as error:
            msg = f"tool {self._name!r}: its parameters cannot be described: {error}"
            raise DeclarationError(msg) from error

    def _schema(self) -> dict[str, Any]:
        try:
            schema = self._model.model_json_schema(schema_generator=_SchemaMaker)
        except Exception as error:
            first = str(error).split("\n", 1)[0]
            msg = f"tool {self._name!r}: its parameters have no JSON Schema: {first}"
            raise DeclarationError(msg) from error
        schema.pop("title", None)
        for part in cast("dict[str, dict[str, Any]]", schema.get("properties", {})).values():
            part.pop("title", None)
        schema.setdefault("properties", {})
        return schema

    def bind(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Validate, and hand over what was given; defaults are the function's own."""
        try:
            model = self._model.model_validate(arguments)
        except ValidationError as error:
            faults = [
                Fault(tuple(fault["loc"]), fault["msg"], instance=fault.get("input"))
                for fault in error.errors(include_url=False, include_context=False)
            ]
            raise BindError(faults) from None
        given = model.model_fields_set
        return {
            key: getattr(model, number) for number, key in self._keys.items() if number in given
        }


def _hints(name: str, function: Callable[..., Any]) -> dict[str, Any]:
    inner = _inner(function)
    target = inner if inspect.isroutine(inner) else getattr(inner, "__call__", inner)  # noqa: B004
    try:
        return typing.get_type_hints(target, include_extras=True)
    except Exception as error:
        msg = f"tool {name!r}: its type hints cannot be read: {error}"
        raise DeclarationError(msg) from error


def _is_context(parameter: inspect.Parameter, hints: Mapping[str, Any]) -> bool:
    hint = hints.get(parameter.name)
    if hint is None:
        return parameter.name == "ctx"
    return hint is RunContext or RunContext in typing.get_args(hint)


def _field(
    parameter: inspect.Parameter, hint: Any, documented: Mapping[str, str]
) -> tuple[Any, Any]:
    from pydantic.fields import FieldInfo

    if hint is bytes:
        hint = _Bytes
    elif hint is ArtifactStream:
        hint = _Stream
    default = ... if parameter.default is parameter.empty else parameter.default
    info = (
        FieldInfo.from_annotated_attribute(hint, default)
        if default is not ...
        else FieldInfo.from_annotation(hint)
    )
    if info.description is None and parameter.name in documented:
        info.description = documented[parameter.name]
    return hint, info


def _output_schema(hint: Any) -> dict[str, Any] | None:
    if hint is None or hint is type(None) or hint in (Any, bytes, ToolExecutionResult, *_BLOCKS):
        return None
    try:
        schema = TypeAdapter(hint).json_schema(mode="serialization")
    except Exception:  # a return type without a schema: it is only not shown
        return None
    schema.pop("title", None)
    return schema


# the docstring ---------------------------------------------------------------------------

_INDENT = 4
_SECTION = re.compile(
    r"^(Args|Arguments|Parameters|Returns|Raises|Yields|Example|Examples|Note)s?:\s*$"
)
_PARAMETER = re.compile(r"^\s+\*{0,2}(\w+)\s*(?:\([^)]*\))?:\s*(.*)$")
_FIELD = re.compile(r"^\s*:param\s+(?:[^:]+\s)?(\w+):\s*(.*)$")


def _split_doc(doc: str) -> tuple[str, dict[str, str]]:
    """The words of a docstring, and what it says of each parameter (Google or Sphinx style)."""
    words: list[str] = []
    documented: dict[str, str] = {}
    section, last = "", ""
    for line in doc.splitlines():
        found = _SECTION.match(line)
        field = _FIELD.match(line)
        if found:
            section, last = found[1], ""
        elif field:
            documented[field[1]] = field[2]
        elif section in ("Args", "Arguments", "Parameters") and (not line or line[0].isspace()):
            named = _PARAMETER.match(line)
            if named and not (last and len(line) - len(line.lstrip()) > _INDENT):
                last = named[1]
                documented[last] = named[2]
            elif last and line.strip():
                documented[last] += " " + line.strip()
        elif not section or (line and not line[0].isspace()):
            section = ""
            words.append(line)
        else:
            words.append(line) if section == "" else None
    return "\n".join(words).strip(), documented


# the decorator ---------------------------------------------------------------------------


@overload
def tool(function: Callable[P, R], /) -> FunctionTool[P, R]: ...
@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    risk: ToolRisk | str | None = None,
    effect: ToolEffect | str | None = None,
    timeout: float | None = None,
    requires_approval: bool | Callable[[dict[str, Any]], Any] = False,
    classify_risk: Callable[[dict[str, Any]], Any] | None = None,
    verify: Callable[..., Any] | None = None,
    concurrency: int | None = None,
    rate: str | None = None,
    defer_loading: bool = False,
    thread: bool = False,
) -> Callable[[Callable[P, R]], FunctionTool[P, R]]: ...
def tool(function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Make a function a tool: `@tool`, or `@tool(risk="high", timeout=5)`.

    Args:
        function: A sync or async function; its hints and docstring become the schema.
        **options: `name`, `description`, `risk` and `effect` (members or names),
            `timeout` (seconds), `requires_approval` (bool or a function of the
            arguments; it can only raise), `classify_risk` (arguments to risk; it may
            also lower), `verify`, `concurrency`, `rate` (`"10/s"`), `defer_loading`,
            `thread` (run an async function that blocks on a loop of its own).

    Raises:
        DeclarationError: The function cannot be described.
    """
    if function is not None:
        return FunctionTool(function, **options)
    return functools.partial(FunctionTool, **options)
