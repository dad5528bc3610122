"""Find a good plan for a problem of any size: prices from a linear relaxation (or from the last
decision), passes that they lead, repairs by the integer solver, and a bound that the prices prove.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from broker.decide.case import Case, Counts
from broker.decide.columns import Columns, Priced
from broker.decide.cutoff import Cutoff
from broker.decide.finish import Candidate, make_candidate
from broker.decide.guided import Lead, guided, pass_orders
from broker.decide.meter import Meter
from broker.decide.named_prices import by_name, by_row
from broker.decide.options import Floats, Integers
from broker.decide.prices_lp import LpFailed
from broker.decide.relaxation import Relaxation
from broker.decide.repair import Guide, Repair
from broker.decide.settling import Near, settled
from broker.decide.solver import Solve
from broker.model.prices import Prices
from broker.model.problem import Mode
from broker.model.warm import Warm

_TIER_FACTOR = 8.0
"""In place_first an accelerator of a priority counts so many times one of the next lower while
prices are looked for, and one of the lowest so many times its dearest place."""
_TIER_ROUNDS = 2
"""Rounds of column generation that look at what tiers can reach: the rest is cost."""
_ITERATIONS_BY_CLASS = 8
_SMALL_SHARE = 0.25
_REPAIR_SHARE = 0.25
_REPAIR_MOST_S = 0.7
"""Of what is left after pricing, for repairs where another stage goes on: this part of it, and
never more CPU seconds than that. The later stage starts from them and needs the rest more."""
_TIER_SHARE = 0.3
"""Of what is left after the first pricing, for repairs that raise what tiers reach."""
_RAISE_SHARE = 0.75
"""The same of what is left at last; the rest is for cost alone, with the tiers held."""
_RESCUE_S = 0.1
"""CPU seconds for repairs of a plan that is followed and would lose to a floor, whatever is left: a
floor follows nothing and moves most of what was placed."""
_NEAR = 2e-4
"""Part of the bound within which a plan that a pass found is repaired at once."""
_LEADS = (Lead.TIER, Lead.CLASS)
_LP_SHARE = 0.75
_MOST_MOVED = 0.02
"""Share of the copies placed before that may move, where there is a plan to start from."""


@dataclass(frozen=True, slots=True)
class Searched:
    """The best candidate, an upper bound on its objective in USD (None = not known), the prices
    that go with it, remarks, and whether nothing better was found than a floor."""

    best: Candidate
    bound_usd: float | None
    prices: Prices | None
    notes: tuple[str, ...]
    by_floor: bool


Floors = Callable[[Cutoff | None], list[Candidate]]
"""The floors: all of them, or those that a cutoff leaves."""


class Search:
    """One search over one case. The incumbent never gets worse."""

    def __init__(self, case: Case, incumbent: Candidate, solve: Solve, meter: Meter) -> None:
        self._case = case
        self._best = incumbent
        self._solve = solve
        self._meter = meter
        self._notes: list[str] = []
        self._rows = Relaxation(case, self._weighty())
        options = case.options
        self._gain: Floats = case.reward_usd[options.class_index] - options.cost_usd
        self._tier_usd = self._tier_values()
        self._near: Near | None = None
        self._columns: Columns | None = None
        self._priced: Priced | None = None

    def run(self, warm: Warm | None, floors: Floors, spare_s: float = 0.0) -> Searched:
        """Spend the budget of the meter, or a part of it where so much more than `spare_s` is left
        that another stage can go on."""
        priced = None
        if warm is not None and (warm.assignments or not self._has_time()):
            priced = self._warm(warm)
        floor = self._compare(floors, priced)
        if priced is None:
            used = np.unique(np.concatenate([f.counts.nonzero()[0] for f in floor]))
            priced = self._cold(used, raising=spare_s > 0)
        left_s = self._meter.left_s
        repair_s = min(_REPAIR_SHARE * left_s, _REPAIR_MOST_S)
        shared = 0 < spare_s < left_s - repair_s
        if priced is not None and not self._rows.tiers:
            self._improve(priced, repair_s if shared else left_s)
        elif priced is not None and not shared:
            priced = self._raise_and_cheapen(priced)
        if priced is not None:
            self._settle()
        by_floor = any(self._best is candidate for candidate in floor)
        self._priced = priced
        return self._searched(priced, by_floor=by_floor)

    def repaired(self, best: Candidate) -> Candidate:
        """Go on from a plan that was found elsewhere, in scalar mode: repairs with all that is left
        of the budget, where the prices found before say that something is lost."""
        self._best = best
        if self._priced is not None:
            self._improve(self._priced, self._meter.left_s)
            self._settle()
        return self._best

    def cheapen(self, best: Candidate) -> Searched | None:
        """Go on from a plan that was found elsewhere: what it places of each tier is held, and a
        cheaper one looked for with all that is left of the budget. None where there is nothing to
        go on with."""
        if not self._rows.tiers or self._columns is None:
            return None
        self._best = best
        cheap = self._cheapest(self._columns)
        if cheap is None:
            return None
        priced = self._raise_and_cheapen(cheap)
        self._settle()
        return self._searched(priced, by_floor=False)

    def _raise_and_cheapen(self, priced: Priced) -> Priced:
        """Repairs for what tiers reach, then, with that held, for cost at prices of its own."""
        if self._columns is None:
            self._improve(priced, self._meter.left_s)
            return priced
        self._improve(priced, _RAISE_SHARE * self._meter.left_s)
        cheap = self._cheapest(self._columns) or priced
        self._improve(cheap, self._meter.left_s, raising=False)
        return cheap

    def _searched(self, priced: Priced | None, *, by_floor: bool) -> Searched:
        notes = tuple(self._notes)
        if priced is None:
            return Searched(self._best, None, None, notes, by_floor)
        bound = priced.bound
        if self._rows.tiers:
            self._rows.hold(self._best.placed)
            bound = self._rows.bound(priced.prices, priced.by_class)
        bound += 1e-9 * abs(bound) - self._case.lost_work_usd
        return Searched(self._best, bound, by_name(self._rows, priced.prices), notes, by_floor)

    def _compare(self, floors: Floors, priced: Priced | None) -> list[Candidate]:
        """Take the best floor if it is better. After a pass that old prices led, no floor is
        finished that is proved to be worse, and none is taken before a repair of the pass."""
        cutoff = None
        if priced is not None:
            self._rows.hold(self._best.placed)
            cutoff = Cutoff(self._rows, self._best, priced)
        found = floors(cutoff)
        if priced is not None and any(each.rank > self._best.rank for each in found):
            self._rescue(priced)
        for candidate in found:
            if candidate.rank > self._best.rank:
                self._best = candidate
        return found

    def _rescue(self, priced: Priced) -> None:
        """A plan that is followed leaves too little room for what is new: let higher priorities go
        before the rest of it, and repair what comes of it. A floor would move most of it."""
        self._pass(priced.values, priced.worth, Lead.TIER, pass_orders(self._case)[0])
        self._improve(priced, max(self._meter.left_s, _RESCUE_S))

    # Stages -------------------------------------------------------------------------------------

    def _cold(self, floors: Integers, *, raising: bool) -> Priced | None:
        """Prices from the relaxation, and passes that follow it. In place_first with `raising` some
        of the time goes to what tiers reach before the cheapest is looked for."""
        meter = self._meter
        share_s = meter.left_s * _LP_SHARE
        try:
            columns = Columns(self._rows, meter, share_s)
            if not self._rows.tiers:
                priced = columns.run(self._gain, floors, share_s)
                self._passes(priced)
                return priced
            tiered = self._gain + self._tier_gain()
            priced = columns.run(tiered, floors, share_s, rounds=_TIER_ROUNDS)
        except LpFailed as error:
            self._notes.append(str(error))
            return None
        self._passes(priced)
        if priced is None:
            return None
        if raising:
            self._improve(priced, _TIER_SHARE * meter.left_s)
        cheap = self._cheapest(columns)
        if cheap is None:
            return self._with_tiers(priced)
        self._columns = columns
        return cheap

    def _cheapest(self, columns: Columns) -> Priced | None:
        """What the tiers reach is held; among those plans the cheapest is looked for."""
        self._rows.hold(self._best.placed)
        share_s = self._meter.left_s * _LP_SHARE
        try:
            found = columns.run(self._gain, self._best.counts.nonzero()[0], share_s)
        except LpFailed as error:
            self._notes.append(str(error))
            return None
        self._passes(found)
        return found

    def _has_time(self) -> bool:
        """Whether a relaxation takes a small part of what is left: then there is no need to go by
        old prices alone."""
        meter, rows = self._meter, self._rows.rows
        expected_s = meter.simplex_s(_ITERATIONS_BY_CLASS * len(self._case.classes), rows)
        return expected_s < _SMALL_SHARE * meter.left_s

    def _with_tiers(self, priced: Priced) -> Priced:
        """The same, where what tiers count for is a price of their rows instead of a gain."""
        prices = priced.prices.copy()
        for priority, row in self._rows.tiers.items():
            prices[row] += self._tier_usd[priority]
        return replace(priced, prices=prices)

    def _passes(self, priced: Priced | None) -> None:
        if priced is None:
            return
        passes = [(lead, order) for order in pass_orders(self._case) for lead in _LEADS]
        for index, (lead, order) in enumerate(passes):
            if index == 0 or (self._meter.pass_s < 0.04 * self._meter.left_s and self._far(priced)):
                self._pass(priced.values, priced.worth, lead, order)

    def _far(self, priced: Priced) -> bool:
        """Whether another pass could do more than repairs will do anyway."""
        lost = priced.bound - self._case.lost_work_usd - self._best.objective_usd
        return bool(self._rows.tiers) or lost > _NEAR * abs(priced.bound)

    def _warm(self, warm: Warm) -> Priced | None:
        """The last plan as far as it goes, the rest at the last prices."""
        if warm.prices is None:
            return None
        prices = by_row(self._rows, warm.prices)
        suggested = self._suggested(warm)
        if suggested is not None:
            most = np.minimum(suggested, self._case.options.most.astype(np.float64))
            kept = most.astype(np.int64)
            self._near = Near(kept, int(_MOST_MOVED * float(kept.sum())))
        priced = Priced.at(self._rows, self._gain, prices, suggested)
        self._pass(suggested, priced.worth, Lead.KEEP, pass_orders(self._case)[0])
        return priced

    def _suggested(self, warm: Warm) -> Floats | None:
        """Copies per option of the last plan."""
        case = self._case
        pools = {
            pool.place: index
            for index, pool in enumerate(case.problem.pools)
        }
        members, jobs = case.classes, case.problem.jobs
        class_of = {jobs[m].id: k for k, item in enumerate(members) for m in item.members}
        wanted: dict[int, int] = {}
        for item in warm.assignments:
            pool, k = pools.get(item.place), class_of.get(item.job)
            if k is not None and pool is not None:
                key = k * len(pools) + pool
                wanted[key] = wanted.get(key, 0) + item.count
        if not wanted:
            return None
        asked = np.zeros(len(members) * len(pools), dtype=np.bool_)
        asked[list(wanted)] = True
        options = case.options
        place = np.repeat(np.arange(len(members)) * len(pools), np.diff(options.first))
        place += options.pool_index
        hit = np.flatnonzero(asked[place])
        found = np.zeros(len(options))
        found[hit] = [wanted[key] for key in place[hit].tolist()]
        return found

    def _improve(self, priced: Priced, cpu_s: float, *, raising: bool = True) -> None:
        """Repair the incumbent where the prices say that something is lost: what tiers reach before
        cost, or without `raising` cost alone, while no tier loses."""
        if cpu_s <= 0:
            return
        self._rows.hold(self._best.placed)
        gain = self._gain + self._tier_gain() if raising else self._gain
        guide = Guide(gain, priced.prices, priced.worth, self._near)
        repair = Repair(self._rows, self._best.counts, guide, self._solve, self._meter)
        self._adopt(repair.run(cpu_s))

    def _settle(self) -> None:
        """Move single copies to better places that have room left."""
        self._adopt(settled(self._case, self._best, self._gain, self._near))

    # Parts --------------------------------------------------------------------------------------

    def _weighty(self) -> list[int]:
        """Priorities whose placing comes before cost, from the highest: none in scalar mode."""
        objective = self._case.problem.objective
        if objective.mode is Mode.SCALAR:
            return []
        weights = objective.weight_per_accelerator
        return [p for p in self._case.priorities if weights.get(p, 1.0) > 0]

    def _tier_values(self) -> dict[int, float]:
        """USD that an accelerator of each tier counts for while prices are looked for."""
        case, weighty = self._case, self._weighty()
        if not weighty:
            return {}
        gangs = np.array(case.gang, dtype=np.float64)[case.options.class_index]
        dearest = float(np.max(np.maximum(0.0, -self._gain) / gangs, initial=0.0))
        usd = _TIER_FACTOR * dearest + 1e-6
        values: dict[int, float] = {}
        for priority in reversed(weighty):
            values[priority] = usd
            usd *= _TIER_FACTOR
        return values

    def _tier_gain(self) -> Floats:
        """What each option counts for by its tier."""
        if not self._tier_usd:
            return np.zeros(len(self._case.options))
        facts = self._case.facts
        values = [
            self._tier_usd.get(priority, 0.0) * gang
            for priority, gang in zip(facts.priority, facts.gang, strict=True)
        ]
        found: Floats = np.array(values)[self._case.options.class_index]
        return found

    def _pass(self, suggested: Floats | None, worth: Floats, lead: Lead, order: list[int]) -> None:
        floor = guided(self._case, suggested, worth, lead, order)
        self._meter.charge(self._meter.pass_s)
        found = make_candidate(self._case, floor.counts, floor.packings(), None)
        if found is not None and found.rank > self._best.rank:
            self._best = found

    def _adopt(self, counts: Counts) -> None:
        found = make_candidate(self._case, counts, self._best.packings, None)
        if found is None:
            self._notes.append("a repaired plan could not be put on nodes")
        elif found.rank > self._best.rank:
            self._best = found
