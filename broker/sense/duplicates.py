"""Cards that two agents report: counted once. Pure.

A card has one UUID, whoever looks at it: two agents on one host, an agent beside a batch system's,
a host that moved. The cluster that joined first keeps its cards; a pool of another that has one of
them is unknown as a whole, because which of its figures are true nobody can tell.
"""

from __future__ import annotations

from collections.abc import Mapping

from broker.model.fleet import ClusterView, Fleet
from federation.refusals import Refusal, RefusalCode

PoolKey = tuple[str, str]
"""Cluster and pool."""


def duplicates(fleet: Fleet) -> Mapping[PoolKey, Refusal]:
    """The pools that do not count, each with the reason."""
    counted: dict[str, str] = {}
    found: dict[PoolKey, Refusal] = {}
    for view in sorted(fleet.clusters.values(), key=_seniority):
        name = str(view.identity.name)
        for pool in view.capacity.pools if view.capacity else ():
            place = f"{name}/{pool.pool}"
            shared = [card for card in pool.cards if counted.setdefault(card, place) != place]
            if shared:
                found[name, pool.pool] = _refusal(place, counted[shared[0]], len(shared))
    return found


def _seniority(view: ClusterView) -> tuple[int, str]:
    return view.identity.joined_ms, str(view.identity.name)


def _refusal(place: str, owner: str, count: int) -> Refusal:
    return Refusal(
        RefusalCode.CAPACITY_UNKNOWN,
        place,
        available=f"{count} of its cards are reported by {owner} as well and count there",
        advice="let one agent report a card: stop the other, or take them out of its inventory",
    )
