"""Which attempts make room for a gang: those whose stopping loses least, and no more of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from broker.decide.admission.running import Running
from broker.decide.admission.wishes import places
from broker.model.problem import Job, Pool


@dataclass(frozen=True, slots=True)
class Eviction:
    """Attempts to be stopped so that a copy of a job fits into a pool."""

    pool: str
    victims: tuple[Running, ...]
    lost_work: float


def cheapest_eviction(
    job: Job,
    pools: Iterable[Pool],
    running: Iterable[Running],
    may_go: Callable[[Sequence[Running]], bool],
    now_ms: int,
) -> Eviction | None:
    """The eviction that loses the least work, then takes the fewest attempts; None where none is
    enough. `running`: who may be chosen; `may_go`: whether these may go together. Every victim is
    needed: without any one of them the gang would not fit.
    """
    by_pool: dict[str, list[Running]] = {}
    for attempt in running:
        if not attempt.stopping and attempt.accelerators:
            by_pool.setdefault(attempt.pool, []).append(attempt)
    found: list[Eviction] = []
    for pool in pools:
        candidates = by_pool.get(pool.name, [])
        if not candidates:
            continue
        orders = (
            sorted(candidates, key=lambda a: (a.lost_work(now_ms), a.uid)),
            sorted(candidates, key=lambda a: (-a.accelerators, a.lost_work(now_ms), a.uid)),
        )
        for order in orders:
            victims = _enough(job, pool, order, may_go)
            if victims:
                lost = sum(victim.lost_work(now_ms) for victim in victims)
                found.append(Eviction(pool.name, victims, lost))
    return min(found, key=lambda e: (e.lost_work, len(e.victims), e.pool), default=None)


def _enough(
    job: Job, pool: Pool, order: Sequence[Running], may_go: Callable[[Sequence[Running]], bool]
) -> tuple[Running, ...]:
    """Victims in this order until the gang fits, less those it would fit without. The last ones
    taken are let go first."""
    chosen: list[Running] = []
    for attempt in order:
        if not may_go([*chosen, attempt]):
            continue
        chosen.append(attempt)
        if fits_after(job, pool, chosen):
            break
    else:
        return ()
    for attempt in list(reversed(chosen)):
        without = [each for each in chosen if each is not attempt]
        if fits_after(job, pool, without):
            chosen = without
    return tuple(chosen)


def fits_after(job: Job, pool: Pool, gone: Iterable[Running], copies: int = 1) -> bool:
    """Whether copies of a gang fit into a pool once these attempts are gone."""
    return places_after(job, pool, gone) >= job.replicas * copies


def places_after(job: Job, pool: Pool, gone: Iterable[Running]) -> int:
    """Replicas of a job that fit once these are gone. Pieces smaller than a replica count where
    the nodes they lie on are known."""
    size = job.accelerators_per_replica
    found = places(pool.nodes, size)
    pieces: Counter[str] = Counter()
    for attempt in gone:
        each = attempt.accelerators_per_replica
        found += attempt.replicas * (each // size)
        if each % size and attempt.nodes:
            lying = attempt.replicas * (each % size)
            for node in attempt.nodes:
                pieces[node] += lying // len(attempt.nodes)
    return found + sum(piece // size for piece in pieces.values())
