"""Where the command writes: what has no place is told in one line, and nothing is left half told."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from collections.abc import Generator
from io import TextIOWrapper
from typing import TextIO, cast

import typer

from substrate.capabilities.approval import visible

__all__ = ["OutputError", "output", "prepare", "say"]

_MOST = 240  # characters of a line that says what is wrong


class OutputError(Exception):
    """Standard output takes no more."""


def prepare() -> None:
    """Make the streams take any text, and give no closed one's number to another file.

    A worker of the sandbox, too, needs something at each of the three.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            with contextlib.suppress(OSError):
                # the lowest number that is free
                os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # what an encoding lacks is written out
            stream.reconfigure(errors="backslashreplace")


def say(message: str) -> None:
    """One line on standard error, where that is possible."""
    text = message if len(message) <= _MOST else f"{message[:_MOST]}..."
    with contextlib.suppress(OSError, ValueError):
        typer.echo(f"substrate: {visible(text)}", err=True)


@contextlib.contextmanager
def output() -> Generator[None]:
    """While standard output is written: `OutputError` says why not all of it has a place."""
    try:
        if sys.stdout is None:  # pyright: ignore[reportUnnecessaryComparison]  # it was closed
            raise OSError(errno.EBADF, "standard output is closed")
        yield
        sys.stdout.flush()
    except OSError as error:
        with contextlib.suppress(OSError, ValueError, AttributeError):
            # the exit of the interpreter flushes once more
            os.dup2(os.open(os.devnull, os.O_WRONLY), cast("TextIO", sys.stdout).fileno())
        msg = f"the output cannot be written: {error.strerror or error}"
        raise OutputError(msg) from error
