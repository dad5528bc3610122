"""How long a start takes at a cluster, learned from starts before. Pure.

A start is three things after one another: the *handshake* (from the decision to the site's yes,
over the session that is kept open; a site without one has to dial in first), the *preparing*
(what is in the cache is laid, the rest comes at the site's measured rate) and the *launch* (the
local scheduler, its queue included). Each has its own samples, the last 200 of every cluster. Of
the sum the median is the sum of the medians; its p90 takes the parts for independent: their
distances from the median add up as squares.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from broker.model.fleet import ClusterView

SAMPLES = 200
CACHE_AGE_MAX_MS = 180_000
"""Three report intervals: what a cache held before that counts as not there."""
RATE_BYTES_PER_S = 10e6
"""What is assumed where neither the site nor anybody else has measured a rate."""
LARGE_BYTES = 256 * 1024
"""From how many fetched bytes on an attempt says something of the rate."""
SMALL_BYTES = 64 * 1024
"""Up to how many its preparing counts as laying what was there."""


@dataclass(frozen=True, slots=True)
class StartSample:
    """One start as it was measured; `launch_ms` is all that is neither of the others."""

    uid: str
    cluster: str
    handshake_ms: int
    prepare_ms: int
    launch_ms: int
    fetched_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Spread:
    """The middle and the ninetieth of a hundred, in seconds."""

    p50_s: float = 0.0
    p90_s: float = 0.0


@dataclass(frozen=True, slots=True)
class StartEstimate:
    """An expected start: the whole, its parts, the bytes to be fetched, and from how many
    measured starts it was learned (0: from what the site says of itself, or from nothing)."""

    p50_s: float
    p90_s: float
    handshake: Spread
    prepare: Spread
    launch: Spread
    fetch_bytes: int = 0
    samples: int = 0

    @property
    def p50_ms(self) -> int:
        """The median in whole ms."""
        return round(self.p50_s * 1000)

    @property
    def p90_ms(self) -> int:
        """The p90 in whole ms."""
        return round(self.p90_s * 1000)


@dataclass(frozen=True, slots=True)
class _Learned:
    handshake: Spread
    lay: Spread
    launch: Spread
    rate: tuple[float, float]
    """Bytes a second: the median, and what nine of ten fetches reach."""
    samples: int


class StartDelays:
    """What all clusters have taught. Not for several threads."""

    def __init__(self) -> None:
        self._samples: dict[str, dict[str, StartSample]] = {}
        self._learned: dict[str, _Learned] = {}
        self._usual_rate: float | None = None

    def observe(self, sample: StartSample) -> None:
        """Learn from one start; the same one twice teaches nothing new."""
        kept = self._samples.setdefault(sample.cluster, {})
        if sample.uid in kept:
            return
        kept[sample.uid] = sample
        if len(kept) > SAMPLES:
            del kept[next(iter(kept))]
        self._learned.pop(sample.cluster, None)
        self._usual_rate = None

    def estimate(
        self, view: ClusterView, blobs: Mapping[str, int], now_ms: int
    ) -> StartEstimate:
        """The expected start of a job that needs these blobs (digest: bytes) at a cluster."""
        learned = self._of(str(view.identity.name))
        fetch_bytes = missing_bytes(view, blobs, now_ms)
        usual, slow = self._rates(view, learned)
        prepare = Spread(
            learned.lay.p50_s + fetch_bytes / usual, learned.lay.p90_s + fetch_bytes / slow
        )
        handshake, launch = _handshake(view, learned), learned.launch
        if not learned.samples and view.capacity is not None:
            said = view.capacity
            launch = Spread(said.start_p50_ms / 1000, said.start_p90_ms / 1000)
        parts = (handshake, prepare, launch)
        p50_s = math.fsum(part.p50_s for part in parts)
        wide_s = math.hypot(*(max(part.p90_s - part.p50_s, 0.0) for part in parts))
        return StartEstimate(
            p50_s, p50_s + wide_s, *parts, fetch_bytes=fetch_bytes, samples=learned.samples
        )

    def rate_bytes_per_s(self, view: ClusterView) -> float:
        """The rate to expect of a cluster."""
        return self._rates(view, self._of(str(view.identity.name)))[0]

    def _rates(self, view: ClusterView, learned: _Learned) -> tuple[float, float]:
        if learned.rate[0]:
            return learned.rate
        if view.cache is not None and view.cache.fetch_bytes_per_s:
            own = float(view.cache.fetch_bytes_per_s)
            return own, own / 2
        if self._usual_rate is None:
            known = sorted(rate for name in self._samples if (rate := self._of(name).rate[0]))
            self._usual_rate = _quantile(known, 0.5) or RATE_BYTES_PER_S
        return self._usual_rate, self._usual_rate / 2

    def _of(self, cluster: str) -> _Learned:
        learned = self._learned.get(cluster)
        if learned is None:
            learned = _learn(list(self._samples.get(cluster, {}).values()))
            self._learned[cluster] = learned
        return learned


def missing_bytes(view: ClusterView, blobs: Mapping[str, int], now_ms: int) -> int:
    """How many bytes of these a cluster would have to fetch. What it did not name, or named too
    long ago, counts as not there."""
    cache = view.cache
    if cache is None or now_ms - cache.received_ms > CACHE_AGE_MAX_MS:
        return sum(blobs.values())
    return sum(size for sha256, size in blobs.items() if sha256 not in cache.blobs)


def start_sample(
    uid: str,
    cluster: str,
    times_ms: tuple[int, int, int],
    prepare_ms: int,
    fetched_bytes: int,
) -> StartSample | None:
    """A start from what was recorded of an attempt; `times_ms`: placed, reserved and started
    (0 = never). None for one that did not start, or whose times make no sense."""
    placed_ms, reserved_ms, started_ms = times_ms
    if not 0 < placed_ms <= reserved_ms <= started_ms:
        return None
    handshake_ms = reserved_ms - placed_ms
    launch_ms = max(started_ms - reserved_ms - prepare_ms, 0)
    return StartSample(uid, cluster, handshake_ms, prepare_ms, launch_ms, fetched_bytes)


def _handshake(view: ClusterView, learned: _Learned) -> Spread:
    if view.connected:
        return learned.handshake
    dial_s = view.cold_handshake_ms / 1000
    return Spread(learned.handshake.p50_s + dial_s, learned.handshake.p90_s + dial_s)


def _learn(samples: Sequence[StartSample]) -> _Learned:
    rates = sorted(
        s.fetched_bytes * 1000 / max(s.prepare_ms, 1)
        for s in samples
        if s.fetched_bytes >= LARGE_BYTES
    )
    return _Learned(
        handshake=_spread(s.handshake_ms for s in samples),
        lay=_spread(s.prepare_ms for s in samples if s.fetched_bytes <= SMALL_BYTES),
        launch=_spread(s.launch_ms for s in samples),
        rate=(_quantile(rates, 0.5), _quantile(rates, 0.1)),
        samples=len(samples),
    )


def _spread(measured_ms: Iterable[int]) -> Spread:
    ordered = sorted(measured_ms)
    return Spread(_quantile(ordered, 0.5) / 1000, _quantile(ordered, 0.9) / 1000)


def _quantile(ordered: Sequence[float], share: float) -> float:
    """Of sorted figures the one at that share from below; 0 where there is none."""
    if not ordered:
        return 0.0
    return float(ordered[min(int(share * len(ordered)), len(ordered) - 1)])
