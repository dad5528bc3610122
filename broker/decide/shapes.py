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

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto

from broker.decide.terms import SLACK
from broker.model.problem import Job, NodeGroup, Pool

PATTERN_LIMIT = 1500
"""Most patterns of one pool; a pool with more is counted node by node or rounded."""
NODE_LIMIT = 64
"""Most nodes of a pool that is counted node by node."""

_SEARCH_STEPS = 100_000
"""Most steps of looking for patterns."""

Amount = tuple[int, float, float]
"""accelerators, cpus, memory in GiB: of one replica, or free on one node."""


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
    memory) of a replica to its kind. In `LEVELS` and `ROUNDED` `levels` are the block sizes
    below a whole node, ascending, and `block[kind]` the block a kind takes (a whole node = node
    size)."""

    pool: Pool
    kinds: tuple[Amount, ...]
    kind_of: dict[Amount, int]
    counting: Counting
    levels: tuple[int, ...] = ()
    block: tuple[int, ...] = ()
    patterns: tuple[Pattern, ...] = ()

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
    return (job.accelerators_per_replica, job.replica_cpus, job.replica_memory_gib)


def room_of(group: NodeGroup) -> Amount:
    """What one node of a group has, slack included; infinite where nothing is limited."""
    slack = 1 + SLACK
    cpus = float("inf") if group.free_cpus is None else group.free_cpus * slack
    memory = float("inf") if group.free_memory_gib is None else group.free_memory_gib * slack
    return (group.free_accelerators, cpus, memory)


def fits(need: Amount, room: Amount) -> int:
    """How many replicas fit in a room."""
    times = room[0] // need[0]
    for index in (1, 2):
        if need[index] > 0 and times > 0 and need[index] * times > room[index]:
            times = int(room[index] / need[index])
    return times


def less(room: Amount, need: Amount, times: int) -> Amount:
    """What is left of a room after some replicas."""
    return (
        room[0] - need[0] * times,
        max(0.0, room[1] - need[1] * times),
        max(0.0, room[2] - need[2] * times),
    )


def build_shape(pool: Pool, amounts: Sequence[Amount]) -> Shape:
    """The shape of a pool for replicas of some amounts (repeats are fine)."""
    distinct = sorted(set(amounts), reverse=True)
    cpus_bind = _binds(pool, distinct, 1)
    memory_binds = _binds(pool, distinct, 2)
    kind_of: dict[Amount, int] = {}
    index: dict[Amount, int] = {}
    for amount in distinct:
        kind = (amount[0], amount[1] * cpus_bind, amount[2] * memory_binds)
        kind_of[amount] = index.setdefault(kind, len(index))
    kinds = tuple(sorted(index, reverse=True))
    rank = {kind: position for position, kind in enumerate(kinds)}
    old = list(index)
    kind_of = {amount: rank[old[position]] for amount, position in kind_of.items()}
    return _counted(pool, kinds, kind_of, only_accelerators=not (cpus_bind or memory_binds))


def _binds(pool: Pool, amounts: Sequence[Amount], figure: int) -> bool:
    """Whether cpus (1) or memory (2) can run out on a node before the accelerators do."""
    densest = max((amount[figure] / amount[0] for amount in amounts), default=0.0)
    return any(
        densest * group.free_accelerators > room_of(group)[figure]
        for group in pool.nodes
        if group.free_accelerators
    )


def _counted(
    pool: Pool,
    kinds: tuple[Amount, ...],
    kind_of: dict[Amount, int],
    *,
    only_accelerators: bool,
) -> Shape:
    full = pool.accelerators_per_node
    small = sorted({kind[0] for kind in kinds if kind[0] < full})
    chain = all(large % little == 0 for little, large in zip(small, small[1:], strict=False))
    if only_accelerators and chain:
        block = tuple(kind[0] for kind in kinds)
        return Shape(pool, kinds, kind_of, Counting.LEVELS, tuple(small), block)
    patterns = enumerate_patterns(pool, kinds, PATTERN_LIMIT)
    if patterns is not None:
        return Shape(pool, kinds, kind_of, Counting.PATTERNS, patterns=patterns)
    if sum(group.count for group in pool.nodes) <= NODE_LIMIT:
        return Shape(pool, kinds, kind_of, Counting.NODES)
    block = tuple(_rounded_block(pool, kind) for kind in kinds)
    levels = tuple(sorted({size for size in block if size < full}))
    return Shape(pool, kinds, kind_of, Counting.ROUNDED, levels, block)


def _rounded_block(pool: Pool, kind: Amount) -> int:
    """The smallest of the node size halved again and again that has enough accelerators and, on
    every node, enough cpus and memory in proportion; over the node size if none has."""
    full = pool.accelerators_per_node
    best = full + 1
    size = full
    while size >= 1:
        share_fits = all(
            kind[figure] * group.free_accelerators <= room_of(group)[figure] * size
            for group in pool.nodes
            for figure in (1, 2)
        )
        if kind[0] <= size and share_fits:
            best = size
        if size % 2:
            break
        size //= 2
    return best


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


def _maximal(room: Amount, kinds: Sequence[Amount], limit: int) -> list[tuple[int, ...]] | None:
    """Maximal fillings of a room; None when there are more than `limit` or too many to look at."""
    found: list[tuple[int, ...]] = []
    steps = 0
    stack: list[tuple[tuple[int, ...], Amount]] = [((), room)]
    while stack:
        chosen, left = stack.pop()
        depth = len(chosen)
        if depth == len(kinds):
            if any(chosen) and not any(fits(kind, left) for kind in kinds):
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
