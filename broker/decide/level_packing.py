"""Pack nodes where nothing but accelerators counts and the sizes divide each other: as
`packing.Packer` does, with the runs of nodes in a heap by how well they fit."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from broker.decide.shapes import Shape


class LevelRun(NamedTuple):
    """`nodes` nodes from `first` on with `free` accelerators left and the same `replicas` by
    kind on every one; `whole` when nothing else ran on them."""

    first: int
    nodes: int
    free: int
    whole: bool
    replicas: tuple[int, ...]


def pack_levels(shape: Shape, demand: Sequence[int]) -> list[LevelRun] | None:
    """Pack `demand[kind]` replicas of each kind, the largest first; None when they cannot fit."""
    full = shape.node_size
    none = (0,) * len(shape.kinds)
    runs: list[LevelRun] = []
    first = 0
    for group in shape.pool.nodes:
        free = group.free_accelerators
        runs.append(LevelRun(first, group.count, free, free == full, none))
        first += group.count
    for kind, replicas in enumerate(demand):
        if replicas:
            packed = _add(shape, runs, kind, replicas)
            if packed is None:
                return None
            runs = packed
    runs.sort()
    return runs


def _add(shape: Shape, runs: list[LevelRun], kind: int, left: int) -> list[LevelRun] | None:
    size = shape.kinds[kind][0]
    larger = [level for level in shape.levels if level > size]
    done = [run for run in runs if run.free < size or not run.nodes]
    waiting = [(_preference(run, size, larger), run) for run in runs if run.free >= size]
    waiting = [item for item in waiting if item[1].nodes]
    heapify(waiting)
    while left:
        if not waiting:
            return None
        preference, run = heappop(waiting)
        each = min(left, _at_once(run, size, larger))
        taken = min(run.nodes, left // each)
        has = run.replicas
        filled = (*has[:kind], has[kind] + each, *has[kind + 1 :])
        part = LevelRun(run.first, taken, run.free - each * size, run.whole, filled)
        if part.free >= size:
            heappush(waiting, (_preference(part, size, larger), part))
        else:
            done.append(part)
        if taken < run.nodes:
            rest = run._replace(first=run.first + taken, nodes=run.nodes - taken)
            heappush(waiting, ((*preference[:3], rest.first), rest))
        left -= taken * each
    return done + [run for _, run in waiting]


def _at_once(run: LevelRun, size: int, larger: Sequence[int]) -> int:
    """Replicas to put on each node of a run before looking for a better place."""
    if not larger or (run.whole and not any(run.replicas)):
        return run.free // size
    for level in larger:
        if run.free % level >= size:
            return run.free % level // size
    return larger[-1] // size


def _preference(
    run: LevelRun, size: int, larger: Sequence[int]
) -> tuple[bool, list[bool], int, int]:
    """Whole nodes last; then where no larger block is broken, or the smallest one."""
    broken = [run.free % level < size for level in reversed(larger)]
    return (run.whole and not any(run.replicas), broken, run.free, run.first)
