"""What the constraints on copies that share a cluster, or a region, have in common."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np

from broker.decide.pairs import Integers, PairFigures, integers
from broker.decide.tallies import Tally


def tally_by_cluster(
    pairs: PairFigures, name: str, groups: Sequence[Hashable | None], limits: Sequence[int]
) -> Tally:
    """Copies of each group of jobs in each cluster: `groups` has the group of each job (None for
    none), `limits` how many copies of it one cluster may hold."""
    clusters = len(pairs.rows.problem.clusters)
    return _tally(pairs, name, (groups, limits), (pairs.cluster, clusters))


def tally_by_region(
    pairs: PairFigures, name: str, groups: Sequence[Hashable | None], limits: Sequence[int]
) -> Tally:
    """The same for each region."""
    regions: dict[str, int] = {}
    of_cluster = integers(
        regions.setdefault(cluster.region, len(regions)) for cluster in pairs.rows.problem.clusters
    )
    return _tally(pairs, name, (groups, limits), (of_cluster[pairs.cluster], len(regions)))


def _tally(
    pairs: PairFigures,
    name: str,
    wanted: tuple[Sequence[Hashable | None], Sequence[int]],
    places: tuple[Integers, int],
) -> Tally:
    (groups, limits), (place, number) = wanted, places
    index = {group: i for i, group in enumerate(dict.fromkeys(groups)) if group is not None}
    of_job = integers(-1 if group is None else index[group] for group in groups)
    limit = {index[g]: n for g, n in zip(groups, limits, strict=True) if g is not None}
    group_of: Integers = pairs.by_row(of_job)
    key = np.where(group_of >= 0, group_of * number + place, -1)
    used, row = np.unique(key, return_inverse=True)
    first = int(len(used) > 0 and used[0] < 0)
    high = tuple(limit[group] for group in (used[first:] // max(1, number)).tolist())
    return Tally(name, high, row.astype(np.int64) - first, np.ones(len(key), dtype=np.int64))
