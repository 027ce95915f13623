"""The value of a script, as the dialect has it."""

from __future__ import annotations

import ast
from typing import Any

__all__ = ["with_value"]


def with_value(code: str) -> str:
    """The script, followed by the name that its last statement assigns.

    Monty's own value of an assignment is None. The host's parser only advises: where
    it cannot read what Monty can, the script stays as it is.
    """
    last = _last_statement(code)
    target: Any = None
    if isinstance(last, ast.Assign):
        target = last.targets[-1]
    elif isinstance(last, ast.AnnAssign | ast.AugAssign):
        target = last.target
    return f"{code}\n{target.id}" if isinstance(target, ast.Name) else code


def _last_statement(code: str) -> ast.stmt | None:
    """The last line by itself where it is whole: no part of a bracket, string or block is."""
    before, _, line = code.rstrip().rpartition("\n")
    is_apart = not line[:1].isspace() and not before.endswith("\\")
    for part in (line, code) if is_apart else (code,):
        try:
            found = ast.parse(part).body
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            continue
        if found:
            return found[-1]
    return None
