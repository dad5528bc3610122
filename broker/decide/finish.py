"""From copies per option to a plan: nodes, jobs, money, reasons. The same for every candidate."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from broker.decide.case import Case, Counts
from broker.decide.classes import share_among_members
from broker.decide.packing import Packing, least_whole_nodes, narrowed, pack, seat
from broker.decide.same_node import in_replicas
from broker.decide.shapes import Counting, Shape
from broker.model.plan import Assignment, NodeFill
from broker.model.problem import Mode, Pool

_EXACT = 2.0**62
"""Below this, sums of copies times replicas are exact as 64 bit integers."""

PackExactly = Callable[[Shape, Sequence[int]], Packing | None]
"""Packs a demand with provably the fewest whole nodes, or None when that is not known."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """Copies per option that the nodes hold. `whole_nodes` has an entry for each pool index in use,
    `packings` one for each of those that are not counted by levels: `packed` makes the others.
    Candidates are compared by `rank`: greater is better."""

    counts: Counts
    packings: Mapping[int, Packing]
    whole_nodes: Mapping[int, int]
    placed: Mapping[int, int]
    cost_usd: float
    objective_usd: float
    rank: tuple[float, ...]


def make_candidate(
    case: Case, counts: Counts, known: Mapping[int, Packing], pack_exactly: PackExactly | None
) -> Candidate | None:
    """Pack and price some copies. `known` are packings by pool index that hold them already; they
    are used where no better one is found. None when a pool's replicas are not made to fit."""
    packings: dict[int, Packing] = {}
    whole: dict[int, int] = {}
    whole_copies = case.bundles.trimmed(counts)
    if whole_copies is not counts:
        counts, known = whole_copies, _fewer(case, whole_copies, known)
    if case.problem.objective.fragmentation_usd_per_node == 0:
        pack_exactly = None
    for pool, demand in demands(case, counts).items():
        shape = case.shapes[pool]
        if shape is None:
            return None
        empty = case.empty[pool]
        if empty is not None:
            nodes = empty.fresh()
            if not nodes.add_all(demand):
                return None
            whole[pool] = nodes.whole_nodes()
            continue
        packing = _pack(shape, demand, known.get(pool), pack_exactly)
        if packing is None:
            return None
        packings[pool] = packing
        whole[pool] = packing.whole_nodes
    placed = _placed(case, counts)
    cost = _cost_usd(case, counts, sum(whole.values()))
    objective = _value_usd(case, placed) - cost
    weights = case.problem.objective.weight_per_accelerator
    ahead: list[float] = []
    if case.problem.objective.mode is Mode.PLACE_FIRST:
        ahead = [placed[level] * weights.get(level, 1.0) for level in case.priorities]
    return Candidate(counts, packings, whole, placed, cost, objective, (*ahead, objective))


def packed(case: Case, candidate: Candidate) -> Candidate:
    """The candidate with a packing for every pool in use. Raises ValueError for one that does not
    fit, a fault of ours."""
    packings = dict(candidate.packings)
    for pool, demand in demands(case, candidate.counts).items():
        shape = case.shapes[pool]
        if pool not in packings and shape is not None:
            packing = pack(shape, demand)
            if packing is None:
                raise ValueError(f"{shape.pool.name}: the replicas counted do not fit")
            packings[pool] = packing
    return replace(candidate, packings=packings)


def demands(case: Case, counts: Counts) -> dict[int, list[int]]:
    """Replicas per kind for each pool index in use."""
    used = counts.nonzero()[0]
    pools, kinds = case.options.pool_index[used], case.kind[used]
    copies = counts[used]
    replicas = np.array(case.facts.replicas, dtype=np.int64)[case.options.class_index[used]]
    width = max([1, *(len(shape.kinds) for shape in case.shapes if shape is not None)])
    if float(copies.max(initial=0)) * float(replicas.max(initial=1)) < _EXACT:
        total = np.zeros(len(case.shapes) * width, dtype=np.int64)
        np.add.at(total, pools * width + kinds, copies * replicas)
    else:
        total = np.zeros(len(case.shapes) * width, dtype=object)
        np.add.at(total, pools * width + kinds, copies.astype(object) * replicas.astype(object))
    table = total.reshape(len(case.shapes), width)
    found: dict[int, list[int]] = {}
    for pool in np.unique(pools).tolist():
        shape = case.shapes[pool]
        found[pool] = table[pool, : 0 if shape is None else len(shape.kinds)].tolist()
    return found


def _fewer(case: Case, counts: Counts, known: Mapping[int, Packing]) -> dict[int, Packing]:
    """Packings that hold more, for what some copies need of them."""
    found: dict[int, Packing] = {}
    for pool, demand in demands(case, counts).items():
        shape = case.shapes[pool]
        if shape is not None and pool in known:
            found[pool] = narrowed(shape, known[pool], demand)
    return found


def _used(case: Case, counts: Counts) -> Iterator[tuple[int, int, int, int]]:
    """(option, class, pool, kind) of each option with copies."""
    used = counts.nonzero()[0]
    columns = (used, case.options.class_index[used], case.options.pool_index[used], case.kind[used])
    return zip(*(column.tolist() for column in columns), strict=True)


Share = tuple[int, int, int, int]
"""(job, pool, copies, kind): copies of a job in a pool and the kind of their replicas there, by
index."""


def shares(case: Case, counts: Counts) -> list[Share]:
    """Which job's copies go where: within a class the oldest job gets the cheapest pools. In the
    order of the problem's jobs, then of its pools, then of their queues."""
    jobs = case.problem.jobs
    found: list[Share] = []
    placed: dict[int, list[tuple[int, int]]] = defaultdict(list)
    kinds: dict[tuple[int, int], int] = {}
    for option, k, pool, kind in _used(case, counts):
        members = case.classes[k].members
        if len(members) == 1:
            found.append((members[0], pool, int(counts[option]), kind))
        else:
            placed[k].append((pool, int(counts[option])))
            kinds[k, pool] = kind
    for k, pairs in placed.items():
        for job, pool, copies in share_among_members(jobs, case.classes[k], pairs):
            found.append((job, pool, copies, kinds[k, pool]))
    found.sort()
    return found


def assignments(case: Case, given: Sequence[Share]) -> tuple[Assignment, ...]:
    """The same by name."""
    jobs, pools = case.problem.jobs, case.problem.pools
    return tuple([_assignment(jobs[job].id, pools[pool], n) for job, pool, n, _ in given])


def _assignment(job: str, pool: Pool, copies: int) -> Assignment:
    name, queued, start_h = pool.place
    return Assignment(job, name, copies, queued, start_h)


def fills(case: Case, candidate: Candidate, given: Sequence[Share]) -> tuple[NodeFill, ...]:
    """Every assigned replica on a concrete node, by pool and node; those queued are on none."""
    jobs = case.problem.jobs
    by_pool: dict[int, list[Share]] = defaultdict(list)
    for share in given:
        by_pool[share[1]].append(share)
    found: list[NodeFill] = []
    for index, packing in sorted(candidate.packings.items()):
        shape = case.shapes[index]
        if shape is None or shape.pool.queue_of:
            continue
        waiting: list[list[tuple[str, int]]] = [[] for _ in shape.kinds]
        for number, _, copies, kind in by_pool[index]:
            job = jobs[number]
            waiting[kind].append((job.id, copies * job.replicas))
        found += seat(shape.pool.name, packing, waiting)
    if all([job.together == 1 for job in jobs]):
        return tuple(found)
    by_name = {job.id: job for job in jobs}
    return tuple([in_replicas(fill, by_name) for fill in found])


def _pack(
    shape: Shape, demand: Sequence[int], known: Packing | None, pack_exactly: PackExactly | None
) -> Packing | None:
    found = pack(shape, demand)
    if known is not None and (found is None or known.whole_nodes < found.whole_nodes):
        least = known.whole_nodes <= least_whole_nodes(shape, demand)
        found = replace(known, least=least)
    if found is not None and found.least or shape.counting is Counting.LEVELS:
        return found
    exact = None if pack_exactly is None else pack_exactly(shape, demand)
    return found if exact is None else exact


def _placed(case: Case, counts: Counts) -> dict[int, int]:
    placed = dict.fromkeys(case.priorities, 0)
    for option, k, _, _ in _used(case, counts):
        placed[case.facts.priority[k]] += int(counts[option]) * case.facts.gang[k]
    return placed


def _value_usd(case: Case, placed: Mapping[int, int]) -> float:
    objective = case.problem.objective
    if objective.mode is not Mode.SCALAR:
        return 0.0
    values = objective.value_usd_per_accelerator
    return math.fsum(values[level] * count for level, count in placed.items())


def _cost_usd(case: Case, counts: Counts, whole_nodes: int) -> float:
    used = counts.nonzero()[0]
    copies, cost = counts[used].tolist(), case.options.cost_usd[used].tolist()
    terms = [count * usd for count, usd in zip(copies, cost, strict=True)]
    terms.append(whole_nodes * case.problem.objective.fragmentation_usd_per_node)
    terms.append(case.lost_work_usd)
    classes = case.options.class_index[used].tolist()
    for count, k in zip(copies, classes, strict=True):
        job = case.classes[k].job
        if job.current_pool is not None and job.lost_work_usd:
            terms.append(-count * job.lost_work_usd)
    return math.fsum(terms)
