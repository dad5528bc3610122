"""The leader's books: every job that has not left etcd, as the leader last committed it.

Built from the projection at election; from then on the leader is the only writer, so the books are
never behind. Changes are folded into a `Draft` and installed once they are durable.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from broker.model.jobs import Attempt, Job, JobPhase, OutcomeKind, Terms
from broker.state import keys
from broker.state.projection import Projection
from federation.ids import JobId
from federation.job_errors import InvalidJob
from federation.jobs import JobSpec, parse_job_spec, spec_digest
from federation.tickets import admission_holds
from federation.wire import records as pb


@dataclass(frozen=True, slots=True)
class Admitted:
    """The immutable side of a job: what its submitter wrote, as admitted by the API."""

    spec: JobSpec
    raw: bytes
    digest: str
    subject: str
    traceparent: str
    terms: Terms


def terms_of(spec: JobSpec) -> Terms:
    """What of a spec the lifecycle needs."""
    return Terms(
        retry_attempts=spec.retry.attempts - 1,
        retry_on=frozenset(OutcomeKind(kind) for kind in spec.retry.on),
        stop_grace_s=spec.preempt_grace_s,
        max_start_delay_s=spec.placement.max_start_delay_s or 0,
    )


class Books:
    """Jobs, specs and counters of one leadership."""

    def __init__(self, mac_key_of: Callable[[str], bytes | None]) -> None:
        self._mac_key_of = mac_key_of
        self._jobs: dict[JobId, Job] = {}
        self._admitted: dict[JobId, Admitted] = {}
        self._distrusted: dict[JobId, str] = {}
        self._queued: set[JobId] = set()
        self._by_cluster: dict[str, dict[str, JobId]] = {}
        self.intents: dict[JobId, int] = {}
        self.dispatch_seqs: dict[str, int] = {}
        self.event_seqs: dict[str, int] = {}

    def load(self, projection: Projection) -> None:
        """Take over everything etcd holds."""
        for kv in projection.under(keys.SEQS):
            record = pb.SeqRecord.FromString(kv.value)
            cluster, kind = kv.key[len(keys.SEQS) :].split("/")
            book = self.dispatch_seqs if kind == "dispatch" else self.event_seqs
            book[cluster] = record.seq
        for job in projection.whole_jobs():
            self.admit(job, projection.value(keys.spec(job.id)))
            self.intents[job.id] = projection.mod_revision(keys.intent(job.id))

    def admit(self, job: Job, spec_record: bytes | None) -> str:
        """Take a job in; returns why it is not trusted, or an empty text.

        A record whose MAC does not hold was not written by the API: it is kept, never planned.
        """
        self.install([job])
        if spec_record is None:
            return self._distrust(job, "its spec is missing")
        record = pb.SpecRecord.FromString(spec_record)
        digest = spec_digest(record.spec)
        key = self._mac_key_of(record.kid)
        if (
            key is None
            or record.tenant != job.tenant
            or not admission_holds(
                record.mac, key, job.id, record.tenant, digest, record.subject
            )
        ):
            return self._distrust(job, "its admission MAC does not hold")
        try:
            spec = parse_job_spec(json.loads(record.spec))
        except (InvalidJob, ValueError) as error:
            return self._distrust(job, f"its spec cannot be read: {error}")
        self._admitted[job.id] = Admitted(
            spec, record.spec, digest, record.subject, record.traceparent, terms_of(spec)
        )
        return ""

    def _distrust(self, job: Job, why: str) -> str:
        self._distrusted[job.id] = why
        self._queued.discard(job.id)
        return why

    def install(self, jobs: Iterable[Job]) -> None:
        """Jobs as they now stand in etcd."""
        for job in jobs:
            old = self._jobs.get(job.id)
            for attempt in old.attempts if old else ():
                self._by_cluster.get(attempt.cluster, {}).pop(attempt.uid, None)
            for attempt in job.attempts:
                self._by_cluster.setdefault(attempt.cluster, {})[attempt.uid] = job.id
            self._jobs[job.id] = job
            wants = job.phase in (JobPhase.QUEUED, JobPhase.PLACED, JobPhase.RUNNING)
            if wants and job.id not in self._distrusted and copies_wanted(job, None) > 0:
                self._queued.add(job.id)
            else:
                self._queued.discard(job.id)

    def forget(self, job: JobId) -> None:
        """A job has left etcd."""
        old = self._jobs.pop(job, None)
        for attempt in old.attempts if old else ():
            self._by_cluster.get(attempt.cluster, {}).pop(attempt.uid, None)
        self._admitted.pop(job, None)
        self._distrusted.pop(job, None)
        self._queued.discard(job)
        self.intents.pop(job, None)

    # Reading --------------------------------------------------------------------------------------

    def job(self, job: str) -> Job | None:
        """A job by id."""
        return self._jobs.get(JobId(job))

    def admitted(self, job: str) -> Admitted | None:
        """What was admitted; None for a job that is not trusted."""
        return self._admitted.get(JobId(job))

    def job_of(self, uid: str) -> Job | None:
        """The job an attempt uid belongs to."""
        return self._jobs.get(JobId(uid.rsplit("-", 1)[0]))

    def jobs(self) -> Iterator[Job]:
        """All jobs."""
        return iter(self._jobs.values())

    def queued(self) -> list[Job]:
        """Jobs that want (more) places, oldest first."""
        return sorted(
            (self._jobs[job] for job in self._queued), key=lambda j: (j.created_ms, j.id)
        )

    def attempts_in(self, cluster: str) -> list[Attempt]:
        """Attempts of one cluster, live or ended and still kept."""
        found = []
        for uid, job_id in self._by_cluster.get(cluster, {}).items():
            attempt = self._jobs[job_id].attempt(uid)
            if attempt is not None:
                found.append(attempt)
        return found

    def attempts_by_cluster(self) -> dict[str, list[Attempt]]:
        """All attempts kept, by cluster."""
        return {cluster: self.attempts_in(cluster) for cluster in self._by_cluster}


def copies_wanted(job: Job, limit: int | None) -> int:
    """How many more copies a job could start now; `limit` is an array's own (None = none)."""
    if job.phase is JobPhase.ENDED or job.cancel or job.held:
        return 0
    if not job.is_array:
        return 0 if job.live_attempts else 1
    running = sum(a.width for a in job.live_attempts)
    free = job.unassigned_tasks.count
    return max(free if limit is None else min(free, limit - running), 0)


@dataclass(slots=True)
class Draft:
    """Changes of one round, folded over the books and not yet durable."""

    books: Books
    changed: dict[JobId, Job] = field(default_factory=dict)
    before: dict[JobId, Job] = field(default_factory=dict)

    def job(self, job: str) -> Job | None:
        """The job as this round has it so far."""
        return self.changed.get(JobId(job)) or self.books.job(job)

    def set(self, old: Job, new: Job) -> None:
        """Take in the result of a step."""
        self.before.setdefault(old.id, old)
        self.changed[new.id] = new
