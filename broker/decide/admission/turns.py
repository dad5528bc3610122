"""The least weight of a tenant with which a waiting class has its turn: found by admitting again,
confirmed by deciding what is admitted. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from broker.decide.admission.admit import RANKS, Admission, Scene, Standing, admit
from broker.decide.decision import decide_floor
from broker.model.admission import AdmissionRules
from broker.model.problem import Pool, Problem, Tenant

WEIGHT_MAX = 1_000_000
"""What a weight may be at most (`tradewind tenants set --weight`)."""


@dataclass(frozen=True, slots=True)
class Turns:
    """A queue as the next cycle would admit it. `problem` has the words its jobs are in."""

    scene: Scene
    standing: Standing
    rules: AdmissionRules
    problem: Problem

    def with_pool(self, pool: Pool) -> Turns:
        """The same with another pool of that name."""
        pools = tuple(pool if p.name == pool.name else p for p in self.scene.pools)
        return replace(self, scene=replace(self.scene, pools=pools))

    def weight_of(self, index: int) -> int:
        """The weight of the tenant of a wish (by index) as it is."""
        return round(self.scene.weights.get(self.scene.wishes[index].job.tenant, 1.0))

    def least_weight(self, index: int, pool: str) -> int | None:
        """The least whole weight of its tenant with which a copy of a wish (by index) starts in
        a pool, beside all others that wait; the one it has where that is enough. None: none is."""
        low = high = self.weight_of(index)
        while not self._has_turn(index, high):
            low, high = high, 2 * high
            if low >= WEIGHT_MAX:
                return None
        high = min(high, WEIGHT_MAX)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if self._has_turn(index, middle) else (middle, high)
        return high if self._starts(index, high, pool) else None

    def _admitted(self, index: int, weight: int) -> Admission:
        tenant = self.scene.wishes[index].job.tenant
        weights: Mapping[str, float] = {**self.scene.weights, tenant: float(weight)}
        return admit(replace(self.scene, weights=weights), self.standing, self.rules)

    def _has_turn(self, index: int, weight: int) -> bool:
        return self._admitted(index, weight).granted[index] > 0

    def _starts(self, index: int, weight: int, pool: str) -> bool:
        """Whether it starts there when what is admitted is decided."""
        admission = self._admitted(index, weight)
        there = next(each for each in admission.kept.pools if each.name == pool)
        wishes = [self.scene.wishes[entry.wish].job for entry in admission.entries]
        jobs = tuple(
            replace(
                job,
                id=f"{number}",
                count=entry.copies,
                priority=job.priority * RANKS + entry.rank,
                current_pool=None,
            )
            for number, (entry, job) in enumerate(zip(admission.entries, wishes, strict=True))
        )
        limits = tuple(
            Tenant(name, quota_accelerators=most) for name, most in admission.limits.items()
        )
        clusters = tuple(c for c in self.problem.clusters if c.name == there.cluster)
        problem = replace(
            self.problem,
            jobs=jobs,
            pools=(there,),
            clusters=clusters,
            tenants=limits,
            warm=None,
        )
        entries = {f"{number}": entry.wish for number, entry in enumerate(admission.entries)}
        return any(entries[item.job] == index for item in decide_floor(problem).assignments)
