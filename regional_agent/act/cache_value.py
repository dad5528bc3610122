"""What a cached thing is worth: the seconds it would take to have it again. Pure.

A blob is worth its bytes over the rate measured here, plus what every fetch costs however small;
an unpacked archive is worth the time its unpacking took. Either fades with the time since it was
last used. What goes first is what saves the fewest seconds per byte of disk.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from enum import StrEnum

HALF_LIFE_S = 6 * 3600.0
"""After so long without use a thing counts half."""
RATE_BYTES_PER_S = 10e6
FETCH_S = 0.05
"""What is assumed until something was measured."""
LARGE_BYTES = 256 * 1024
SMALL_BYTES = 64 * 1024
"""From how large on a fetch says something of the rate; up to how small, of the rest."""


class Kind(StrEnum):
    """What an item is."""

    BLOB = "blob"
    ARCHIVE = "archive"
    IMAGE = "image"


@dataclass(frozen=True, slots=True)
class Item:
    """One thing in the cache. `cost_ms` is how long it took to get it; times are UTC ms, `turn`
    orders uses within the same millisecond, `tree_sha256` is the digest of what an unpacked
    archive holds."""

    kind: Kind
    sha256: str
    size_bytes: int
    cost_ms: int
    used_ms: int
    uses: int = 1
    turn: int = 0
    tree_sha256: str = ""

    @property
    def key(self) -> tuple[Kind, str]:
        """What names it."""
        return self.kind, self.sha256


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast this site fetches. `measured_bytes_per_s` 0: nothing large was ever fetched."""

    measured_bytes_per_s: float = 0.0
    fetch_s: float = FETCH_S

    @property
    def bytes_per_s(self) -> float:
        """The rate to reckon with."""
        return self.measured_bytes_per_s or RATE_BYTES_PER_S

    def seconds(self, size_bytes: int) -> float:
        """How long a fetch of so many bytes takes."""
        return self.fetch_s + size_bytes / self.bytes_per_s


def pace_of(fetches: Iterable[tuple[int, int]]) -> Pace:
    """The pace of some fetches, each (bytes, ms)."""
    large, small = [0, 0], []
    for size_bytes, took_ms in fetches:
        if size_bytes >= LARGE_BYTES:
            large[0] += size_bytes
            large[1] += max(took_ms, 1)
        elif size_bytes <= SMALL_BYTES:
            small.append(took_ms / 1000)
    rate = large[0] * 1000 / large[1] if large[1] else 0.0
    return Pace(rate, sorted(small)[len(small) // 2] if small else FETCH_S)


def worth_s(item: Item, now_ms: int, pace: Pace) -> float:
    """Seconds that keeping the item saves, faded by the time since its last use."""
    again_s = pace.seconds(item.size_bytes) if item.kind is Kind.BLOB else item.cost_ms / 1000
    idle_s = max(now_ms - item.used_ms, 0) / 1000
    return again_s * math.exp2(-idle_s / HALF_LIFE_S)


def victims(
    items: Collection[Item],
    excess_bytes: int,
    now_ms: int,
    pace: Pace,
    pinned: Collection[str] = (),
) -> tuple[Item, ...]:
    """What to remove, least worth per byte first, until `excess_bytes` are free; nothing whose
    digest is pinned, so it may be less than that."""
    if excess_bytes <= 0:
        return ()

    def density(item: Item) -> tuple[float, int]:
        return worth_s(item, now_ms, pace) / max(item.size_bytes, 1), item.turn

    chosen: list[Item] = []
    for item in sorted((i for i in items if i.sha256 not in pinned), key=density):
        if excess_bytes <= 0:
            break
        chosen.append(item)
        excess_bytes -= item.size_bytes
    return tuple(chosen)
