"""What starting cold costs each job at each cluster, as the planning problem takes it. Pure.

The problem has the cold start per cluster and image. A job's files are put into the same words:
jobs that would fetch for about as long at every cluster share a made-up image name, whose seconds
each cluster lists. Durations are in steps and there are few names, so that jobs which differ only
in files are still alike to the decision.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from hashlib import blake2b

from broker.model.fleet import ClusterView
from broker.sense.start_delay import CACHE_AGE_MAX_MS, StartDelays
from federation.jobs import JobSpec

LEAST_S = 0.5
"""A shorter fetch is the same as none."""
LEAST_DELAY_S = 0.1
"""Starts are not told apart by less than this."""
NAMES_MAX = 64
"""Names that know of single caches; jobs beyond are taken for cold everywhere."""

Steps = tuple[float, ...]


def blobs_of(spec: JobSpec) -> Mapping[str, int]:
    """What a job starts with: digest and bytes of every blob."""
    blobs = {file.sha256: file.size_bytes for file in spec.files}
    if spec.workdir is not None:
        blobs[spec.workdir.archive] = spec.workdir.size_bytes
    return blobs


def stepped(figure: float) -> float:
    """A figure above 0 in steps of 1, 2 and 5: the nearest by ratio."""
    decade = 10.0 ** math.floor(math.log10(figure))
    return min((decade * step for step in (1, 2, 5, 10)), key=lambda s: abs(math.log(s / figure)))


def stepped_s(seconds: float) -> float:
    """A duration in steps; 0 below `LEAST_S`."""
    return stepped(seconds) if seconds >= LEAST_S else 0.0


def planned_delay_s(seconds: float) -> float:
    """The time before any start at a site, as it is planned with: in steps of 10 %, rounded up,
    from `LEAST_DELAY_S` on. Each start teaches a little; the decision looks again only at places
    where that comes to something."""
    if seconds <= 0:
        return 0.0
    steps = math.ceil(math.log(max(seconds, LEAST_DELAY_S) / LEAST_DELAY_S, 1.1) - 1e-6)
    return float(LEAST_DELAY_S * 1.1**steps)


class ColdStarts:
    """The made-up images of one problem. A name says what would have to be fetched where, not how
    long that takes nor which job came first: whatever else comes, goes or is learned, it stays."""

    def __init__(self, views: Sequence[ClusterView], delays: StartDelays, now_ms: int) -> None:
        self._rates = [delays.rate_bytes_per_s(view) for view in views]
        self._slowest = min(self._rates, default=1.0)
        self._views, self._now_ms = views, now_ms
        self._known: dict[str, list[int]] | None = None
        self._index = {str(view.identity.name): index for index, view in enumerate(views)}
        self._names: dict[str, Steps] = {}
        self._cold: dict[int, Steps] = {}

    def image(self, spec: JobSpec) -> str | None:
        """Under which name the problem knows what this job has to have at its place."""
        blobs = blobs_of(spec)
        total_bytes = sum(blobs.values())
        if total_bytes / self._slowest < LEAST_S:
            return spec.image
        size, missing = _stepped_bytes(total_bytes), self._missing(blobs, total_bytes)
        name = self._name(spec.image or "", size, missing)
        if name in self._names:
            return name
        if len(self._names) >= NAMES_MAX:
            missing = {}
            name = self._name(spec.image or "", size, missing)
        steps = list(self._everywhere(size))
        for index, left_bytes in missing.items():
            steps[index] = stepped_s(left_bytes / self._rates[index])
        if not any(steps):
            return spec.image
        self._names[name] = tuple(steps)
        return name

    def seconds(self, cluster: str) -> dict[str, float]:
        """Cold start of every name there, for the names given out so far."""
        index = self._index[cluster]
        return {name: steps[index] for name, steps in self._names.items() if steps[index]}

    def _name(self, image: str, size: int, missing: Mapping[int, int]) -> str:
        """The image, the bytes, and where something of them is missing only."""
        name = f"{image}#{size}"
        if not missing:
            return name
        names = {str(self._views[index].identity.name): left for index, left in missing.items()}
        return f"{name}-{blake2b(repr(sorted(names.items())).encode(), digest_size=8).hexdigest()}"

    def _everywhere(self, size: int) -> Steps:
        """The seconds where nothing is cached."""
        known = self._cold.get(size)
        if known is None:
            known = tuple(stepped_s(size / rate) for rate in self._rates)
            self._cold[size] = known
        return known

    def _holders(self) -> dict[str, list[int]]:
        """By digest the clusters that have it; made once somebody asks."""
        if self._known is None:
            self._known = defaultdict(list)
            for index, view in enumerate(self._views):
                cache = view.cache
                if cache and self._now_ms - cache.received_ms <= CACHE_AGE_MAX_MS:
                    for sha256 in cache.blobs:
                        self._known[sha256].append(index)
        return self._known

    def _missing(self, blobs: Mapping[str, int], total_bytes: int) -> dict[int, int]:
        """Bytes left to fetch, in steps, at the clusters that have some of a job's files."""
        cached: dict[int, int] = defaultdict(int)
        holders = self._holders()
        for sha256, size_bytes in blobs.items():
            for index in holders.get(sha256, ()):
                cached[index] += size_bytes
        return {index: _stepped_bytes(total_bytes - found) for index, found in cached.items()}


def _stepped_bytes(size_bytes: int) -> int:
    return round(stepped(size_bytes)) if size_bytes > 0 else 0
