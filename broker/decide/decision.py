"""`decide(problem) -> Plan`: floors, improvement, verification."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from broker.decide import cpsat
from broker.decide.case import Case, build_case
from broker.decide.finish import Candidate, assignments, demands, fills, make_candidate, packed
from broker.decide.greedy import Floor, floor_orders, greedy
from broker.decide.improve import Improved, Improver
from broker.decide.packing import Packing
from broker.decide.realise import pack_exactly
from broker.decide.reasons import LEAST_POOLS, MOST_POOLS, Reasons
from broker.decide.shapes import Shape
from broker.decide.solver import Effort, Solve
from broker.decide.verify import verify
from broker.model.plan import Assignment, Plan, PlanStatus, Unplaced
from broker.model.problem import Problem

_DETERMINISTIC_PER_CPU_S = 0.25
"""The solver's deterministic time that takes about one CPU second."""
_MOST_OPTIONS = 20_000
"""Options up to which the whole model is given to the solver."""
_LOOKS = 3_000
"""Pairs of class and pool that are looked at for the reasons of all that waits."""


@dataclass(frozen=True, slots=True)
class Budget:
    """How long a decision may take. `cpu_s` becomes a deterministic limit, so that the same problem
    gets the same plan; `wall_s` stops the solver on the wall as well, and then it may not."""

    cpu_s: float = 5.0
    wall_s: float | None = None


class NoVerifiedPlan(RuntimeError):
    """Not even the floor passed the verifier: a fault in this program, never in a problem."""


def decide(problem: Problem, budget: Budget | None = None, solve: Solve = cpsat.solve) -> Plan:
    """The best plan found within the budget; verified, and never worse than the floors.

    Deterministic without a wall limit. `solve` is the integer solver; whatever it does, the floor
    stands. Raises `NoVerifiedPlan`, for a fault of ours only.
    """
    case = build_case(problem)
    floor = _best_floor(case, solve)
    plan = _improved_plan(case, floor, budget or Budget(), solve)
    violations = verify(problem, plan)
    if not violations:
        return plan
    alarm = f"a plan was refused by the verifier: {violations[0].text}"
    plan = _plan(case, floor, PlanStatus.FLOOR, None, (*plan.notes, alarm))
    violations = verify(problem, plan)
    if violations:
        raise NoVerifiedPlan(violations[0].text)
    return plan


def _improved_plan(case: Case, floor: Candidate, budget: Budget, solve: Solve) -> Plan:
    if len(case.options) > _MOST_OPTIONS:
        note = f"{len(case.options)} options are too many for the solver: the floor is used"
        return _plan(case, floor, PlanStatus.FLOOR, None, (note,))
    effort = Effort(budget.cpu_s * _DETERMINISTIC_PER_CPU_S, budget.wall_s)
    found = Improver(case, floor, solve, effort).run()
    if not found.solved:
        return _plan(case, found.best, PlanStatus.FLOOR, found.bound_usd, found.notes)
    if _is_proved(found):
        bound = found.best.objective_usd
        return _plan(case, found.best, PlanStatus.OPTIMAL, bound, found.notes)
    return _plan(case, found.best, PlanStatus.FEASIBLE, found.bound_usd, found.notes)


def _is_proved(found: Improved) -> bool:
    if found.bound_usd is None or not found.tiers_proved:
        return False
    reached = found.best.objective_usd
    rounding = 2 * found.error_usd + 1e-6 + 1e-11 * abs(reached)
    return found.bound_usd - reached <= rounding <= 0.5 + 5e-7 * abs(reached)


def _best_floor(case: Case, solve: Solve) -> Candidate:
    """The best of the greedy plans and of doing nothing."""

    def exactly(shape: Shape, demand: Sequence[int]) -> Packing | None:
        return pack_exactly(shape, demand, solve)

    nothing = make_candidate(case, np.zeros(len(case.options), dtype=np.int64), {}, None)
    found = [] if nothing is None else [nothing]
    for order in floor_orders(case):
        floor = greedy(case, order)
        candidate = make_candidate(case, floor.counts, floor.packings(), exactly)
        if candidate is not None:
            found.append(candidate)
    return max(found, key=lambda candidate: candidate.rank)


def _plan(
    case: Case,
    candidate: Candidate,
    status: PlanStatus,
    bound_usd: float | None,
    notes: Sequence[str],
) -> Plan:
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
