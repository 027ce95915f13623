"""The command line: `substrate run` and `substrate tools`."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Generator
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import typer

from substrate.agents.tools.invoker import ToolInvoker
from substrate.agents.tools.shown import said
from substrate.capabilities.approval import TerminalApproval
from substrate.capabilities.approval.screen import Screen
from substrate.capabilities.tools.chain import ToolChainTool
from substrate.cli.loading import UsageError, load_script, load_tools, usable, write_text
from substrate.cli.output import OutputError, output, prepare, say
from substrate.cli.showing import as_json, show_tools, show_trace, show_value
from substrate.kernel.tools.chain import ChainPolicy, ChainRunResult
from substrate.scripts import run_script
from substrate.storage import FileBlobStore, InMemoryBlobStore

__all__ = ["main"]

OK, SCRIPT_ERROR, USAGE, DENIED, TIME, CANCELLED = 0, 1, 2, 3, 4, 130

_APP = typer.Typer(
    name="substrate",
    help="Run a model's Python script against your tools, every call in it gated.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

_RUN_HELP = """Run a script, in a sandbox; risky calls are asked for at the terminal.

\b
Example:
  substrate run plan.py --tools my_tools.py
  echo 'await add(a=1, b=2)' | substrate run - --tools my_package.tools --json
  substrate run plan.py --tools mail.py --tools files.py --approve never --timeout 30

\b
In my_tools.py, tools are functions under @tool:
  from substrate import tool
  @tool(risk="safe")
  def add(a: int, b: int) -> int:
      return a + b

\b
Exit codes: 0 ok, 1 the script failed, 2 usage or no place for the output,
3 a denied call ended the script, 4 the time was over, 130 cancelled.
"""


_TOOLS_HELP = """Show what a model would see of your tools, and how each of them is gated.

\b
Example:
  substrate tools my_tools.py
  substrate tools my_package.tools --stubs tools.pyi
"""


def _version(value: bool) -> None:  # noqa: FBT001  # typer's callback
    if value:
        typer.echo(version("substrate"))
        raise typer.Exit


@_APP.callback()
def _root(
    show_version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    del show_version


@_APP.command("run", help=_RUN_HELP)
def _run(
    script: Annotated[str, typer.Argument(help="The script's file, or - for standard input.")],
    tools: Annotated[
        list[str], typer.Option(help="A module or .py file with tools; may be given again.")
    ],
    approve: Annotated[
        str, typer.Option(help="ask: at the terminal; never: deny what needs a yes.")
    ] = "ask",
    json: Annotated[
        bool, typer.Option("--json", help="Print the result as one JSON document.")
    ] = False,
    timeout: Annotated[float | None, typer.Option(help="Seconds for the whole script.")] = None,
    store: Annotated[
        Path | None, typer.Option(help="A folder for large results; else they live in memory.")
    ] = None,
    reveal: Annotated[
        bool, typer.Option("--reveal", help="Show secrets in the value; --json always does.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks.")] = False,
) -> None:
    with _one_line(debug=debug):
        with output():  # before anything runs
            pass
        result, secrets = _result(script, tools, approve, timeout, store)
        shown = None if reveal else secrets
        with output():
            typer.echo(as_json(result)) if json else show_value(result, Screen(), shown)
        if not json:
            with contextlib.suppress(OSError):  # the value has come where it should
                show_trace(result, Screen(stderr=True))
    raise typer.Exit(_code(result))


@_APP.command("tools", help=_TOOLS_HELP)
def _tools(
    modules: Annotated[list[str], typer.Argument(help="Modules or .py files with tools.")],
    stubs: Annotated[
        Path | None, typer.Option(help="Write the stubs that a model reads; - prints them.")
    ] = None,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks.")] = False,
) -> None:
    with _one_line(debug=debug):
        box = load_tools(modules)
        text = ToolChainTool(ToolInvoker(box)).stubs()
        if stubs is not None and str(stubs) != "-":
            write_text(stubs, text)
            return
        with output():
            show_tools(box, Screen()) if stubs is None else typer.echo(text, nl=False)


@contextlib.contextmanager
def _one_line(*, debug: bool) -> Generator[None]:
    """Whatever goes wrong is one line and an exit code; with `debug`, its traceback."""
    try:
        yield
    except KeyboardInterrupt:
        with contextlib.suppress(OSError):
            typer.echo("cancelled", err=True)
        raise typer.Exit(CANCELLED) from None
    except (UsageError, OutputError) as error:
        if debug:
            raise
        say(str(error))
        raise typer.Exit(USAGE) from None
    except BaseException as error:
        if debug:
            raise RuntimeError(said(error)) from error  # an OSError would pass for one of output
        say(f"a fault of substrate itself; --debug shows where: {said(error)}")
        raise typer.Exit(SCRIPT_ERROR) from None


def _result(
    script: str, tools: list[str], approve: str, timeout: float | None, store: Path | None
) -> tuple[ChainRunResult, frozenset[str]]:
    if approve not in ("ask", "never"):
        msg = f"--approve is ask or never, not {approve!r}"
        raise UsageError(msg)
    if timeout is not None and not timeout > 0:
        msg = f"--timeout is a number of seconds above 0, not {timeout:g}"
        raise UsageError(msg)
    code, box = load_script(script), load_tools(tools)
    policy = ChainPolicy() if timeout is None else ChainPolicy(total_timeout_s=timeout)
    blobs = InMemoryBlobStore() if store is None else FileBlobStore(usable(store))
    handler = TerminalApproval() if approve == "ask" else None
    known = (box.traits(name) for name in box.names())
    secrets = frozenset[str]().union(*(traits.secrets for traits in known if traits is not None))
    return asyncio.run(run_script(code, box, handler, policy, blobs)), secrets


def _code(result: ChainRunResult) -> int:
    if result.status == "ok":
        return OK
    if result.status == "timeout":
        return TIME
    failed = [record for record in result.call_trace if record.status != "ok"]
    if result.reason == "script_error" and failed and failed[-1].status == "denied":
        return DENIED
    return SCRIPT_ERROR


def main() -> None:
    """Entry point of the `substrate` command."""
    prepare()
    try:
        with output() if sys.stdout is not None else contextlib.nullcontext():  # pyright: ignore[reportUnnecessaryComparison]  # it was closed
            _APP(standalone_mode=True)
    except OutputError as error:  # of the help, say
        say(str(error))
        sys.exit(USAGE)
