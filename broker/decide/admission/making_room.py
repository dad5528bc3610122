"""Who is stopped for whom: borrowers for those they borrowed from, and, where the rules allow it,
lower priorities for higher ones. Pure.

Nothing is taken for a class that fits as things stand, or will once what is being stopped already
is gone. A job that was itself stopped and has not run since takes nothing from anybody, so one
stop never leads to another.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from broker.decide.admission.admit import Admission, Scene
from broker.decide.admission.running import Running
from broker.decide.admission.victims import Eviction, cheapest_eviction, places_after
from broker.decide.admission.wishes import Wish
from broker.model.admission import AdmissionRules, Preempt
from broker.model.problem import Job, NodeGroup, Pool

COPIES_MAX, CLASSES_MAX, LOOKS_MAX = 16, 50, 60
"""Copies of a class, and classes, that room is made for in one cycle, and looks at who might go:
what is left comes in the next cycle."""
RECLAIMED = "its place was lent, and is wanted back"
OUTRANKED = "its place is wanted by a higher priority"


@dataclass(frozen=True, slots=True)
class Stop:
    """An attempt to be stopped so that a copy of a wish (by index) finds room in `pool`; empty
    where only a quota is missing. `moves`: not for another, it goes on in `pool` itself."""

    attempt: Running
    wish: int
    pool: str
    why: str
    moves: bool = False


@dataclass(frozen=True, slots=True)
class Stops:
    """What one cycle would stop. `accelerators` counts what is on its way out already as well,
    `in_use` all that run."""

    stops: tuple[Stop, ...] = ()
    accelerators: int = 0
    in_use: int = 0

    @property
    def share(self) -> float:
        """Of what is in use, what this takes from its users."""
        return self.accelerators / self.in_use if self.in_use else 0.0


def make_room(
    scene: Scene, admission: Admission, left: Mapping[int, int], rules: AdmissionRules
) -> Stops:
    """What is to be stopped for the copies that a decision left waiting (`left`, by wish)."""
    placed: dict[str, int] = {}
    for index, wish in enumerate(scene.wishes):
        given = (wish.job.count - left.get(index, 0)) * wish.job.gang_accelerators
        placed[wish.job.tenant] = placed.get(wish.job.tenant, 0) + given
    making = _Making(scene, admission, rules, placed)
    order = sorted(left, key=lambda index: (-scene.wishes[index].job.priority, index))
    for index in order[:CLASSES_MAX]:
        making.serve(index, min(left[index], COPIES_MAX))
    leaving = sum(a.accelerators for a in scene.running if a.stopping)
    return Stops(
        tuple(making.stops),
        leaving + sum(stop.attempt.accelerators for stop in making.stops) if making.stops else 0,
        sum(a.accelerators for a in scene.running),
    )


@dataclass(slots=True)
class _Making:
    scene: Scene
    admission: Admission
    rules: AdmissionRules
    placed: Mapping[str, int]  # accelerators by tenant
    stops: list[Stop] = field(default_factory=list)
    claimed: dict[str, int] = field(default_factory=dict)  # accelerators by pool
    going: list[Running] = field(default_factory=list)
    quota_left: dict[str, int] = field(default_factory=dict)  # by cohort
    own_left: dict[str, int] = field(default_factory=dict)
    borrowed: dict[str, int] = field(default_factory=dict)
    looks: int = LOOKS_MAX
    _gone: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        """What each tenant and cohort would have once the plan is carried out and those on their
        way out are gone."""
        self.going = [a for a in self.scene.running if a.stopping]
        self._gone = {attempt.uid for attempt in self.going}
        held = dict(self.placed)
        for attempt in self.scene.running:
            if not attempt.stopping:
                held[attempt.tenant] = held.get(attempt.tenant, 0) + attempt.accelerators
        for quota in self.scene.quotas:
            if quota.cohort and quota.accelerators is not None:
                left = quota.accelerators - held.get(quota.tenant, 0)
                self.own_left[quota.tenant] = max(left, 0)
                self.borrowed[quota.tenant] = max(-left, 0)
                self.quota_left[quota.cohort] = self.quota_left.get(quota.cohort, 0) + left

    def serve(self, index: int, copies: int) -> None:
        """Make room for copies of one class, as long as it may ask for it."""
        wish = self.scene.wishes[index]
        if wish.set_back or wish.was_stopped:
            return
        most = max(self.admission.room.models(wish.job, empty=True).values(), default=0)
        if most < wish.job.replicas:
            return
        for _ in range(copies):
            if not (self._reclaim(index, wish) or self._outrank(index, wish)):
                return

    def _reclaim(self, index: int, wish: Wish) -> bool:
        """A copy within its tenant's own quota: borrowers of the cohort go. True: it has room."""
        job = wish.job
        tenant, gang = job.tenant, job.gang_accelerators
        cohort = self.admission.allowances.cohort.get(tenant)
        if cohort is None or self.own_left.get(tenant, 0) < gang:
            return False
        members = self.admission.allowances.cohort
        lent = [
            a
            for a in self.scene.running
            if a.tenant != tenant
            and members.get(a.tenant) == cohort
            and self.borrowed.get(a.tenant, 0) > 0
            and a.uid not in self._gone
        ]
        fits = self._fitting(job)
        chosen: list[Running] = []
        pool = fits
        if pool is None:
            found = self._eviction(job, lent, self._within_borrowed)
            if found is None:
                return False
            pool, chosen = found.pool, list(found.victims)
        missing = gang - self.quota_left[cohort] - sum(a.accelerators for a in chosen)
        for attempt in sorted(lent, key=lambda a: (a.lost_work(self.scene.now_ms), a.uid)):
            if missing <= 0:
                break
            if attempt not in chosen and self._within_borrowed([*chosen, attempt]):
                chosen.append(attempt)
                missing -= attempt.accelerators
        if missing > 0:
            return False
        self._take(index, pool, chosen, RECLAIMED)
        self.own_left[tenant] -= gang
        self.quota_left[cohort] -= gang
        return True

    def _outrank(self, index: int, wish: Wish) -> bool:
        """A copy of a higher priority, where the rules say so. True: it has room."""
        job = wish.job
        if self.rules.preempt is not Preempt.LOWER_PRIORITY:
            return False
        if self.admission.allowances.room(job.tenant) < job.gang_accelerators:
            return False
        pool = self._fitting(job)
        if pool is not None:
            self._take(index, pool, [], OUTRANKED)
            return True
        lower = [
            a
            for a in self.scene.running
            if a.priority < job.priority and a.uid not in self._gone
        ]
        found = self._eviction(job, lower, _anyone)
        if found is None:
            return False
        self._take(index, found.pool, found.victims, OUTRANKED)
        return True

    def _fitting(self, job: Job) -> str | None:
        """A pool where a copy fits now, or once those on their way out are gone."""
        for pool in self.admission.room.open_to(job):
            gone = [a for a in self.going if a.pool == pool.name]
            if self._places(job, pool, gone) >= job.replicas:
                return pool.name
        return None

    def _places(self, job: Job, pool: Pool, gone: Sequence[Running]) -> int:
        claimed = -(-self.claimed.get(pool.name, 0) // job.accelerators_per_replica)
        return places_after(job, pool, gone) - claimed

    def _eviction(
        self,
        job: Job,
        candidates: Sequence[Running],
        may_go: Callable[[Sequence[Running]], bool],
    ) -> Eviction | None:
        self.looks -= 1
        if self.looks < 0:
            return None
        pools = [self._unclaimed(pool) for pool in self.admission.room.open_to(job)]
        return cheapest_eviction(job, pools, candidates, may_go, self.scene.now_ms)

    def _unclaimed(self, pool: Pool) -> Pool:
        """A pool without what others need of its free nodes, beside what is on its way out."""
        going = sum(a.accelerators for a in self.going if a.pool == pool.name)
        debt = self.claimed.get(pool.name, 0) - going
        nodes: list[NodeGroup] = []
        for group in sorted(pool.nodes, key=lambda g: -g.free_accelerators):
            gone = 0
            if debt > 0 and group.free_accelerators:
                gone = min(group.count, -(-debt // group.free_accelerators))
                debt -= gone * group.free_accelerators
            nodes += [replace(group, count=group.count - gone)] if group.count > gone else []
        return replace(pool, nodes=tuple(nodes))

    def _within_borrowed(self, victims: Sequence[Running]) -> bool:
        """Nobody loses more than it borrowed."""
        sums: dict[str, int] = {}
        for victim in victims:
            sums[victim.tenant] = sums.get(victim.tenant, 0) + victim.accelerators
        return all(lost <= self.borrowed.get(name, 0) for name, lost in sums.items())

    def _take(self, index: int, pool: str, victims: Sequence[Running], why: str) -> None:
        job = self.scene.wishes[index].job
        self.claimed[pool] = self.claimed.get(pool, 0) + job.gang_accelerators
        for victim in victims:
            self.going.append(victim)
            self._gone.add(victim.uid)
            self.stops.append(Stop(victim, index, pool, why))
            if victim.tenant in self.borrowed:
                self.borrowed[victim.tenant] -= victim.accelerators
            cohort = self.admission.allowances.cohort.get(victim.tenant)
            if cohort is not None:
                self.quota_left[cohort] += victim.accelerators


def _anyone(victims: Sequence[Running]) -> bool:
    return True
