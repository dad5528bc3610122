"""The `tradewind` command: a table of commands, each loaded by name when it is run."""

from __future__ import annotations

from broker.cli.dispatch import main

__all__ = ["main"]
