"""Gangs decided member by member (`forms`): how many members in which places make a copy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from broker.decide.classes import JobClass
from broker.decide.forms import shared_place
from broker.decide.options import Integers, Options
from broker.model.problem import Problem


@dataclass(frozen=True, slots=True)
class Bundle:
    """Members of one class over some options, in the order of these: a multiple of `size`."""

    options: tuple[int, ...]
    size: int


@dataclass(frozen=True, slots=True)
class Bundles:
    """All of a case. `of` has the bundle of an option, `by_class` those of a class."""

    all: tuple[Bundle, ...]
    of: dict[int, Bundle]
    by_class: dict[int, tuple[Bundle, ...]]

    def __bool__(self) -> bool:
        return bool(self.all)

    def trimmed(self, counts: Integers) -> Integers:
        """Whole copies only: members that are too many go, the dearest first."""
        found = counts
        for bundle in self.all:
            surplus = int(counts[list(bundle.options)].sum()) % bundle.size
            if surplus and found is counts:
                found = counts.copy()
            for option in reversed(bundle.options):
                gone = min(surplus, int(found[option]))
                if gone:
                    found[option] -= gone
                    surplus -= gone
        return found


def bundles_of(problem: Problem, classes: Sequence[JobClass], options: Options) -> Bundles:
    """The bundles of some options."""
    by_class: dict[int, tuple[Bundle, ...]] = {}
    of: dict[int, Bundle] = {}
    for k, item in enumerate(classes):
        if item.job.members == 1:
            continue
        groups: dict[tuple[str, ...], list[int]] = {}
        for option in range(int(options.first[k]), int(options.first[k + 1])):
            pool = problem.pools[int(options.pool_index[option])]
            groups.setdefault(shared_place(item.job.scope, pool), []).append(option)
        made = tuple(Bundle(tuple(some), item.job.members) for some in groups.values())
        by_class[k] = made
        of.update({option: bundle for bundle in made for option in bundle.options})
    every = tuple(bundle for some in by_class.values() for bundle in some)
    return Bundles(every, of, by_class)
