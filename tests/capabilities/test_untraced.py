"""The search for OpenTelemetry is cut short where Monty is driven, and nowhere else."""

from __future__ import annotations

import asyncio
import importlib
import sys
import threading
from pathlib import Path

import pytest

from substrate.capabilities.sandboxes import MontySandbox
from substrate.capabilities.sandboxes.untraced import cut_short
from substrate.kernel.sandbox import Done, Script


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "opentelemetry").mkdir()
    (tmp_path / "opentelemetry" / "__init__.py").write_text("HERE = True\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    importlib.invalidate_caches()
    monkeypatch.delitem(sys.modules, "opentelemetry", raising=False)
    return tmp_path


def _found_in_a_driver() -> bool:
    found: list[bool] = []

    def drive() -> None:
        cut_short()
        try:
            importlib.import_module("opentelemetry")
        except ModuleNotFoundError:
            found.append(False)
        else:
            found.append(True)

    thread = threading.Thread(target=drive)
    thread.start()
    thread.join()
    return found[0]


@pytest.mark.usefixtures("package")
def test_only_driving_threads_do_not_look_for_it() -> None:
    assert not _found_in_a_driver()
    assert importlib.import_module("opentelemetry").HERE
    assert _found_in_a_driver()  # it was imported before


def test_a_script_runs_without_a_search_of_the_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "opentelemetry", raising=False)
    searched: list[str] = []

    class Search:
        @staticmethod
        def find_spec(name: str, path: object = None, target: object = None) -> None:
            del path, target
            if threading.current_thread().name == "substrate-sandbox":
                searched.append(name)

    async def main() -> object:
        async with MontySandbox(processes=1, threads=1) as sandbox:
            script = Script(code="1 + 1", tools={})
            async with sandbox.run(script) as run:  # the finder comes first of all from here on
                await run.start()
            monkeypatch.setattr(sys, "meta_path", [*sys.meta_path, Search])
            async with sandbox.run(script) as run:
                return await run.start()

    assert asyncio.run(main()) == Done(value=2)
    assert searched == []
