"""The queue of a site's own scheduler in front of a job handed over now."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LocalQueue:
    """Of one pool. `waiting` counts the jobs in front, everybody's, `waiting_accelerators` what
    they ask for. `start_p50_ms`, `start_p90_ms`: how long a job of one accelerator handed over
    at the time of the report would wait; None = unknown. `pending_max`: how many jobs of the
    federation may wait there, 0 = no limit."""

    waiting: int = 0
    waiting_accelerators: int = 0
    start_p50_ms: int | None = None
    start_p90_ms: int | None = None
    pending_max: int = 0
