"""What it takes to bring data from a region to another, and how that is known: measured by the
sites, else stated by an operator, else assumed from what sites there fetch at. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from broker.model.data import Link, Links, Pair
from broker.model.fleet import ClusterView, DataRate

RATE_AGE_MAX_MS = 2 * 86_400_000
"""Sites read once a day at least, if at all: what is older than two is no longer known."""


class KnownBy(StrEnum):
    """Where the speed of a way is from."""

    MEASURED = "measured"
    STATED = "stated"
    SEEN = "seen"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Speed:
    """How fast data comes: 10^9 bits a second, 0 = nobody knows, since when, and where the figure
    is from. `at_least`: the way may be faster."""

    gbps: float
    known_by: KnownBy
    as_of_ms: int = 0
    at_least: bool = False

    @property
    def hours_per_gb(self) -> float:
        """Hours that 10^9 bytes take; none where that is not known."""
        return 8 / self.gbps / 3600 if self.gbps else 0.0


def measured(rate: DataRate, link: Link | None) -> Speed:
    """What a measurement says of a way. One that only says "at least" does not contradict a
    stated figure above it, which then stands."""
    gbps = rate.bytes_per_s * 8 / 1e9
    if link is not None and rate.at_least and link.gbps >= gbps:
        return Speed(link.gbps, KnownBy.STATED, link.as_of_ms)
    return Speed(gbps, KnownBy.MEASURED, rate.measured_ms, rate.at_least)


class Ways:
    """What it takes to bring data from a region to another, at one instant."""

    def __init__(self, links: Links, views: Iterable[ClusterView], now_ms: int) -> None:
        self._links = links
        self._seen_bytes_per_s: dict[str, int] = {}
        self._slowest: dict[Pair, Speed] = {}
        for view in views:
            rate = view.cache.fetch_bytes_per_s if view.cache else 0
            region = str(view.identity.region)
            self._seen_bytes_per_s[region] = max(rate, self._seen_bytes_per_s.get(region, 0))
            for found in view.data_rates:
                if found.bytes_per_s > 0 and now_ms - found.measured_ms <= RATE_AGE_MAX_MS:
                    self._take(found, region)

    def _take(self, rate: DataRate, region: str) -> None:
        """The slowest of what sites of a region measured counts for all of them."""
        pair = (str(rate.source_region), region)
        speed = measured(rate, self._links.get(pair))
        known = self._slowest.get(pair)
        if known is None or speed.gbps < known.gbps:
            self._slowest[pair] = speed

    def speed(self, pair: Pair) -> Speed:
        """How fast data comes by a way, whether or not it may be taken."""
        link = self._links.get(pair)
        if pair in self._slowest:
            return self._slowest[pair]
        if link is not None and link.gbps:
            return Speed(link.gbps, KnownBy.STATED, link.as_of_ms)
        seen = self._seen_bytes_per_s.get(pair[1], 0) * 8 / 1e9
        return Speed(seen, KnownBy.SEEN if seen else KnownBy.UNKNOWN)

    def way(self, pair: Pair) -> tuple[float, float] | None:
        """USD and hours per GB; None where nobody stated the way."""
        if pair[0] == pair[1]:
            return 0.0, 0.0
        link = self._links.get(pair)
        if link is None:
            return None
        return link.egress_usd_per_gb, self.speed(pair).hours_per_gb

    def best(self, regions: Sequence[str], to: str) -> tuple[float, float] | None:
        """From the region it comes cheapest from, then soonest."""
        found = [way for region in regions if (way := self.way((region, to))) is not None]
        return min(found, default=None)

    def source(self, regions: Sequence[str], to: str) -> str | None:
        """That region; None where there is no way."""
        found = [(way, r) for r in regions if (way := self.way((r, to))) is not None]
        return min(found)[1] if found else None
