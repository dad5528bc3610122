"""`decide(problem) -> Plan`: floors, improvement, verification."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from broker.decide import cpsat
from broker.decide.case import Case, Counts, build_case
from broker.decide.collecting import without_collecting
from broker.decide.cutoff import Cutoff
from broker.decide.finish import Candidate, make_candidate
from broker.decide.floors import floor_ways, walk
from broker.decide.improve import Improved, Improver
from broker.decide.meter import MIDDLING, SMALL, Meter
from broker.decide.packing import Packing
from broker.decide.plans import make_plan
from broker.decide.prepared import Prepared
from broker.decide.realise import pack_exactly
from broker.decide.search import Search, Searched
from broker.decide.shapes import Shape
from broker.decide.solver import Solve, no_solver
from broker.decide.unfold import in_forms, unfolded
from broker.decide.verify import verify
from broker.model.plan import Plan, PlanStatus
from broker.model.problem import Mode, Problem
from broker.model.warm import Warm

_NOTHING_FOUND = "the solver found nothing in the time it had; the floor is in force"
_WHOLE_SHARE = {Mode.PLACE_FIRST: 0.7, Mode.SCALAR: 0.6}
"""Of the time that a search leaves, what the whole model gets; the rest is for repairs of what it
finds: in place_first for cost, with the tiers held."""
_WHOLE_OPTION_S = 3e-5
"""CPU seconds by option below which the whole model of a larger problem is not worth a start, for
each time that it is solved."""
_BOUND_OPTION_S = 6e-5
"""The same, in scalar mode, up to which it gets all that is left: it lowers the bound late."""
_TIER_OPTION_S = 1.5e-5
"""CPU seconds by option that each of several solves takes before the solver counts its own."""


@dataclass(frozen=True, slots=True)
class Budget:
    """How long a decision may take. `cpu_s` becomes a deterministic limit, so that the same problem
    gets the same plan; `wall_s` stops the solver on the wall as well, and then it may not."""

    cpu_s: float = 5.0
    wall_s: float | None = None


class NoVerifiedPlan(RuntimeError):
    """Not even the floor passed the verifier: a fault in this program, never in a problem."""


@without_collecting()
def decide(
    problem: Problem,
    budget: Budget | None = None,
    solve: Solve = cpsat.solve,
    warm: Warm | None = None,
    prepared: Prepared | None = None,
) -> Plan:
    """The best plan found within the budget; verified, and never worse than the floors.

    `warm` is what the last decision left (that of the problem when None): with it the plan follows
    the last one at the last prices, and no relaxation is solved. `prepared` is `prepare(problem)`,
    which may take over from the one before: it saves time and changes no plan. Deterministic
    without a wall limit. `solve` is the integer solver; whatever it does, the floor stands. Raises
    `NoVerifiedPlan`, for a fault of ours only.
    """
    budget = budget or Budget()
    case = build_case(problem, prepared)
    sizes = (len(case.classes), len(case.options), len(problem.pools))
    meter = Meter(budget.cpu_s, budget.wall_s, sizes)
    warm = warm or problem.warm
    if case.forms is not None:
        warm = in_forms(case.forms, warm)
    plan = _improved_plan(case, _Floors(case, solve), meter, warm)
    if case.forms is not None:
        plan = unfolded(case.forms, plan)
    violations = verify(problem, plan)
    if not violations:
        return plan
    alarm = f"a plan was refused by the verifier: {violations[0].text}"
    return decide_floor(problem, *plan.notes, alarm)


def decide_floor(problem: Problem, *notes: str) -> Plan:
    """The best greedy plan, verified, by no solver at all: for when solvers cannot be trusted.
    Raises `NoVerifiedPlan`, for a fault of ours only."""
    case = build_case(problem)
    floor = max(_Floors(case, no_solver).run(), key=lambda candidate: candidate.rank)
    plan = make_plan(case, floor, PlanStatus.FLOOR, None, notes)
    if case.forms is not None:
        plan = unfolded(case.forms, plan)
    violations = verify(problem, plan)
    if violations:
        raise NoVerifiedPlan(violations[0].text)
    return plan


class _Floors:
    """Doing nothing, and the greedy plans."""

    def __init__(self, case: Case, solve: Solve) -> None:
        self._case = case
        self.solve = solve
        nothing = self._candidate(np.zeros(len(case.options), dtype=np.int64), {})
        if nothing is None:
            raise NoVerifiedPlan("an empty plan could not be put on nodes")
        self.nothing = nothing

    def run(self, cutoff: Cutoff | None = None) -> list[Candidate]:
        """All of them, or with a cutoff those that it does not prove to be worse."""
        found = [self.nothing]
        for way in floor_ways(self._case):
            if cutoff is not None:
                cutoff.start()
            floor = walk(self._case, way, None if cutoff is None else cutoff.beaten)
            if floor is not None:
                candidate = self._candidate(floor.counts, floor.packings())
                found += [] if candidate is None else [candidate]
        return found

    def _candidate(self, counts: Counts, packings: Mapping[int, Packing]) -> Candidate | None:
        return make_candidate(self._case, counts, packings, self._exactly)

    def _exactly(self, shape: Shape, demand: Sequence[int]) -> Packing | None:
        return pack_exactly(shape, demand, self.solve)


def _improved_plan(case: Case, floors: _Floors, meter: Meter, warm: Warm | None) -> Plan:
    if len(case.options) <= SMALL:
        best = max(floors.run(), key=lambda candidate: candidate.rank)
        return _whole(case, Searched(best, None, None, (), by_floor=True), floors.solve, meter)
    # To stay near a plan and to look everywhere do not go together.
    near = warm is not None and bool(warm.assignments)
    whole = len(case.options) <= MIDDLING and not near
    spare_s = _WHOLE_OPTION_S * len(case.options) * _solves(case) if whole else 0.0
    search = Search(case, floors.nothing, floors.solve, meter)
    found = search.run(warm, floors.run, spare_s)
    if whole and meter.left_s > 0.9 * spare_s:
        return _whole(case, found, floors.solve, meter, search)
    status = PlanStatus.FLOOR if found.by_floor else PlanStatus.FEASIBLE
    plan = make_plan(case, found.best, status, found.bound_usd, found.notes)
    return replace(plan, prices=found.prices)


def _whole(
    case: Case, start: Searched, solve: Solve, meter: Meter, search: Search | None = None
) -> Plan:
    """Go on from what was found with the whole model and all that is left of the budget; or a part
    of it, where a search can go on from there."""
    best, solved, mode = start.best, not start.by_floor, case.problem.objective.mode
    tiered = search is not None and mode is Mode.PLACE_FIRST
    if tiered:
        meter.charge(_TIER_OPTION_S * len(case.options) * _solves(case))
    share_s = meter.left_s * (1.0 if search is None else _WHOLE_SHARE[mode])
    if not tiered:
        share_s = max(share_s, min(meter.left_s, _BOUND_OPTION_S * len(case.options)))
    effort = meter.effort(share_s)
    improver = Improver(case, best, solve, effort, hinted=solved)
    found = improver.run()
    meter.charge_solver(effort.deterministic - improver.effort.deterministic, whole=True)
    notes = (*start.notes, *found.notes)
    if not (solved or found.solved or notes) and len(case.options):
        notes = (_NOTHING_FOUND,)
    if found.solved and _is_proved(found):
        reached = found.best.objective_usd
        plan = make_plan(case, found.best, PlanStatus.OPTIMAL, reached, notes)
        return replace(plan, prices=start.prices)
    bound = _tighter(case, start.bound_usd, best, found)
    cheaper = None if search is None or not tiered else search.cheapen(found.best)
    last = found.best if cheaper is None else cheaper.best
    if search is not None and not tiered:
        last = search.repaired(found.best)
    if cheaper is not None:
        same = last.placed == found.best.placed
        known = [b for b in (bound if same else None, cheaper.bound_usd) if b is not None]
        bound = min(known, default=None)
    status = PlanStatus.FEASIBLE if solved or found.solved else PlanStatus.FLOOR
    plan = make_plan(case, last, status, bound, notes)
    return replace(plan, prices=start.prices if cheaper is None else cheaper.prices)


def _solves(case: Case) -> int:
    """How often the whole model is solved: for each tier, and for the money."""
    return 1 + len({case.facts.priority[k] for k in case.weighty_classes()})


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
