"""Who had a turn in vain. A class that has its turn again and again and cannot use it (its sites
refuse it, its limits fit nowhere) would keep others' turns from them; it is set back for a while.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

TURNS_MAX = 3
FIRST_MS, MOST_MS = 30_000, 600_000


@dataclass(frozen=True, slots=True)
class Missed:
    """Turns in vain one after the other; set back until `until_ms` once they were too many."""

    turns: int
    until_ms: int = 0


@dataclass(frozen=True, slots=True)
class Vain:
    """By job of the problem."""

    missed: Mapping[str, Missed] = field(default_factory=dict)

    def is_set_back(self, job: str, now_ms: int) -> bool:
        """Whether it takes no turn from others now. What is free all the same it may have."""
        known = self.missed.get(job)
        return known is not None and known.until_ms > now_ms

    def with_set_back(self, jobs: Mapping[str, int], now_ms: int) -> Vain:
        """Jobs for which something was kept in vain, for so many ms: they wait as long again."""
        found = dict(self.missed)
        for job, kept_ms in jobs.items():
            found[job] = Missed(TURNS_MAX, now_ms + max(kept_ms, MOST_MS))
        return Vain(found)

    def after(self, turns: Mapping[str, bool], now_ms: int) -> Vain:
        """Once a cycle is decided; `turns`: who had one, and whether it was used. Who had none is
        remembered as it is while it is set back, and forgotten otherwise."""
        found = {job: known for job, known in self.missed.items() if known.until_ms > now_ms}
        for job, used in turns.items():
            if used:
                found.pop(job, None)
                continue
            count = self.missed.get(job, Missed(0)).turns + 1
            over = count - TURNS_MAX
            wait_ms = min(FIRST_MS * 2 ** min(over, 10), MOST_MS) if over >= 0 else 0
            found[job] = Missed(count, now_ms + wait_ms if wait_ms else 0)
        return Vain(found)
