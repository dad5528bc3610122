"""The queue of a simulated site, and its own users, who need no broker to take what is free."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

from federation.local_queue import LocalQueue
from federation.refusals import Refusal
from regional_agent.act.schedulers.port import LaunchOrder, Phase
from regional_agent.act.schedulers.simulated_attempt import SimAttempt
from regional_agent.session.ledger import OTHERS, Ledger, Place, Pool, Request, Reservation
from regional_agent.session.resettle import NodeSeen, SiteSeen


@dataclass(slots=True)
class SimQueue:
    """Who waits is in `SimAttempt.waiting`. `others` are the site's own users' holds, and
    `until_ms` when they are to be gone by the site's clock, as its scheduler expects."""

    pools: tuple[Pool, ...] = ()
    others: tuple[Reservation, ...] = ()
    until_ms: int = 0

    def room(self, attempts: Iterable[SimAttempt]) -> Ledger:
        """The site with all that runs, or is about to, in its place."""
        ledger = Ledger(self.pools)
        for held in self.others:
            ledger = ledger.adopt(held)
        for attempt in attempts:
            if attempt.phase is not Phase.ENDED and not attempt.waiting and attempt.order.places:
                order = attempt.order
                ledger = ledger.adopt(Reservation(order.uid, request_of(order), order.places))
        return ledger

    def crowd(self, attempts: Iterable[SimAttempt], until_ms: int) -> None:
        """The site's own users take all that is free."""
        room, held = self.room(attempts), []
        for pool in self.pools:
            for node, free in enumerate(room.free_on(pool)):
                request = Request(
                    pool.name, 1, len(free.accelerators), free.cpus_milli, free.memory_bytes
                )
                place = Place(pool.name, node, free.accelerators)
                held.append(Reservation(f"{OTHERS}local/{pool.name}/{node}", request, (place,)))
        self.others, self.until_ms = (*self.others, *held), until_ms

    def seat(self, attempts: Collection[SimAttempt]) -> list[SimAttempt]:
        """Give those that wait what is free, in the order in which they came."""
        seated = []
        for attempt in attempts:
            if not attempt.waiting or attempt.phase is Phase.ENDED:
                continue
            found = self.room(attempts).reserve(attempt.order.uid, request_of(attempt.order))
            if isinstance(found, Refusal):
                continue
            attempt.order = replace(attempt.order, places=found[1].places)
            attempt.waiting = False
            seated.append(attempt)
        return seated

    def look(self, attempts: Collection[SimAttempt], now_ms: int) -> SiteSeen:
        """What a collector sees."""
        room = self.room(attempts)
        nodes = {
            pool.name: tuple(
                NodeSeen(
                    pool.accelerators_per_node - len(free.accelerators),
                    pool.cpus_milli - free.cpus_milli,
                    pool.memory_bytes - free.memory_bytes,
                )
                for free in room.free_on(pool)
            )
            for pool in self.pools
        }
        waiting = sum(a.waiting and a.phase is not Phase.ENDED for a in attempts)
        start_ms = max(self.until_ms - now_ms, 1) if self.others else None
        queue = LocalQueue(waiting, 0, start_ms, start_ms)
        return SiteSeen(
            self.pools,
            nodes,
            running={a.order.uid: _copies(a.order) for a in attempts if a.running},
            queues={pool.name: queue for pool in self.pools},
        )


def request_of(order: LaunchOrder) -> Request:
    """What an order takes."""
    first = order.places[0]
    return Request(
        first.pool,
        order.replicas,
        len(first.accelerators),
        order.cpus_milli,
        order.memory_bytes,
        order.width,
        order.one_node,
    )


def _copies(order: LaunchOrder) -> tuple[tuple[tuple[str, int], ...], ...]:
    each = order.replicas
    return tuple(
        tuple((place.pool, place.node) for place in order.places[lane * each : (lane + 1) * each])
        for lane in range(order.width)
    )
