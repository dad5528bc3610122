"""Round trips between regions: what was measured, else what an operator typed, else unknown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from broker.model.fleet import Fleet

Pair = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Distances:
    """Milliseconds for every pair of regions, and which pairs are known at all."""

    rtt_ms: Mapping[Pair, float]
    known: frozenset[Pair]


def measure(
    fleet: Fleet,
    typed_ms: Mapping[Pair, float],
    regions: Sequence[str],
    *,
    unknown_is_far: bool = False,
) -> Distances:
    """Round trips between `regions`, whether or not a cluster stands there.

    Measured beats typed; either direction serves; within a region it is 0. Unknown is 0, and
    refused wherever a job sets a limit; with `unknown_is_far` it is the longest one known: where
    distance costs, one that nobody knows must not look like none.
    """
    best: dict[Pair, float] = {}
    for view in fleet.clusters.values():
        for trip in view.round_trips:
            if trip.rtt_us >= 0:
                pair = (str(view.identity.region), str(trip.target_region))
                best[pair] = min(best.get(pair, float("inf")), trip.rtt_us / 1000)
    rtt: dict[Pair, float] = {}
    for a in regions:
        for b in regions:
            found = _known((a, b), best) or _known((a, b), typed_ms)
            if a == b:
                found = [0.0]
            if found:
                rtt[a, b] = min(found)
    far = max(rtt.values(), default=0.0) if unknown_is_far else 0.0
    every = {(a, b): rtt.get((a, b), far) for a in regions for b in regions}
    return Distances(every, frozenset(rtt))


def _known(pair: Pair, table: Mapping[Pair, float]) -> list[float]:
    return [table[p] for p in (pair, (pair[1], pair[0])) if p in table]
