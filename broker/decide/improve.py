"""Improve on a floor with an integer solver: tier by tier, then cost; or the scalar objective."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from broker.decide.case import Case, Counts
from broker.decide.finish import Candidate, demands, make_candidate
from broker.decide.model import Model, Row, build_model
from broker.decide.options import Floats
from broker.decide.packing import Packing
from broker.decide.realise import followed, pack_exactly, packings_of, refilled
from broker.decide.shapes import Shape
from broker.decide.solver import Answer, Effort, Solve, SolverStatus
from broker.decide.whole_numbers import money_unit
from broker.model.problem import Mode

_GUIDE_FROM = 1_500
"""Options from which on a start for all tiers at once is looked for first."""
_GUIDE_FACTOR = 4.0
_GUIDE_SHARE = 2
"""One part in this many of the effort goes to that start."""


@dataclass(frozen=True, slots=True)
class Improved:
    """The best candidate, an upper bound on its objective in USD (None = not known) and how far
    rounding may have raised it, whether the placed weight of every tier is proved, and whether the
    solver gave any answer of use."""

    best: Candidate
    bound_usd: float | None
    error_usd: float
    tiers_proved: bool
    solved: bool
    notes: tuple[str, ...]


class Improver:
    """One improvement of one case. The incumbent never gets worse."""

    def __init__(
        self,
        case: Case,
        incumbent: Candidate,
        solve: Solve,
        effort: Effort,
        *,
        hinted: bool = False,
    ) -> None:
        """`hinted` when the incumbent is better than a greedy plan: a good start for any stage."""
        self.case = case
        self.hinted = hinted
        self.best = incumbent
        self.solve = solve
        self.effort = effort
        self.notes: list[str] = []
        self.model = build_model(case)
        self.tiers_proved = True
        self.solved = False
        self.error_usd = 0.0

    def run(self) -> Improved:
        """Spend the effort."""
        tiers = self._tiers()
        stages = len(tiers) + (1 if self.model.exact else 2)
        if not self.model.exact:
            self._guide(build_model(self.case, relaxed=True), tiers, self._share(_GUIDE_SHARE))
        elif len(tiers) > 1 and len(self.case.options) > _GUIDE_FROM and not self.hinted:
            self._guide(self.model, tiers, self._share(_GUIDE_SHARE))
        for level, options in tiers.items():
            self._tier(level, options, self._share(stages))
            stages -= 1
        bound = self._money(self.model, self._share(stages))
        if not self.model.exact:
            bound = self._loose_bound(tiers)
        return Improved(
            best=self.best,
            bound_usd=bound,
            error_usd=self.error_usd,
            tiers_proved=self.tiers_proved,
            solved=self.solved,
            notes=tuple(dict.fromkeys(self.notes)),
        )

    def _share(self, stages: int) -> Effort:
        """What one of the stages left may spend; what it does not need is for the others."""
        wall = self.effort.wall_s
        return Effort(self.effort.deterministic / stages, None if wall is None else wall / stages)

    # Stages -----------------------------------------------------------------------------------

    def _tiers(self) -> dict[int, list[int]]:
        """The options of each tier whose placing comes before cost, from the highest."""
        tiers: dict[int, list[int]] = {}
        first = self.case.options.first.tolist()
        for k in self.case.weighty_classes():
            priority = self.case.classes[k].job.priority
            tiers.setdefault(priority, []).extend(range(first[k], first[k + 1]))
        return {level: tiers[level] for level in sorted(tiers, reverse=True)}

    def _guide(self, model: Model, tiers: Mapping[int, Sequence[int]], effort: Effort) -> None:
        """Look for a good start for all tiers and the cost at once: each tier is worth several
        times the next lower one, and the lowest several times its cost. Proves nothing. The rows
        of `model` may be looser than the problem: then the answer is followed as far as it goes."""
        case = self.case
        gangs = np.array(case.gang, dtype=np.float64)[case.options.class_index]
        worth = _GUIDE_FACTOR * float(np.max(case.options.cost_usd / gangs, initial=0.0)) + 1e-6
        reward = np.zeros(len(case.options))
        for options in reversed(list(tiers.values())):
            reward[list(options)] = worth
            worth *= _GUIDE_FACTOR
        _, objective, _ = self._money_objective(model, reward * gangs)
        answer = self._ask(model, objective, {}, effort)
        if model is self.model:
            self._consider(model, answer, refill=True)
        elif answer.values:
            suggested = np.array(answer.values[: len(case.options)], dtype=np.int64)
            self._adopt(*followed(case, suggested))

    def _tier(self, level: int, options: Sequence[int], effort: Effort) -> None:
        """Raise the placed accelerators of one tier as far as possible, then hold them."""
        target = self._gangs(options)
        reached = self._reached(options)
        if reached < self._most(level):
            model = self._without_lower(level)
            answer = self._ask(model, target, self._hint(model), effort)
            self._consider(model, answer, refill=True)
            reached = self._reached(options)
            bound = answer.bound if model.exact else None
            self.tiers_proved &= bound is not None and reached >= bound
        self.model.rows.append(_at_least(target, reached))

    def _money(self, model: Model, effort: Effort) -> float | None:
        """The most USD, given what the tiers hold; returns an upper bound on it."""
        unit, objective, error_usd = self._money_objective(model)
        scalar = self.case.problem.objective.mode is Mode.SCALAR
        # A greedy hint keeps the search near the floor; only held tiers are hard to meet without.
        hint = self._hint(model) if self.hinted or not scalar else {}
        answer = self._ask(model, objective, hint, effort)
        self._consider(model, answer, refill=scalar and answer.status is SolverStatus.FEASIBLE)
        return self._bound_usd(answer, unit, error_usd)

    def _loose_bound(self, tiers: Mapping[int, Sequence[int]]) -> float | None:
        """A bound from rows that are looser than the problem."""
        model = build_model(self.case, relaxed=True)
        for options in tiers.values():
            model.rows.append(_at_least(self._gangs(options), self._reached(options)))
        unit, objective, error_usd = self._money_objective(model)
        answer = self._ask(model, objective, self._hint(model), self.effort)
        return self._bound_usd(answer, unit, error_usd)

    def _bound_usd(self, answer: Answer, unit: float, error_usd: float) -> float | None:
        self.error_usd = error_usd
        if answer.bound is None:
            return None
        return answer.bound * unit + error_usd - self.case.lost_work_usd

    # Parts ------------------------------------------------------------------------------------

    def _hint(self, model: Model) -> dict[int, int]:
        """The incumbent by column, as far as the model has it."""
        counts = self.best.counts
        hint = dict(enumerate(np.minimum(counts, model.upper[: len(counts)]).tolist()))
        for pool, column in model.opened.items():
            hint[column] = self.best.whole_nodes.get(pool, 0)
        return hint

    def _ask(
        self, model: Model, objective: Mapping[int, int], hint: Mapping[int, int], effort: Effort
    ) -> Answer:
        answer = self.solve(model, objective, hint, effort)
        self._spend(effort, answer)
        # Rows stricter than the problem may not be able to hold what the floor has placed.
        if answer.note and (model.exact or answer.status is not SolverStatus.INFEASIBLE):
            self.notes.append(answer.note)
        self.solved |= answer.status in (SolverStatus.OPTIMAL, SolverStatus.FEASIBLE)
        return answer

    def _spend(self, given: Effort, answer: Answer) -> None:
        wall = self.effort.wall_s
        if wall is not None:
            if given.wall_s is not None and answer.wall_s >= 0.95 * given.wall_s:
                self.notes.append("stopped by the wall limit: another run may find another plan")
            wall = max(0.0, wall - answer.wall_s)
        left = max(0.0, self.effort.deterministic - answer.effort)
        self.effort = Effort(left, wall)

    def _consider(self, model: Model, answer: Answer, *, refill: bool) -> None:
        """Take an answer as the incumbent if it is better."""
        if not answer.values:
            return
        counts: Counts = np.array(answer.values[: len(self.case.options)], dtype=np.int64)
        try:
            known = packings_of(self.case, model, answer.values, demands(self.case, counts))
        except ValueError as error:
            self.notes.append(f"an answer of the solver contradicts itself: {error}")
            return
        if refill:
            counts, known = refilled(self.case, counts, known)
        self._adopt(counts, known)

    def _adopt(self, counts: Counts, known: Mapping[int, Packing]) -> None:
        found = make_candidate(self.case, counts, known, self._pack_exactly)
        if found is None:
            self.notes.append("a solution could not be put on nodes")
        elif found.rank > self.best.rank:
            self.best = found

    def _pack_exactly(self, shape: Shape, demand: Sequence[int]) -> Packing | None:
        return pack_exactly(shape, demand, self.solve)

    def _without_lower(self, level: int) -> Model:
        """The model with nothing placed of priorities below `level`."""
        upper = list(self.model.upper)
        for option, k in enumerate(self.case.options.class_index.tolist()):
            if self.case.classes[k].job.priority < level:
                upper[option] = 0
        return replace(self.model, upper=upper, rows=list(self.model.rows))

    def _gangs(self, options: Iterable[int]) -> dict[int, int]:
        class_of = self.case.options.class_index
        return {option: self.case.gang[class_of[option]] for option in options}

    def _reached(self, options: Sequence[int]) -> int:
        counts = self.best.counts
        return sum(gang * int(counts[option]) for option, gang in self._gangs(options).items())

    def _most(self, level: int) -> int:
        """Accelerators of a tier were each class alone."""
        case = self.case
        total = 0
        for k, item in enumerate(case.classes):
            if item.job.priority == level:
                most = case.options.most[case.options.first[k] : case.options.first[k + 1]]
                total += case.gang[k] * min(item.count, sum(most.tolist()))
        return total

    def _money_objective(
        self, model: Model, reward_usd: Floats | None = None
    ) -> tuple[float, dict[int, int], float]:
        """USD per whole number, the coefficients, and how far rounding can be off in USD.
        `reward_usd` per option is added to what a copy is worth anyway."""
        case = self.case
        net = case.reward_usd[case.options.class_index] - case.options.cost_usd
        gains = (net if reward_usd is None else net + reward_usd).tolist()
        node_usd = case.problem.objective.fragmentation_usd_per_node
        upper = model.upper
        largest = sum(abs(gain) * upper[option] for option, gain in enumerate(gains))
        largest += node_usd * sum(upper[column] for column in model.whole)
        unit = money_unit(largest)
        objective = {option: round(gain / unit) for option, gain in enumerate(gains)}
        node = round(node_usd / unit)
        objective.update((column, -node) for column in model.whole if node)
        copies = sum(min(item.count, 2**53) for item in case.classes)
        whole = sum(upper[column] for column in model.whole)
        error = unit / 2 * (copies + (whole if abs(node * unit - node_usd) > 1e-12 else 0))
        return unit, objective, error


def _at_least(target: Mapping[int, int], reached: int) -> Row:
    return Row(list(target), [-gang for gang in target.values()], -reached)
