"""Answers about decisions: see `answers`."""

from __future__ import annotations

from typing import Any, Literal

from broker.api.answers import Open


class StoredCycleView(Open):
    """A stored decision; figures are null where the ledger has them no more, or not yet.
    `why_kept` says why it outlives others."""

    cycle: str
    decided_at: str | None
    status: str | None
    gap: float | None
    considered: int | None
    placed: int | None
    unplaced: int | None
    cpu_s: float | None
    size_bytes: int
    why_kept: Literal["", "gap", "alarm"]


class StoredCyclesView(Open):
    """Stored decisions of this replica, the newest first; `kept` counts all of them."""

    cycles: list[StoredCycleView]
    kept: int
    size_bytes: int


class StoredProblemView(Open):
    """A planning problem (docs/planning-problem.md); `recorded` is what was decided, by what."""

    version: int
    recorded: dict[str, Any]
