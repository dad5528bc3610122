"""From a candidate to the plan that is handed out."""

from __future__ import annotations

from collections.abc import Sequence

from broker.decide.case import Case
from broker.decide.finish import Candidate, assignments, demands, fills, packed
from broker.decide.greedy import Floor
from broker.decide.reasons import LEAST_POOLS, MOST_POOLS, Reasons
from broker.model.plan import Assignment, Plan, PlanStatus, Unplaced

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
    given = assignments(case, candidate.counts)
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
        assignments=given,
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
    case: Case, candidate: Candidate, given: Sequence[Assignment]
) -> tuple[Unplaced, ...]:
    left = {job.id: job.count for job in case.problem.jobs}
    for item in given:
        left[item.job] -= item.count
    floor = Floor(case)
    floor.load(candidate.counts, candidate.packings, demands(case, candidate.counts))
    reasons = Reasons(case, floor)
    jobs = case.problem.jobs
    waiting = [
        [member for member in job_class.members if left[jobs[member].id]]
        for job_class in case.classes
    ]
    looks = _LOOKS // max(1, sum(map(bool, waiting)))
    rest: dict[int, Unplaced] = {}
    for k, members in enumerate(waiting):
        if members:
            refusal = reasons.why_waiting(k, max(LEAST_POOLS, min(MOST_POOLS, looks)))
            for member in members:
                name = jobs[member].id
                rest[member] = Unplaced(name, left[name], refusal)
    return tuple(rest[member] for member in sorted(rest))
