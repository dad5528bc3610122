"""How the agent stands, as a file anybody of this user can read without asking the agent.

It is news, not state: what counts is in the journal and with the keeper.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

FILE = "status.json"


@dataclass(frozen=True, slots=True)
class Status:
    """One moment of the agent; times are UTC ms, `pools` lists free accelerators by pool.
    `site_fault`: what is wrong with the site's rules as they lie there."""

    pid: int
    version: str
    cluster: str
    region: str
    connected: bool
    broker: str
    since_ms: int
    code: str
    reason: str
    epoch: int
    event_seq: int
    unacknowledged: int
    dispatch_seq: int
    live_attempts: int
    certificate_expires_ms: int
    pools: tuple[tuple[str, str, int, int], ...]
    updated_ms: int
    site_state: str = "open"
    site_reason: str = ""
    site_fault: str = ""


def write_status(state_dir: Path, status: Status) -> None:
    """Replace the file in one step. Raises OSError."""
    draft = state_dir / f".{FILE}.new"
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        json.dump(asdict(status), file)
    draft.replace(state_dir / FILE)


def read_status(state_dir: Path) -> dict[str, Any] | None:
    """What the agent wrote last; None when there is nothing readable."""
    try:
        body = json.loads((state_dir / FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return body if isinstance(body, dict) else None


def is_running(status: dict[str, Any] | None) -> bool:
    """Whether the process that wrote it is (still) an agent of that number."""
    if status is None:
        return False
    try:
        command = Path(f"/proc/{int(status['pid'])}/cmdline").read_bytes()
    except (OSError, KeyError, ValueError):
        return False
    return b"agent" in command
