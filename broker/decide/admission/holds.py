"""Capacity kept for somebody for a bounded time: a gang whose turn has come, one that lost a
member, whoever was given back its quota, or who is on its way there. Meanwhile
what ends in time may use it (backfill).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from broker.decide.admission.running import Running
from broker.decide.admission.wishes import Wish, places
from broker.model.problem import Job, NodeGroup, Pool


class HoldWhy(StrEnum):
    """What a hold is for."""

    GANG = "gang"
    RECOVERY = "recovery"
    CLAIM = "claim"
    MOVE = "move"


Shape = tuple[str, int, int, int, tuple[str, ...], tuple[str, ...] | None]


def shape_of(job: Job) -> Shape:
    """Equal for jobs that a hold need not tell apart."""
    return (
        job.tenant,
        job.priority,
        job.replicas,
        job.accelerators_per_replica,
        tuple(job.accelerators),
        job.regions,
    )


@dataclass(frozen=True, slots=True)
class Hold:
    """`copies` of a gang of `replicas` x `size` are to start in a pool by `until_ms`; room for
    them is expected at `room_ms`. `model` is the pool's; `job` is empty where any job of the shape
    will do."""

    shape: Shape
    pool: str
    priority: int
    replicas: int
    size: int
    why: HoldWhy
    since_ms: int
    until_ms: int
    room_ms: int
    copies: int = 1
    job: str = ""
    model: str = ""

    @property
    def tenant(self) -> str:
        """Whose job it is for."""
        return str(self.shape[0])

    def is_for(self, wish: Wish) -> bool:
        """Whether it is kept for this class."""
        return self.shape == shape_of(wish.job) and self.job in ("", wish.job.id)

    @property
    def accelerators(self) -> int:
        """What is kept in all once there is room."""
        return self.copies * self.replicas * self.size


@dataclass(frozen=True, slots=True)
class Kept:
    """The pools with what is held taken out (`pools`), what was taken out (`parts`, by pool), and
    how many copies each hold has room for now."""

    pools: tuple[Pool, ...]
    parts: tuple[Pool, ...] = ()
    ready: Mapping[int, int] = field(default_factory=dict)  # by index of the hold


def set_aside(pools: Sequence[Pool], holds: Sequence[Hold], wishes: Sequence[Wish]) -> Kept:
    """Take what is held out of the pools, hold by hold. Where there is room for a copy and the job
    may start now its nodes stay where they are, since it goes first."""
    left = {pool.name: pool for pool in pools}
    parts: dict[str, list[NodeGroup]] = {}
    back: dict[str, list[NodeGroup]] = {}
    ready: dict[int, int] = {}
    for index, hold in enumerate(holds):
        pool = left.get(hold.pool)
        if pool is None or pool.unusable is not None:
            continue
        taken, rest = _most_free(pool, hold)
        copies = places(taken, hold.size) // hold.replicas
        if copies and any(hold.is_for(wish) for wish in wishes):
            ready[index] = min(copies, hold.copies)
            back.setdefault(hold.pool, []).extend(taken)
        else:
            parts.setdefault(hold.pool, []).extend(taken)
        left[hold.pool] = replace(pool, nodes=tuple(rest))
    whole = tuple(
        replace(left[p.name], nodes=(*left[p.name].nodes, *back.get(p.name, ()))) for p in pools
    )
    held = tuple(replace(p, nodes=tuple(parts[p.name])) for p in pools if p.name in parts)
    return Kept(whole, held, ready)


def _most_free(pool: Pool, hold: Hold) -> tuple[list[NodeGroup], list[NodeGroup]]:
    """As many nodes as the hold will need, the freest first, and the rest."""
    each = max(pool.accelerators_per_node // hold.size, 1)
    wanted = -(-hold.replicas * hold.copies // each)
    taken: list[NodeGroup] = []
    rest: list[NodeGroup] = []
    for group in sorted(pool.nodes, key=lambda g: -g.free_accelerators):
        mine = min(group.count, wanted) if group.free_accelerators else 0
        wanted -= mine
        if mine:
            taken.append(replace(group, count=mine))
        if group.count > mine:
            rest.append(replace(group, count=group.count - mine))
    return taken, rest


def room_at_ms(pool: Pool, job: Job, running: Iterable[Running], now_ms: int) -> int | None:
    """When a gang will find room in a pool if nothing else starts there: as attempts reach the
    end of their runtime at the latest. None: not even then.

    Pieces smaller than a replica are counted together, so the instant may come out early where
    they lie on different nodes; it is looked at again in every cycle.
    """
    size = job.accelerators_per_replica
    missing = job.replicas - places(pool.nodes, size)
    if missing <= 0:
        return now_ms
    pieces = sum(group.count * (group.free_accelerators % size) for group in pool.nodes)
    for attempt in sorted(running, key=lambda a: (a.ends_ms, a.uid)):
        if attempt.pool != pool.name:
            continue
        each = attempt.accelerators_per_replica
        missing -= attempt.replicas * (each // size)
        pieces += attempt.replicas * (each % size)
        if missing <= pieces // size:
            return max(attempt.ends_ms, now_ms)
    return None

