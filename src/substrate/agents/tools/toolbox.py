"""`Toolbox`: the labelled toolbox on the bench; every tool has a slot with its name."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal, cast

from substrate.agents.tools.identifiers import identifiers_of
from substrate.agents.tools.traits import Traits, traits_of
from substrate.kernel.errors import DeclarationError
from substrate.kernel.names import did_you_mean
from substrate.kernel.tools.tools import AnyTool, FunctionSpec, ToolRisk, spec_of

__all__ = ["DuplicateToolWarning", "Toolbox"]


class DuplicateToolWarning(UserWarning):
    """A tool replaced another of the same name."""


class Toolbox:
    """An in-memory registry, keyed by the tools' names.

    Args:
        tools: Tools, or plain functions (see `tool`).
        undeclared: The risk of tools that declare none.
    """

    def __init__(
        self,
        tools: Iterable[AnyTool | Callable[..., Any]] = (),
        *,
        undeclared: ToolRisk | str = ToolRisk.SAFE,
    ) -> None:
        self._undeclared = ToolRisk(undeclared)
        self._tools: dict[str, AnyTool] = {}
        self._traits: dict[str, Traits] = {}
        self._raw: dict[str, str] | None = None
        for tool in tools:
            self.add(tool)

    def add(
        self,
        tool: AnyTool | Callable[..., Any],
        *,
        on_duplicate: Literal["replace", "error"] = "replace",
    ) -> None:
        """Put a tool, or a plain function, into its slot.

        Of two tools with one name the last wins, with a `DuplicateToolWarning`.

        Raises:
            DeclarationError: The tool is declared wrongly, or its name is taken and
                `on_duplicate` is `"error"`; nothing was added.
        """
        if inspect.isroutine(tool):
            from substrate.agents.tools.declare import FunctionTool

            tool = cast("AnyTool", FunctionTool(tool))
        added = cast("AnyTool", tool)
        traits = traits_of(added, undeclared=self._undeclared)
        old = self._tools.get(traits.name)
        if old is not None and old is not added:
            message = f"a tool named {traits.name!r} is there already"
            if on_duplicate == "error":
                raise DeclarationError(message)
            warnings.warn(f"{message}: it is replaced", DuplicateToolWarning, stacklevel=2)
        self._tools[traits.name] = added
        self._traits[traits.name] = traits
        self._raw = None

    def get(self, name: str) -> AnyTool | None:
        """The tool of exactly this name, or None."""
        return self._tools.get(name)

    def all(self) -> list[AnyTool]:
        """Every tool, in the order it was added."""
        return list(self._tools.values())

    def names(self) -> list[str]:
        """Every name, in the order it was added."""
        return list(self._tools)

    def by_risk(self, risk: ToolRisk | str) -> list[AnyTool]:
        """The tools of exactly this risk; undeclared ones count as `undeclared`."""
        wanted = ToolRisk(risk)
        return [t.tool for t in self._traits.values() if t.risk == wanted]

    def traits(self, name: str) -> Traits | None:
        """What is known of the tool of this name, else of this identifier; None if unknown."""
        found = self._traits.get(name)
        if found is not None:
            return found
        if self._raw is None:
            self._raw = {identifier: raw for raw, identifier in self.identifiers().items()}
        raw = self._raw.get(name)
        return self._traits[raw] if raw is not None else None

    def identifiers(self) -> dict[str, str]:
        """Name to the identifier under which a script calls the tool."""
        return identifiers_of(self._tools)

    def schemas(self, provider: str | None = None) -> list[Any]:
        """What a model is told: a function schema for local tools, a provider's shape for others.

        Tools without a shape for the named provider are dropped with a warning. Of a
        `defer_loading` tool only name and description are told.
        """
        told: list[Any] = []
        for traits in self._traits.values():
            spec = spec_of(traits.tool, provider)
            if spec is None:
                message = f"{traits.name!r} has no shape for {provider or 'any provider'}: dropped"
                warnings.warn(message, stacklevel=2)
            elif traits.defer_loading and isinstance(spec, FunctionSpec):
                told.append(FunctionSpec(spec.name, spec.description, _EMPTY).to_wire())
            else:
                told.append(spec.to_wire())
        return told

    def deferred_schemas(self) -> list[Any]:
        """The whole function schemas of the `defer_loading` tools."""
        specs = [spec_of(t.tool) for t in self._traits.values() if t.defer_loading]
        return [spec.to_wire() for spec in specs if spec is not None]

    def schema_for(self, name: str) -> Any:
        """One tool's whole schema. LookupError names the nearest tools."""
        tool = self._tools.get(name)
        if tool is None:
            msg = f"no tool named {name!r}{did_you_mean(name, self._tools)}"
            raise LookupError(msg)
        spec = spec_of(tool)
        return spec.to_wire() if spec is not None else None

    def __len__(self) -> int:
        return len(self._tools)

    def __contains__(self, name: object) -> bool:
        return name in self._tools

    def __iter__(self) -> Iterator[AnyTool]:
        return iter(self._tools.values())

    def __repr__(self) -> str:
        return f"Toolbox({', '.join(self._tools)})"


_EMPTY: dict[str, Any] = {"type": "object", "properties": {}}
