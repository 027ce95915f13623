"""What scripts leave for the next script of their scope, where that is asked for."""

from __future__ import annotations

import ast
from collections import OrderedDict
from typing import NamedTuple

from substrate.kernel.sandbox import SavedState

__all__ = ["Kept", "KeptStates", "bound_names"]

_MOST_SCOPES = 256
_LARGEST = 16 * 1024 * 1024
_MOST_BYTES = 256 * 1024 * 1024


class Kept(NamedTuple):
    """A state, and the names that its scripts bound (None: the host could not read them)."""

    state: SavedState
    names: frozenset[str] | None


class KeptStates:
    """One state a scope: that of the script that ended last.

    Of more than 256 scopes, or 256 MB in all, those that were not used for longest go.
    """

    def __init__(self) -> None:
        self._states: OrderedDict[str, Kept] = OrderedDict()

    def of(self, scope: str | None) -> Kept | None:
        """The state of a scope; a script without a scope has none."""
        if scope is None or scope not in self._states:
            return None
        self._states.move_to_end(scope)
        return self._states[scope]

    def keep(self, scope: str, code: str, state: SavedState) -> str | None:
        """Keep what a script left; why it was not kept, where it was not."""
        if state.size > _LARGEST:
            return (
                f"The variables of the script take {state.size} bytes, more than the {_LARGEST}"
                " that are kept: the next script starts with those from before."
            )
        before = self._states.get(scope)
        names = bound_names(code)
        if before is not None:
            known = before.names
            names = None if names is None or known is None else names | known
        self._states[scope] = Kept(state, names)
        self._states.move_to_end(scope)
        while len(self._states) > _MOST_SCOPES or self._bytes() > _MOST_BYTES:
            self._states.popitem(last=False)
        return None

    def _bytes(self) -> int:
        return sum(kept.state.size for kept in self._states.values())


def bound_names(code: str) -> frozenset[str] | None:
    """The names that a script binds at its top level; None where the host cannot read it."""
    try:
        tree = ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    names: set[str] = set()
    todo: list[ast.AST] = [tree]
    while todo:
        node = todo.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
            continue  # what is bound inside stays inside
        if isinstance(node, ast.Lambda):
            continue
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.alias):
            names.add((node.asname or node.name).partition(".")[0])
        elif isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and node.name:
            names.add(node.name)
        todo.extend(ast.iter_child_nodes(node))
    return frozenset(names)
