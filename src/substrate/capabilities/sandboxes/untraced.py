"""Keeps Monty from looking for OpenTelemetry once for every script.

Monty imports `opentelemetry` whenever a script starts, to hand a trace on to its
worker. Where that is not installed the import fails, every time anew, after a search
of the whole path: a third of the cost of a short script. Our spans are made outside of
the worker, so in the threads that drive it the search is cut short; no other thread is
affected, nor is an OpenTelemetry that was imported before.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

__all__ = ["cut_short"]

_driver = threading.local()


class _Nowhere(MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        del path, target
        if fullname == "opentelemetry" and getattr(_driver, "is_one", False):
            raise ModuleNotFoundError(fullname, name=fullname)
        return None


_nowhere = _Nowhere()


def cut_short() -> None:
    """From now on this thread finds no OpenTelemetry that was not imported before."""
    _driver.is_one = True
    if _nowhere not in sys.meta_path:
        sys.meta_path.insert(0, _nowhere)
