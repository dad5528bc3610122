"""The leader's books: every job that has not left etcd, as the leader last committed it.

Built from the projection at election; from then on the leader is the only writer, so the books are
never behind. Changes are folded into a `Draft` and installed once they are durable.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from google.protobuf.message import DecodeError

from broker.control.affinity import Neighbours, neighbours
from broker.control.policy_book import PolicyBook
from broker.control.slices import GivingWay
from broker.control.waitlist import Reason, WaitingClass, Waitlist, alike
from broker.model.jobs import Attempt, Job, JobPhase, OutcomeKind, Reconcile, Terms
from broker.model.policies import Ruling
from broker.model.replacing import replace
from broker.state import keys
from broker.state.codec import RecordUnreadable
from broker.state.parsed_specs import ParsedSpecs
from broker.state.projection import Projection
from federation.ids import JobId
from federation.job_errors import InvalidJob
from federation.jobs import JobSpec, Retry, spec_digest
from federation.kv import KeyValue
from federation.tickets import admission_holds
from federation.wire import records as pb

TERMS_MAX = 1_000
PARSED_MAX = 1_000
"""Specs kept parsed. The copies of a class have one spec, byte for byte."""


@dataclass(frozen=True, slots=True)
class Admitted:
    """The immutable side of a job: what its submitter wrote, as admitted by the API.

    `ruling` is what the policies in force make of it, and `terms` are under it; `stamp` says
    under which policies (`PolicyBook.stamp`).
    """

    spec: JobSpec
    raw: bytes
    digest: str
    subject: str
    traceparent: str
    terms: Terms
    ruling: Ruling | None = None
    stamp: int = -1

    @property
    def rules(self) -> Ruling:
        """The ruling; the job as it is where no policy was looked at."""
        return self.ruling or Ruling(self.spec)


def terms_of(spec: JobSpec) -> Terms:
    """What of a spec the lifecycle needs."""
    delay_s = spec.placement.max_start_delay_s or 0
    return _terms(spec.retry, spec.preempt_grace_s, delay_s, spec.on_disconnect.reconcile)


@lru_cache(maxsize=TERMS_MAX)
def _terms(retry: Retry, grace_s: int, delay_s: int, reconcile: str) -> Terms:
    return Terms(
        retry_attempts=retry.attempts - 1,
        retry_on=frozenset(OutcomeKind(kind) for kind in retry.on),
        stop_grace_s=grace_s,
        max_start_delay_s=delay_s,
        reconcile=Reconcile(reconcile),
    )


class Books:
    """Jobs, specs and counters of one leadership."""

    def __init__(
        self,
        mac_key_of: Callable[[str], bytes | None],
        policies: PolicyBook | None = None,
        specs: ParsedSpecs | None = None,
    ) -> None:
        self._mac_key_of = mac_key_of
        self._specs = specs or ParsedSpecs()
        self._policies = policies
        self._ruled = -1
        self._jobs: dict[JobId, Job] = {}
        self._admitted: dict[JobId, Admitted] = {}
        self._distrusted: dict[JobId, str] = {}
        self._parsed: dict[bytes, tuple[JobSpec, str, Terms]] = {}
        self._queued: set[JobId] = set()
        self._unseated: dict[JobId, None] = {}  # in order: nothing may hang on hash seeds
        self._waitlist = Waitlist()
        self._order: list[JobId] | None = None
        self._live: dict[str, dict[str, Attempt]] = {}
        self._ended: dict[str, dict[str, Attempt]] = {}
        self.in_queues: dict[str, Attempt] = {}  # those that wait in the queues of sites
        self._dependents: dict[JobId, dict[JobId, None]] = {}
        self._apart: dict[JobId, tuple[str, frozenset[str]]] = {}  # tenant, keys of labels avoided
        self.intents: dict[JobId, int] = {}
        self.dispatch_seqs, self.event_seqs = dict[str, int](), dict[str, int]()
        self.giving_way = GivingWay()

    def load(self, projection: Projection) -> Iterator[str]:
        """Take over everything etcd holds, a job at a step, so that the caller can let others
        work in between. Yields what is wrong with that job, or an empty text.

        What users asked of a job is not looked at here: `intents` says nothing of it yet.
        """
        for kv in projection.under(keys.SEQS):
            yield self._load_seq(kv)
        for job_id in projection.job_ids():
            try:
                job = projection.job(job_id)
            except RecordUnreadable as error:
                yield f"job {job_id} is left alone: {error}"
                continue
            if job is None:
                continue
            problem = self.admit(job, projection.value(keys.spec(job.id)))
            for attempt in job.attempts:  # a counter never lags behind what was numbered by it
                known = self.dispatch_seqs.get(attempt.cluster, 0)
                self.dispatch_seqs[attempt.cluster] = max(known, attempt.dispatch_seq)
            yield f"job {job_id} is not planned: {problem}" if problem else ""

    def _load_seq(self, kv: KeyValue) -> str:
        cluster, _, kind = kv.key[len(keys.SEQS) :].partition("/")
        book = self.dispatch_seqs if kind == "dispatch" else self.event_seqs
        try:
            book[cluster] = pb.SeqRecord.FromString(kv.value).seq
        except DecodeError as error:
            return f"{kv.key} cannot be read: {error}"
        return ""

    def admit(self, job: Job, spec_record: bytes | None) -> str:
        """Take a job in; returns why it is not trusted, or an empty text.

        A record whose MAC does not hold was not written by the API: it is kept, never planned.
        """
        self.install([job])
        if spec_record is None:
            return self._distrust(job, "its spec is missing")
        try:
            record = pb.SpecRecord.FromString(spec_record)
            spec, digest, terms = self._parse(record.spec)
        except (InvalidJob, ValueError, RecursionError, DecodeError) as error:
            return self._distrust(job, f"its spec cannot be read: {error}")
        key = self._mac_key_of(record.kid)
        if (
            key is None
            or record.tenant != job.tenant
            or not admission_holds(
                record.mac, key, job.id, record.tenant, digest, record.subject
            )
        ):
            return self._distrust(job, "its admission MAC does not hold")
        self._admitted[job.id] = Admitted(
            spec, record.spec, digest, record.subject, record.traceparent, terms
        )
        if spec.placement.anti_affinity:
            self._keep_apart(job, frozenset(spec.placement.anti_affinity))
        return ""

    def _parse(self, raw: bytes) -> tuple[JobSpec, str, Terms]:
        """A spec with its digest and terms; most jobs are copies of one seen lately."""
        known = self._parsed.get(raw)
        if known is None:
            spec = self._specs.take(raw)
            known = spec, spec_digest(raw), terms_of(spec)
            if len(self._parsed) >= PARSED_MAX:
                self._parsed.clear()
            self._parsed[raw] = known
        return known

    def set_aside(self, job_id: str, why: str) -> None:
        """Plan a job no more: something about it is broken in a way nobody foresaw."""
        job = self.job(job_id)
        if job is not None:
            self._distrust(job, why)

    def _distrust(self, job: Job, why: str) -> str:
        self._distrusted[job.id] = why
        self._unqueue(job.id)
        return why

    def _unqueue(self, job: JobId) -> None:
        if job in self._queued:
            self._queued.discard(job)
            self._unseated.pop(job, None)
            self._waitlist.leave(job)
            self._order = None

    def install(self, jobs: Iterable[Job]) -> None:
        """Jobs as they now stand in etcd."""
        for job in jobs:
            old = self._jobs.get(job.id)
            known = {a.uid: a for a in old.attempts} if old else {}
            for attempt in job.attempts:
                if known.get(attempt.uid) is not attempt:
                    self._index(attempt)
            self._jobs[job.id] = job
            if job.awaits or (old and old.awaits):
                self._depend(old, job)
            wants = job.phase in (JobPhase.QUEUED, JobPhase.PLACED, JobPhase.RUNNING)
            if wants and job.id not in self._distrusted and copies_wanted(job, None) > 0:
                self._unseated[job.id] = None
                if job.id not in self._queued:
                    self._queued.add(job.id)
                    self._order = None
            else:
                self._unqueue(job.id)

    def _keep_apart(self, job: Job, labels: frozenset[str]) -> None:
        """Labels that somebody avoids decide from now on where jobs of its tenant go."""
        if not labels <= self._watched(job.tenant):
            tenants = ((each, self._jobs[each].tenant) for each in self._queued)
            self._unseated.update({each: None for each, of in sorted(tenants) if of == job.tenant})
        self._apart[job.id] = job.tenant, labels

    def _watched(self, tenant: str) -> frozenset[str]:
        return frozenset().union(*(keys for of, keys in self._apart.values() if of == tenant))

    def _depend(self, old: Job | None, job: Job | None) -> None:
        if old is not None:
            for each in old.awaits:
                self._dependents.get(each.job, {}).pop(old.id, None)
        if job is not None and job.phase is not JobPhase.ENDED:
            for each in job.awaits:
                self._dependents.setdefault(each.job, {})[job.id] = None

    def _index(self, attempt: Attempt) -> None:
        book, other = (
            (self._live, self._ended) if attempt.live else (self._ended, self._live)
        )
        book.setdefault(attempt.cluster, {})[attempt.uid] = attempt
        other.get(attempt.cluster, {}).pop(attempt.uid, None)
        self.in_queues.pop(attempt.uid, None)
        if attempt.waits_in_queue:
            self.in_queues[attempt.uid] = attempt

    def forget(self, job: JobId) -> None:
        """A job has left etcd."""
        old = self._jobs.pop(job, None)
        for attempt in old.attempts if old else ():
            for book in (self._live, self._ended):
                book.get(attempt.cluster, {}).pop(attempt.uid, None)
            self.in_queues.pop(attempt.uid, None)
        self._depend(old, None)
        self._dependents.pop(job, None)
        self._apart.pop(job, None)
        self._admitted.pop(job, None)
        self._distrusted.pop(job, None)
        self._unqueue(job)
        self.intents.pop(job, None)

    # Reading --------------------------------------------------------------------------------------

    def job(self, job: str) -> Job | None:
        """A job by id."""
        return self._jobs.get(JobId(job))

    def admitted(self, job: str) -> Admitted | None:
        """What was admitted, under the policies now in force; None for a job that is not
        trusted."""
        found_id, book = JobId(job), self._policies
        found = self._admitted.get(found_id)
        if found is None or book is None or found.stamp == book.stamp:
            return found
        ruling = book.govern(found.spec, found.digest)
        terms = found.terms if ruling.spec is found.spec else terms_of(ruling.spec)
        found = replace(found, ruling=ruling, terms=terms, stamp=book.stamp)
        self._admitted[found_id] = found
        if found_id in self._queued:
            self._unseated[found_id] = None
        return found

    def unruled(self) -> list[JobId]:
        """Once after each change of the policies: the jobs to be ruled anew, for a caller that
        asks for each of them (`admitted`) with pauses. Who does not, pays when it is asked for."""
        if self._policies is None or self._ruled == self._policies.stamp:
            return []
        self._ruled = self._policies.stamp
        return [job for job, known in self._admitted.items() if known.stamp != self._ruled]

    def job_of(self, uid: str) -> Job | None:
        """The job an attempt uid belongs to."""
        return self._jobs.get(JobId(uid.rsplit("-", 1)[0]))

    def jobs(self) -> Iterator[Job]:
        """All jobs."""
        return iter(self._jobs.values())

    def queued(self) -> list[Job]:
        """Jobs that want (more) places, oldest first."""
        if self._order is None:
            self._order = sorted(
                self._queued, key=lambda job: (self._jobs[job].created_ms, job)
            )
        return [self._jobs[job] for job in self._order]

    def seating(self) -> Iterator[None]:
        """Give every job that came or changed its place among the classes, a job at a step, so
        that the caller can let others work in between; before `waiting`."""
        while self._unseated:
            for job_id in list(self._unseated):
                if job_id not in self._unseated:
                    continue  # it left while others worked
                admitted = self.admitted(job_id)
                del self._unseated[job_id]  # also where ruling it anew put it there
                if admitted is not None:
                    job = self._jobs[job_id]
                    self._waitlist.seat(job, self._key(job, admitted.rules))
                yield

    def waiting(self) -> Iterator[WaitingClass]:
        """Jobs that want (more) places, by class, the class of the oldest first."""
        return self._waitlist.classes()

    def told(self, job: Job, ruling: Ruling) -> Reason:
        """Why jobs alike wait; `UNTOLD` where none does. A job that joins them waits behind them,
        and so for the same."""
        return self._waitlist.told(self._key(job, ruling))

    def _key(self, job: Job, ruling: Ruling) -> Hashable:
        watched = self._watched(job.tenant) if self._apart else frozenset()
        return alike(job, ruling, watched)

    def dependents(self, job: JobId) -> list[JobId]:
        """Jobs that wait for this one."""
        return list(self._dependents.get(job, ()))

    def attempt(self, uid: str) -> Attempt | None:
        """An attempt by uid."""
        job = self.job_of(uid)
        return job.attempt(uid) if job else None

    def live_in(self, cluster: str) -> list[Attempt]:
        """Attempts of one cluster that have not ended."""
        return list(self._live.get(cluster, {}).values())

    def clusters(self) -> list[str]:
        """Clusters that have, or had, attempts."""
        return sorted(self._live.keys() | self._ended.keys())

    def neighbours(self) -> Neighbours | None:
        """Who is where; None where nobody keeps apart from anybody."""
        if not self._apart:
            return None

        def spec_of(job: str) -> JobSpec | None:
            admitted = self._admitted.get(JobId(job))
            return admitted.spec if admitted else None

        return neighbours((a for book in self._live.values() for a in book.values()), spec_of)

    def accountable(self, reflected: Mapping[str, int]) -> dict[str, list[Attempt]]:
        """By cluster, what its free figures must be corrected by: live attempts, and ended ones
        that its last report does not reflect. `reflected` maps a cluster to the event number its
        report reflects; what is in that is forgotten here, since reports never go back."""
        found: dict[str, list[Attempt]] = {}
        for cluster in self.clusters():
            seq = reflected.get(cluster, 0)
            ended = self._ended.get(cluster, {})
            for uid in [uid for uid, a in ended.items() if a.event_seq <= seq]:
                del ended[uid]
            found[cluster] = [*self._live.get(cluster, {}).values(), *ended.values()]
        return found


def copies_wanted(job: Job, limit: int | None) -> int:
    """How many more copies a job could start now; `limit` is an array's own (None = none)."""
    if job.phase is JobPhase.ENDED or job.cancel or job.held or job.awaits:
        return 0
    if not job.is_array:
        return 0 if job.counting_attempts else 1
    running = sum(a.width for a in job.counting_attempts)
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
