"""The floors: greedy plans that are always feasible and always there, held outside every solver.

Class after class in some order, each to its cheapest pools first, as far as nodes, cpus, memory and
quotas last.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from broker.decide.case import Case
from broker.decide.filling import Filling
from broker.decide.greedy import Floor
from broker.decide.options import Floats


@dataclass(frozen=True, slots=True)
class Way:
    """How a floor goes about it: class after class in an order (class indices), each to its
    cheapest pools first, or to the first cluster of the problem's list that takes it."""

    order: Sequence[int]
    by_cluster: bool = False


def floor_ways(case: Case) -> tuple[Way, Way, Way]:
    """The floors: by priority then age, by priority with big gangs first, and by priority then age
    to the first cluster that admits."""
    fifo, big = floor_orders(case)
    return Way(fifo), Way(big), Way(fifo, by_cluster=True)


def floor_orders(case: Case) -> Iterator[list[int]]:
    """The orders of the floors: by priority then age, and by priority with big gangs first."""
    priority, gang = case.facts.priority, case.facts.gang
    classes = range(len(case.classes))
    yield sorted(classes, key=lambda k: (-priority[k], k))
    yield sorted(classes, key=lambda k: (-priority[k], -gang[k], k))


def greedy(case: Case, order: Sequence[int]) -> Floor:
    """Place classes in an order (class indices), each in its cheapest pools first."""
    return walked(case, Way(order))


def walk(case: Case, way: Way, beaten: Callable[[Floor, int], bool] | None = None) -> Floor | None:
    """A floor. `beaten` is asked after each class whether there is any use in going on: None when
    there was not."""
    floor = Floor(case)
    filling = Filling(floor, _by_cluster(case) if way.by_cluster else None)
    for k in filling.run(way.order, list(case.facts.count)):
        if beaten is not None and beaten(floor, k):
            return None
    return floor


def walked(case: Case, way: Way) -> Floor:
    """A floor to its end."""
    floor = walk(case, way)
    assert floor is not None  # nothing beats it
    return floor


def _by_cluster(case: Case) -> Floats:
    """A score by the order of the clusters, and in each by the order of the pools."""
    clusters = {cluster.name: index for index, cluster in enumerate(case.problem.clusters)}
    place = [clusters[pool.cluster] for pool in case.problem.pools]
    rank = np.empty(len(place))
    rank[np.argsort(place, kind="stable")] = np.arange(len(place))
    found: Floats = -rank[case.options.pool_index]
    return found
