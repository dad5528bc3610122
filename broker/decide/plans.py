"""From a candidate to the plan that is handed out."""

from __future__ import annotations

from collections.abc import Sequence

from broker.decide.case import Case
from broker.decide.finish import Candidate, Share, assignments, demands, fills, packed, shares
from broker.decide.greedy import Floor
from broker.decide.reasons import LEAST_POOLS, MOST_POOLS, Reasons
from broker.model.plan import Plan, PlanStatus, Unplaced

_LOOKS = 1_200
"""Pairs of class and pool that are looked at for the reasons of all that waits."""


def make_plan(
    case: Case,
    candidate: Candidate,
    status: PlanStatus,
    bound_usd: float | None,
    notes: Sequence[str],
) -> Plan:
    """The plan of a candidate: every replica on a node, a reason for all that waits."""
    candidate = packed(case, candidate)
    given = shares(case, candidate.counts)
    named = assignments(case, given)
    whole = {
        case.problem.pools[index].name: packing.whole_nodes
        for index, packing in sorted(candidate.packings.items())
        if packing.whole_nodes
    }
    return Plan(
        status=status,
        objective_usd=candidate.objective_usd,
        bound_usd=bound_usd,
        cost_usd=candidate.cost_usd,
        placed=candidate.placed,
        assignments=named,
        unplaced=_unplaced(case, candidate, given),
        fills=fills(case, candidate, given),
        whole_nodes=whole,
        charged_as_packed=_charged_as_packed(case, candidate),
        notes=tuple(notes),
    )


def _charged_as_packed(case: Case, candidate: Candidate) -> tuple[str, ...]:
    if case.problem.objective.fragmentation_usd_per_node == 0:
        return ()
    return tuple(
        case.problem.pools[index].name
        for index, packing in sorted(candidate.packings.items())
        if packing.whole_nodes and not packing.least
    )


def _unplaced(
    case: Case, candidate: Candidate, given: Sequence[Share]
) -> tuple[Unplaced, ...]:
    jobs = case.problem.jobs
    left = [job.count for job in jobs]
    for job, _, copies, _ in given:
        left[job] -= copies
    waiting = [
        (k, [member for member in item.members if left[member]])
        for k, item in enumerate(case.classes)
    ]
    waiting = [(k, members) for k, members in waiting if members]
    if not waiting:
        return ()
    floor = Floor(case)
    floor.load(candidate.counts, candidate.packings, demands(case, candidate.counts))
    reasons = Reasons(case, floor)
    looks = max(LEAST_POOLS, min(MOST_POOLS, _LOOKS // len(waiting)))
    rest: dict[int, Unplaced] = {}
    for k, members in waiting:
        refusal = reasons.why_waiting(k, looks)
        for member in members:
            rest[member] = Unplaced(jobs[member].id, left[member], refusal)
    return tuple(rest[member] for member in sorted(rest))
