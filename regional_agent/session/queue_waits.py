"""How long the federation's own jobs waited in the queue of each pool of a site. Pure.

Where a collector says what its scheduler expects, that stands: it knows who is in front now. Where
none does, what was waited before is the best there is.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from federation.local_queue import LocalQueue

KEPT = 200


@dataclass(slots=True)
class QueueWaits:
    """By pool the last waits in ms, from acceptance to start."""

    by_pool: dict[str, deque[int]] = field(default_factory=dict)

    def started(self, pool: str, waited_ms: int) -> None:
        """One more has begun."""
        self.by_pool.setdefault(pool, deque(maxlen=KEPT)).append(waited_ms)

    def quantile_ms(self, pool: str, share: float) -> int | None:
        """Of the waits of a pool the one at that share from below; None where none was seen."""
        seen = sorted(self.by_pool.get(pool, ()))
        return seen[min(int(share * len(seen)), len(seen) - 1)] if seen else None


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of waiting beside what a scheduler says. `stated_ms`: by the site's people,
    0 = nothing."""

    waits: QueueWaits
    stated_ms: int = 0

    def start_ms(self, pool: str) -> tuple[int, int] | None:
        """Half, and nine in ten, have begun by then: as learned from those that waited; else what
        is stated."""
        half, most = self.waits.quantile_ms(pool, 0.5), self.waits.quantile_ms(pool, 0.9)
        if half is not None and most is not None:
            return half, most
        return (self.stated_ms, self.stated_ms) if self.stated_ms else None


def queues_of(
    pools: Iterable[str], seen: Mapping[str, LocalQueue], known: Known
) -> dict[str, LocalQueue]:
    """The queue of each pool with the start to expect: what the scheduler says, else what is
    known here. A scheduler that would start a small job at once says nothing of one that finds no
    room."""
    found: dict[str, LocalQueue] = {}
    for pool in pools:
        queue = seen.get(pool, LocalQueue())
        if not queue.start_p50_ms:
            start = known.start_ms(pool)
            if start is not None:
                queue = replace(queue, start_p50_ms=start[0], start_p90_ms=start[1])
        found[pool] = queue
    return found
