"""How fast places at a site change hands. Pure.

What comes free is used at once only if something waits for it at the site: until the broker has
heard of an end and what it sends has arrived, as many more places come free as ends fall into that
time. Where jobs run for hours that are next to none, where they run for seconds it is most of the
site.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

SPAN_MS = 4_000
"""From an end at the site to the start of what is sent for it: looks at the site, the disk, the
decision and the local scheduler, and that again for what was missed."""
REMEMBERED_MS = 60_000
KEPT = 1_000
ENDS_MIN = 5


@dataclass(slots=True)
class Turnover:
    """Ends of what ran here; times in ms of the broker's clock, which never goes back here."""

    by_pool: dict[str, deque[int]] = field(default_factory=dict)
    _lately: deque[int] = field(default_factory=lambda: deque(maxlen=KEPT))
    _busy: deque[tuple[int, int]] = field(default_factory=lambda: deque(maxlen=KEPT))

    def ended(self, pool: str, at_ms: int) -> None:
        """A place came free."""
        self.by_pool.setdefault(pool, deque(maxlen=KEPT)).append(at_ms)
        self._lately.append(at_ms)
        while self._lately[0] <= at_ms - SPAN_MS:
            self._lately.popleft()
        self._busy.append((at_ms, len(self._lately)))
        self.passed(at_ms)

    def passed(self, now_ms: int) -> None:
        """Time passes: a busy minute is forgotten after another."""
        while self._busy and self._busy[0][0] <= now_ms - REMEMBERED_MS:
            self._busy.popleft()

    @property
    def most(self) -> int:
        """The most ends within `SPAN_MS` of those remembered."""
        return max((count for _, count in self._busy), default=0)

    def gap_ms(self, pool: str) -> int | None:
        """How long it takes on the average until a place of a pool comes free; None while too few
        have."""
        ends = self.by_pool.get(pool)
        if ends is None or len(ends) < ENDS_MIN:
            return None
        return max(1, (ends[-1] - ends[0]) // (len(ends) - 1))
