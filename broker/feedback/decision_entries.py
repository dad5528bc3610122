"""What the ledger keeps of how good decisions were: gains over the floor, and predictions.

Written once, as everything in the ledger; see `entries`.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class GainEntry:
    """What one decision gained over the greedy floor of its own problem. Key: `cycle`.

    `saved_micro_usd` and `sooner_ms` are of the copies that both place and may be negative;
    `wait_saved_ms` is what the `more_copies` would have waited at least.
    """

    cycle: str
    at_ms: int
    copies: int
    floor_copies: int
    accelerators: int
    floor_accelerators: int
    more_copies: int
    fewer_copies: int
    cost_micro_usd: int
    floor_cost_micro_usd: int
    saved_micro_usd: int
    sooner_ms: int
    wait_saved_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictionEntry:
    """A prediction and what came of it. Key: (`subject`, `kind`).

    `kind` is `start` (of a placed attempt) or `wait` (of a job that waited for room); `p50_ms` and
    `p90_ms` are how long after `at_ms` it was expected, `actual_ms` how long it took.
    """

    subject: str
    kind: str
    at_ms: int
    p50_ms: int
    p90_ms: int
    actual_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GainTotal:
    """Decisions of one day (days since 1970-01-01, UTC) that were measured; `gaining` counts those
    that saved money or started more. Sums as in `GainEntry`."""

    day: int
    measured: int
    gaining: int
    copies: int
    floor_copies: int
    more_copies: int
    fewer_copies: int
    cost_micro_usd: int
    floor_cost_micro_usd: int
    saved_micro_usd: int
    sooner_ms: int
    wait_saved_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationTotal:
    """Predictions of one kind and one day, and how many came true within p50 and within p90."""

    day: int
    kind: str
    predictions: int
    within_p50: int
    within_p90: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CycleTotal:
    """Decisions of one day: all, those proved optimal, and jobs that were placed."""

    day: int
    cycles: int
    optimal: int
    placed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionDays:
    """What is known of the decisions of a period, by day, the oldest first."""

    cycles: tuple[CycleTotal, ...] = ()
    gains: tuple[GainTotal, ...] = ()
    calibration: tuple[CalibrationTotal, ...] = ()
