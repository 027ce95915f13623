"""Reading what a user names: a script, and the tools of a module or file."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, cast

from substrate.agents.tools.shown import said
from substrate.agents.tools.toolbox import Toolbox
from substrate.kernel.errors import DeclarationError
from substrate.kernel.names import did_you_mean

__all__ = ["UsageError", "load_script", "load_tools", "write_text"]


class UsageError(Exception):
    """The user named something that is not there or not usable; one line says what to do."""


def load_script(name: str) -> str:
    """The text of a script file, or of standard input for `-`."""
    try:
        data = _standard_input() if name == "-" else Path(name).read_bytes()
    except IsADirectoryError:
        msg = f"{name} is a folder; name the script's file"
        raise UsageError(msg) from None
    except FileNotFoundError:
        hint = did_you_mean(Path(name).name, _siblings(Path(name)), 1)
        msg = f"there is no script {name:.100}{hint}"
        raise UsageError(msg) from None
    except OSError as error:
        msg = f"the script {name:.100} cannot be read: {error.strerror}"
        raise UsageError(msg) from None
    except ValueError as error:  # a NUL in the name
        msg = f"the script {name!r:.100} cannot be read: {error}"
        raise UsageError(msg) from None
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        msg = f"the script {name} is not UTF-8 text (byte {error.start})"
        raise UsageError(msg) from None


def _standard_input() -> bytes:
    if sys.stdin is None:  # pyright: ignore[reportUnnecessaryComparison]  # it was closed
        msg = "standard input is closed; name the script's file"
        raise UsageError(msg)
    return sys.stdin.buffer.read()


def _siblings(path: Path) -> list[str]:
    try:
        return [entry.name for entry in path.parent.iterdir()]
    except OSError:
        return []


def load_tools(names: list[str]) -> Toolbox:
    """The tools of modules (dotted names) and files (`.py`)."""
    box = Toolbox()
    for name in names:
        tools = list(_tools_of(_module(name), name))
        if not tools:
            msg = f"{name} holds no tools: mark functions with @tool, or list them in TOOLS"
            raise UsageError(msg)
        for tool in tools:
            try:
                box.add(tool)
            except DeclarationError as error:
                raise UsageError(f"{name}: {error}") from None  # noqa: EM102, TRY003
            except Exception as error:  # of the tool's own members
                msg = f"{name}: a tool of {type(tool).__name__} cannot be read: {said(error)}"
                raise UsageError(msg) from error
    return box


def _module(name: str) -> ModuleType:
    path = Path(name)
    is_file = name.endswith(".py") or "/" in name
    if is_file and not _is_file(path):
        msg = f"there is no file {name:.100}; name a .py file or a module"
        raise UsageError(msg)
    _look_here()
    try:
        return _from_file(path) if is_file else importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name and (name == error.name or name.startswith(f"{error.name}.")):
            msg = f"there is no module {name:.100}; name a module or a .py file"
            raise UsageError(msg) from None
        raise UsageError(_failed(name, error)) from error
    except SystemExit as error:
        msg = f"{name} ended the program while it was imported (exit code {error.code})"
        raise UsageError(msg) from error
    except BaseException as error:  # whatever a module raises of its own
        if isinstance(error, KeyboardInterrupt) and error.__traceback__ is None:
            raise
        raise UsageError(_failed(name, error)) from error


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # a name that is too long, or holds a NUL
        return False


def _look_here() -> None:
    """Find modules in the working folder, as `python -m` does."""
    try:
        here = str(Path.cwd())
    except OSError:  # it was deleted
        return
    if here not in sys.path:
        sys.path.insert(0, here)


def _from_file(path: Path) -> ModuleType:
    name = f"_substrate_tools_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        msg = f"{path} cannot be imported"
        raise UsageError(msg)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    sys.path.insert(0, str(path.resolve().parent))
    spec.loader.exec_module(module)
    return module


def _failed(name: str, error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if frame.filename.endswith(".py")]
    if isinstance(error, SyntaxError):
        where = f" (line {error.lineno})"
    else:
        where = f" ({Path(own[-1].filename).name}, line {own[-1].lineno})" if own else ""
    return f"{name} cannot be imported{where}: {said(error)}"


def _tools_of(module: ModuleType, name: str) -> Iterator[Any]:
    """Exactly what `TOOLS` lists, or every tool and Toolbox among the public names."""
    try:
        listed = getattr(module, "TOOLS", None)
    except Exception as error:  # the module's own __getattr__
        msg = f"TOOLS of {name} cannot be read: {said(error)}"
        raise UsageError(msg) from error
    if listed is not None:
        if isinstance(listed, Toolbox):
            listed = listed.all()
        if not isinstance(listed, list | tuple):
            msg = f"TOOLS of {name} must be a list of tools, not a {type(listed).__name__}"
            raise UsageError(msg)
        yield from cast("list[Any]", listed)
        return
    seen: set[int] = set()
    for key, value in vars(module).items():
        if key.startswith("_") or inspect.isclass(value):
            continue
        for tool in value.all() if isinstance(value, Toolbox) else (value,):
            if _is_tool(tool) and id(tool) not in seen:
                seen.add(id(tool))
                yield tool


def _is_tool(value: Any) -> bool:
    if inspect.ismodule(value) or inspect.isroutine(value):
        return False
    try:
        runs_here = hasattr(value, "input_schema") and hasattr(value, "execute")
        is_named = isinstance(getattr(value, "name", None), str)
        return is_named and (runs_here or hasattr(value, "provider_specs"))
    except Exception:  # a lazy proxy that is not bound yet
        return False


def write_text(path: Path, text: str) -> None:
    """Write a file; `UsageError` says why it cannot be."""
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        msg = f"{path} cannot be written: {error.strerror or error}"
        raise UsageError(msg) from error
