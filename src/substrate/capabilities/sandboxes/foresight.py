"""What a script asks of a module that Monty's lacks, told before anything runs.

Monty's own parser tells of syntax alone. What is listed here fails whenever it is
reached, measured with Monty 1.4; where the script handles the failure it is let by. The
host's parser only advises: what it cannot read is let by too.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from substrate.capabilities.sandboxes.dialect import with_way_round
from substrate.kernel.sandbox import Problem

__all__ = ["foreseen"]

_ASYNCIO = frozenset(["gather", "run", "sleep"])
_LOOKS_SO = re.compile(r"\basyncio\s*\.\s*(?!(?:gather|run|sleep)\b)\w|\breturn_exceptions\b")
_HANDLES = frozenset(
    ["AttributeError", "BaseException", "Exception", "NotImplementedError", "RuntimeError"]
)


def foreseen(code: str) -> list[Problem]:
    """The first use of what is not there, with the way round it."""
    if _LOOKS_SO.search(code) is None:
        return []
    try:
        tree = ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    if not any(isinstance(node, ast.Import) and _imports(node) for node in tree.body):
        return []
    found = sorted(_missing(tree), key=lambda problem: problem.line or 0)
    return found[:1]


def _imports(node: ast.Import) -> bool:
    return any(alias.name == "asyncio" and alias.asname is None for alias in node.names)


def _missing(tree: ast.AST) -> Iterator[Problem]:
    todo: list[ast.AST] = [tree]
    while todo:
        node = todo.pop()
        if isinstance(node, ast.Try) and any(map(_is_handled, node.handlers)):
            todo += [*node.handlers, *node.orelse, *node.finalbody]
            continue
        todo.extend(ast.iter_child_nodes(node))
        if isinstance(node, ast.Attribute) and _is_asyncio(node) and node.attr not in _ASYNCIO:
            yield _problem(f"module 'asyncio' has no attribute {node.attr!r}", node)
        elif isinstance(node, ast.Call) and node.keywords and _is_asyncio(node.func, "gather"):
            yield _problem("gather() does not yet support keyword arguments", node)


def _is_asyncio(node: ast.AST, attribute: str | None = None) -> bool:
    return (
        isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == "asyncio"
        and (attribute is None or node.attr == attribute)
    )


def _is_handled(handler: ast.ExceptHandler) -> bool:
    if handler.type is None:
        return True
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return any(isinstance(kind, ast.Name) and kind.id in _HANDLES for kind in kinds)


def _problem(message: str, node: ast.expr) -> Problem:
    return Problem("unsupported", with_way_round(message), node.lineno)
