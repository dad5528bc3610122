"""The ledger against what the site's own scheduler says: whose jobs sit where.

A batch system chooses nodes itself and runs jobs that are none of ours. What others hold is held
in the ledger too, under names no attempt can have; our own running attempts move to where they
are; those not yet running are packed into what is left, and what does not fit holds nothing: it
waits in the site's queue.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from federation.local_queue import LocalQueue
from federation.refusals import Refusal
from federation.site_limits import ClosedWindow
from regional_agent.session.ledger import OTHERS, Ledger, Place, Pool, Request, Reservation


@dataclass(frozen=True, slots=True)
class NodeSeen:
    """What jobs hold on one node, ours included. `takes_jobs` False: nothing new goes there."""

    accelerators_used: int = 0
    cpus_used_milli: int = 0
    memory_used_bytes: int = 0
    takes_jobs: bool = True


@dataclass(frozen=True, slots=True)
class SiteSeen:
    """The site at one instant. `nodes`: per pool in the order of its indices. `running`: per
    attempt of ours and running copy of it the nodes by pool and index. `closed`: when the whole
    site is in maintenance. `cards_max`: accelerators that the site's accounting lets us hold
    together. `queues`: by pool, where a job can wait at the site. `extras_used`: of those that all
    pools share, how many are in use, by ours too. `cards_bounds`: as `cards_max`, of some pools.
    `slots_bounds`: the same of slots, of pools without cards."""

    pools: tuple[Pool, ...]
    nodes: Mapping[str, tuple[NodeSeen, ...]]
    running: Mapping[str, tuple[tuple[tuple[str, int], ...], ...]] = field(default_factory=dict)
    closed: tuple[ClosedWindow, ...] = ()
    max_submit: int = 0
    max_array: int = 0
    others_running: int = 0
    others_waiting: int = 0
    cards_max: int | None = None
    queues: Mapping[str, LocalQueue] = field(default_factory=dict)
    extras_used: Mapping[str, int] = field(default_factory=dict)
    cards_bounds: tuple[tuple[frozenset[str], int], ...] = ()
    slots_bounds: tuple[tuple[frozenset[str], int], ...] = ()

    @property
    def unschedulable(self) -> Mapping[str, frozenset[int]]:
        """Nodes that take nothing new."""
        return {
            pool: frozenset(i for i, node in enumerate(nodes) if not node.takes_jobs)
            for pool, nodes in self.nodes.items()
        }


def closed_windows(
    rules: tuple[ClosedWindow, ...], seen: SiteSeen | None, now_ms: int
) -> tuple[ClosedWindow, ...]:
    """When nothing runs: by the site's rules, and by what its scheduler has announced."""
    announced = [w for w in seen.closed if w.until_ms > now_ms] if seen else []
    return tuple(sorted((*rules, *announced), key=lambda w: w.from_ms)) if announced else rules


def resettle(ledger: Ledger, seen: SiteSeen) -> Ledger:
    """The same attempts, where the site says they are."""
    ours = {k: r for k, r in ledger.reservations.items() if not k.startswith(OTHERS)}
    free = {
        (pool.name, i): list(range(pool.accelerators_per_node))
        for pool in seen.pools
        for i in range(pool.nodes)
    }
    settled = {uid: _where_they_run(r, seen, free) for uid, r in ours.items()}
    made = Ledger(seen.pools)
    for reservation in settled.values():
        made = made.adopt(reservation)
    held_by_us = tuple(settled.values())
    for pool in seen.pools:
        for index, node in enumerate(seen.nodes.get(pool.name, ())):
            others = _others(pool, index, node, held_by_us, free)
            if others is not None:
                made = made.adopt(others)
    if seen.extras_used:
        made = made.adopt(_extras_of_others(seen.extras_used, held_by_us))
    for uid, held in ours.items():
        made = _with_the_rest(made, settled[uid], held)
    return made


def _where_they_run(
    held: Reservation, seen: SiteSeen, free: dict[tuple[str, int], list[int]]
) -> Reservation:
    """The places of the copies that run; each copy's replicas divide over its nodes."""
    request, places = held.request, []
    for nodes in seen.running.get(held.uid, ())[: request.width]:
        for rank in range(request.replicas):
            pool, index = nodes[rank * len(nodes) // request.replicas]
            cards = free.get((pool, index), [])
            taken, cards[:] = cards[: request.accelerators], cards[request.accelerators :]
            places.append(Place(pool, index, tuple(taken)))
    return Reservation(held.uid, request, tuple(places))


def _others(
    pool: Pool,
    index: int,
    node: NodeSeen,
    ours: Iterable[Reservation],
    free: dict[tuple[str, int], list[int]],
) -> Reservation | None:
    """What somebody else holds on a node, all of it where it takes no jobs."""
    left = free[pool.name, index]
    cards, cpus, memory = len(left), pool.cpus_milli, pool.memory_bytes
    held_cpus = held_memory = 0
    for reservation in ours:
        count = sum(p.pool == pool.name and p.node == index for p in reservation.places)
        held_cpus += count * reservation.request.cpus_milli
        held_memory += count * reservation.request.memory_bytes
    if node.takes_jobs:
        held_cards = pool.accelerators_per_node - len(left)
        cards = min(len(left), max(0, node.accelerators_used - held_cards))
        cpus = max(0, node.cpus_used_milli - held_cpus)
        memory = max(0, node.memory_used_bytes - held_memory)
    if not (cards or cpus or memory):
        return None
    request = Request(pool.name, 1, cards, cpus, memory)
    place = Place(pool.name, index, tuple(left[len(left) - cards :]))
    return Reservation(f"{OTHERS}{pool.name}/{index}", request, (place,))


def _extras_of_others(used: Mapping[str, int], ours: Iterable[Reservation]) -> Reservation:
    """What others have of the things the whole site counts."""
    left = Counter(used)
    for held in ours:
        left.subtract({name: each * len(held.places) for name, each in held.request.extras})
    extras = tuple((name, left[name]) for name in sorted(used) if left[name] > 0)
    return Reservation(f"{OTHERS}extras", Request("", extras=extras), (Place("", 0),))


def _with_the_rest(made: Ledger, settled: Reservation, held: Reservation) -> Ledger:
    """Room for the copies that do not run yet, as far as there is any."""
    request = held.request
    copies = request.width - len(settled.places) // request.replicas
    if copies <= 0:
        return made
    rest = made.reserve(f"{OTHERS}rest", replace(request, width=copies))
    if isinstance(rest, Refusal):
        return made
    whole = replace(settled, places=settled.places + rest[1].places)
    return made.adopt(whole)
