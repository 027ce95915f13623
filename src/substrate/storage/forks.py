"""What a forked child makes anew: the locks and threads that it inherits are its parent's."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from typing import Any, TypeVar

__all__ = ["renew_after_fork"]

T = TypeVar("T")

_known: weakref.WeakKeyDictionary[Any, Callable[[Any], None]] = weakref.WeakKeyDictionary()


def renew_after_fork(holder: T, renew: Callable[[T], None]) -> None:
    """Call `renew(holder)` in every child that is forked while `holder` lives."""
    _known[holder] = renew


def _renew_all() -> None:
    for holder, renew in list(_known.items()):
        renew(holder)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_all)
