"""The `substrate` command."""

from substrate.cli.app import main

__all__ = ["main"]
