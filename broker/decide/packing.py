"""Put replicas on concrete nodes, with runs of nodes that are filled alike, so that the work
does not grow with the number of nodes or copies."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TypeVar

from broker.decide.level_packing import pack_levels
from broker.decide.shapes import ALONE, Amount, Counting, Shape, fits, less, room_of
from broker.model.plan import NodeFill

Who = TypeVar("Who", int, str)


@dataclass(frozen=True, slots=True)
class Run:
    """`nodes` nodes from `first` on with the same contents: `replicas[kind]` of each kind on
    every one, `room` left on every one. `whole` when nothing else ran on them."""

    first: int
    nodes: int
    room: Amount
    whole: bool
    replicas: tuple[int, ...]

    @property
    def empty(self) -> bool:
        """Whether nothing was put there."""
        return not any(self.replicas)


@dataclass(frozen=True, slots=True)
class Packing:
    """Runs that cover the nodes of a pool. `least` when no packing of the same replicas is
    known to be able to give fewer whole nodes to smaller replicas."""

    runs: tuple[Run, ...]
    whole_nodes: int
    least: bool


class Packer:
    """Fills the nodes of one pool, tightest node first, whole nodes last. Where levels are counted
    and the largest replicas are added first, what is left holds as many replicas of every size as
    any packing leaves."""

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        self.runs: list[Run] = []
        first = 0
        empty = (0,) * len(shape.kinds)
        for group in shape.pool.nodes:
            whole = group.free_accelerators == shape.node_size
            self.runs.append(Run(first, group.count, room_of(group), whole, empty))
            first += group.count

    def capacity(self, kind: int) -> int:
        """Replicas of a kind that could still be added, were nothing else added."""
        return sum(run.nodes * self._fit(kind, run) for run in self.runs)

    def _fit(self, kind: int, run: Run) -> int:
        """Replicas of a kind that fit beside what lies on a node of a run."""
        need = self.shape.kinds[kind]
        if len(need) == ALONE and run.replicas[kind]:
            return 0
        return fits(need, run.room)

    def add(self, kind: int, replicas: int) -> bool:
        """Add replicas of one kind; False, with nothing changed, when they do not all fit."""
        if replicas > self.capacity(kind):
            return False
        need = self.shape.kinds[kind]
        larger = self._larger(need)
        while replicas > 0:
            index = min(
                (i for i, run in enumerate(self.runs) if self._fit(kind, run)),
                key=lambda i: self._preference(self.runs[i], need, larger),
            )
            run = self.runs[index]
            each = min(self._most_at_once(run, need, larger), replicas)
            nodes = min(run.nodes, replicas // each)
            filled = run.replicas[:kind] + (run.replicas[kind] + each,) + run.replicas[kind + 1 :]
            parts = [Run(run.first, nodes, less(run.room, need, each), run.whole, filled)]
            if nodes < run.nodes:
                first, left = run.first + nodes, run.nodes - nodes
                parts.append(Run(first, left, run.room, run.whole, run.replicas))
            self.runs[index : index + 1] = parts
            replicas -= nodes * each
        return True

    def whole_nodes(self) -> int:
        """Whole nodes given to replicas smaller than a node."""
        full = self.shape.node_size
        small = [kind[0] < full for kind in self.shape.kinds]
        return sum(
            run.nodes
            for run in self.runs
            if run.whole and any(n and s for n, s in zip(run.replicas, small, strict=True))
        )

    def packing(self, *, least: bool) -> Packing:
        """What was packed."""
        return Packing(tuple(self.runs), self.whole_nodes(), least)

    def _preference(
        self, run: Run, need: Amount, larger: Sequence[int]
    ) -> tuple[bool, list[bool], float, int]:
        """Whole nodes last; then where no larger block is broken, or the smallest one."""
        broken = [run.room[0] % level < need[0] for level in larger]
        return (run.whole and run.empty, broken[::-1], run.room[0], run.first)

    def _most_at_once(self, run: Run, need: Amount, larger: Sequence[int]) -> int:
        """Replicas to put on each node of a run before looking for a better place."""
        if run.whole and run.empty:
            return fits(need, run.room)
        for level in larger:
            if run.room[0] % level >= need[0]:
                return int(run.room[0] % level // need[0])
        return larger[-1] // need[0] if larger else fits(need, run.room)

    def _larger(self, need: Amount) -> list[int]:
        """Block sizes over that of a replica which are worth keeping, ascending."""
        if self.shape.counting is not Counting.LEVELS:
            return []
        return [level for level in self.shape.levels if level > need[0]]


def pack(shape: Shape, demand: Sequence[int]) -> Packing | None:
    """Pack `demand[kind]` replicas of each kind; None when this does not succeed, which for
    levels means that it is impossible. For levels the result has the least whole nodes."""
    if shape.counting is Counting.LEVELS:
        return _pack_levels(shape, demand)
    best: Packing | None = None
    bound = least_whole_nodes(shape, demand)
    for order in _orders(shape):
        packer = Packer(shape)
        if all(packer.add(kind, demand[kind]) for kind in order if demand[kind]):
            found = packer.packing(least=packer.whole_nodes() <= bound)
            if best is None or found.whole_nodes < best.whole_nodes:
                best = found
        if best is not None and best.least:
            break
    if best is None and shape.rounded is not None:
        return _pack_rounded(shape, shape.rounded, demand)
    return best


def _pack_levels(shape: Shape, demand: Sequence[int]) -> Packing | None:
    found = pack_levels(shape, demand)
    if found is None:
        return None
    inf = float("inf")
    runs = tuple(
        [Run(run[0], run[1], (run[2], inf, inf), run[3], run[4]) for run in found]
    )
    small = [index for index, kind in enumerate(shape.kinds) if kind[0] < shape.node_size]
    opened = sum([run[1] for run in found if run[3] and any([run[4][i] for i in small])])
    return Packing(runs, opened, least=opened <= least_whole_nodes(shape, demand))


def _pack_rounded(shape: Shape, rounded: Shape, demand: Sequence[int]) -> Packing | None:
    """Pack by the rounded sizes, which succeeds whenever these fit."""
    found = pack(rounded, demand)
    return None if found is None else narrowed(shape, found, demand)


def narrowed(shape: Shape, packing: Packing, demand: Sequence[int]) -> Packing:
    """What a demand needs of a packing that holds it, by kinds of the same index."""
    starts = list(accumulate(group.count for group in shape.pool.nodes))
    chosen = [
        (bisect_right(starts, run.first), run.replicas, run.nodes)
        for run in packing.runs
        if not run.empty
    ]
    return from_counts(shape, chosen, demand)


def _orders(shape: Shape) -> Iterable[list[int]]:
    """Orders to try: by size, by cpus and by memory, the largest first."""
    kinds = range(len(shape.kinds))
    for figure in (0, 1, 2):
        yield sorted(kinds, key=lambda kind: (-shape.kinds[kind][figure], kind))


def least_whole_nodes(shape: Shape, demand: Sequence[int]) -> int:
    """A lower bound on the whole nodes that smaller replicas need; exact for levels. For each
    size s, replicas of at least s take blocks of s: as many as divide into them."""
    full = shape.node_size
    small = [
        (kind[0], n) for kind, n in zip(shape.kinds, demand, strict=True) if n and kind[0] < full
    ]
    if not small:
        return 0
    bound = 0
    for size in {size for size, _ in small} | {1}:
        blocks = sum([count * (other // size) for other, count in small])
        missing = blocks - shape.part_blocks(size)
        bound = max(bound, -(-missing // (full // size)))
    return bound


def from_counts(
    shape: Shape, chosen: Sequence[tuple[int, tuple[int, ...], int]], demand: Sequence[int]
) -> Packing:
    """The packing that offers the places `replicas[kind]` on `count` nodes of group `group`, for
    each (group, replicas, count), and takes those that the demand needs, partly free nodes first.
    Raises ValueError when a group has fewer nodes or the places are not enough."""
    starts = [0]
    for group in shape.pool.nodes:
        starts.append(starts[-1] + group.count)
    packer = Packer(shape)
    packer.runs = []
    queues: list[list[tuple[int, int]]] = [
        [(kind, n)] if n else [] for kind, n in enumerate(demand)
    ]
    full = shape.node_size
    order = sorted(
        range(len(shape.pool.nodes)), key=lambda i: shape.pool.nodes[i].free_accelerators == full
    )
    for index in order:
        first, end = starts[index], starts[index + 1]
        for _, replicas, count in (item for item in chosen if item[0] == index):
            offered = _offered(shape, index, first, count, replicas)
            packer.runs.extend(_taken(shape, offered, queues))
            first += count
        if first > end:
            raise ValueError(f"{shape.pool.name}: more nodes used than there are")
        if first < end:
            packer.runs.append(_offered(shape, index, first, end - first, (0,) * len(demand)))
    if any(queues):
        raise ValueError(f"{shape.pool.name}: not enough places")
    packer.runs.sort(key=lambda run: run.first)
    return packer.packing(least=False)


def _offered(shape: Shape, group: int, first: int, nodes: int, replicas: tuple[int, ...]) -> Run:
    nodes_alike = shape.pool.nodes[group]
    whole = nodes_alike.free_accelerators == shape.node_size
    return Run(first, nodes, room_of(nodes_alike), whole, replicas)


def _taken(shape: Shape, run: Run, queues: list[list[tuple[int, int]]]) -> list[Run]:
    """The run split by what the queues need of its places."""
    taken: list[Run] = []
    first, left = run.first, run.nodes
    while left > 0:
        nodes, contents = _next_fill(run.replicas, queues, left)
        replicas = [0] * len(run.replicas)
        room = run.room
        for kind, count in contents:
            replicas[kind] = count
            room = less(room, shape.kinds[kind], count)
        taken.append(Run(first, nodes, room, run.whole, tuple(replicas)))
        first += nodes
        left -= nodes
    return taken


def seat(
    pool: str, packing: Packing, waiting: Sequence[Sequence[tuple[str, int]]]
) -> list[NodeFill]:
    """Give the places of a packing to jobs: `waiting[kind]` lists (job, replicas) of each kind,
    at most as many as there are places. Neighbouring nodes with equal contents become one
    fill."""
    queues = [list(reversed(items)) for items in waiting]
    fills: list[NodeFill] = []
    for run in packing.runs:
        first, left = run.first, run.nodes
        while left > 0 and not run.empty:
            nodes, contents = _next_fill(run.replicas, queues, left)
            if contents:
                fills.append(NodeFill(pool, first, nodes, contents))
            first += nodes
            left -= nodes
    return fills


def _next_fill(
    replicas: Sequence[int], queues: list[list[tuple[Who, int]]], nodes: int
) -> tuple[int, tuple[tuple[Who, int], ...]]:
    """Contents of the next node of a run and how many nodes get the same; takes them off the
    queues."""
    active = [(queues[kind], each) for kind, each in enumerate(replicas) if each and queues[kind]]
    for queue, each in active:
        whole = queue[-1][1] // each
        if whole < nodes:
            nodes = whole or 1
    contents: dict[Who, int] = {}
    for queue, need in active:
        while need and queue:
            job, rest = queue.pop()
            taken = min(need, rest)
            contents[job] = contents.get(job, 0) + taken
            need -= taken
            if rest > taken * nodes:
                queue.append((job, rest - taken * nodes))
    return nodes, tuple(contents.items())
