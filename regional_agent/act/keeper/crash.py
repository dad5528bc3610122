"""Named points at which a test may let the keeper die by SIGKILL, as any machine may."""

from __future__ import annotations

import os
import signal

POINTS = (
    "order-written",
    "intent-appended",
    "intent-synced",
    "forked",
    "pid-written",
    "released",
    "reaped",
    "exit-appended",
    "exit-synced",
    "cancel-synced",
)


class CrashPlan:
    """`point` or `point:n` for its n-th passage; an empty plan never crashes."""

    def __init__(self, plan: str = "") -> None:
        point, _, passage = plan.partition(":")
        if point and point not in POINTS:
            raise ValueError(f"no such crash point: {point!r}; there are {', '.join(POINTS)}")
        self._point = point
        self._left = int(passage or 1)

    def reached(self, point: str) -> None:
        """Die here if this is the passage planned."""
        if point != self._point:
            return
        self._left -= 1
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
