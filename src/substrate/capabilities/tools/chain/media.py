"""Folders for the media of chains, one a chain, which its script sees read-only.

Most chains make no media, and making and removing a folder costs more than the rest
of such a chain: a folder that stayed empty is handed to the next one.
"""

from __future__ import annotations

import atexit
import functools
import os
import shutil
import tempfile
from collections import deque

from substrate.agents.tools.threads import run_in_thread

__all__ = ["give_back", "media_folder"]

_MOST_KEPT = 1024
_kept: deque[str] = deque()


def media_folder() -> str:
    """A private, empty folder."""
    try:
        return _kept.pop()
    except IndexError:
        return tempfile.mkdtemp(dir=_root())


async def give_back(folder: str, *, is_empty: bool) -> None:
    """The chain has ended: keep its folder where nothing was put into it, else remove it."""
    if is_empty and len(_kept) < _MOST_KEPT:
        _kept.append(folder)
    else:
        await run_in_thread(functools.partial(shutil.rmtree, folder, ignore_errors=True))


@functools.cache
def _root() -> str:
    root = tempfile.mkdtemp(prefix="substrate-media-")
    atexit.register(_remove, root, os.getpid())
    return root


def _remove(root: str, pid: int) -> None:
    if os.getpid() == pid:  # a forked child leaves its parent's alone
        shutil.rmtree(root, ignore_errors=True)


def _forget() -> None:
    _kept.clear()
    _root.cache_clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
