"""Fill a floor class by class, each over its options by some score: the inner loop of every greedy
pass.

For a batch of classes the first option of each that still fits is looked up at once. What is free
only ever gets less, so nothing before that option can fit later; if it fits still when the turn of
its class comes, it is the one that looking then would have found.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from broker.decide.greedy import Floor
from broker.decide.options import Floats, Integers

_BATCH = 96
"""Classes looked up together: more of them waste more look-ups where places are contested."""
_NONE = np.iinfo(np.int64).max


class Filling:
    """Fills one floor. `score` is per option, the highest first and of equals the first; without
    one the options have their own order, the cheapest first."""

    def __init__(self, floor: Floor, score: Floats | None = None) -> None:
        case, facts = floor.case, floor.case.facts
        self._floor = floor
        self._case = case
        self._score = score
        self._replicas = np.array(facts.replicas, dtype=np.int64)
        self._gang = np.array(facts.gang, dtype=np.int64)
        self._cpus: Floats = np.array(facts.cpus, dtype=np.float64) * self._replicas
        self._memory: Floats = np.array(facts.memory_gib, dtype=np.float64) * self._replicas

    def run(
        self,
        order: Sequence[int],
        left: list[int],
        before: Callable[[int], None] | None = None,
    ) -> Iterator[int]:
        """Place what is left of each class, in an order of class indices, and take it off `left`;
        yields each class when it is done. `before` is called when its turn comes, and may place
        some of it itself."""
        floor = self._floor
        for start in range(0, len(order), _BATCH):
            part = order[start : start + _BATCH]
            for k, option in zip(part, self._first_fits(part), strict=True):
                if before is not None:
                    before(k)
                if option >= 0 and left[k]:
                    left[k] -= floor.place(k, option, left[k])
                    if left[k]:
                        left[k] -= floor.fill(k, left[k], self._after(k, option))
                yield k

    def _first_fits(self, part: Sequence[int]) -> list[int]:
        """The best option of each class that may take a copy now; -1 for none."""
        options, floor = self._case.options, self._floor
        found = np.full(len(part), -1, dtype=np.int64)
        classes = np.array(part, dtype=np.int64)
        length = options.first[classes + 1] - options.first[classes]
        some = np.flatnonzero(length)
        if not len(some):
            return found.tolist()
        classes, length = classes[some], length[some]
        ends = np.cumsum(length)
        starts = ends - length
        at = np.arange(int(ends[-1])) + np.repeat(options.first[classes] - starts, length)
        of = np.repeat(classes, length)
        fits = floor.may_fit(at, of, (self._replicas, self._gang, self._cpus, self._memory))
        if self._score is not None:
            score = np.where(fits, self._score[at], -np.inf)
            fits &= score == np.repeat(np.maximum.reduceat(score, starts), length)
        first = np.minimum.reduceat(np.where(fits, at, _NONE), starts)
        found[some] = np.where(first == _NONE, -1, first)
        return found.tolist()

    def _after(self, k: int, option: int) -> Integers:
        """The options of a class that come after one."""
        first, last = self._case.options.first[k : k + 2].tolist()
        if self._score is None:
            return np.arange(option + 1, last)
        order = np.argsort(-self._score[first:last], kind="stable") + first
        found: Integers = order[int(np.flatnonzero(order == option)[0]) + 1 :]
        return found
