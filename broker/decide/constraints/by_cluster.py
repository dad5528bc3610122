"""What the constraints on copies that share a cluster, or a region, have in common."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence

import numpy as np

from broker.decide.pairs import Integers, PairFigures, integers
from broker.decide.tallies import Tally
from broker.model.problem import Job

Wanted = tuple[Sequence[Hashable | None], Sequence[int], Sequence[int]]
"""By job: its group (None for none), how many units of that one place may hold, and those that one
of its copies, or of its members, takes."""


def one_copy(jobs: Sequence[Job], groups: Sequence[Hashable | None]) -> Wanted:
    """At most one copy of each group, members of gangs counting as their part of one."""
    asking = [job.members for job, group in zip(jobs, groups, strict=True) if group is not None]
    unit = math.lcm(*asking)
    return groups, [unit] * len(jobs), [max(1, unit // job.members) for job in jobs]


def tally_by_cluster(pairs: PairFigures, name: str, wanted: Wanted) -> Tally:
    """What each group of jobs has in each cluster."""
    clusters = len(pairs.rows.problem.clusters)
    return _tally(pairs, name, wanted, (pairs.cluster, clusters))


def tally_by_region(pairs: PairFigures, name: str, wanted: Wanted) -> Tally:
    """The same for each region."""
    regions: dict[str, int] = {}
    of_cluster = integers(
        regions.setdefault(cluster.region, len(regions)) for cluster in pairs.rows.problem.clusters
    )
    return _tally(pairs, name, wanted, (of_cluster[pairs.cluster], len(regions)))


def _tally(
    pairs: PairFigures,
    name: str,
    wanted: Wanted,
    places: tuple[Integers, int],
) -> Tally:
    (groups, limits, units), (place, number) = wanted, places
    index = {group: i for i, group in enumerate(dict.fromkeys(groups)) if group is not None}
    of_job = integers(-1 if group is None else index[group] for group in groups)
    limit = {index[g]: n for g, n in zip(groups, limits, strict=True) if g is not None}
    group_of: Integers = pairs.by_row(of_job)
    key = np.where(group_of >= 0, group_of * number + place, -1)
    used, row = np.unique(key, return_inverse=True)
    first = int(len(used) > 0 and used[0] < 0)
    high = tuple(limit[group] for group in (used[first:] // max(1, number)).tolist())
    return Tally(name, high, row.astype(np.int64) - first, pairs.by_row(integers(units)))
