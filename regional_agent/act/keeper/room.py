"""The keeper's own look at capacity: no card is given to two attempts, whoever orders it."""

from __future__ import annotations

from collections.abc import Iterable

from regional_agent.act.keeper.attempt import Attempt
from regional_agent.act.keeper.orders import Order, Seat

Unit = tuple[str, int, int]


def conflict(order: Order, live: Iterable[Attempt], cpus_limit_milli: int) -> str:
    """Why there is no room for `order` beside the live attempts; empty if there is.

    `cpus_limit_milli` bounds what all orders claim together; 0 = no bound.
    """
    wanted = _units(order.places)
    if len(wanted) < sum(len(seat.accelerators) for seat in order.places):
        return "the order names a card twice"
    claimed_milli = order.cpus_milli * order.replicas * order.width
    for attempt in live:
        shared = wanted & _units(attempt.places)
        if shared:
            pool, node, card = min(shared)
            return f"{pool} node {node} card {card} is held by {attempt.order.uid}"
        claimed_milli += attempt.order.cpus_milli * attempt.order.replicas * attempt.width
    if cpus_limit_milli and claimed_milli > cpus_limit_milli:
        return f"{claimed_milli / 1000:g} cpus claimed of {cpus_limit_milli / 1000:g}"
    return ""


def _units(places: Iterable[Seat]) -> set[Unit]:
    return {(seat.pool, seat.node, card) for seat in places for card in seat.accelerators}
