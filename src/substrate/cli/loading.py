"""Reading what a user names: a script, and the tools of a module or file."""

from __future__ import annotations

import contextlib
import errno
import importlib
import importlib.util
import inspect
import os
import signal
import sys
import threading
import traceback
from collections.abc import Generator, Iterator
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
        with _told_apart(name):
            tools = list(_tools_of(_module(name), name))
            if not tools:
                msg = f"{name} holds no tools: mark functions with @tool, or list them in TOOLS"
                raise UsageError(msg)
            for tool in tools:
                _add(box, tool, name)
    return box


def _add(box: Toolbox, tool: Any, name: str) -> None:
    try:
        box.add(tool)
    except DeclarationError as error:
        raise UsageError(f"{name}: {error}") from None  # noqa: EM102, TRY003
    except Interrupted:
        raise
    except BaseException as error:  # of the tool's own members
        raise UsageError(_unreadable(name, tool, error)) from error


def _unreadable(name: str, tool: Any, error: BaseException) -> str:
    return f"{name}: a tool of {type(tool).__name__} cannot be read: {said(error)}"


class Interrupted(KeyboardInterrupt):
    """Ctrl-C of the person, where a module may raise interrupts of its own."""


@contextlib.contextmanager
def _told_apart(name: str) -> Generator[None]:
    """While foreign code is imported and looked at: all that it raises is a `UsageError`."""

    def interrupt(_number: int, _frame: object) -> None:
        raise Interrupted

    own = threading.current_thread() is threading.main_thread()
    own = own and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if own:
        signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    except (UsageError, Interrupted):
        raise
    except BaseException as error:
        msg = f"{name} cannot be read: {said(error)}"
        raise UsageError(msg) from error
    finally:
        if own and signal.getsignal(signal.SIGINT) is interrupt:
            signal.signal(signal.SIGINT, signal.default_int_handler)


def _module(name: str) -> ModuleType:
    path = Path(name)
    is_file = name.endswith(".py") or "/" in name
    if is_file and not _is_file(path):
        msg = f"there is no file {name:.100}; name a .py file or a module"
        raise UsageError(msg)
    _look_here()
    try:
        return _from_file(path) if is_file else importlib.import_module(name)
    except (UsageError, Interrupted):
        raise
    except ModuleNotFoundError as error:
        if error.name and (name == error.name or name.startswith(f"{error.name}.")):
            msg = f"there is no module {name:.100}; name a module or a .py file"
            raise UsageError(msg) from None
        raise UsageError(_failed(name, error)) from error
    except SystemExit as error:
        msg = f"{name} ended the program while it was imported ({said(error)})"
        raise UsageError(msg) from error
    except BaseException as error:  # whatever a module raises of its own
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
    return f"{name} cannot be imported{_where(error)}: {said(error)}"


def _where(error: BaseException) -> str:
    if isinstance(error, SyntaxError):
        return f" (line {error.lineno})" if isinstance(error.lineno, int) else ""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if frame.filename.endswith(".py")]
    return f" ({Path(own[-1].filename).name}, line {own[-1].lineno})" if own else ""


def _tools_of(module: ModuleType, name: str) -> Iterator[Any]:
    """Exactly what `TOOLS` lists, or every tool and Toolbox among the public names."""
    try:
        listed = getattr(module, "TOOLS", None)
    except Interrupted:
        raise
    except BaseException as error:  # of the module's own __getattr__
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
    for key, value in list(vars(module).items()):
        if key.startswith("_"):
            continue
        for tool in _offered(value, name):
            if id(tool) not in seen:
                seen.add(id(tool))
                yield tool


def _offered(value: Any, name: str) -> list[Any]:
    """The tools that a public value stands for."""
    try:
        if inspect.isclass(value):
            return []
        if isinstance(value, Toolbox):
            return list(value.all())
        return [value] if _is_tool(value) else []
    except Interrupted:
        raise
    except BaseException as error:
        if hasattr(cast("type[Any]", type(value)), "execute"):
            raise UsageError(_unreadable(name, value, error)) from error
        return []  # a lazy proxy that is not bound yet


def _is_tool(value: Any) -> bool:
    if inspect.ismodule(value) or inspect.isroutine(value):
        return False
    runs_here = hasattr(value, "input_schema") and hasattr(value, "execute")
    is_named = isinstance(getattr(value, "name", None), str)
    return is_named and (runs_here or hasattr(value, "provider_specs"))


def usable(folder: Path) -> Path:
    """A folder that is there, or can be made, for large results; `UsageError` says why not."""
    try:
        there = _nearest_there(folder)
        if not there.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, f"{there} is a file")
        if not os.access(there, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, f"{there} may not be written")
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        msg = f"the store {folder!s:.100} cannot be used: {why}"
        raise UsageError(msg) from None
    return folder


def _nearest_there(path: Path) -> Path:
    """The path, or the nearest folder above it that is there."""
    try:
        path.stat()
    except FileNotFoundError:
        if path == path.parent:
            raise
        return _nearest_there(path.parent)
    return path


def write_text(path: Path, text: str) -> None:
    """Write a file; `UsageError` says why it cannot be."""
    try:
        path.write_bytes(text.encode(errors="backslashreplace"))
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        msg = f"{path!s:.100} cannot be written: {why}"
        raise UsageError(msg) from error
