"""Admission at work: looks at the queue before each decision, says afterwards who waits for what.

Rules and arithmetic are in `decide/admission`; here they meet the books. What is remembered between
cycles is little: the tenants' past (kept durable by `share_book`), and who had a turn in vain.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from broker.control.array_parts import in_parts, one_part_on_own_nodes, spread_over_parts
from broker.control.books import Books
from broker.control.build_problem import ProblemBuilder, Waiting, World
from broker.control.gaps import Candidate, Gap, gap_after
from broker.control.problem_pools import GIB, pool_name
from broker.control.spot_share import Governed, governed_by, with_spot_shares
from broker.control.tenant_limits import quotas_of
from broker.decide.admission.admit import (
    RANKS,
    Admission,
    Entry,
    Rank,
    Scene,
    Standing,
    admit,
)
from broker.decide.admission.holds import Hold
from broker.decide.admission.keeping import (
    Lost,
    after_use,
    for_claims,
    for_departures,
    for_lost,
    for_moves,
    kept_on,
    looked_at_again,
    next_gang,
)
from broker.decide.admission.leaving import Departure
from broker.decide.admission.making_room import Stop, Stops, make_room
from broker.decide.admission.moving import Move
from broker.decide.admission.running import Running
from broker.decide.admission.shares import Past, Shares, attempt_amounts, holdings
from broker.decide.admission.vain import Vain
from broker.decide.admission.wishes import CPUS, MEMORY_GIB, Wish
from broker.decide.admission.words import reasons
from broker.decide.admission.yielding import yielding
from broker.decide.same_node import as_one
from broker.model import problem as pm
from broker.model.admission import AdmissionRules
from broker.model.fleet import Fleet
from broker.model.jobs import Attempt, Desired, Job, OutcomeKind
from broker.model.plan import Plan
from broker.sense.fleet import unusable
from federation.ids import Cluster

RUNTIME_UNKNOWN_S = 24 * 3600
OBSERVE_MS = 5_000
"""The past is brought up to date so often at most."""


@dataclass(frozen=True, slots=True)
class Course:
    """One cycle as admitted. `waiting`: by name in the problem, who stands there."""

    problem: pm.Problem
    waiting: Mapping[str, Waiting]
    scene: Scene
    admission: Admission
    named: tuple[tuple[str, Entry], ...] = ()
    holds: tuple[Hold, ...] = ()

    def gap(self, plan: Plan) -> Gap | None:
        """What may be decided in what is kept for others; None where nothing may."""
        if not self.admission.kept.parts:
            return None
        candidates = {}
        for key, entry in self.named:
            wish = self.scene.wishes[entry.wish]
            candidates[key] = Candidate(wish.job.priority, wish.runtime_s)
        ready = self.admission.kept.ready
        holds = [hold for number, hold in enumerate(self.holds) if number not in ready]
        kept = (self.admission.kept.parts, holds, self.scene.now_ms)
        return gap_after(self.problem, plan, self.waiting, candidates, kept)

    def explained(self, plan: Plan) -> Plan:
        """The plan with the reasons of admission, one for each class that waits."""
        told = reasons(self.scene, self.admission, (self.named, self.holds), plan)
        return replace(plan, unplaced=told)

    def left(self, plan: Plan) -> dict[int, int]:
        """Copies of each wish (by index) that a plan leaves waiting."""
        waits = {unplaced.job: unplaced.count for unplaced in plan.unplaced}
        left: dict[int, int] = {}
        for key, entry in self.named:
            if key in waits:
                left[entry.wish] = left.get(entry.wish, 0) + waits[key]
        return left


@dataclass(slots=True)
class Admitting:
    """Admission of one leadership."""

    books: Books
    rules: AdmissionRules
    past: Past = Past()
    vain: Vain = field(default_factory=Vain)
    ratios: Mapping[str, float] = field(default_factory=dict)
    holds: tuple[Hold, ...] = ()
    waits: tuple[Wish, ...] = ()
    """What the last decision left waiting, oldest first."""
    _known: dict[str, tuple[Attempt, int, Running]] = field(default_factory=dict)

    # The past -------------------------------------------------------------------------------------

    def observe(self, fleet: Fleet, weights: Mapping[str, float], now_ms: int) -> None:
        """Bring the past up to date."""
        if now_ms - self.past.at_ms < OBSERVE_MS and self.past.at_ms:
            return
        held = holdings(_amounts(a) for a in self.running() if not a.queued)
        shares = Shares(_totals(fleet, now_ms), weights, self.past, held)
        self.ratios = shares.ratios()
        fractions = {tenant: shares.fraction(tenant) for tenant in held}
        self.past = self.past.after(fractions, now_ms, self.rules.half_life_s)

    def running(self) -> list[Running]:
        """What runs, or is about to."""
        known, self._known = self._known, {}
        for cluster in self.books.clusters():
            for attempt in self.books.live_in(cluster):
                if not attempt.counts:
                    continue  # its place is unheard of, and its job is elsewhere by now
                job = self.books.job(attempt.job)
                priority = job.priority if job else 0
                seen = known.get(attempt.uid)
                if seen is None or seen[0] is not attempt or seen[1] != priority:
                    seen = attempt, priority, self._as_running(attempt, priority)
                self._known[attempt.uid] = seen
        return [seen[2] for seen in self._known.values()]

    def _as_running(self, attempt: Attempt, priority: int) -> Running:
        admitted = self.books.admitted(attempt.job)
        checkpoint = admitted.spec.checkpoint if admitted else None
        since_ms = attempt.started_ms or attempt.placed_ms
        replicas = attempt.copies * attempt.replicas
        return Running(
            uid=attempt.uid,
            job=attempt.job,
            tenant=attempt.tenant,
            priority=priority,
            pool=pool_name(attempt.cluster, attempt.pool) if attempt.in_one_pool else "",
            accelerator=attempt.accelerator,
            replicas=replicas,
            accelerators_per_replica=max(attempt.accelerators_per_replica, 1),
            started_ms=attempt.started_ms,
            ends_ms=since_ms + attempt.max_runtime_s * 1000,
            nodes=attempt.nodes,
            cpus=replicas * attempt.cpus_milli_per_replica / 1000,
            memory_gib=replicas * attempt.memory_bytes_per_replica / GIB,
            grace_s=attempt.stop_grace_s,
            kept_s=(checkpoint.interval_s or 0) if checkpoint else 0,
            stopping=attempt.desired is Desired.STOP,
            is_slice=attempt.width > 0,
            queued=attempt.waits_in_queue,
        )

    # A cycle --------------------------------------------------------------------------------------

    def admit(
        self,
        world: World,
        builder: ProblemBuilder,
        found: Sequence[tuple[Waiting, pm.Job]],
        recovering: Sequence[Waiting] = (),
    ) -> Course:
        """Who goes first and who may take how much, as the problem to be decided. `recovering`:
        gangs that ended against their will and may not start again yet."""
        now_ms = world.now_ms
        wishes = [
            Wish(
                as_one(job),
                _waited_s(w.job, now_ms),
                self.vain.is_set_back(job.id, now_ms),
                w.job.made_room,
                w.spec.max_runtime_s or RUNTIME_UNKNOWN_S,
            )
            for w, job in found
        ]
        scene = self.scene(world, builder, wishes)
        lost = [(w, job) for w, job in found if w.members]
        lost += [(w, builder.job(w)) for w in recovering]
        self.holds = self._held(scene, lost)
        admission = admit(scene, Standing(self.past, self.holds), self.rules)
        self.ratios = admission.ratios
        return _course(builder, dict(enumerate(found)), (scene, admission, self.holds))

    def with_one_more(self, world: World, builder: ProblemBuilder, one: Waiting) -> Course:
        """A job that is not there, admitted behind all that waits; nothing comes of it. Only its
        own copies are in the problem: what the others could have taken they have."""
        parts = with_spot_shares([one], self.governed(world.fleet))
        jobs = [builder.job(part) for part in parts]
        runtime_s = one.spec.max_runtime_s or RUNTIME_UNKNOWN_S
        wishes = [Wish(as_one(job), runtime_s=runtime_s) for job in jobs]
        scene = self.scene(world, builder, [*self.waits, *wishes])
        holds = tuple(hold for hold in self.holds if hold.pool in {p.name for p in scene.pools})
        admission = admit(scene, Standing(self.past, holds), self.rules)
        found = dict(enumerate(zip(parts, jobs, strict=True), start=len(self.waits)))
        return _course(builder, found, (scene, admission, holds))

    def governed(self, fleet: Fleet) -> Iterator[Governed]:
        """What runs, with the policies it is under."""
        for one in self.running():
            admitted = self.books.admitted(one.job)
            cluster, _, pool = one.pool.partition("/")
            view = fleet.clusters.get(Cluster(cluster))
            price = view.prices.get(pool) if view else None
            spot = price is not None and price.kind == "spot"
            if admitted is not None:
                yield governed_by(admitted.rules.policies, one.accelerators, spot=spot)

    def scene(self, world: World, builder: ProblemBuilder, wishes: Sequence[Wish]) -> Scene:
        """These wishes in the world as it is, the builder's pools worked out."""
        return Scene(
            wishes=wishes,
            pools=builder.worked_out,
            regions=builder.cluster_regions,
            running=self.running(),
            quotas=quotas_of(world.tenants.values()),
            weights={name: policy.weight for name, policy in world.tenants.items()},
            now_ms=world.now_ms,
        )

    def _held(self, scene: Scene, lost: Sequence[tuple[Waiting, pm.Job]]) -> tuple[Hold, ...]:
        """What is kept for whom in this cycle, higher priorities first."""
        now_ms, pools = scene.now_ms, {pool.name: pool for pool in scene.pools}
        leaving = {attempt.job for attempt in scene.running if attempt.stopping}
        kept, in_vain = kept_on(self.holds, scene.wishes, now_ms, leaving)
        self.vain = self.vain.with_set_back(in_vain, now_ms)
        kept = looked_at_again(kept, scene, pools)
        gone = [each for w, job in lost if (each := _lost(w, job)) is not None]
        kept += for_lost(gone, now_ms, self.rules)
        found = [
            replace(hold, model=pools[hold.pool].accelerator) for hold in kept if hold.pool in pools
        ]
        return tuple(sorted(found, key=lambda h: (-h.priority, h.since_ms, h.pool)))

    def rest(self) -> None:
        """Nothing waits: nobody has to give anything back."""
        self.books.giving_way.for_others = frozenset()
        self.waits = ()

    def stops(self, course: Course, plan: Plan) -> Stops:
        """Who has to make room for what the plan left waiting."""
        return make_room(course.scene, course.admission, course.left(plan), self.rules)

    def claim(self, course: Course, stops: Sequence[Stop]) -> None:
        """Keep what these are stopped for."""
        now_ms = course.scene.now_ms
        self.holds = (*self.holds, *for_claims(stops, course.scene, now_ms))

    def claim_departures(self, moves: Sequence[Departure], now_ms: int) -> None:
        """Keep what these leave a queue for."""
        self.holds = (*self.holds, *for_departures(moves, now_ms))

    def claim_moves(self, moves: Sequence[Move], now_ms: int) -> None:
        """Keep what these move to."""
        self.holds = (*self.holds, *for_moves(moves, now_ms))

    def learn(self, course: Course, plan: Plan) -> None:
        """Note who had a turn and could not use it, what was kept and is used, and for whom
        something is to be kept next."""
        left = {unplaced.job: unplaced.count for unplaced in plan.unplaced}
        turns: dict[str, bool] = {}
        for key, entry in course.named:
            if entry.rank is not Rank.BEYOND and course.admission.granted[entry.wish]:
                wish = course.scene.wishes[entry.wish].job.id
                used = left.get(key, 0) < entry.copies
                turns[wish] = turns.get(wish, False) or used
        self.vain = self.vain.after(turns, course.scene.now_ms)
        kept = after_use(self.holds, course.scene, course.named, left)
        waiting = course.left(plan)
        self.waits = tuple(
            replace(wish, job=replace(wish.job, count=waiting[index]))
            for index, wish in enumerate(course.scene.wishes)
            if index in waiting
        )
        self.books.giving_way.for_others = yielding(course.scene, course.admission, waiting)
        gang = next_gang(course.scene, course.admission, waiting, kept, self.rules)
        self.holds = (*kept, *([gang] if gang else ()))


def _course(
    builder: ProblemBuilder,
    found: Mapping[int, tuple[Waiting, pm.Job]],
    admitted: tuple[Scene, Admission, tuple[Hold, ...]],
) -> Course:
    """The problem of what was admitted; `found` by the index of their wishes."""
    scene, admission, holds = admitted
    waiting: dict[str, Waiting] = {}
    jobs: list[pm.Job] = []
    named: list[tuple[str, Entry]] = []
    for entry, part in in_parts(found, admission.entries):
        job = found[entry.wish][1]
        priority = job.priority * RANKS + entry.rank
        jobs.append(replace(job, id=part.key, count=entry.copies, priority=priority))
        waiting[part.key] = part
        named.append((part.key, entry))
    jobs = spread_over_parts(jobs, waiting)
    jobs = one_part_on_own_nodes(jobs, waiting, builder.cluster_regions)
    problem = builder.problem(jobs, admission.kept.pools, admission.limits)
    return Course(problem, waiting, scene, admission, tuple(named), holds)


_AGAINST_ITS_WILL = frozenset(
    {OutcomeKind.FAILED, OutcomeKind.LOST, OutcomeKind.OUT_OF_MEMORY, OutcomeKind.TIMED_OUT}
)


def is_lost(job: Job) -> bool:
    """Whether a job ended against its will, and is to run again."""
    last = job.attempts[-1].outcome if job.attempts else None
    return not job.is_array and last is not None and last.kind in _AGAINST_ITS_WILL


def _lost(waiting: Waiting, job: pm.Job) -> Lost | None:
    """A gang that ended against its will and is to run again."""
    if job.replicas < 2 or not is_lost(waiting.job):
        return None
    last = waiting.job.attempts[-1]
    return Lost(job, pool_name(last.cluster, last.pool), last.ended_ms)


def _waited_s(job: Job, now_ms: int) -> float:
    """Since it was submitted, or since its last attempt was over."""
    since_ms = max([job.created_ms, *(a.ended_ms for a in job.attempts)])
    return max(now_ms - since_ms, 0) / 1000


def _amounts(attempt: Running) -> tuple[str, dict[str, float]]:
    return attempt.tenant, attempt_amounts(
        attempt.accelerator, attempt.accelerators, attempt.cpus, attempt.memory_gib
    )


def _totals(fleet: Fleet, now_ms: int) -> dict[str, float]:
    """The resources of all clusters that take jobs, as if nothing ran."""
    found: dict[str, float] = {CPUS: 0.0, MEMORY_GIB: 0.0}
    for view in fleet.clusters.values():
        if view.capacity is None or unusable(view, now_ms) is not None:
            continue
        for pool in view.capacity.pools:
            for group in pool.groups:
                name = group.accelerator or "CPU"
                found[name] = found.get(name, 0.0) + group.count * group.total
                found[CPUS] += group.count * group.cpus_milli / 1000
                found[MEMORY_GIB] += group.count * group.memory_bytes / GIB
    return found
