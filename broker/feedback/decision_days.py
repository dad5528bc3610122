"""Figures of decisions added up by day, as the SQL ledger adds them. Pure."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import fields
from typing import Any, Protocol, TypeVar

from broker.feedback.decision_entries import (
    CalibrationTotal,
    CycleTotal,
    DecisionDays,
    GainEntry,
    GainTotal,
    PredictionEntry,
)
from broker.feedback.entries import CycleEntry

DAY_MS = 86_400_000


class _Dated(Protocol):
    @property
    def at_ms(self) -> int: ...


Row = TypeVar("Row", bound=_Dated)
_SUMMED = {f.name for f in fields(GainTotal)} - {"day", "measured", "gaining"}


def decision_days(
    cycles: Iterable[CycleEntry],
    gains: Iterable[GainEntry],
    predictions: Iterable[PredictionEntry],
    period_ms: tuple[int, int],
) -> DecisionDays:
    """Entries of a period (from, to) by day."""
    return DecisionDays(
        cycles=tuple(
            CycleTotal(
                day=day,
                cycles=len(rows),
                optimal=sum(row.status == "optimal" for row in rows),
                placed=sum(row.placed for row in rows),
            )
            for (day,), rows in _grouped(cycles, period_ms, lambda row: ())
        ),
        gains=tuple(
            GainTotal(
                day=day,
                measured=len(rows),
                gaining=sum(row.saved_micro_usd > 0 or row.more_copies > 0 for row in rows),
                **{name: sum(getattr(row, name) for row in rows) for name in _SUMMED},
            )
            for (day,), rows in _grouped(gains, period_ms, lambda row: ())
        ),
        calibration=tuple(
            CalibrationTotal(
                day=day,
                kind=kind,
                predictions=len(rows),
                within_p50=sum(row.actual_ms <= row.p50_ms for row in rows),
                within_p90=sum(row.actual_ms <= row.p90_ms for row in rows),
            )
            for (day, kind), rows in _grouped(predictions, period_ms, lambda row: (row.kind,))
        ),
    )


def _grouped(
    rows: Iterable[Row], period_ms: tuple[int, int], key: Callable[[Row], tuple[Hashable, ...]]
) -> list[tuple[Any, Sequence[Row]]]:
    groups: dict[Any, list[Row]] = {}
    for row in rows:
        if period_ms[0] <= row.at_ms < period_ms[1]:
            groups.setdefault((row.at_ms // DAY_MS, *key(row)), []).append(row)
    return sorted(groups.items())
