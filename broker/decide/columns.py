"""Solve the linear relaxation by column generation: a few options of each class at first, then
those that the prices found say are missing."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from broker.decide.meter import Meter
from broker.decide.options import Booleans, Floats, Integers
from broker.decide.prices_lp import LpAnswer, Master
from broker.decide.relaxation import Entries, Relaxation

_FIRST = 1
_MORE = 6
"""Options per class that come in at first, beside those of the start, and in each round. What is
best before there are prices is the same few pools for most classes: more of it is in the way."""
_ROUNDS = 8
_CLOSE, _EXACT = 2e-5, 2e-6
_QUICK = 0.25
"""A round ends it when so little is missing of the bound, as a share of it: the larger share where
a round takes more than this part of the time that is left."""
_LEAST_ITERATIONS = 200


_FIRST_ITERATIONS = 3.2
_ITERATIONS = 20.0
"""Simplex iterations by class that the first round is reckoned to take, and all rounds of a sample:
the prices of its first round alone are worth little."""
_LEAST_SAMPLE = 200


@dataclass(frozen=True, slots=True)
class Priced:
    """What a relaxation says. `prices` per row; `worth` per option is its gain minus what it takes
    at these prices, `by_class` the most that each class could gain by it; `values` are copies per
    option of the relaxed optimum over the columns looked at (None where only a sample was); no plan
    gains more than `bound`, which may be that of other prices found on the way."""

    prices: Floats
    worth: Floats
    by_class: Floats
    values: Floats | None
    bound: float

    @staticmethod
    def at(rows: Relaxation, gain: Floats, prices: Floats, values: Floats | None = None) -> Priced:
        """What some prices say of options that gain so much."""
        worth = rows.worth(gain, prices)
        by_class = rows.class_bounds(worth)
        return Priced(prices, worth, by_class, values, rows.bound(prices, by_class))


class Columns:
    """Column generation over one relaxation. Later calls of `run` go on from the last one.

    Where there is no time for all classes a sample stands for them, each for so many as have its
    priority: its prices are near, its values are of no use."""

    def __init__(self, relaxation: Relaxation, meter: Meter, cpu_s: float) -> None:
        """`cpu_s` is about what may be spent. Raises `LpFailed` when the LP solver is missing."""
        self._rows = relaxation
        self._meter = meter
        classes = len(relaxation.case.classes)
        self._times = _sample(relaxation, meter, cpu_s)
        self.sampled = bool((self._times != 1.0).any())
        kept = np.flatnonzero(self._times > 0)
        # Rows of classes that are left out do not exist for the solver.
        self._lp_row = np.full(relaxation.rows, -1, dtype=np.int64)
        self._lp_row[kept] = np.arange(len(kept))
        rest = np.arange(classes, relaxation.rows)
        self._lp_row[rest] = rest - classes + len(kept)
        self._rows_kept = np.concatenate([kept, rest])
        high = relaxation.high.copy()
        high[:classes] *= self._times
        self._master = Master(high[self._rows_kept])
        self._present: Booleans = np.zeros(len(relaxation.case.options), dtype=np.bool_)
        self._order: list[Integers] = []
        self._node_usd = relaxation.case.problem.objective.fragmentation_usd_per_node
        opened = len(relaxation.opened)
        self._master.add(
            np.full(opened, -self._node_usd),
            np.array(relaxation.opened_most),
            self._lp_entries(relaxation.opened_entries()),
        )

    def run(
        self, gain: Floats, start: Integers, cpu_s: float, rounds: int = _ROUNDS
    ) -> Priced | None:
        """Maximise `gain` (per option) within about so many CPU seconds and rounds, starting from
        the options `start` and the best of each class. None when nothing was found. Raises
        `LpFailed`."""
        stop_s = self._meter.left_s - cpu_s
        first = np.union1d(start, self._best(gain, np.arange(len(gain)), _FIRST))
        new = first[~self._present[first]]
        new = new[self._times[self._rows.case.options.class_index[new]] > 0]
        if self._order:
            self._go_on(gain)
        best: Priced | None = None
        for _ in range(rounds):
            self._add(gain, new)
            before_s = self._meter.left_s
            # Without a first answer there is nothing to repair by: it may take all that is left.
            answer = self._solve(0.0 if best is None else stop_s)
            if answer is None or not answer.solved:
                break
            found = self._priced(gain, answer)
            best = found if best is None else replace(found, bound=min(best.bound, found.bound))
            missing = best.bound - answer.objective
            quick = before_s - self._meter.left_s <= _QUICK * self._meter.left_s
            close = _EXACT if quick else _CLOSE
            if not self.sampled and missing <= close * abs(best.bound):
                break
            new = self._missing(found)
            if not len(new):
                break
        return best

    def _solve(self, stop_s: float) -> LpAnswer | None:
        meter, rows = self._meter, len(self._rows_kept)
        iterations = meter.simplex_iterations(rows, meter.left_s - stop_s)
        if iterations < _LEAST_ITERATIONS:
            return None
        answer = self._master.solve(iterations)
        meter.charge_simplex(answer.iterations, rows)
        return answer

    def _priced(self, gain: Floats, answer: LpAnswer) -> Priced:
        prices = np.zeros(self._rows.rows)
        prices[self._rows_kept] = answer.prices
        self._meter.charge(self._meter.pricing_s)
        values = None
        if not self.sampled:
            values = np.zeros(len(gain))
            values[np.concatenate(self._order)] = answer.values[len(self._rows.opened) :]
        return Priced.at(self._rows, gain, prices, values)

    def _missing(self, found: Priced) -> Integers:
        classes = self._rows.case.options.class_index
        reduced = found.worth - found.prices[classes]
        scale = 1e-9 * float(np.max(np.abs(found.worth), initial=1.0))
        candidates = np.flatnonzero((reduced > scale) & ~self._present & (self._times[classes] > 0))
        return self._best(reduced, candidates, _MORE)

    def _best(self, score: Floats, among: Integers, number: int) -> Integers:
        """The options with the highest score of each class, by index."""
        classes = self._rows.case.options.class_index
        order = among[np.lexsort((-score[among], classes[among]))]
        of_class = classes[order]
        starts = np.flatnonzero(np.concatenate([[True], of_class[1:] != of_class[:-1]]))
        if not len(order):
            return order
        lengths = np.diff(np.concatenate([starts, [len(order)]]))
        rank = np.arange(len(order)) - np.repeat(starts, lengths)
        found: Integers = np.sort(order[rank < number])
        return found

    def _add(self, gain: Floats, new: Integers) -> None:
        if len(new):
            self._present[new] = True
            self._order.append(new)
            most = self._rows.case.options.most[new].astype(np.float64)
            k = self._rows.case.options.class_index[new]
            # What holds all copies of its class holds those it stands for, as far as rows allow.
            most = np.where(most >= self._rows.count[k], most * self._times[k], most)
            self._master.add(gain[new], most, self._lp_entries(self._rows.entries(new)))

    def _lp_entries(self, entries: Entries) -> Entries:
        return replace(entries, row=self._lp_row[entries.row])

    def _go_on(self, gain: Floats) -> None:
        """Take over what has changed since the last run: the gains, and what tiers must reach."""
        self._master.set_gains(len(self._rows.opened), gain[np.concatenate(self._order)])
        tiers = np.array(list(self._rows.tiers.values()), dtype=np.int64)
        self._master.set_highs(self._lp_row[tiers], self._rows.high[tiers])


def _sample(rows: Relaxation, meter: Meter, cpu_s: float) -> Floats:
    """How many classes each one stands for: 1 for all where there is time, 0 for those left out."""
    classes = len(rows.count)
    beside = rows.rows - classes
    if meter.simplex_s(_FIRST_ITERATIONS * classes, rows.rows) <= cpu_s:
        return np.ones(classes)
    kept = classes
    while kept > _LEAST_SAMPLE and meter.simplex_s(_ITERATIONS * kept, kept + beside) > cpu_s:
        kept = int(kept * 0.9)
    facts = rows.case.facts
    # Every so many of a list that has those alike side by side.
    order = np.lexsort((rows.gang, rows.size, np.array(facts.priority)))
    chosen = order[np.arange(kept) * classes // kept]
    times = np.zeros(classes)
    asked = rows.count * rows.gang
    for priority in set(facts.priority):
        members = np.array(facts.priority) == priority
        picked = chosen[members[chosen]]
        if len(picked):
            times[picked] = float(asked[members].sum()) / float(asked[picked].sum())
    return times
