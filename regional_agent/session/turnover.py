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


@dataclass(slots=True)
class Turnover:
    """Ends of what ran here; times in ms of the broker's clock, which never goes back here."""

    _lately: deque[int] = field(default_factory=lambda: deque(maxlen=KEPT))
    _busy: deque[tuple[int, int]] = field(default_factory=lambda: deque(maxlen=KEPT))

    def ended(self, at_ms: int) -> None:
        """A place came free."""
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
