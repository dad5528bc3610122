"""Where an agent keeps its state when nothing is said."""

from __future__ import annotations

import os
from pathlib import Path


def default_state_dir() -> Path:
    """`TRADEWIND_AGENT_STATE`, else `~/.local/state/tradewind-agent` (XDG_STATE_HOME)."""
    named = os.environ.get("TRADEWIND_AGENT_STATE")
    if named:
        return Path(named)
    base = os.environ.get("XDG_STATE_HOME")
    return (Path(base) if base else Path.home() / ".local" / "state") / "tradewind-agent"
