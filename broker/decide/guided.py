"""A greedy pass that is led: by copies somebody suggests (the relaxed optimum, the last plan) and
by what options are worth at some prices, instead of by what they cost."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from enum import Enum, auto

import numpy as np

from broker.decide.case import Case
from broker.decide.filling import Filling
from broker.decide.finish import demands
from broker.decide.greedy import Floor
from broker.decide.options import Floats

_TRACE = 1e-6


class Lead(Enum):
    """How a pass follows what is suggested."""

    TIER = auto()
    """Priority by priority: first what is suggested for any class of it, fractions rounded up; then
    what is left of them where it is worth most."""
    KEEP = auto()
    """All that is suggested, whole copies, before anything else, if it fits; else as `TIER`."""
    CLASS = auto()
    """Class by class: what is suggested for it, rounded down, then what is left of it."""


def guided(
    case: Case, suggested: Floats | None, worth: Floats, lead: Lead, order: Sequence[int]
) -> Floor:
    """Place classes in an order. `suggested` has copies per option, None for none; `worth` is per
    option."""
    return _Pass(case, suggested, worth).run(lead, order)


def pass_orders(case: Case) -> list[list[int]]:
    """Orders worth trying: by priority, then big gangs first; then large replicas first."""
    facts = case.facts
    classes = range(len(case.classes))
    return [
        sorted(classes, key=lambda k: (-facts.priority[k], -facts.gang[k], k)),
        sorted(classes, key=lambda k: (-facts.priority[k], -facts.size[k], -facts.gang[k], k)),
    ]


class _Pass:
    def __init__(self, case: Case, suggested: Floats | None, worth: Floats) -> None:
        self._case = case
        self._worth = worth
        self._floor = Floor(case)
        self._left = list(case.facts.count)
        self._suggested: dict[int, list[tuple[int, float]]] = {}
        if suggested is not None:
            used = np.flatnonzero(suggested > _TRACE)
            used = used[np.lexsort((used, -suggested[used]))]
            classes = case.options.class_index[used].tolist()
            for option, k in zip(used.tolist(), classes, strict=True):
                self._suggested.setdefault(k, []).append((option, float(suggested[option])))

    def run(self, lead: Lead, order: Sequence[int]) -> Floor:
        if lead is Lead.KEEP and self._keep():
            self._rest([k for k in order if self._left[k]])
        elif lead is Lead.CLASS:
            self._rest(order, lambda k: self._follow(k, up=0.0))
        else:
            for tier in self._tiers(order):
                for k in tier:
                    self._follow(k, up=1.0 - 2 * _TRACE)
                self._rest([k for k in tier if self._left[k]])
        return self._floor

    def _keep(self) -> bool:
        """Start from all that is suggested; False, with nothing placed, when it does not fit."""
        case, floor = self._case, self._floor
        counts = np.zeros(len(case.options), dtype=np.int64)
        left = list(self._left)
        for k, pairs in self._suggested.items():
            for option, copies in pairs:
                counts[option] = min(left[k], int(copies), int(case.options.most[option]))
                left[k] -= int(counts[option])
        if floor.load(counts, {}, demands(case, counts)) and floor.is_within():
            self._left = left
            return True
        self._floor = Floor(case)
        return False

    def _tiers(self, order: Iterable[int]) -> list[list[int]]:
        tiers: dict[int, list[int]] = {}
        for k in order:
            tiers.setdefault(self._case.facts.priority[k], []).append(k)
        return [tiers[priority] for priority in sorted(tiers, reverse=True)]

    def _follow(self, k: int, up: float) -> None:
        for option, copies in self._suggested.get(k, ()):
            wanted = min(self._left[k], int(copies + up + _TRACE))
            if wanted > 0:
                self._left[k] -= self._floor.place(k, option, wanted)

    def _rest(self, order: Sequence[int], before: Callable[[int], None] | None = None) -> None:
        for _ in Filling(self._floor, self._worth).run(order, self._left, before):
            pass
