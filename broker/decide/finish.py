"""From copies per option to a plan: nodes, jobs, money, reasons. The same for every candidate."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from broker.decide.case import Case, Counts
from broker.decide.classes import share_among_members
from broker.decide.packing import Packing, least_whole_nodes, pack, seat
from broker.decide.shapes import Counting, Shape
from broker.model.plan import Assignment, NodeFill
from broker.model.problem import Mode

PackExactly = Callable[[Shape, Sequence[int]], Packing | None]
"""Packs a demand with provably the fewest whole nodes, or None when that is not known."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """Copies per option with the nodes they sit on. `packings` has an entry for each pool index in
    use. Candidates are compared by `rank`: greater is better."""

    counts: Counts
    packings: Mapping[int, Packing]
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
    if case.problem.objective.fragmentation_usd_per_node == 0:
        pack_exactly = None
    for pool, demand in demands(case, counts).items():
        shape = case.shapes[pool]
        packing = None if shape is None else _pack(shape, demand, known.get(pool), pack_exactly)
        if packing is None:
            return None
        packings[pool] = packing
    placed = _placed(case, counts)
    whole = sum(packing.whole_nodes for packing in packings.values())
    cost = _cost_usd(case, counts, whole)
    objective = _value_usd(case, placed) - cost
    weights = case.problem.objective.weight_per_accelerator
    ahead: list[float] = []
    if case.problem.objective.mode is Mode.PLACE_FIRST:
        ahead = [placed[level] * weights.get(level, 1.0) for level in case.priorities]
    return Candidate(counts, packings, placed, cost, objective, (*ahead, objective))


def demands(case: Case, counts: Counts) -> dict[int, list[int]]:
    """Replicas per kind for each pool index in use."""
    found: dict[int, list[int]] = {}
    for option in counts.nonzero()[0].tolist():
        pool = int(case.options.pool_index[option])
        shape = case.shapes[pool]
        replicas = case.classes[case.options.class_index[option]].job.replicas
        demand = found.setdefault(pool, [0] * (0 if shape is None else len(shape.kinds)))
        demand[case.kind[option]] += int(counts[option]) * replicas
    return found


def assignments(case: Case, counts: Counts) -> tuple[Assignment, ...]:
    """Which job's copies go where: within a class the oldest job gets the cheapest pools. In the
    order of the problem's jobs, then of its pools."""
    jobs, pools = case.problem.jobs, case.problem.pools
    placed: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for option in counts.nonzero()[0].tolist():
        pair = (int(case.options.pool_index[option]), int(counts[option]))
        placed[int(case.options.class_index[option])].append(pair)
    shares: dict[tuple[int, int], int] = defaultdict(int)
    for k, pairs in placed.items():
        for job, pool, copies in share_among_members(jobs, case.classes[k], pairs):
            shares[job, pool] += copies
    return tuple(
        Assignment(jobs[job].id, pools[pool].name, copies)
        for (job, pool), copies in sorted(shares.items())
    )


def fills(case: Case, candidate: Candidate, given: Sequence[Assignment]) -> tuple[NodeFill, ...]:
    """Every assigned replica on a concrete node, by pool and node."""
    jobs = {job.id: job for job in case.problem.jobs}
    by_pool: dict[str, list[Assignment]] = defaultdict(list)
    for item in given:
        by_pool[item.pool].append(item)
    found: list[NodeFill] = []
    for index, packing in sorted(candidate.packings.items()):
        shape = case.shapes[index]
        if shape is None:
            continue
        waiting: list[list[tuple[str, int]]] = [[] for _ in shape.kinds]
        for item in by_pool[shape.pool.name]:
            job = jobs[item.job]
            waiting[shape.kind(job)].append((item.job, item.count * job.replicas))
        found.extend(seat(shape.pool.name, packing, waiting))
    return tuple(found)


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
    for option in counts.nonzero()[0].tolist():
        k = int(case.options.class_index[option])
        placed[case.classes[k].job.priority] += int(counts[option]) * case.gang[k]
    return placed


def _value_usd(case: Case, placed: Mapping[int, int]) -> float:
    objective = case.problem.objective
    if objective.mode is not Mode.SCALAR:
        return 0.0
    values = objective.value_usd_per_accelerator
    return math.fsum(values[level] * count for level, count in placed.items())


def _cost_usd(case: Case, counts: Counts, whole_nodes: int) -> float:
    used = counts.nonzero()[0].tolist()
    terms = [int(counts[option]) * float(case.options.cost_usd[option]) for option in used]
    terms.append(whole_nodes * case.problem.objective.fragmentation_usd_per_node)
    terms.append(case.lost_work_usd)
    for option in used:
        job = case.classes[case.options.class_index[option]].job
        if job.current_pool is not None:
            terms.append(-int(counts[option]) * job.lost_work_usd)
    return math.fsum(terms)
