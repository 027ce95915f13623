"""`Screen`: a console for a process that lives on where nobody reads any more."""

from __future__ import annotations

import errno
import os

from rich.console import Console

__all__ = ["Screen"]


class Screen(Console):
    """A console whose writer hears of a broken pipe; that of rich ends the program instead."""

    def on_broken_pipe(self) -> None:
        """Raise."""
        raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))
