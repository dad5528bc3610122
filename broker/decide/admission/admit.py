"""Admission: who goes first, who may take how much, what is kept for whom, what makes room. Pure.

In: what waits (oldest first), the pools, what runs, the tenants, and what earlier cycles left
(`Standing`). Out: entries for the problem, each some copies of a class with a rank within its
priority. Nothing that could start is left out of the problem: copies beyond their tenant's share
only come after those that have their turn, so a share nobody uses is everybody's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum

from broker.decide.admission.holds import Hold, Kept, set_aside
from broker.decide.admission.quotas import Allowances, Quota
from broker.decide.admission.running import Running
from broker.decide.admission.shares import Past, Shares, attempt_amounts, fill, holdings
from broker.decide.admission.wishes import Room, Wish, capacity
from broker.model.admission import AdmissionRules
from broker.model.problem import Pool

RANKS = 8
"""Ranks fit between two priorities of people."""


class Rank(IntEnum):
    """Who goes first within one priority."""

    BEYOND = 0
    TURN = 1
    AGED = 2
    HELD = 3


@dataclass(frozen=True, slots=True)
class Entry:
    """Some copies of a wish (by index) that go into the problem together."""

    wish: int
    rank: Rank
    copies: int


@dataclass(frozen=True, slots=True)
class Scene:
    """What admission looks at. `regions` are those of the clusters."""

    wishes: Sequence[Wish]
    pools: Sequence[Pool]
    regions: Mapping[str, str]
    running: Sequence[Running] = ()
    quotas: Sequence[Quota] = ()
    weights: Mapping[str, float] = field(default_factory=dict)
    now_ms: int = 0


@dataclass(frozen=True, slots=True)
class Standing:
    """What earlier cycles left: the past of the tenants, and what is held."""

    past: Past = Past()
    holds: tuple[Hold, ...] = ()


@dataclass(frozen=True, slots=True)
class Admission:
    """What came of it. `granted`: copies of each wish that had their turn; `limits`: by tenant
    what a decision may give it (no entry = no limit); `ratios`: levels of tenants, 1 = its share.
    `free`: what is left once all turns are given."""

    entries: tuple[Entry, ...]
    kept: Kept
    granted: tuple[int, ...]
    limits: Mapping[str, int]
    ratios: Mapping[str, float]
    allowances: Allowances
    shares: Shares
    room: Room


def admit(scene: Scene, standing: Standing, rules: AdmissionRules) -> Admission:
    """One cycle's admission."""
    kept = set_aside(scene.pools, standing.holds, scene.wishes)
    room = Room(kept.pools, scene.regions)
    shares = _shares(scene, standing.past)
    for number, hold in enumerate(standing.holds):
        if number not in kept.ready:  # what is kept for somebody is that one's already
            shares.take(hold.tenant, {hold.model: float(hold.accelerators)})
    free = capacity(kept.pools, empty=False)
    limits = Allowances.of(scene.quotas, _held(scene.running), _wanted(scene, room))
    first = _held_first(scene, standing, kept)
    for index, copies in first.items():
        _take(scene.wishes[index], copies, shares, free, limits)
    granted = fill(_rest(scene.wishes, first), shares, free, room, limits)
    entries = _entries(scene.wishes, first, granted, rules)
    return Admission(
        entries=tuple(entries),
        kept=kept,
        granted=tuple(granted[i] + first.get(i, 0) for i in range(len(granted))),
        limits=limits.limits(),
        ratios=shares.ratios(),
        allowances=limits,
        shares=shares,
        room=room,
    )


def _shares(scene: Scene, past: Past) -> Shares:
    held = holdings(
        (a.tenant, attempt_amounts(a.accelerator, a.accelerators, a.cpus, a.memory_gib))
        for a in scene.running
        if not a.queued
    )
    return Shares(capacity(scene.pools, empty=True), scene.weights, past, held)


def _held(running: Sequence[Running]) -> dict[str, int]:
    found: dict[str, int] = {}
    for attempt in running:
        found[attempt.tenant] = found.get(attempt.tenant, 0) + attempt.accelerators
    return found


def _wanted(scene: Scene, room: Room) -> dict[str, int]:
    """By tenant, accelerators that could start if there were room: what a quota is kept for."""
    found: dict[str, int] = {}
    for wish in scene.wishes:
        job = wish.job
        most = max(room.models(job, empty=True).values(), default=0)
        if not wish.set_back and most >= job.replicas:
            found[job.tenant] = found.get(job.tenant, 0) + job.gang_accelerators * job.count
    return found


def _held_first(scene: Scene, standing: Standing, kept: Kept) -> dict[int, int]:
    """Copies, by wish, that something was kept for and that now have room."""
    found: dict[int, int] = {}
    for number, copies in kept.ready.items():
        hold = standing.holds[number]
        for index, wish in enumerate(scene.wishes):
            if hold.is_for(wish):
                mine = min(copies, wish.job.count - found.get(index, 0))
                found[index] = found.get(index, 0) + mine
                copies -= mine
            if copies <= 0:
                break
    return {index: copies for index, copies in found.items() if copies > 0}


def _take(
    wish: Wish, copies: int, shares: Shares, free: dict[str, float], limits: Allowances
) -> None:
    model = max(wish.job.accelerators, key=lambda m: (free.get(m, 0.0), m))
    amounts = wish.amounts(model)
    shares.take(wish.job.tenant, amounts, copies)
    for name, amount in amounts.items():
        free[name] = free.get(name, 0.0) - amount * copies
    accelerators = wish.job.gang_accelerators * copies
    limits.take(wish.job.tenant, min(accelerators, limits.room(wish.job.tenant)))


def _rest(wishes: Sequence[Wish], first: Mapping[int, int]) -> list[Wish]:
    if not first:
        return list(wishes)
    return [
        wish.less(first[index]) if index in first else wish for index, wish in enumerate(wishes)
    ]


def _entries(
    wishes: Sequence[Wish], first: Mapping[int, int], granted: list[int], rules: AdmissionRules
) -> list[Entry]:
    """Ranks. Where one tenant alone wants places at a priority, shares say nothing: all its
    copies are in their turn, and the decision is as free as without admission."""
    tenants: dict[int, set[str]] = {}
    for wish in wishes:
        tenants.setdefault(wish.job.priority, set()).add(wish.job.tenant)
    found: list[Entry] = []
    for index, wish in enumerate(wishes):
        held = first.get(index, 0)
        left = wish.job.count - held
        alone = len(tenants[wish.job.priority]) == 1
        turn = left if alone else granted[index]
        aged = wish.waited_s >= rules.patience_s
        split = (
            (Rank.HELD, held),
            (Rank.AGED if aged else Rank.TURN, turn),
            (Rank.BEYOND, left - turn),
        )
        found += [Entry(index, rank, copies) for rank, copies in split if copies > 0]
    return found
