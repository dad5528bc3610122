"""What goes on in a federation, in one line. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def status_line(status: Mapping[str, Any]) -> str:
    """From the API's /status: who is connected, what runs and waits, and the longest wait."""
    clusters = status.get("clusters")
    known = clusters if isinstance(clusters, Mapping) else {}
    parts = [f"{_count(known.get('connected'))} connected"]
    if silent := _count(known.get("silent")):
        parts.append(f"{silent} silent")
    parts += [f"{_count(status.get(key))} {key}" for key in ("running", "queued")]
    oldest = status.get("oldest_wait")
    if isinstance(oldest, Mapping) and oldest.get("job"):
        reason = oldest.get("reason")
        text = reason.get("text") if isinstance(reason, Mapping) else reason
        parts.append(f"{oldest['job']} waits" + (f": {text}" if text else ""))
    return " · ".join(parts)


def _count(value: Any) -> int:
    if isinstance(value, list | tuple | Mapping):
        return len(value)
    return int(value) if isinstance(value, int | float) else 0
