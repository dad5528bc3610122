"""Pack nodes where nothing but accelerators counts and the sizes divide each other: as
`packing.Packer` does, with the runs of nodes in a heap by how well they fit."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heappop, heappush

from broker.decide.shapes import Shape

LevelRun = tuple[int, int, int, bool, tuple[int, ...]]
"""(first, nodes, free, whole, replicas): `nodes` nodes from `first` on with `free` accelerators
left and the same replicas by kind on every one; `whole` when nothing else ran on them. Plain tuples
in a hot loop."""


def pack_levels(shape: Shape, demand: Sequence[int]) -> list[LevelRun] | None:
    """Pack `demand[kind]` replicas of each kind, the largest first; None when they cannot fit."""
    full = shape.node_size
    none = (0,) * len(shape.kinds)
    runs: list[LevelRun] = []
    first = 0
    for group in shape.pool.nodes:
        free = group.free_accelerators
        runs.append((first, group.count, free, free == full, none))
        first += group.count
    for kind, replicas in enumerate(demand):
        if replicas:
            size = shape.kinds[kind][0]
            larger = [level for level in shape.levels if level > size]
            packed = _add(runs, (kind, size, none), larger, replicas)
            if packed is None:
                return None
            runs = packed
    runs.sort()
    return runs


def _add(
    runs: list[LevelRun], what: tuple[int, int, tuple[int, ...]], larger: Sequence[int], left: int
) -> list[LevelRun] | None:
    """Add so many replicas of a kind; `what` has the kind, its size, and what lies on an empty
    node. The best places are whole nodes last; then where no larger block is broken, or the
    smallest one."""
    kind, size, none = what
    done: list[LevelRun] = []
    waiting: list[tuple[bool, int, int, int, LevelRun]] = []
    for run in runs:
        first, nodes, free, whole, has = run
        if free >= size and nodes:
            waiting.append((whole and has == none, _broken(free, size, larger), free, first, run))
        else:
            done.append(run)
    heapify(waiting)
    while left:
        if not waiting:
            return None
        unused, broken, free, first, run = heappop(waiting)
        _, nodes, _, whole, has = run
        each = min(left, free // size if unused else _at_once(free, size, larger))
        taken = min(nodes, left // each)
        rest = free - each * size
        part = (first, taken, rest, whole, (*has[:kind], has[kind] + each, *has[kind + 1 :]))
        if rest >= size:
            heappush(waiting, (False, _broken(rest, size, larger), rest, first, part))
        else:
            done.append(part)
        if taken < nodes:
            others = (first + taken, nodes - taken, free, whole, has)
            heappush(waiting, (unused, broken, free, first + taken, others))
        left -= taken * each
    done.extend([entry[4] for entry in waiting])
    return done


def _at_once(free: int, size: int, larger: Sequence[int]) -> int:
    """Replicas to put on each node of a run before looking for a better place."""
    if not larger:
        return free // size
    for level in larger:
        if free % level >= size:
            return free % level // size
    return larger[-1] // size


def _broken(free: int, size: int, larger: Sequence[int]) -> int:
    """Which larger blocks such a replica breaks: the largest counts most."""
    found = 0
    for level in reversed(larger):
        found = 2 * found + (free % level < size)
    return found
