"""The one place where a plan becomes attempts: re-checked against the books, partial if need be.

A plan was made on a snapshot. Whatever changed since (a cancel, a hold, an end) makes the single
placement fall, never the plan; the cycle that follows sees the world as it is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

from broker.control.affinity import Neighbour, kept_apart
from broker.control.books import copies_wanted
from broker.control.build_problem import Waiting, World
from broker.control.change_words import reason_words
from broker.control.cold_start import blobs_of
from broker.control.round import PLACED_A_ROUND, Round
from broker.control.slices import first_tasks
from broker.control.waitlist import expected_s
from broker.lifecycle import events as ev
from broker.lifecycle.handlers import Rejected
from broker.model import problem as pm
from broker.model.jobs import Attempt, Job
from broker.model.plan import Assignment, Part, Plan, Unplaced
from federation.ids import AttemptUid, Cluster, JobId, attempt_uid
from federation.jobs import JobSpec
from federation.runs import Runs

PIECE = 250
"""Placements and reasons in one round: some 15 ms of the leader's time in one go."""


class Leading(Protocol):
    """What the applier needs of the leader."""

    @property
    def epoch(self) -> int:
        """The epoch attempts are placed under."""


@dataclass(slots=True)
class PlanApplier:
    """Applies one plan, a piece in a round. `placed` and `fallen` tell what came of it. `closed`
    are clusters that stopped taking jobs while the plan was made. `waiting` has who stands for
    whom: what the plan gives to a class goes to its members, the oldest first."""

    plan: Plan
    problem: pm.Problem
    world: World
    cycle: str
    closed: frozenset[str] = frozenset()
    waiting: Mapping[str, Waiting] = field(default_factory=dict)
    placed: list[Attempt] = field(default_factory=list)
    fallen: list[str] = field(default_factory=list)
    done: Callable[[PlanApplier, Round], None] | None = None
    stands_for: dict[str, str] = field(default_factory=dict)  # job placed -> job of the problem
    _next: int = 0
    _left: int = 0  # copies of the assignment under way still to be given
    _given: dict[str, int] = field(default_factory=dict)  # how many members have their place
    _untold: list[JobId] | None = None  # who is still to be told why they wait
    _folded: list[Attempt] = field(default_factory=list)
    _placed: dict[str, list[Neighbour]] = field(default_factory=dict)  # where some keep apart
    _promised: Counter[str] | None = None  # copies of arrays that still have to get their place

    @property
    def finished(self) -> bool:
        """Whether all of the plan has been folded."""
        return self._next >= len(self.plan.assignments) + len(self.plan.unplaced)

    def fold(self, round_: Round, leader: Leading) -> None:
        """Place what the plan assigns, then say why the rest waits; the next piece of it, so
        that no round is so large that the leader stops hearing."""
        pools = {pool.name: pool for pool in self.problem.pools}
        here: Counter[str] = Counter()
        for _ in range(PIECE):
            if self.finished:
                return
            if self._next < len(self.plan.assignments):
                assignment = self.plan.assignments[self._next]
                if not self._members(assignment.job):
                    whole = self._job_of(assignment.job)
                    here[whole] += 1
                    if here[whole] > PLACED_A_ROUND:
                        return
                pool = pools[assignment.pool]
                one = self._one_of(assignment)
                if one is not None:
                    what = f"placing {one.job}"
                    round_.contain(what, self._place, round_, leader.epoch, one, pool)
            else:
                unplaced = self.plan.unplaced[self._next - len(self.plan.assignments)]
                self._tell_one(round_, unplaced)

    def _members(self, job: str) -> tuple[JobId, ...]:
        stands_for = self.waiting.get(job)
        return stands_for.members if stands_for else ()

    def _job_of(self, name: str) -> JobId:
        """The job that goes by this name in the problem."""
        stands_for = self.waiting.get(name)
        return stands_for.job.id if stands_for else JobId(name)

    def _one_of(self, assignment: Assignment) -> Assignment | None:
        """What the next job gets: all of it, or one copy for the next member of a class."""
        members = self._members(assignment.job)
        if not members:
            self._next += 1
            whole = self._job_of(assignment.job)
            self.stands_for[whole] = assignment.job
            return replace(assignment, job=whole)
        self._left = (self._left or assignment.count) - 1
        if not self._left:
            self._next += 1
        turn = self._given.get(assignment.job, 0)
        self._given[assignment.job] = turn + 1
        if turn >= len(members):
            self.fallen.append(f"the class of {assignment.job} has no more members")
            return None
        self.stands_for[members[turn]] = assignment.job
        return replace(assignment, job=members[turn], count=1)

    def _tell_one(self, round_: Round, unplaced: Unplaced) -> None:
        """The next job that does not know yet why it waits."""
        if self._untold is None:
            head = self.waiting.get(unplaced.job)
            alike = head.alike if head else None
            code = unplaced.refusal.code.value
            if alike is not None:
                alike.told = code, reason_words(unplaced.refusal.text)
            self._untold = alike.untold(code) if alike else [self._job_of(unplaced.job)]
        if self._untold:
            job_id = self._untold.pop()
            what = f"the reason of {job_id}"
            round_.contain(what, self._explain, round_, job_id, unplaced)
        if not self._untold:
            self._untold = None
            self._next += 1

    def _explain(self, round_: Round, job_id: JobId, unplaced: Unplaced) -> None:
        job = round_.draft.job(job_id)
        if job is None or job.counting_attempts or copies_wanted(job, None) == 0:
            return
        code, text = unplaced.refusal.code.value, reason_words(unplaced.refusal.text)
        if job.reason_code != code:
            round_.fold(job, ev.WaitExplained(code, text))

    def applied(self, round_: Round) -> None:
        """The round is durable."""
        for attempt in self._folded:
            if round_.books.attempt(attempt.uid) is not None:
                self.placed.append(attempt)
            else:
                self.fallen.append(f"{attempt.job}: something was asked of it meanwhile")
        self._folded = []
        if self.done is not None:
            self.done(self, round_)

    def _place(
        self, round_: Round, epoch: int, assignment: Assignment, pool: pm.Pool
    ) -> None:
        job = round_.draft.job(assignment.job)
        admitted = round_.books.admitted(assignment.job)
        if job is None or admitted is None:
            self.fallen.append(f"{assignment.job} is gone")
            return
        if pool.cluster in self.closed:
            self.fallen.append(f"{pool.cluster} takes nothing any more")
            return
        if self._next_to_others(job, admitted.spec, pool.cluster):
            self.fallen.append(f"{job.id} keeps apart from what has gone to {pool.cluster}")
            return
        promised = self._left_for_others(assignment) if job.is_array else 0
        width = self._width(round_, job, admitted.spec, (assignment, pool.cluster))
        if width < 1:
            return
        if assignment.queued:  # tasks ahead would wait with it, and others could begin them
            promised = job.tasks.count
        takes_s = admitted.spec.expected_runtime_s
        tasks = first_tasks(job, width, promised, takes_s) if job.is_array else Runs()
        parts = tuple(replace(p, pool=p.pool.split("/", 1)[1]) for p in assignment.parts)
        parts *= width if job.is_array else 1
        attempt = self._attempt(job, admitted.spec, pool, round_, (epoch, width, tasks, parts))
        if assignment.queued:
            attempt = _in_queue(attempt, self.world)
        try:
            round_.fold(job, ev.AttemptPlaced(attempt))
        except Rejected as refused:
            self.fallen.append(str(refused))
        else:
            self._folded.append(attempt)

    def _width(
        self, round_: Round, job: Job, spec: JobSpec, given: tuple[Assignment, str]
    ) -> int:
        """How many copies it gets: no more than it still wants, nor than may wait at the cluster
        if they are to."""
        assignment, cluster = given
        limit = spec.array.limit if spec.array else None
        width = min(assignment.count, copies_wanted(job, limit))
        if width < 1:
            self.fallen.append(f"{job.id} wants no more places")
        elif assignment.queued:
            width = min(width, self._may_wait(round_, cluster))
            if width < 1:
                self.fallen.append(f"{cluster} lets no more jobs wait")
        return width

    def _next_to_others(self, job: Job, spec: JobSpec, cluster: str) -> bool:
        """Whether the plan has placed somebody there that the job, or who the job, keeps apart
        from: the next plan knows of it."""
        if self.world.neighbours is None:
            return False
        one, there = Neighbour.of(job.id, job.tenant, spec), self._placed.setdefault(cluster, [])
        if kept_apart(one, cluster, there) is not None:
            return True
        there.append(one)
        return False

    def _left_for_others(self, assignment: Assignment) -> int:
        """Copies of an array that the plan has for places after this one."""
        if self._promised is None:
            self._promised = Counter()
            for each in self.plan.assignments:
                if not self._members(each.job):
                    self._promised[self._job_of(each.job)] += each.count
        self._promised[assignment.job] -= assignment.count
        return max(self._promised[assignment.job], 0)

    def _may_wait(self, round_: Round, cluster: str) -> int:
        """How many more copies may join the queue of a site, whichever of its pools they are
        for."""
        capacity = self.world.fleet.clusters[Cluster(cluster)].capacity
        known = {a.uid: a for a in round_.books.live_in(cluster)}
        known |= {a.uid: a for a in self._folded if a.cluster == cluster}
        waiting = sum(a.waiting_copies for a in known.values())
        return 0 if capacity is None else max(capacity.max_queued - waiting, 0)

    def _attempt(
        self,
        job: Job,
        spec: JobSpec,
        pool: pm.Pool,
        round_: Round,
        placed: tuple[int, int, Runs, tuple[Part, ...]],
    ) -> Attempt:
        epoch, width, tasks, parts = placed
        view = self.world.fleet.clusters[Cluster(pool.cluster)]
        short = pool.name.split("/", 1)[1]
        price = view.prices.get(short)
        seq = round_.next_seq(pool.cluster)
        resources = spec.resources
        start = self.world.start_at(pool.cluster, blobs_of(spec))
        per_replica = resources.accelerator_count or max(1, -(-resources.cpus_milli // 1000))
        return Attempt(
            uid=AttemptUid(attempt_uid(job.id, job.attempts_made + 1)),
            job=job.id,
            tenant=job.tenant,
            cluster=Cluster(pool.cluster),
            region=view.identity.region,
            pool=short,
            epoch=epoch,
            dispatch_seq=seq,
            placed_seq=seq,
            ticket=b"",
            placed_ms=round_.now_ms,
            tasks=tasks,
            width=width if job.is_array else 0,
            replicas=resources.replicas,
            accelerators_per_replica=per_replica,
            accelerator=pool.accelerator,
            cpus_milli_per_replica=resources.cpus_milli,
            memory_bytes_per_replica=resources.memory_bytes,
            extras_per_replica=tuple(sorted(resources.extras.items())),
            max_runtime_s=spec.max_runtime_s or 0,
            stop_grace_s=spec.preempt_grace_s,
            fence_after_s=spec.on_disconnect.lost_after_s if spec.on_disconnect.replace else 0,
            price_micro_usd_per_accelerator_hour=price.mean_micro_usd(
                round_.now_ms + start.p50_ms, expected_s(spec) * 1000
            )
            if price
            else 0,
            price_source=price.source if price else "",
            price_as_of_ms=price.as_of_ms if price else 0,
            expected_start_delay_ms=start.p50_ms,
            expected_start_p90_ms=start.p90_ms,
            cycle=self.cycle,
            parts=parts,
        )


def _in_queue(attempt: Attempt, world: World) -> Attempt:
    """The same, to wait in the queue of its site, with the start to expect there."""
    capacity = world.fleet.clusters[attempt.cluster].capacity
    pools = capacity.pools if capacity else ()
    queue = next((pool.queue for pool in pools if pool.pool == attempt.pool), None)
    half_ms = (queue.start_p50_ms if queue else None) or 0
    most_ms = (queue.start_p90_ms if queue else None) or half_ms
    return replace(
        attempt,
        queued=True,
        expected_start_delay_ms=attempt.expected_start_delay_ms + half_ms,
        expected_start_p90_ms=attempt.expected_start_p90_ms + max(most_ms, half_ms),
    )
