"""From an answer of the solver to copies on nodes: the packings it states, what it left out, and
what can be kept of an answer to looser rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from broker.decide.case import Case, Counts
from broker.decide.finish import demands
from broker.decide.greedy import Floor
from broker.decide.model import Model, build_pack_model
from broker.decide.packing import Packing, from_counts
from broker.decide.shapes import Shape
from broker.decide.solver import Effort, Solve, SolverStatus

_PACK_EFFORT = 0.5
"""Deterministic time for packing one pool exactly."""


def packings_of(
    case: Case, model: Model, values: Sequence[int], needed: Mapping[int, Sequence[int]]
) -> dict[int, Packing]:
    """Packings that an answer says itself, of pools in use that are not counted by levels."""
    found: dict[int, Packing] = {}
    for pool, patterns in model.patterns.items():
        shape = case.shapes[pool]
        if shape is not None and pool in needed:
            chosen = [(g, r, values[c]) for c, g, r in patterns if values[c]]
            found[pool] = from_counts(shape, chosen, needed[pool])
    for pool, nodes in model.nodes.items():
        shape = case.shapes[pool]
        if shape is not None and pool in needed:
            filled = [(g, tuple(values[c] for c in columns), 1) for g, columns in nodes]
            found[pool] = from_counts(shape, filled, needed[pool])
    return found


def refilled(
    case: Case, counts: Counts, known: Mapping[int, Packing]
) -> tuple[Counts, dict[int, Packing]]:
    """Add what still fits of the classes that an answer left aside."""
    floor = Floor(case)
    if not floor.load(counts, known, demands(case, counts)):
        return counts, dict(known)
    return _filled_up(case, floor)


def followed(case: Case, counts: Counts) -> tuple[Counts, dict[int, Packing]]:
    """Place as much as nodes allow of copies that rows looser than the problem suggest, the most
    urgent and largest replicas first, then whatever still fits."""
    floor = Floor(case)
    jobs = [case.classes[k].job for k in case.options.class_index.tolist()]
    suggested = sorted(
        counts.nonzero()[0].tolist(),
        key=lambda o: (-jobs[o].priority, -jobs[o].accelerators_per_replica, o),
    )
    for option in suggested:
        floor.place(case.options.class_index.item(option), option, int(counts[option]))
    return _filled_up(case, floor)


def _filled_up(case: Case, floor: Floor) -> tuple[Counts, dict[int, Packing]]:
    placed = np.zeros(len(case.classes), dtype=np.int64)
    np.add.at(placed, case.options.class_index, floor.counts)
    first = case.options.first.tolist()
    for k in sorted(range(len(case.classes)), key=lambda k: (-case.classes[k].job.priority, k)):
        left = case.classes[k].count - int(placed[k])
        for option in range(first[k], first[k + 1]):
            if left <= 0:
                break
            left -= floor.place(k, option, left)
    return floor.counts, floor.packings()


def pack_exactly(shape: Shape, demand: Sequence[int], solve: Solve) -> Packing | None:
    """Pack a demand with the fewest whole nodes; None when this is not proved in time."""
    model = build_pack_model(shape, demand)
    if model is None:
        return None
    objective = dict.fromkeys(model.whole, -1)
    answer = solve(model, objective, {}, Effort(_PACK_EFFORT))
    if answer.status is not SolverStatus.OPTIMAL:
        return None
    chosen = [(g, r, answer.values[c]) for c, g, r in model.patterns.get(0, []) if answer.values[c]]
    chosen += [
        (g, tuple(answer.values[c] for c in columns), 1) for g, columns in model.nodes.get(0, [])
    ]
    return replace(from_counts(shape, chosen, demand), least=True)
