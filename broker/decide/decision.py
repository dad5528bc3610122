"""`decide(problem) -> Plan`: floors, improvement, verification."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from broker.decide import cpsat
from broker.decide.case import Case, build_case
from broker.decide.finish import Candidate, assignments, demands, fills, make_candidate, packed
from broker.decide.greedy import Floor, floor_orders, greedy
from broker.decide.improve import Improved, Improver
from broker.decide.meter import Meter
from broker.decide.packing import Packing
from broker.decide.realise import pack_exactly
from broker.decide.reasons import LEAST_POOLS, MOST_POOLS, Reasons
from broker.decide.search import Search
from broker.decide.shapes import Shape
from broker.decide.solver import Solve
from broker.decide.verify import verify
from broker.model.plan import Assignment, Plan, PlanStatus, Unplaced
from broker.model.prices import Prices
from broker.model.problem import Mode, Problem
from broker.model.warm import Warm

_SMALL = 2_000
"""Options up to which nothing but the whole model is looked at."""
_MOST_OPTIONS = 20_000
"""Options up to which the whole model is given to the solver."""
_REPAIR_SHARE = 0.85
"""Of a model that small, the part of the budget that goes to repairs before the solver takes it as
a whole."""
_LEAST_WHOLE_S = 0.05
"""CPU seconds below which the whole model is not begun."""
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


def decide(
    problem: Problem,
    budget: Budget | None = None,
    solve: Solve = cpsat.solve,
    warm: Warm | None = None,
) -> Plan:
    """The best plan found within the budget; verified, and never worse than the floors.

    `warm` is what the last decision left (that of the problem when None): with it the plan follows
    the last one at the last prices, and no relaxation is solved. Deterministic without a wall
    limit. `solve` is the integer solver; whatever it does, the floor stands. Raises
    `NoVerifiedPlan`, for a fault of ours only.
    """
    budget = budget or Budget()
    case = build_case(problem)
    sizes = (len(case.classes), len(case.options), len(problem.pools))
    meter = Meter(budget.cpu_s, budget.wall_s, sizes)
    floors = _floors(case, solve)
    floor = max(floors, key=lambda candidate: candidate.rank)
    plan = _improved_plan(case, floors, floor, solve, meter, warm or problem.warm)
    violations = verify(problem, plan)
    if not violations:
        return plan
    alarm = f"a plan was refused by the verifier: {violations[0].text}"
    plan = _plan(case, floor, PlanStatus.FLOOR, None, (*plan.notes, alarm))
    violations = verify(problem, plan)
    if violations:
        raise NoVerifiedPlan(violations[0].text)
    return plan


def _improved_plan(
    case: Case,
    floors: Sequence[Candidate],
    floor: Candidate,
    solve: Solve,
    meter: Meter,
    warm: Warm | None,
) -> Plan:
    best, notes = floor, list[str]()
    bound: float | None = None
    prices: Prices | None = None
    whole = len(case.options) <= _MOST_OPTIONS
    if len(case.options) > _SMALL:
        used = np.unique(np.concatenate([f.counts.nonzero()[0] for f in floors]))
        search = Search(case, floor, solve, meter)
        searched = search.run(warm, used, _REPAIR_SHARE if whole else 1.0)
        best, bound, prices = searched.best, searched.bound_usd, searched.prices
        notes += searched.notes
    solved = best is not floor
    if whole and meter.left_s > _LEAST_WHOLE_S:
        found = Improver(case, best, solve, meter.effort(meter.left_s), hinted=solved).run()
        notes += found.notes
        solved = solved or found.solved
        bound = _tighter(case, bound, best, found)
        best = found.best
        if found.solved and _is_proved(found):
            plan = _plan(case, best, PlanStatus.OPTIMAL, best.objective_usd, notes)
            return replace(plan, prices=prices)
    status = PlanStatus.FEASIBLE if solved else PlanStatus.FLOOR
    return replace(_plan(case, best, status, bound, notes), prices=prices)


def _tighter(
    case: Case, bound: float | None, best: Candidate, found: Improved
) -> float | None:
    """The lower of two bounds. One that was given for what the tiers of another plan place says
    nothing about a plan that places something else."""
    same = case.problem.objective.mode is Mode.SCALAR or found.best.placed == best.placed
    known = [b for b in (bound if same else None, found.bound_usd) if b is not None]
    return min(known, default=None)


def _is_proved(found: Improved) -> bool:
    if found.bound_usd is None or not found.tiers_proved:
        return False
    reached = found.best.objective_usd
    rounding = 2 * found.error_usd + 1e-6 + 1e-11 * abs(reached)
    return found.bound_usd - reached <= rounding <= 0.5 + 5e-7 * abs(reached)


def _floors(case: Case, solve: Solve) -> list[Candidate]:
    """Doing nothing, and the greedy plans."""

    def exactly(shape: Shape, demand: Sequence[int]) -> Packing | None:
        return pack_exactly(shape, demand, solve)

    nothing = make_candidate(case, np.zeros(len(case.options), dtype=np.int64), {}, None)
    found = [] if nothing is None else [nothing]
    for order in floor_orders(case):
        floor = greedy(case, order)
        candidate = make_candidate(case, floor.counts, floor.packings(), exactly)
        if candidate is not None:
            found.append(candidate)
    return found


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
