"""`decide(problem) -> Plan`: floors, improvement, verification."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from broker.decide import cpsat
from broker.decide.case import Case, build_case
from broker.decide.finish import Candidate, make_candidate
from broker.decide.greedy import first_cluster, floor_orders, greedy
from broker.decide.improve import Improved, Improver
from broker.decide.meter import Meter
from broker.decide.packing import Packing
from broker.decide.plans import make_plan
from broker.decide.realise import pack_exactly
from broker.decide.search import Search
from broker.decide.shapes import Shape
from broker.decide.solver import Solve, no_solver
from broker.decide.verify import verify
from broker.model.plan import Plan, PlanStatus
from broker.model.prices import Prices
from broker.model.problem import Mode, Problem
from broker.model.warm import Warm

_SMALL = 2_000
"""Options up to which nothing but the whole model is looked at."""
_MOST_OPTIONS = 20_000
"""Options up to which the whole model is given to the solver."""
_WHOLE_OPTION_S = 3e-5
"""CPU seconds by option below which the whole model of a larger problem is not worth a start."""


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
    plan = make_plan(case, floor, PlanStatus.FLOOR, None, (*plan.notes, alarm))
    violations = verify(problem, plan)
    if violations:
        raise NoVerifiedPlan(violations[0].text)
    return plan


def decide_floor(problem: Problem, *notes: str) -> Plan:
    """The best greedy plan, verified, by no solver at all: for when solvers cannot be trusted.
    Raises `NoVerifiedPlan`, for a fault of ours only."""
    case = build_case(problem)
    floor = max(_floors(case, no_solver), key=lambda candidate: candidate.rank)
    plan = make_plan(case, floor, PlanStatus.FLOOR, None, notes)
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
    small = len(case.options) <= _SMALL
    # To stay near a plan and to look everywhere do not go together.
    near = warm is not None and bool(warm.assignments)
    whole = small or (len(case.options) <= _MOST_OPTIONS and not near)
    spare_s = _WHOLE_OPTION_S * len(case.options) if whole and not small else 0.0
    if not small:
        used = np.unique(np.concatenate([f.counts.nonzero()[0] for f in floors]))
        search = Search(case, floor, solve, meter)
        searched = search.run(warm, used, spare_s)
        best, bound, prices = searched.best, searched.bound_usd, searched.prices
        notes += searched.notes
    solved = best is not floor
    if whole and meter.left_s > 0.9 * spare_s:
        found = Improver(case, best, solve, meter.effort(meter.left_s), hinted=solved).run()
        notes += found.notes
        solved = solved or found.solved
        bound = _tighter(case, bound, best, found)
        best = found.best
        if found.solved and _is_proved(found):
            plan = make_plan(case, best, PlanStatus.OPTIMAL, best.objective_usd, notes)
            return replace(plan, prices=prices)
    status = PlanStatus.FEASIBLE if solved else PlanStatus.FLOOR
    return replace(make_plan(case, best, status, bound, notes), prices=prices)


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
    fifo, big = floor_orders(case)
    for floor in (greedy(case, fifo), greedy(case, big), first_cluster(case, fifo)):
        candidate = make_candidate(case, floor.counts, floor.packings(), exactly)
        if candidate is not None:
            found.append(candidate)
    return found
