"""What an attempt has used, in the units it is charged in. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Metered:
    """`accelerator_ms`: wall time of each task times the cards it held."""

    wall_ms: int = 0
    cpu_ms: int = 0
    max_rss_bytes: int = 0
    accelerator_ms: int = 0

    def plus(self, other: Metered) -> Metered:
        """Both together: times summed, memory the larger."""
        return Metered(
            self.wall_ms + other.wall_ms,
            self.cpu_ms + other.cpu_ms,
            max(self.max_rss_bytes, other.max_rss_bytes),
            self.accelerator_ms + other.accelerator_ms,
        )


def metered(wall_ms: int, cpu_ms: int, max_rss_bytes: int, cards_per_task: int) -> Metered:
    """The charge of tasks that ran `wall_ms` in all, each holding `cards_per_task` cards."""
    if min(wall_ms, cpu_ms, max_rss_bytes, cards_per_task) < 0:
        raise ValueError("usage is not negative")
    return Metered(wall_ms, cpu_ms, max_rss_bytes, wall_ms * cards_per_task)


def total(parts: Iterable[Metered]) -> Metered:
    """All of them together."""
    result = Metered()
    for part in parts:
        result = result.plus(part)
    return result
