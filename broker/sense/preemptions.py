"""How often capacity is taken back from what runs on it: as its site says, and as seen. Pure.

What a site states counts like so many hours of watching; every copy that has ended since adds what
it ran. A stop that the broker itself asked for is none of the site's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from broker.model.jobs import Attempt, OutcomeKind

STATED_H = 24.0
"""A stated rate weighs as much as this many hours of copies that were watched."""
_MS_PER_H = 3_600_000
Seen = tuple[int, float]
"""Copies that were thrown out, and the hours that copies ran."""


@dataclass(slots=True)
class Preemptions:
    """By cluster and pool: how many copies were thrown out, and in how many hours of running.
    Not for several threads."""

    seen: dict[tuple[str, str], Seen] = field(default_factory=dict)

    def ended(self, attempt: Attempt) -> None:
        """Learn from an attempt that is over."""
        if not 0 < attempt.started_ms <= attempt.ended_ms:
            return
        kind = attempt.outcome.kind if attempt.outcome else None
        taken = kind is OutcomeKind.PREEMPTED and attempt.stop_why is None
        pool = str(attempt.cluster), attempt.pool
        times, hours = self.seen.get(pool, (0, 0.0))
        ran_h = (attempt.ended_ms - attempt.started_ms) / _MS_PER_H
        self.seen[pool] = times + taken, hours + ran_h

    def take_over(self, seen: Mapping[tuple[str, str], Seen]) -> None:
        """What was recorded before, in place of all that this object saw itself."""
        self.seen = dict(seen)

    def snapshot(self) -> Mapping[tuple[str, str], Seen]:
        """What was seen so far, as it is now."""
        return dict(self.seen)


def rate_per_h(stated_per_h: float, seen: Seen) -> float:
    """Expected preemptions per hour of one copy: the mean of a rate known as well as from
    `STATED_H` hours of watching (Gamma prior) after what was seen. To two digits, so that each
    hour more changes no plan."""
    times, hours = seen
    if not stated_per_h and not times:
        return 0.0
    return float(f"{(stated_per_h * STATED_H + times) / (STATED_H + hours):.2g}")
