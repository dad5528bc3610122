"""How the nodes of a pool can be filled: which replicas differ there, and which counting is
exact.

Two countings are exact. Where the sizes smaller than a node divide each other (1, 2, 4) and
nothing but accelerators binds on a node, it is enough to count blocks of each size (`LEVELS`):
from the largest size down, what is left of a node is a number of blocks of that size, wherever
the larger replicas went. Otherwise whole fillings of a node are counted (`PATTERNS`, `NODES`).
Where these are too many, replicas are rounded up until levels count them (`ROUNDED`): safe, not
exact.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
from itertools import repeat

from broker.decide.terms import SLACK
from broker.model.problem import Job, NodeGroup, Pool

PATTERN_LIMIT = 1500
"""Most patterns of one pool; a pool with more is counted node by node or rounded."""
NODE_LIMIT = 64
"""Most nodes of a pool that is counted node by node."""
COLUMN_LIMIT = 10_000
"""Most pairs of node and kind of all pools that are counted node by node."""

_SEARCH_STEPS = 100_000
"""Most steps of looking for patterns."""

Amount = tuple[int, float, float] | tuple[int, float, float, int]
"""accelerators, cpus, memory in GiB: of one replica, or free on one node. A replica with a fourth
entry shares no node with others that have the same."""

ALONE = 4
"""How long the amount of such a replica is."""


class Counting(Enum):
    """How the nodes of a pool are counted in a model."""

    LEVELS = auto()
    PATTERNS = auto()
    NODES = auto()
    ROUNDED = auto()


@dataclass(frozen=True, slots=True)
class Pattern:
    """A filling of one node of group `group` to which nothing can be added: `replicas[kind]` of
    each kind. `costs_whole` when it gives a whole node to smaller replicas."""

    group: int
    replicas: tuple[int, ...]
    costs_whole: bool


@dataclass(frozen=True, slots=True)
class Shape:
    """A pool and the kinds of replicas it may get. `kinds` has the largest first; a figure that
    cannot bind on any node of the pool is 0 in all of them. `kind_of` maps (accelerators, cpus,
    memory) of a replica to its kind. `levels` are in `LEVELS` the sizes below a whole node,
    ascending. `rounded` is in `ROUNDED` the shape with the same kinds by index, each grown to a
    size that levels can count, on nodes with no more free accelerators than their cpus and memory
    are good for: what it holds, the pool holds. A kind larger than a node there has no place."""

    pool: Pool
    kinds: tuple[Amount, ...]
    kind_of: dict[Amount, int]
    counting: Counting
    levels: tuple[int, ...] = ()
    patterns: tuple[Pattern, ...] = ()
    rounded: Shape | None = None

    @property
    def node_size(self) -> int:
        """Accelerators of a whole node."""
        return self.pool.accelerators_per_node

    @property
    def whole(self) -> int:
        """Whole free nodes."""
        full = self.node_size
        return sum(g.count for g in self.pool.nodes if g.free_accelerators == full)

    def part_blocks(self, size: int) -> int:
        """Blocks of a size on the nodes that are partly free."""
        full = self.node_size
        parts = (g for g in self.pool.nodes if g.free_accelerators < full)
        return sum(g.count * (g.free_accelerators // size) for g in parts)

    def kind(self, job: Job) -> int:
        """The kind of a job's replicas. Raises KeyError for a job without an option here."""
        return self.kind_of[amount_of(job)]


def amount_of(job: Job) -> Amount:
    """What one replica takes."""
    amount = (job.accelerators_per_replica, job.replica_cpus, job.replica_memory_gib)
    if not job.one_per_node:
        return amount
    return (*amount, int.from_bytes((job.form_of or job.id).encode(), "big"))


def room_of(group: NodeGroup) -> Amount:
    """What one node of a group has, slack included; infinite where nothing is limited."""
    slack = 1 + SLACK
    cpus = float("inf") if group.free_cpus is None else group.free_cpus * slack
    memory = float("inf") if group.free_memory_gib is None else group.free_memory_gib * slack
    return (group.free_accelerators, cpus, memory)


def fits(need: Amount, room: Amount) -> int:
    """How many replicas fit in a room."""
    times = room[0] // need[0]
    if len(need) == ALONE and times > 1:
        times = 1
    for index in (1, 2):
        if need[index] > 0 and times > 0 and need[index] * times > room[index]:
            times = int(room[index] / need[index])
    return times


def places(job: Job, nodes: Sequence[NodeGroup]) -> int:
    """Replicas of a job that fit on some nodes with nothing else on them."""
    need = amount_of(job)
    return sum(group.count * fits(need, room_of(group)) for group in nodes)


def less(room: Amount, need: Amount, times: int) -> Amount:
    """What is left of a room after some replicas."""
    return (
        room[0] - need[0] * times,
        max(0.0, room[1] - need[1] * times),
        max(0.0, room[2] - need[2] * times),
    )


def build_shape(pool: Pool, amounts: Sequence[Amount], most_columns: int = COLUMN_LIMIT) -> Shape:
    """The shape of a pool for replicas of some amounts (repeats are fine). Counting node by node
    may take at most `most_columns` pairs of node and kind."""
    distinct = sorted(set(amounts), reverse=True)
    cpus_bind = _binds(pool, distinct, 1)
    memory_binds = _binds(pool, distinct, 2)
    kind_of: dict[Amount, int] = {}
    index: dict[Amount, int] = {}
    for amount in distinct:
        kind: Amount = (amount[0], amount[1] * cpus_bind, amount[2] * memory_binds)
        if len(amount) == 4 and _two_fit(pool, amount[0]):
            kind = (*kind, amount[3])
        kind_of[amount] = index.setdefault(kind, len(index))
    kinds = tuple(sorted(index, reverse=True))
    rank = {kind: position for position, kind in enumerate(kinds)}
    old = list(index)
    kind_of = {amount: rank[old[position]] for amount, position in kind_of.items()}
    full = pool.accelerators_per_node
    small = sorted({kind[0] for kind in kinds if kind[0] < full})
    alone = any(len(kind) == ALONE for kind in kinds)
    chain = all(large % little == 0 for little, large in zip(small, small[1:], strict=False))
    if chain and not alone and not cpus_bind and not memory_binds:
        return Shape(pool, kinds, kind_of, Counting.LEVELS, tuple(small))
    patterns = enumerate_patterns(pool, kinds, PATTERN_LIMIT)
    if patterns is not None:
        return Shape(pool, kinds, kind_of, Counting.PATTERNS, patterns=patterns)
    nodes = sum(group.count for group in pool.nodes)
    if nodes <= NODE_LIMIT and nodes * len(kinds) <= most_columns:
        return Shape(pool, kinds, kind_of, Counting.NODES)
    rounded = _rounded(pool, kinds)
    return Shape(pool, kinds, kind_of, Counting.ROUNDED, rounded=rounded)


def _binds(pool: Pool, amounts: Sequence[Amount], figure: int) -> bool:
    """Whether cpus (1) or memory (2) can run out on a node before the accelerators do."""
    densest = max((amount[figure] / amount[0] for amount in amounts), default=0.0)
    return any(
        densest * group.free_accelerators > room_of(group)[figure]
        for group in pool.nodes
        if group.free_accelerators
    )


def _two_fit(pool: Pool, size: int) -> bool:
    """Whether a node could take two replicas of a size."""
    return any(group.free_accelerators >= 2 * size for group in pool.nodes)


def _rounded(pool: Pool, kinds: Sequence[Amount]) -> Shape:
    """Sizes and nodes of `Shape.rounded`. cpus and memory are turned into accelerators at the rate
    of the pool as a whole: what a replica needs is rounded up, what a node has is rounded down."""
    full = pool.accelerators_per_node
    rates = (_rate(pool, 1), _rate(pool, 2))
    nodes = tuple(NodeGroup(group.count, _at_rates(room_of(group), rates)) for group in pool.nodes)
    blocks = [full]
    while blocks[-1] % 2 == 0:
        blocks.append(blocks[-1] // 2)
    grown = [
        full if len(kind) == ALONE else max(kind[0], *_needed(kind, rates)) for kind in kinds
    ]
    sizes = [min((b for b in blocks if b >= size), default=full + 1) for size in grown]
    levels = tuple(sorted({size for size in sizes if size < full}))
    amounts: tuple[Amount, ...] = tuple((size, 0.0, 0.0) for size in sizes)
    return Shape(replace(pool, nodes=nodes), amounts, {}, Counting.LEVELS, levels)


def _rate(pool: Pool, figure: int) -> float:
    """cpus (1) or memory (2) per free accelerator; infinite when some node has no limit."""
    groups = [group for group in pool.nodes if group.free_accelerators and group.count]
    total = sum(group.count * room_of(group)[figure] for group in groups)
    accelerators = sum(group.count * group.free_accelerators for group in groups)
    return total / accelerators if total > 0 else math.inf


def _at_rates(room: Amount, rates: Sequence[float]) -> int:
    """Accelerators of a node that its cpus and memory are good for."""
    free = room[0]
    for figure, rate in enumerate(rates, start=1):
        if math.isfinite(rate) and math.isfinite(room[figure]):
            free = min(free, int(room[figure] / rate))
    return free


def _needed(kind: Amount, rates: Sequence[float]) -> list[int]:
    """Accelerators that the cpus and memory of a replica stand for."""
    return [
        math.ceil(kind[figure] / rate - 1e-12) if math.isfinite(rate) else 0
        for figure, rate in enumerate(rates, start=1)
    ]


def enumerate_patterns(
    pool: Pool, kinds: Sequence[Amount], limit: int
) -> tuple[Pattern, ...] | None:
    """All fillings of a node to which nothing can be added, for each group of nodes; None when
    there are more than `limit`."""
    found: list[Pattern] = []
    full = pool.accelerators_per_node
    for index, group in enumerate(pool.nodes):
        is_whole = group.free_accelerators == full
        fillings = _maximal(room_of(group), kinds, limit - len(found))
        if fillings is None:
            return None
        for replicas in fillings:
            small = any(n and kind[0] < full for n, kind in zip(replicas, kinds, strict=True))
            found.append(Pattern(index, replicas, costs_whole=is_whole and small))
    return tuple(found)


def _another(kind: Amount, has: int, left: Amount) -> bool:
    """Whether one more of a kind fits beside some of it."""
    return bool(fits(kind, left)) and not (has and len(kind) == ALONE)


def _maximal(room: Amount, kinds: Sequence[Amount], limit: int) -> list[tuple[int, ...]] | None:
    """Maximal fillings of a room; None when there are more than `limit` or too many to look at."""
    found: list[tuple[int, ...]] = []
    steps = 0
    stack: list[tuple[tuple[int, ...], Amount]] = [((), room)]
    while stack:
        chosen, left = stack.pop()
        depth = len(chosen)
        if depth == len(kinds):
            if any(chosen) and not any(map(_another, kinds, chosen, repeat(left))):
                found.append(chosen)
            if len(found) > limit:
                return None
            continue
        most = fits(kinds[depth], left)
        steps += most + 1
        if steps > _SEARCH_STEPS:
            return None
        least = most if depth == len(kinds) - 1 else 0
        for times in range(least, most + 1):
            stack.append(((*chosen, times), less(left, kinds[depth], times)))
    return found
