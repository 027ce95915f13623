"""Calls that a script makes and visibly never awaits, found before anything runs.

A call of a tool gives an awaitable; used as a value it can only be a mistake. Found
are calls that stand alone, are an operand, stand in an f-string, in `print(…)` or in a
condition, are an argument of a tool, or are kept under a name that is never read, or
read only in such places.
The host's parser may be older than the script's dialect: what it cannot read is let by.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Collection, Iterator

from substrate.kernel.sandbox import Problem

__all__ = ["never_awaited"]

_CALLED = re.compile(r"(?<![\w.])(await\s+)?(\w+|tools\s*\[[^\]\n]{0,200}\])\s*\(")
_TAKES_VALUES = frozenset(["print", "len", "str", "int", "float", "repr", "bool", "sum"])


def never_awaited(code: str, tools: Collection[str]) -> list[Problem]:
    """The calls of `tools` (identifiers) in `code` that are never awaited, with the right line."""
    if "async def" not in code and all(
        awaited or not _is_called(name, tools) for awaited, name in _CALLED.findall(code)
    ):
        return []  # as good scripts mostly are: no need to parse
    try:
        tree = ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    try:
        return list(_Script(code, tree, tools).problems())
    except RecursionError:
        return []


def _is_called(name: str, tools: Collection[str]) -> bool:
    return name in tools or name.startswith("tools")


class _Script:
    def __init__(self, code: str, tree: ast.Module, tools: Collection[str]) -> None:
        self._code = code
        self._parents = {
            child: parent for parent in ast.walk(tree) for child in ast.iter_child_nodes(parent)
        }
        nodes = [tree, *self._parents]
        self._reads: dict[str, list[ast.Name]] = {}
        bound: set[str] = set()
        for node in nodes:
            if isinstance(node, ast.Name):
                if isinstance(node.ctx, ast.Load):
                    self._reads.setdefault(node.id, []).append(node)
                else:
                    bound.add(node.id)
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.arg):
                bound.add(node.arg if isinstance(node, ast.arg) else node.name)
            elif isinstance(node, ast.alias):
                bound.add(node.asname or node.name)
        own = {node.name for node in tree.body if isinstance(node, ast.AsyncFunctionDef)}
        defined = Counter(
            node.name
            for node in nodes
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        )
        stored = {
            n.id for n in nodes if isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Load)
        }
        self._own = {name for name in own - stored if defined[name] == 1}
        self._tools = frozenset(tools) - bound
        self._has_tools = "tools" not in bound
        self._calls = [
            node for node in nodes if isinstance(node, ast.Call) and self._gives_awaitable(node)
        ]

    def _gives_awaitable(self, call: ast.Call) -> bool:
        """Whether it calls a tool, or an async function that the script itself defines, once."""
        return self._is_tool(call) or (
            isinstance(call.func, ast.Name) and call.func.id in self._own
        )

    def _is_tool(self, call: ast.Call) -> bool:
        called = call.func
        if isinstance(called, ast.Name):
            return called.id in self._tools
        return (
            self._has_tools
            and isinstance(called, ast.Subscript)
            and isinstance(called.value, ast.Name)
            and called.value.id == "tools"
        )

    def problems(self) -> Iterator[Problem]:
        for call in self._calls:
            if self._is_lost(call):
                written = ast.get_source_segment(self._code, call) or ast.unparse(call)
                text = f"{written} is never awaited, so it would not run; write: await {written}"
                yield Problem("not_awaited", text, call.lineno)

    def _is_lost(self, call: ast.Call) -> bool:
        parent = self._parents.get(call)
        if isinstance(parent, ast.Assign) and len(parent.targets) == 1:
            target = parent.targets[0]
            if isinstance(target, ast.Name):
                return all(map(self._is_value, self._reads.get(target.id, [])))
        return self._is_value(call) or self._is_passed(call)

    def _is_passed(self, node: ast.AST) -> bool:
        """Whether `node` is an argument of a tool, also inside of lists and dicts."""
        parent = self._parents.get(node)
        while isinstance(parent, ast.List | ast.Tuple | ast.Set | ast.Dict | ast.keyword):
            node, parent = parent, self._parents.get(parent)
        return isinstance(parent, ast.Call) and parent.func is not node and self._is_tool(parent)

    def _is_value(self, node: ast.expr) -> bool:
        """Whether `node` is used where an awaitable makes no sense."""
        parent = self._parents.get(node)
        match parent:
            case ast.Expr() | ast.BinOp() | ast.UnaryOp() | ast.Compare() | ast.FormattedValue():
                return True
            case ast.If() | ast.While() | ast.Assert() | ast.IfExp():
                return parent.test is node
            case ast.Attribute():
                return True
            case ast.Subscript():
                return parent.value is node
            case ast.For():
                return parent.iter is node
            case ast.Call(func=ast.Name(id=name)):
                return name in _TAKES_VALUES and node in parent.args
            case _:
                return False
