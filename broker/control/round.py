"""One round of the leader: what came in, folded into jobs, and the writes that make it durable.

Nothing here waits. `Round` collects; `writes_of` turns a changed job into one nested transaction.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from broker.control.books import Books, Draft
from broker.control.slices import top_up
from broker.lifecycle import commands as cmd
from broker.lifecycle import events as ev
from broker.lifecycle.handlers import Rejected
from broker.lifecycle.machine import step
from broker.model.jobs import Attempt, Intent, Job, Terms
from broker.state import keys
from broker.state.codec import encode_attempt, encode_job
from broker.state.task_chunks import chunks_touched, encode_chunk
from federation.ids import JobId
from federation.kv import Compare, Get, ModRevisionIs, Op, Put, Txn


@dataclass(slots=True)
class Round:
    """What one round changes and owes. `acks`: cluster -> last event folded in."""

    books: Books
    now_ms: int
    draft: Draft = field(init=False)
    history: dict[JobId, list[ev.Event]] = field(default_factory=dict)
    commands: dict[JobId, list[cmd.Command]] = field(default_factory=dict)
    guarded: set[JobId] = field(default_factory=set)
    acks: dict[str, int] = field(default_factory=dict)
    dispatch_seqs: dict[str, int] = field(default_factory=dict)
    ignored: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.draft = Draft(self.books)

    def fold(self, job: Job, event: ev.Event) -> Job:
        """Step a job and keep what came of it. Raises `Rejected`."""
        admitted = self.books.admitted(job.id)
        terms = admitted.terms if admitted else Terms()
        result = step(job, event, terms, self.now_ms)
        if result.ignored:
            self.ignored.append(f"{type(event).__name__}: {result.ignored}")
            return job
        self.draft.set(job, result.job)
        self.history.setdefault(job.id, []).append(event)
        self.commands.setdefault(job.id, []).extend(result.commands)
        if isinstance(event, ev.AttemptPlaced):
            self.guarded.add(job.id)
        return result.job

    def site_events(self, cluster: str, events: Iterable[ev.SiteEvent], last_seq: int) -> None:
        """Events of one cluster in order; then slices that ran low are topped up."""
        touched: set[str] = set()
        for event in events:
            job_id = event.uid.rsplit("-", 1)[0]
            job = self.draft.job(job_id)
            if job is None:
                self.ignored.append(f"{type(event).__name__} of unknown attempt {event.uid}")
                continue
            self.fold(job, event)
            touched.add(job_id)
        self.acks[cluster] = max(self.acks.get(cluster, 0), last_seq)
        for job_id in sorted(touched):
            self._top_up(job_id)

    def _top_up(self, job_id: str) -> None:
        job = self.draft.job(job_id)
        if job is None or not job.is_array or job.held:
            return
        for attempt in job.live_attempts:
            tasks = top_up(job, attempt, self.now_ms)
            if tasks is not None:
                seq = self.next_seq(attempt.cluster)
                job = self.fold(job, ev.SliceDecided(attempt.uid, tasks, seq))

    def intent(self, job: Job, intent: Intent) -> None:
        """What a user asked, as far as it is not done yet."""
        if intent.cancel and not job.cancel:
            job = self._try(job, ev.CancelAsked(intent.subject, intent.why))
        if intent.hold and not job.held:
            job = self._try(job, ev.HoldAsked(intent.subject))
        elif not intent.hold and job.held:
            job = self._try(job, ev.ReleaseAsked(intent.subject))
        if intent.priority is not None and intent.priority != job.priority:
            self._try(job, ev.PrioritySet(intent.priority, intent.subject))

    def _try(self, job: Job, event: ev.Event) -> Job:
        try:
            return self.fold(job, event)
        except Rejected as refused:
            self.ignored.append(str(refused))
            return job

    def next_seq(self, cluster: str) -> int:
        """The next command number of a cluster, taken in this round."""
        last = self.dispatch_seqs.get(cluster, self.books.dispatch_seqs.get(cluster, 0))
        self.dispatch_seqs[cluster] = last + 1
        return last + 1

    def without_placement(self, job_id: JobId) -> Round:
        """The same round for one job whose launch was beaten by an intent: everything but the
        new attempt (and the commands meant for it)."""
        again = Round(self.books, self.now_ms)
        job = self.books.job(job_id)
        for event in self.history.get(job_id, []):
            if job is not None and not isinstance(event, ev.AttemptPlaced):
                job = again._try(job, event)
        return again


def writes_of(before: Job | None, after: Job, intent_revision: int | None) -> Txn:
    """One job's change as a nested transaction.

    `intent_revision` guards a launch: it does not commit once a cancel (or hold) was acknowledged.
    The orelse branch tells a beaten change from a repeated one.
    """
    compare: tuple[Compare, ...] = ()
    if intent_revision is not None:
        compare = (ModRevisionIs(keys.intent(after.id), intent_revision),)
    ops: list[Op] = [Put(keys.job(after.id), encode_job(after))]
    known = {a.uid: a for a in before.attempts} if before else {}
    for attempt in after.attempts:
        if known.get(attempt.uid) is not attempt and known.get(attempt.uid) != attempt:
            ops.append(Put(keys.attempt(attempt.cluster, attempt.uid), encode_attempt(attempt)))
    if after.is_array and before is not None:
        for number in chunks_changed(before, after):
            chunk = encode_chunk(after.task_states, number)
            ops.append(Put(keys.task_chunk(after.id, number), chunk))
    return Txn(compare, tuple(ops), (Get(keys.job(after.id)),))


def chunks_changed(before: Job, after: Job) -> tuple[int, ...]:
    """Task chunks to write again; a new round of failed tasks takes states back."""
    forward = chunks_touched(before.task_states, after.task_states)
    back = chunks_touched(after.task_states, before.task_states)
    return tuple(sorted({*forward, *back}))


def changed_attempts(before: Job | None, after: Job) -> list[Attempt]:
    """Attempts that differ."""
    known = {a.uid: a for a in before.attempts} if before else {}
    return [a for a in after.attempts if known.get(a.uid) != a]


def without_attempts(job: Job, uids: set[str]) -> Job:
    """The job without some ended attempts (already in the ledger)."""
    return replace(job, attempts=tuple(a for a in job.attempts if a.uid not in uids))
