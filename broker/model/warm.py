"""What one decision leaves for the next."""

from __future__ import annotations

from dataclasses import dataclass

from broker.model.plan import Assignment
from broker.model.prices import Prices


@dataclass(frozen=True, slots=True)
class Warm:
    """Placements of jobs (those of jobs or pools that are no longer there are passed over) and
    prices. Both are advice: wrong ones make a plan worse or a bound looser, never wrong."""

    assignments: tuple[Assignment, ...] = ()
    prices: Prices | None = None
