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


class GainView(Open):
    """Decisions beside the greedy floor of the same problems. `saved_usd` and `sooner_s` are of the
    copies that both place; `more_copies` only the decisions started, which would have waited for
    `wait_saved_s` at least."""

    measured: int
    gaining: int
    copies: int
    floor_copies: int
    more_copies: int
    fewer_copies: int
    cost_usd: float
    floor_cost_usd: float
    saved_usd: float
    sooner_s: float
    wait_saved_s: float


class CalibrationView(Open):
    """Predicted starts: the share that came true within p50 (half, if well calibrated) and within
    p90 (nine of ten). `start`: from the decision on; `wait`: of jobs that waited for room."""

    kind: Literal["start", "wait"]
    predictions: int
    within_p50: float
    within_p90: float


class DecisionDayView(Open):
    """One day (UTC). `gain` is null for users, and where nothing was measured."""

    day: str
    decisions: int
    optimal: int
    placed: int
    gain: GainView | None
    calibration: list[CalibrationView]


class DecisionStatsView(Open):
    """Decisions by day, the oldest first."""

    from_at: str | None
    to_at: str | None
    days: list[DecisionDayView]


class StartsView(Open):
    """Copies that start now in a cluster, and how long that is expected to take on the average."""

    cluster: str
    copies: int
    start_s: float


class PutOffView(Open):
    """Copies put off to a start in so many hours, where jobs may be (`defer_h`)."""

    cluster: str
    copies: int
    start_h: float


class LaterView(Open):
    """Jobs that wait for room, by the cluster that is expected to have it first."""

    cluster: str
    jobs: int
    first_at: str
    last_at: str


class WorldView(Open):
    """One column: accelerators placed by priority, copies placed and waiting of everybody, the
    cost (of the viewer's own jobs; operators see all), who starts where and when."""

    placed: dict[str, int]
    copies: int
    waiting: int
    cost_usd: float
    starts: list[StartsView]
    put_off: list[PutOffView]
    later: list[LaterView]
    status: str
    gap: float | None


class OtherPlaceView(Open):
    """So many copies in one pool: in its queue (`queued`), or put off to a start there in `start_h`
    hours."""

    cluster: str
    pool: str
    copies: int
    queued: bool = False
    start_h: float = 0.0


class OtherSideView(Open):
    """Where a job goes, what that costs, and why some of it waits."""

    places: list[OtherPlaceView]
    cost_usd: float | None
    waits: str | None


class OtherMoveView(Open):
    """A job whose places differ; `running` where it has to leave, `added` where it is not there."""

    job: str
    name: str
    tenant: str
    state: Literal["queued", "running", "added"]
    copies: int
    before: OtherSideView
    after: OtherSideView
    difference_usd: float | None


class RunningView(Open):
    """Running attempts: how many stay, and how many have to start elsewhere."""

    stay: int
    displaced: int


class WhatIfView(Open):
    """Today beside the changed world. `moved` counts everybody's jobs, `moves` holds those the
    viewer may see, at most 500."""

    today: WorldView
    whatif: WorldView
    difference_usd: float
    moved: int
    moves: list[OtherMoveView]
    running: RunningView
    notes: list[str]
