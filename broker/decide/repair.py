"""Repair a plan neighbourhood by neighbourhood: free a few contested pools, give what is in them
and what could be in them to the integer solver, keep what is better. The plan never gets worse."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from broker.decide.case import Counts
from broker.decide.holding import Holding
from broker.decide.meter import Meter
from broker.decide.model import Model, Row
from broker.decide.options import Floats, Integers
from broker.decide.relaxation import Relaxation
from broker.decide.settling import Near
from broker.decide.solver import Answer, Effort, Solve

_SCALES = ((6, 250, 0.02), (10, 400, 0.05), (16, 600, 0.1), (24, 900, 0.2))
"""(pools, options, deterministic time) of a neighbourhood: the next when the last finds little."""
_ENOUGH = 0.05
"""Part of all that is lost that a sweep must gain for another like it."""
_HOLDING_S = 120e-9
"""CPU seconds by option for looking at a plan as a whole."""
_STEP_S = 0.006
_STEP_CLASS_S = 0.5e-6
_STEP_OPTION_S = 30e-9
"""CPU seconds of a step beside the solver: at least, by class, and by ten options."""
_FINE = 1024
_LARGEST = 2.0**45


@dataclass(frozen=True, slots=True)
class Guide:
    """What the objective is worth by option (`gain`), and what prices say (`worth`, `prices`).
    `near` is a plan to stay near, None for none."""

    gain: Floats
    prices: Floats
    worth: Floats
    near: Near | None = None


class Repair:
    """Repairs of one plan. Where the relaxation has rows of tiers, none of them loses."""

    def __init__(
        self, rows: Relaxation, counts: Counts, guide: Guide, solve: Solve, meter: Meter
    ) -> None:
        self._rows = rows
        self._holding = Holding(rows, counts)
        self._guide = guide
        self._solve = solve
        self._meter = meter
        self._node_usd = rows.case.problem.objective.fragmentation_usd_per_node
        self._tried: dict[tuple[int, ...], int] = {}
        self._changed = np.zeros(len(rows.case.problem.pools), dtype=np.int64)
        self._opened = set(rows.opened)
        self._moves_left = 0 if guide.near is None else guide.near.left(counts)
        self._pools, self._columns, self._effort = _SCALES[0]
        options, classes = len(rows.case.options), len(rows.case.classes)
        self._step_s = _STEP_S + classes * _STEP_CLASS_S + options * _STEP_OPTION_S / 10
        meter.charge(options * _HOLDING_S)
        self._gained = 0.0

    def run(self, cpu_s: float) -> Counts:
        """Repair for about so many CPU seconds; returns the copies per option."""
        stop_s = self._meter.left_s - cpu_s
        for self._pools, self._columns, self._effort in _SCALES:
            self._tried.clear()
            gained = math.inf
            while gained > 0 and self._meter.left_s - stop_s >= self._step_s:
                before = self._gained
                lost = self._sweep(stop_s)
                gained = self._gained - before
                if gained < _ENOUGH * lost:
                    break
        return self._holding.counts

    def _sweep(self, stop_s: float) -> float:
        """Go through the neighbourhoods once, where most is lost first, until the time is over.
        Returns the USD that were lost before, all in all."""
        holding, guide = self._holding, self._guide
        by_class, by_pool = holding.losses(guide.gain, guide.prices, guide.worth)
        for pools in self._neighbourhoods(by_class, by_pool):
            if self._meter.left_s - stop_s < self._step_s:
                break
            key = tuple(sorted(pools.tolist()))
            version = int(self._changed[pools].sum())
            if self._tried.get(key) == version:
                continue
            self._tried[key] = version
            if self._step(pools):
                self._changed[pools] += 1
                self._tried[key] = int(self._changed[pools].sum())
        return float(by_class.sum() + by_pool.sum())

    # Neighbourhoods -----------------------------------------------------------------------------

    def _neighbourhoods(self, by_class: Floats, by_pool: Floats) -> Iterator[Integers]:
        """Sets of pools, around the classes and pools that lose most."""
        losses = np.concatenate([by_class, by_pool])
        least = 1e-7 * float(np.abs(losses).sum()) + 1e-9
        order = np.argsort(-losses, kind="stable")
        for seed in order[losses[order] > least].tolist():
            if seed < len(by_class):
                pools = self._around_class(seed)
            else:
                pools = self._around_pool(seed - len(by_class))
            if len(pools):
                yield pools

    def _around_class(self, k: int) -> Integers:
        options = self._rows.case.options
        first, last = int(options.first[k]), int(options.first[k + 1])
        order = np.argsort(-self._guide.worth[first:last], kind="stable")
        pools = options.pool_index[first:last][order]
        found: Integers = pools[self._holding.counted[pools]][: self._pools]
        return found

    def _around_pool(self, pool: int) -> Integers:
        """The pool, and those where the classes are that would gain most by it."""
        holding, options = self._holding, self._rows.case.options
        if not holding.counted[pool]:
            return np.zeros(0, dtype=np.int64)
        inside = holding.in_pools(np.array([pool]))
        inside = inside[np.argsort(-self._guide.worth[inside], kind="stable")][: 4 * self._pools]
        found = [pool]
        for k in options.class_index[inside].tolist():
            first, last = int(options.first[k]), int(options.first[k + 1])
            where = options.pool_index[first:last][holding.counts[first:last] > 0]
            for other in where.tolist():
                if other not in found and holding.counted[other]:
                    found.append(other)
            if len(found) >= self._pools:
                break
        return np.array(found[: self._pools], dtype=np.int64)

    # One step -----------------------------------------------------------------------------------

    def _step(self, pools: Integers) -> bool:
        """Decide some pools anew; True when that is better."""
        self._meter.charge(self._step_s)
        options = self._options(pools)
        if not len(options):
            return False
        model, opened = self._model(options, pools)
        gain = self._guide.gain[options]
        unit, objective = self._objective(model, gain, opened)
        before = self._holding.counts[options]
        hint = dict(enumerate(before.tolist()))
        effort = Effort(self._effort, self._meter.wall_s, proving=False)
        answer = self._solve(model, objective, hint, effort)
        self._meter.charge_solver(answer.effort)
        return self._keep(options, opened, answer, model)

    def _keep(
        self, options: Integers, opened: Mapping[int, int], answer: Answer, model: Model
    ) -> bool:
        if not answer.values:
            return False
        after = np.array(answer.values[: len(options)], dtype=np.int64)
        before = self._holding.counts[options]
        gain = float((after - before) @ self._guide.gain[options])
        now = sum(self._least_opened(p, options, before) for p in opened)
        then = sum(self._least_opened(p, options, after) for p in opened)
        gain -= self._node_usd * (then - now)
        if gain <= 1e-6:
            return False
        if self._guide.near is not None:
            kept = self._guide.near.kept[options]
            moved = np.maximum(kept - after, 0) - np.maximum(kept - before, 0)
            if int(moved.sum()) > self._moves_left:
                return False
            self._moves_left -= int(moved.sum())
        self._holding.change(options, after)
        self._gained += gain
        return True

    def _least_opened(self, pool: int, options: Integers, counts: Integers) -> int:
        """Whole nodes that smaller replicas need in a pool with some copies changed."""
        rows, holding = self._rows, self._holding
        entries = rows.entries(options)
        more = np.repeat(counts - holding.counts[options], np.diff(entries.start))
        needed = 0.0
        for slot, level in enumerate(rows.sizes):
            row = int(rows.level_row[pool, slot])
            if row >= 0:
                here = entries.row == row
                used = holding.used[row] + float(entries.value[here] @ more[here])
                per_node = int(rows.node_size[pool]) // level
                needed = max(needed, -(-(used - rows.high[row]) // per_node))
        return int(needed)

    def _options(self, pools: Integers) -> Integers:
        """Options to decide: those in use in the pools, and the most promising others."""
        holding, case = self._holding, self._rows.case
        inside = holding.in_pools(pools)
        k = case.options.class_index[inside]
        used = holding.counts[inside] > 0
        free = holding.left.copy()
        np.add.at(free, k, holding.counts[inside])
        may = free[k] > 0
        if case.bundles:
            # Members of a copy may lie outside these pools: they stay.
            may &= ~np.isin(k, list(case.bundles.by_class))
        # What a copy has now: nothing if it waits, else the worst place in these pools.
        now = np.full(len(case.classes), np.inf)
        np.minimum.at(now, k[used], self._guide.worth[inside[used]])
        now = np.where(holding.left > 0, np.minimum(now, 0.0), now)
        score = np.where(used, np.inf, self._guide.worth[inside] - now[k])
        order = np.argsort(-score[may], kind="stable")[: self._columns]
        return np.sort(inside[may][order])

    def _model(self, options: Integers, pools: Integers) -> tuple[Model, dict[int, int]]:
        """The rows over some options, given all others; and the column by pool of whole nodes
        opened for smaller replicas."""
        rows, holding, case = self._rows, self._holding, self._rows.case
        k = case.options.class_index[options]
        free = holding.left.copy()
        np.add.at(free, k, holding.counts[options])
        model = Model()
        model.upper = np.minimum(case.options.most[options], free[k]).tolist()
        opened = {}
        extra: dict[int, list[tuple[int, int]]] = {}
        for pool in pools.tolist():
            if pool in self._opened:
                whole_row = int(rows.whole_row[pool])
                opened[pool] = model.column(int(rows.high[whole_row]))
                extra[whole_row] = [(opened[pool], 1)]
                for slot, level in enumerate(rows.sizes):
                    row = int(rows.level_row[pool, slot])
                    if row >= 0:
                        per_node = int(rows.node_size[pool]) // level
                        extra[row] = [(opened[pool], -per_node)]
        self._fill_rows(model, options, extra)
        self._move_rows(model, options)
        return model, opened

    def _move_rows(self, model: Model, options: Integers) -> None:
        """No more copies may go than are left to move."""
        if self._guide.near is None:
            return
        kept = self._guide.near.kept[options]
        before = np.maximum(kept - self._holding.counts[options], 0)
        moved = []
        for column in np.flatnonzero(kept).tolist():
            gone = model.column(int(kept[column]))
            model.rows.append(Row([column, gone], [-1, -1], -int(kept[column])))
            moved.append((gone, 1))
        model.at_most(moved, self._moves_left + int(before.sum()))

    def _fill_rows(
        self, model: Model, options: Integers, extra: Mapping[int, list[tuple[int, int]]]
    ) -> None:
        rows, holding = self._rows, self._holding
        entries = rows.entries(options)
        column = np.repeat(np.arange(len(options)), np.diff(entries.start))
        taken = np.zeros(rows.rows)
        np.add.at(taken, entries.row, entries.value * holding.counts[options][column])
        order = np.argsort(entries.row, kind="stable")
        row_of, column, value = entries.row[order], column[order], entries.value[order]
        starts = np.flatnonzero(np.concatenate([[True], row_of[1:] != row_of[:-1]]))
        ends = np.append(starts[1:], len(row_of))
        for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
            row = int(row_of[start])
            high = float(rows.high[row] - holding.used[row] + taken[row])
            values = value[start:end]
            scale = 1 if bool((values == np.rint(values)).all()) else _FINE
            needs = np.ceil(values * scale - 1e-7).astype(np.int64).tolist()
            terms = list(zip(column[start:end].tolist(), needs, strict=True))
            model.at_most(terms + extra.get(row, []), int(np.floor(high * scale + 1e-6)))

    def _objective(
        self, model: Model, gain: Floats, opened: Mapping[int, int]
    ) -> tuple[float, dict[int, int]]:
        """USD per whole number, and the coefficients."""
        upper = np.array(model.upper, dtype=np.float64)
        largest = float(np.abs(gain) @ upper[: len(gain)]) + self._node_usd * float(
            upper[len(gain) :].sum()
        )
        unit = max(1e-4, largest / _LARGEST)
        objective = {column: round(usd / unit) for column, usd in enumerate(gain.tolist())}
        objective.update(dict.fromkeys(opened.values(), -round(self._node_usd / unit)))
        return unit, objective
