"""What a policy would change before it is applied: which jobs would go elsewhere, and what that
costs. Decided by the deciding core on a snapshot, with and without the policy; nothing is stored.

Queued jobs are decided together, as the next cycle would. Running jobs and those that ended in
the last day are decided one class at a time, alone in the fleet as if it were empty, at today's
prices: where each would go if it were submitted now.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from broker.control.books import copies_wanted
from broker.control.build_problem import Waiting, World, build
from broker.control.cycle import Decided
from broker.control.policies import govern
from broker.control.policy_book import PolicyBook
from broker.control.policy_text import read_policy
from broker.control.snapshots import live_jobs, spec_bytes
from broker.control.trial_rows import Compared, Subject, compare, summary
from broker.feedback.ports import JobEntry, JobFilter, Ledger
from broker.model.jobs import Job, JobPhase
from broker.model.plan import Plan
from broker.model.policies import Policies, PolicyVersion, Ruling
from broker.model.problem import Problem
from broker.state.projection import Projection
from federation.ids import JobId, Tenant
from federation.jobs import Deadline, InvalidJob, JobSpec, parse_job_spec

RECENT_MS = 24 * 3600 * 1000
TRIAL_JOBS_MAX = 25_000
RECENT_JOBS_MAX = 500
"""Ended jobs looked at, newest first: each is a query to the ledger."""
RECENT_CLASSES_MAX = 100
"""Kinds of recent jobs decided anew: each is two decisions."""

Decide = Callable[[Problem], Awaitable[Decided]]


@dataclass(frozen=True, slots=True)
class TrialPorts:
    """What a trial reads, and who decides."""

    projection: Projection
    ledger: Ledger
    world: Callable[[], World]
    decide: Decide


@dataclass(frozen=True, slots=True)
class _Rulings:
    """A job under the policies in force, and with the one on trial."""

    before: Ruling
    after: Ruling

    @property
    def affected(self) -> bool:
        """Whether anything that decides differs."""
        return _deciding(self.before) != _deciding(self.after)


class PolicyTrial:
    """Tries policies, one at a time: a trial may keep a core busy for seconds."""

    def __init__(self, ports: TrialPorts) -> None:
        self._ports = ports
        self._book = PolicyBook(ports.projection)
        self._one = asyncio.Lock()

    async def test(self, source: str) -> dict[str, Any]:
        """The answer of `POST /v1/policies/test`. Raises InvalidPolicy, FeedbackUnavailable."""
        policy = read_policy(source)
        async with self._one:
            before = self._book.policies()
            known = before.current.get(policy.name)
            tried = PolicyVersion(policy, known.version + 1 if known else 1, source=source)
            after = replace(
                before,
                current={**before.current, policy.name: tried},
                unreadable={k: v for k, v in before.unreadable.items() if k != policy.name},
            )
            trial = _Trial(self._ports, before, after)
            queued = await trial.queued()
            recent, notes = await trial.recent()
        return {
            "policy": {
                "name": policy.name,
                "version": tried.version,
                "replaces": known.version if known else None,
            },
            "queued": summary(queued),
            "recent": summary(recent),
            "moves": [row for part in (queued, recent) for row in part.rows],
            "notes": notes,
        }


class _Trial:
    """One trial: a snapshot, and what was ruled for each spec seen."""

    def __init__(self, ports: TrialPorts, before: Policies, after: Policies) -> None:
        self._ports = ports
        self._policies = (before, after)
        self._world = ports.world()
        self._ruled: dict[bytes, tuple[JobSpec, _Rulings] | None] = {}

    def _rule(self, raw: bytes) -> tuple[JobSpec, _Rulings] | None:
        if raw not in self._ruled:
            try:
                spec = parse_job_spec(json.loads(raw))
            except (InvalidJob, ValueError, RecursionError):
                self._ruled[raw] = None
            else:
                before, after = (govern(spec, policies) for policies in self._policies)
                self._ruled[raw] = spec, _Rulings(before, after)
        return self._ruled[raw]

    # Queued jobs ------------------------------------------------------------------------------

    async def queued(self) -> Compared:
        """All queued jobs together, with and without the policy."""
        found: list[tuple[Subject, _Rulings, Job]] = []
        for job in await live_jobs(self._ports.projection, wants_places):
            ruled = self._rule(spec_bytes(self._ports.projection, job.id))
            if ruled is None:
                continue
            spec, rulings = ruled
            copies = copies_wanted(job, spec.array.limit if spec.array else None)
            if copies > 0 and len(found) < TRIAL_JOBS_MAX:
                found.append((_subject(job, "queued", copies, rulings), rulings, job))
        subjects = [subject for subject, _, _ in found]
        if not any(subject.affected for subject in subjects):
            return Compared(jobs=len(subjects))
        problems, plans = [], []
        for side in ("before", "after"):
            waiting = [
                Waiting.under(getattr(rulings, side), job, subject.copies)
                for subject, rulings, job in found
            ]
            problems.append(await asyncio.to_thread(build, self._world, waiting))
            plans.append((await self._ports.decide(problems[-1])).plan)
        return await asyncio.to_thread(
            compare, subjects, (problems[0], problems[1]), (plans[0], plans[1])
        )

    # Running and lately ended jobs ------------------------------------------------------------

    async def recent(self) -> tuple[Compared, list[str]]:
        """Jobs that run, and those that ended in the last day, each kind alone."""
        notes: list[str] = []
        found: list[tuple[Subject, bytes]] = []
        for job in await live_jobs(self._ports.projection, _started):
            raw = spec_bytes(self._ports.projection, job.id)
            ruled = self._rule(raw)
            if ruled is not None:
                state = "ended" if job.phase is JobPhase.ENDED else "running"
                found.append((_subject(job, state, ruled[0].copies, ruled[1]), raw))
        seen = {subject.id for subject, _ in found}  # for some minutes in both
        async for entry in self._ended(notes):
            ruled = self._rule(entry.spec_json)
            if ruled is not None and entry.job not in seen:
                found.append((_ended_subject(entry, *ruled), entry.spec_json))
        kinds: dict[bytes, list[Subject]] = {}
        for subject, raw in found:
            if subject.affected:
                kinds.setdefault(raw, []).append(subject)
        skipped = sum(len(s) for s in list(kinds.values())[RECENT_CLASSES_MAX:])
        if skipped:
            notes.append(f"{skipped} recent jobs of rarer kinds were not decided anew")
        total = Compared(jobs=len(found), affected=sum(s.affected for s, _ in found))
        for raw, subjects in list(kinds.items())[:RECENT_CLASSES_MAX]:
            total = total.plus(await self._alone(raw, subjects))
        return total, notes

    async def _alone(self, raw: bytes, subjects: Sequence[Subject]) -> Compared:
        """One kind of job, each copy alone in an empty fleet, counted for all of its jobs."""
        ruled = self._rule(raw)
        if ruled is None:
            return Compared()
        problems: list[Problem] = []
        plans: list[Plan] = []
        for ruling in (ruled[1].before, ruled[1].after):
            job = _imagined(subjects[0], self._world.now_ms)
            world = replace(self._world, attempts={})
            spec = _deadline_from(ruling.spec, subjects[0].created_ms, self._world.now_ms)
            waiting = Waiting(job, spec, 1, replace(ruling, spec=spec))
            problems.append(_emptied(build(world, [waiting])))
            plans.append((await self._ports.decide(problems[-1])).plan)
        one = replace(subjects[0], id=JobId("j0000000000000000"), copies=1)
        alone = compare([one], (problems[0], problems[1]), (plans[0], plans[1]))
        return alone.for_each(subjects)

    async def _ended(self, notes: list[str]) -> AsyncIterator[JobEntry]:
        cursor, seen = None, 0
        since_ms = self._world.now_ms - RECENT_MS
        while seen < RECENT_JOBS_MAX:
            page = await self._ports.ledger.jobs(JobFilter(after=cursor, limit=100))
            for row in page.jobs:
                seen += 1
                if row.ended_ms >= since_ms:
                    entry = await self._ports.ledger.job(row.job)
                    if entry is not None:
                        yield entry
            cursor = page.next
            if cursor is None:
                return
        notes.append(f"of jobs that have ended only the {RECENT_JOBS_MAX} newest were looked at")


def wants_places(job: Job) -> bool:
    """Whether a job wants (more) places now."""
    return copies_wanted(job, None) > 0


def _started(job: Job) -> bool:
    return bool(job.live_attempts) or (job.phase is JobPhase.ENDED and bool(job.attempts))


def _deciding(ruling: Ruling) -> tuple[object, ...]:
    return (
        ruling.spec,
        ruling.round_trips,
        ruling.latency_usd_per_ms,
        ruling.wheres,
        ruling.hours,
        ruling.failovers,
        ruling.defers,
        ruling.spread,
        ruling.spot_share,
        tuple(conflict.path for conflict in ruling.conflicts),
    )


def _subject(job: Job, state: str, copies: int, rulings: _Rulings) -> Subject:
    clusters: Iterable[str] = (a.cluster for a in job.live_attempts or job.attempts)
    return Subject(
        id=job.id,
        name=job.name,
        tenant=job.tenant,
        state=state,
        priority=job.priority,
        created_ms=job.created_ms,
        copies=copies,
        ran_in=", ".join(sorted(set(clusters))),
        policies=(rulings.before.policies, rulings.after.policies),
        affected=rulings.affected,
    )


def _ended_subject(entry: JobEntry, spec: JobSpec, rulings: _Rulings) -> Subject:
    return Subject(
        id=JobId(entry.job),
        name=entry.name,
        tenant=entry.tenant,
        state="ended",
        priority=entry.priority,
        created_ms=entry.created_ms,
        copies=spec.copies,
        ran_in=entry.clusters,
        policies=(rulings.before.policies, rulings.after.policies),
        affected=rulings.affected,
    )


def _imagined(subject: Subject, now_ms: int) -> Job:
    """The job as if it were submitted now."""
    return Job(
        id=JobId("j0000000000000000"),
        tenant=Tenant(subject.tenant),
        name=subject.name,
        subject="",
        priority=subject.priority,
        class_key="",
        created_ms=now_ms,
        changed_ms=now_ms,
        phase=JobPhase.QUEUED,
    )


def _deadline_from(spec: JobSpec, created_ms: int, now_ms: int) -> JobSpec:
    """A deadline as far away as it was when the job was submitted."""
    at_ms = spec.deadline_ms(created_ms)
    if at_ms is None:
        return spec
    return spec.model_copy(update={"deadline": Deadline(at_ms=now_ms + at_ms - created_ms)})


def _emptied(problem: Problem) -> Problem:
    pools = tuple(replace(p, nodes=p.when_empty or p.nodes) for p in problem.pools)
    return replace(problem, pools=pools)
