"""The part of the verifier that looks at concrete nodes: does every replica sit on one, does
every node hold what it was given, and how many whole nodes went to smaller replicas."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from operator import attrgetter

from broker.model.plan import NodeFill, Plan
from broker.model.problem import Job, NodeGroup, Pool, Problem

_SLACK = 1e-9
_SEARCH_STEPS = 20_000
_SEARCH_REPLICAS = 400
"""How far the search for a packing with fewer whole nodes may go in one pool."""


@dataclass(slots=True)
class NodeCheck:
    """What was found. `whole_nodes` is the total over all pools that `Plan.cost_usd` must
    charge; `together` is of copies that do not share a node as the plan says."""

    whole_nodes: int = 0
    packing: list[str] = field(default_factory=list)
    together: list[str] = field(default_factory=list)
    fragmentation: list[str] = field(default_factory=list)


def check_nodes(problem: Problem, plan: Plan) -> NodeCheck:
    """Check `plan.fills` and `plan.whole_nodes`. Every name in the plan must be known."""
    jobs = {job.id: job for job in problem.jobs}
    check = NodeCheck()
    charged = problem.objective.fragmentation_usd_per_node > 0
    fills: dict[str, list[NodeFill]] = defaultdict(list)
    for fill in plan.fills:
        fills[fill.pool].append(fill)
    wanted = _wanted(plan, jobs)
    in_racks = {part.pool for item in plan.assignments for part in item.parts if part.rack}
    for pool in problem.pools:
        if pool.name in fills or pool.name in wanted:
            check.packing.extend(_packing(pool, fills[pool.name], wanted[pool.name], jobs))
        taken = _whole_nodes_taken(pool, fills[pool.name], jobs)
        check.whole_nodes += taken
        stated = plan.whole_nodes.get(pool.name, 0)
        if stated != taken:
            check.fragmentation.append(f"{pool.name}: {taken} whole nodes are taken, not {stated}")
        elif not taken or not charged or check.packing:
            continue
        elif any(jobs[name].one_per_node for name in wanted[pool.name]):
            continue  # not looked for where replicas keep apart
        elif (
            _fewer_in_a_rack(pool, fills[pool.name], jobs)
            if pool.name in in_racks
            else _fewer_do(pool, taken, wanted[pool.name], jobs)
        ):
            check.fragmentation.append(f"{pool.name}: fewer than {taken} whole nodes would do")
    return check


def _wanted(plan: Plan, jobs: dict[str, Job]) -> dict[str, dict[str, int]]:
    """Replicas by pool and job that must be on nodes."""
    wanted: dict[str, dict[str, int]] = defaultdict(dict)
    for item in plan.assignments:
        if item.waits:
            continue
        parts = [(part.pool, part.replicas) for part in item.parts]
        for pool, each in parts or ((item.pool, jobs[item.job].replicas),):
            of_pool = wanted[pool]
            of_pool[item.job] = of_pool.get(item.job, 0) + item.count * each
    return wanted


def _packing(
    pool: Pool, fills: list[NodeFill], wanted: dict[str, int], jobs: dict[str, Job]
) -> list[str]:
    wrong: list[str] = []
    starts = _starts(pool)
    seated: dict[str, int] = defaultdict(int)
    free_from = 0
    for fill in sorted(fills, key=attrgetter("first_node")):
        end = fill.first_node + fill.nodes
        if fill.nodes < 1 or fill.first_node < free_from or end > starts[-1]:
            wrong.append(f"{pool.name}: nodes {fill.first_node} to {end - 1} cannot be filled")
            break
        free_from = end
        contents = dict(fill.contents)
        if len(contents) != len(fill.contents) or min(contents.values(), default=1) < 1:
            wrong.append(f"{pool.name}: node {fill.first_node} has no proper contents")
        first = bisect_right(starts, fill.first_node) - 1
        last = first if end <= starts[first + 1] else bisect_right(starts, end - 1) - 1
        for group in pool.nodes[first : last + 1]:
            if group.count and not _holds(group, fill.contents, jobs):
                wrong.append(f"{pool.name}: node {fill.first_node} is given too much")
        for name, count in fill.contents:
            seated[name] += count * fill.nodes
    for name in {*seated, *wanted}:
        if seated[name] != wanted.get(name, 0):
            due = wanted.get(name, 0)
            wrong.append(f"{pool.name}: {seated[name]} replicas of {name} on nodes, not {due}")
    return wrong


def _starts(pool: Pool) -> list[int]:
    """The number of the first node of each group, and the number of nodes."""
    starts = [0]
    for group in pool.nodes:
        starts.append(starts[-1] + group.count)
    return starts


def _holds(group: NodeGroup, contents: tuple[tuple[str, int], ...], jobs: dict[str, Job]) -> bool:
    given = [(jobs[name], count) for name, count in contents]
    if sum([job.accelerators_per_replica * n for job, n in given]) > group.free_accelerators:
        return False
    if group.free_cpus is not None:
        cpus = math.fsum([job.replica_cpus * n for job, n in given])
        if cpus > group.free_cpus * (1 + _SLACK):
            return False
    if group.free_memory_gib is None:
        return True
    memory = math.fsum([job.replica_memory_gib * n for job, n in given])
    return memory <= group.free_memory_gib * (1 + _SLACK)


def _whole_nodes_taken(pool: Pool, fills: list[NodeFill], jobs: dict[str, Job]) -> int:
    full = pool.accelerators_per_node
    whole = [
        (start, start + group.count)
        for start, group in zip(_starts(pool), pool.nodes, strict=False)
        if group.free_accelerators == full
    ]
    taken = 0
    for fill in fills if whole else ():
        if all([jobs[name].accelerators_per_replica >= full for name, _ in fill.contents]):
            continue
        for start, end in whole:
            taken += max(0, min(fill.first_node + fill.nodes, end) - max(fill.first_node, start))
    return taken


# Fewer whole nodes? -------------------------------------------------------------------------
# The least number of whole nodes is part of the cost. A plan that charges more is refused when
# a search in bounded time finds a packing with one less; in a large pool with sizes that do not
# divide each other a plan may charge its own packing.

_Kind = tuple[int, float, float]
"""accelerators, cpus and memory of one replica."""


def _fewer_in_a_rack(pool: Pool, fills: list[NodeFill], jobs: dict[str, Job]) -> bool:
    """Whether fewer whole nodes would do for what is in one of its racks: copies may be bound to
    them."""
    for rack in pool.racks:
        place = replace(pool, nodes=tuple(g for g in pool.nodes if pool.rack(g) == rack))
        here = list(_in_rack(pool, rack, fills))
        wanted: dict[str, int] = defaultdict(int)
        for fill in here:
            for name, count in fill.contents:
                wanted[name] += count * fill.nodes
        taken = _whole_nodes_taken(place, here, jobs)
        if taken and _fewer_do(place, taken, wanted, jobs):
            return True
    return False


def _in_rack(pool: Pool, rack: str, fills: list[NodeFill]) -> Iterator[NodeFill]:
    """What is on the nodes of one rack, numbered as if there were no others."""
    start, number = 0, 0
    for group in pool.nodes:
        end = start + group.count
        if pool.rack(group) == rack:
            for fill in fills:
                first = max(fill.first_node, start)
                nodes = min(fill.first_node + fill.nodes, end) - first
                if nodes > 0:
                    yield replace(fill, first_node=number + first - start, nodes=nodes)
            number += group.count
        start = end


def _fewer_do(pool: Pool, taken: int, wanted: dict[str, int], jobs: dict[str, Job]) -> bool:
    kinds: dict[_Kind, int] = defaultdict(int)
    for name, replicas in wanted.items():
        job = jobs[name]
        kind = (job.accelerators_per_replica, job.replica_cpus, job.replica_memory_gib)
        kinds[kind] += replicas
    if not all(group.free_cpus is None and group.free_memory_gib is None for group in pool.nodes):
        return _search(pool, taken - 1, kinds)
    sizes: dict[int, int] = defaultdict(int)
    for (size, _, _), replicas in kinds.items():
        sizes[size] += replicas
    small = sorted(size for size in sizes if size < pool.accelerators_per_node)
    if all(large % little == 0 for little, large in zip(small, small[1:], strict=False)):
        return _levels_fit(pool, taken - 1, {size: sizes[size] for size in small})
    return _search(pool, taken - 1, {(size, 0.0, 0.0): n for size, n in sizes.items()})


def _levels_fit(pool: Pool, whole: int, sizes: dict[int, int]) -> bool:
    """Whether replicas whose sizes divide each other fit beside `whole` whole nodes. From the
    largest size down, what is left of every node is a number of blocks of that size, wherever
    the larger ones went; so it is enough to count blocks."""
    full = pool.accelerators_per_node
    parts = [group for group in pool.nodes if group.free_accelerators < full]
    for size in sizes:
        blocks = whole * (full // size)
        blocks += sum(group.count * (group.free_accelerators // size) for group in parts)
        needed = sum(count * (other // size) for other, count in sizes.items() if other >= size)
        if needed > blocks:
            return False
    return True


def _search(pool: Pool, whole: int, kinds: dict[_Kind, int]) -> bool:
    """Depth-first: the largest replica left goes to each different node in turn. False also
    when the steps run out or the pool is too large to try."""
    full = pool.accelerators_per_node
    small = {kind: count for kind, count in kinds.items() if kind[0] < full}
    large = sum(count for kind, count in kinds.items() if kind[0] >= full)
    if sum(group.count for group in pool.nodes) > 64:
        return False
    if sum(small.values()) > _SEARCH_REPLICAS:
        return False
    whole_groups = [group for group in pool.nodes if group.free_accelerators == full]
    part_groups = [group for group in pool.nodes if group.free_accelerators < full]
    nodes = [_room(group) for group in part_groups for _ in range(group.count)]
    chosen = [_room(group) for group in whole_groups for _ in range(group.count)]
    if len({*chosen}) > 1 or len(chosen) - large < whole:
        return False
    nodes += chosen[:whole]
    items = sorted((kind for kind, count in small.items() for _ in range(count)), reverse=True)
    return _Search(items, nodes).fits()


def _room(group: NodeGroup) -> tuple[int, float, float]:
    slack = 1 + _SLACK
    cpus = math.inf if group.free_cpus is None else group.free_cpus * slack
    memory = math.inf if group.free_memory_gib is None else group.free_memory_gib * slack
    return (group.free_accelerators, cpus, memory)


class _Search:
    def __init__(self, items: list[_Kind], nodes: list[tuple[int, float, float]]) -> None:
        self.items = items
        self.nodes = nodes
        self.steps = 0
        self.left = [0] * (len(items) + 1)
        for index in range(len(items) - 1, -1, -1):
            self.left[index] = self.left[index + 1] + items[index][0]

    def fits(self, index: int = 0) -> bool:
        """Whether items from `index` on fit into what is left of the nodes."""
        if index == len(self.items):
            return True
        self.steps += 1
        free = sum(node[0] for node in self.nodes)
        if self.steps > _SEARCH_STEPS or self.left[index] > free:
            return False
        kind = self.items[index]
        tried: set[tuple[int, float, float]] = set()
        for position, node in enumerate(self.nodes):
            if node in tried or any(need > room for need, room in zip(kind, node, strict=True)):
                continue
            tried.add(node)
            self.nodes[position] = (node[0] - kind[0], node[1] - kind[1], node[2] - kind[2])
            if self.fits(index + 1):
                return True
            self.nodes[position] = node
        return False
