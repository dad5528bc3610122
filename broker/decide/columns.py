"""Solve the linear relaxation by column generation: a few options of each class at first, then
those that the prices found say are missing."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from broker.decide.meter import Meter
from broker.decide.options import Booleans, Floats, Integers
from broker.decide.prices_lp import LpAnswer, Master
from broker.decide.relaxation import Relaxation

_FIRST = 4
_MORE = 4
"""Options per class that come in at first and in each round."""
_ROUNDS = 8
_CLOSE = 2e-5
"""A round ends it when so little is missing of the bound, as a share of it."""
_LEAST_ITERATIONS = 200


@dataclass(frozen=True, slots=True)
class Priced:
    """What a relaxation says. `prices` per row; `worth` per option is its gain minus what it takes
    at these prices; `values` are copies per option of the relaxed optimum over the columns looked
    at (None when it was not reached); no plan gains more than `bound`, which may be that of other
    prices found on the way. `rounds` were solved to their optimum."""

    prices: Floats
    worth: Floats
    values: Floats | None
    bound: float
    rounds: int


class Columns:
    """Column generation over one relaxation. Later calls of `run` go on from the last one."""

    def __init__(self, relaxation: Relaxation, meter: Meter) -> None:
        """Raises `LpFailed` when the LP solver is missing."""
        self._rows = relaxation
        self._meter = meter
        self._master = Master(relaxation.high)
        self._present: Booleans = np.zeros(len(relaxation.case.options), dtype=np.bool_)
        self._order: list[Integers] = []
        self._node_usd = relaxation.case.problem.objective.fragmentation_usd_per_node
        opened = len(relaxation.opened)
        self._master.add(
            np.full(opened, -self._node_usd),
            np.array(relaxation.opened_most),
            relaxation.opened_entries(),
        )

    def run(self, gain: Floats, start: Integers, cpu_s: float) -> Priced | None:
        """Maximise `gain` (per option) within about so many CPU seconds, starting from the options
        `start` and the best of each class. None when not even prices were found. Raises
        `LpFailed`."""
        stop_s = self._meter.left_s - cpu_s
        first = np.union1d(start, self._best(gain, np.arange(len(gain)), _FIRST))
        new = first[~self._present[first]]
        if self._order:
            self._go_on(gain)
        best: Priced | None = None
        for rounds in range(_ROUNDS):
            self._add(gain, new)
            answer = self._solve(stop_s)
            if answer is None:
                break
            found = self._priced(gain, answer, rounds + 1)
            bound = found.bound if best is None else min(best.bound, found.bound)
            best = Priced(found.prices, found.worth, found.values, bound, found.rounds)
            missing = bound - answer.objective
            if not answer.solved or missing <= _CLOSE * abs(bound):
                break
            new = self._missing(found, answer)
            if not len(new):
                break
        return best

    def _solve(self, stop_s: float) -> LpAnswer | None:
        meter, rows = self._meter, self._rows.rows
        iterations = meter.simplex_iterations(rows, meter.left_s - stop_s)
        if iterations < _LEAST_ITERATIONS:
            return None
        answer = self._master.solve(iterations)
        meter.charge_simplex(answer.iterations, rows)
        return answer

    def _priced(self, gain: Floats, answer: LpAnswer, rounds: int) -> Priced:
        worth = self._rows.worth(gain, answer.prices)
        self._meter.charge(self._meter.pricing_s)
        values = None
        if answer.solved:
            values = np.zeros(len(gain))
            values[np.concatenate(self._order)] = answer.values[len(self._rows.opened) :]
        bound = self._rows.bound(answer.prices, worth)
        return Priced(answer.prices, worth, values, bound, rounds)

    def _missing(self, found: Priced, answer: LpAnswer) -> Integers:
        reduced = found.worth - answer.prices[self._rows.case.options.class_index]
        scale = 1e-9 * float(np.max(np.abs(found.worth), initial=1.0))
        candidates = np.flatnonzero((reduced > scale) & ~self._present)
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
            self._master.add(gain[new], most, self._rows.entries(new))

    def _go_on(self, gain: Floats) -> None:
        """Take over what has changed since the last run: the gains, and what tiers must reach."""
        self._master.set_gains(len(self._rows.opened), gain[np.concatenate(self._order)])
        tiers = np.array(list(self._rows.tiers.values()), dtype=np.int64)
        self._master.set_highs(tiers, self._rows.high[tiers])
