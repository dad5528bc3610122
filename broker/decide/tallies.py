"""Counts that options share beside nodes, totals and quotas."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from broker.decide.pairs import Integers


@dataclass(frozen=True, slots=True)
class Tally:
    """At most `limit[r]` units over all options with `row[o] == r` (-1 = none), where each copy of
    an option takes `units[o]`, at least 1."""

    name: str
    limit: tuple[int, ...]
    row: Integers
    units: Integers

    def terms(self) -> Iterator[tuple[list[tuple[int, int]], int]]:
        """Each row as (option, units) and its limit."""
        used = np.flatnonzero(self.row >= 0)
        columns = (self.row[used], used, self.units[used])
        found: list[list[tuple[int, int]]] = [[] for _ in self.limit]
        for row, option, units in zip(*(column.tolist() for column in columns), strict=True):
            found[row].append((option, units))
        yield from zip(found, self.limit, strict=True)


class Running:
    """What is left of some tallies while a plan grows."""

    def __init__(self, tallies: tuple[Tally, ...]) -> None:
        self._tallies = tallies
        self._left = [list(tally.limit) for tally in tallies]

    def __bool__(self) -> bool:
        return bool(self._tallies)

    def room(self, option: int, wanted: int) -> int:
        """How many copies of an option, at most `wanted`, they allow."""
        for tally, left in zip(self._tallies, self._left, strict=True):
            row = int(tally.row[option])
            if row >= 0:
                wanted = min(wanted, left[row] // int(tally.units[option]))
        return max(0, wanted)

    def take(self, option: int, copies: int) -> None:
        """Count copies of an option."""
        for tally, left in zip(self._tallies, self._left, strict=True):
            row = int(tally.row[option])
            if row >= 0:
                left[row] -= copies * int(tally.units[option])

    def load(self, options: Integers, copies: Integers) -> None:
        """Count copies of many options."""
        if self._tallies:
            for option, number in zip(options.tolist(), copies.tolist(), strict=True):
                self.take(option, number)

    def is_within(self) -> bool:
        """Whether no count is over its limit."""
        return all(figure >= 0 for left in self._left for figure in left)

    def left(self, option: int) -> dict[str, int]:
        """Units left by name, of those that count an option."""
        pairs = zip(self._tallies, self._left, strict=True)
        rows = [(tally.name, left, int(tally.row[option])) for tally, left in pairs]
        return {name: left[row] for name, left, row in rows if row >= 0}
