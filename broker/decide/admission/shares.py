"""Weighted dominant-resource fair share, with a past that counts half as much every half-life.

A tenant's *level* is what it holds of its dominant resource (the largest fraction of any one
resource of the federation: accelerators by model, cpus, memory), plus the average of that over the
past, over its weight. Whoever would be lowest with half of its next copy goes next, so levels meet:
progressive filling as in "Dominant Resource Fairness" (Ghodsi et al., NSDI 2011), with the rounding
of Webster, which favours neither large nor small weights. The past is an exponential average, so
who had more than its share gets less until the averages meet as well.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from broker.decide.admission.quotas import Allowances
from broker.decide.admission.wishes import CPUS, MEMORY_GIB, Amounts, Room, Wish

STEP = 0.0025
"""A tenant in its turn gets at least so much of its dominant resource, if it wants as much: finer
steps cost time and change nothing that anyone could see."""


def dominant(held: Amounts, totals: Amounts) -> float:
    """The largest fraction of any resource; 0 for nothing held. A resource that nobody offers now
    (its sites are silent) counts for nothing."""
    return max(
        (amount / totals[name] for name, amount in held.items() if totals.get(name, 0.0) > 0),
        default=0.0,
    )


@dataclass(frozen=True, slots=True)
class Past:
    """The average dominant fraction of each tenant as of `at_ms` (0 = nothing is known yet), not
    yet divided by `depth`: how much of the average's weight has been seen, from 0 to 1."""

    at_ms: int = 0
    depth: float = 0.0
    average: Mapping[str, float] = field(default_factory=dict)

    def of(self, tenant: str) -> float:
        """The average of a tenant over the time seen; 0 for one that never held anything."""
        return self.average.get(tenant, 0.0) / self.depth if self.depth > 0 else 0.0

    def after(self, held: Mapping[str, float], now_ms: int, half_life_s: float) -> Past:
        """The averages at `now_ms`, tenants having held these fractions since."""
        if not self.at_ms:
            return Past(now_ms)
        elapsed_s = max(now_ms - self.at_ms, 0) / 1000
        kept = 0.5 ** (elapsed_s / half_life_s)
        names = sorted({*self.average, *held})
        moved = {
            name: kept * self.average.get(name, 0.0) + (1 - kept) * held.get(name, 0.0)
            for name in names
        }
        depth = kept * self.depth + (1 - kept)
        return Past(max(now_ms, self.at_ms), depth, {n: a for n, a in moved.items() if a > 1e-9})


@dataclass(slots=True)
class Shares:
    """Who holds what now. `totals`: the federation's resources; `held` grows as turns are given."""

    totals: Amounts
    weights: Mapping[str, float]
    past: Past = Past()
    held: dict[str, dict[str, float]] = field(default_factory=dict)

    def fraction(self, tenant: str) -> float:
        """Of its dominant resource, what a tenant holds now."""
        return dominant(self.held.get(tenant, {}), self.totals)

    def level(self, tenant: str) -> float:
        """What a tenant holds and held, over its weight."""
        return (self.fraction(tenant) + self.past.of(tenant)) / self.weight(tenant)

    def weight(self, tenant: str) -> float:
        """Weight of a tenant, 1 unless somebody said otherwise."""
        return max(self.weights.get(tenant, 1.0), 1e-9)

    def bid(self, tenant: str, amounts: Amounts) -> float:
        """The level of a tenant with half of one more copy: what decides whose turn it is."""
        return self.level(tenant) + dominant(amounts, self.totals) / 2 / self.weight(tenant)

    def take(self, tenant: str, amounts: Amounts, copies: int = 1) -> None:
        """A tenant takes so many copies."""
        mine = self.held.setdefault(tenant, {})
        for name, amount in amounts.items():
            mine[name] = mine.get(name, 0.0) + amount * copies

    def copies_to(self, tenant: str, amounts: Amounts, bid: float) -> int:
        """How many copies lift a tenant to another's bid and a step beyond; at least 1."""
        each = dominant(amounts, self.totals)
        if each <= 0.0:
            return 1_000_000
        gap = (bid - self.bid(tenant, amounts)) * self.weight(tenant)
        return max(1, int((max(gap, 0.0) + STEP) / each))

    def ratios(self) -> dict[str, float]:
        """By tenant that holds or held something: its level over the mean of all, so that 1 is
        exactly its share."""
        names = sorted({n for n, a in self.held.items() if any(a.values())} | {*self.past.average})
        weight = sum(self.weight(name) for name in names)
        used = sum(self.level(n) * self.weight(n) for n in names)
        if weight <= 0 or used <= 0:
            return {}
        return {name: self.level(name) * weight / used for name in names}


def fill(
    wishes: Sequence[Wish], shares: Shares, free: dict[str, float], room: Room, limits: Allowances
) -> list[int]:
    """How many copies of each wish have their turn in what is free: priority by priority, in each
    the tenant of the lowest level next, within a tenant in the order given (age).

    `free` and `limits` shrink, `shares` grow by what is given. A class that fits into no pool as
    things stand takes no turn from others, and neither does one that is set back.
    """
    granted = [0] * len(wishes)
    tiers: dict[int, dict[str, list[int]]] = {}
    for index, wish in enumerate(wishes):
        tiers.setdefault(wish.job.priority, {}).setdefault(wish.job.tenant, []).append(index)
    for priority in sorted(tiers, reverse=True):
        _fill_tier(tiers[priority], granted, _Filling(wishes, shares, free, room, limits))
    return granted


@dataclass(slots=True)
class _Filling:
    wishes: Sequence[Wish]
    shares: Shares
    free: dict[str, float]
    room: Room
    limits: Allowances

    def give(self, index: int, left: int, up_to: float | None) -> int:
        """Copies of a wish given in one turn; `up_to`: the next tenant's bid, None for none."""
        wish, shares = self.wishes[index], self.shares
        job, tenant = wish.job, wish.job.tenant
        gang = max(job.gang_accelerators, 1)
        model = self._model(wish)
        copies = min(left, self.limits.room(tenant) // gang)
        if model is None or copies < 1:
            return 0
        amounts = wish.amounts(model)
        copies = min(copies, int((self.free[model] + 1e-9) // gang))
        if up_to is not None:
            copies = min(copies, shares.copies_to(tenant, amounts, up_to))
        if copies < 1:
            return 0
        for name, amount in amounts.items():
            self.free[name] = self.free.get(name, 0.0) - amount * copies
        shares.take(tenant, amounts, copies)
        self.limits.take(tenant, gang * copies)
        return copies

    def _model(self, wish: Wish) -> str | None:
        """The model of which most is left, among those a pool has room for."""
        job = wish.job
        if wish.set_back:
            return None
        open_now = self.room.models(job, empty=False)
        found = [
            (self.free.get(model, 0.0), model)
            for model, most in open_now.items()
            if most >= job.replicas and self.free.get(model, 0.0) >= job.gang_accelerators
        ]
        return max(found)[1] if found else None


def _fill_tier(queues: dict[str, list[int]], granted: list[int], filling: _Filling) -> None:
    shares, wishes = filling.shares, filling.wishes
    at = dict.fromkeys(queues, 0)

    def bid(tenant: str) -> tuple[float, str]:
        job = wishes[queues[tenant][at[tenant]]]
        return shares.bid(tenant, job.amounts(next(iter(job.job.accelerators)))), tenant

    turns = [bid(tenant) for tenant in queues]
    heapq.heapify(turns)
    while turns:
        _, tenant = heapq.heappop(turns)
        queue = queues[tenant]
        while at[tenant] < len(queue):
            index = queue[at[tenant]]
            left = wishes[index].job.count - granted[index]
            given = filling.give(index, left, turns[0][0] if turns else None) if left else 0
            if given:
                granted[index] += given
                heapq.heappush(turns, bid(tenant))
                break
            at[tenant] += 1


def holdings(running: Iterable[tuple[str, Amounts]]) -> dict[str, dict[str, float]]:
    """What tenants hold, from (tenant, amounts) of each attempt."""
    held: dict[str, dict[str, float]] = {}
    for tenant, amounts in running:
        mine = held.setdefault(tenant, {})
        for name, amount in amounts.items():
            mine[name] = mine.get(name, 0.0) + amount
    return held


def attempt_amounts(model: str, cards: int, cpus: float, memory_gib: float) -> dict[str, float]:
    """The amounts of something that runs."""
    return {model: float(cards), CPUS: cpus, MEMORY_GIB: memory_gib}
