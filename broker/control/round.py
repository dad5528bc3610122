"""One round of the leader: what came in, folded into jobs, and the writes that make it durable.

Nothing here waits. `Round` collects; `writes_of` turns a changed job into nested transactions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

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

OPS_A_PIECE = 60
BYTES_A_PIECE = 500_000
PLACED_A_ROUND = 50
"""New attempts of one job in one round: they and its record are one transaction."""


@dataclass(slots=True)
class Round:
    """What one round changes and owes. `acks`: cluster -> last event folded in. `faults`: what
    went wrong in a way nobody foresaw, one line each; it is left out, the rest goes on."""

    books: Books
    now_ms: int
    draft: Draft = field(init=False)
    history: dict[JobId, list[ev.Event]] = field(default_factory=dict)
    commands: dict[JobId, list[cmd.Command]] = field(default_factory=dict)
    guarded: set[JobId] = field(default_factory=set)
    acks: dict[str, int] = field(default_factory=dict)
    dispatch_seqs: dict[str, int] = field(default_factory=dict)
    ignored: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)

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

    def contain(self, what: str, act: Callable[..., object], *args: object) -> None:
        """Do one thing of this round; if it fails, only that is left out."""
        try:
            act(*args)
        except Rejected as refused:
            self.ignored.append(str(refused))
        except Exception as error:  # noqa: BLE001  one job's fault must not stop all others
            self.faults.append(f"{what}: {type(error).__name__}: {error}"[:500])

    def site_events(self, cluster: str, events: Iterable[ev.SiteEvent], last_seq: int) -> None:
        """Events of one cluster in order; then slices that ran low are topped up."""
        touched: set[str] = set()
        for event in events:
            what = f"{type(event).__name__} {event.event_seq} of {event.uid}"
            self.contain(what, self._site_event, cluster, event, touched)
        known = self.acks.get(cluster, self.books.event_seqs.get(cluster, 0))
        if last_seq > known:
            self.acks[cluster] = last_seq
        for uid in sorted(touched):
            self.contain(f"slice {uid}", self._top_up, uid)

    def _site_event(self, cluster: str, event: ev.SiteEvent, touched: set[str]) -> None:
        job_id = event.uid.rsplit("-", 1)[0]
        job = self.draft.job(job_id)
        attempt = job.attempt(event.uid) if job else None
        if job is None or attempt is None:
            self.ignored.append(f"{type(event).__name__} of unknown attempt {event.uid}")
        elif attempt.cluster != cluster:
            self.faults.append(f"{cluster} speaks of {event.uid}, which is at {attempt.cluster}")
        else:
            self.fold(job, event)
            if not isinstance(event, ev.SliceSet):  # its answer alone is no reason to ask again
                touched.add(event.uid)
            if attempt.superseded_ms:  # what it had done need not be done by those in its place
                touched.update(each.uid for each in job.counting_attempts)

    def _top_up(self, uid: str) -> None:
        job = self.draft.job(uid.rsplit("-", 1)[0])
        attempt = job.attempt(uid) if job and job.is_array and not job.held else None
        if job is None or attempt is None or uid in self.books.giving_way:
            return
        tasks = top_up(job, attempt, self.now_ms)
        if tasks is not None:
            self.fold(job, ev.SliceDecided(uid, tasks, self.next_seq(attempt.cluster)))

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
        new attempts (and the commands meant for them)."""
        again = Round(self.books, self.now_ms)
        job = self.books.job(job_id)
        for event in self.history.get(job_id, []):
            if job is not None and not isinstance(event, ev.AttemptPlaced):
                job = again._try(job, event)
        return again

    def leave_out(self, job_id: JobId, why: str) -> None:
        """Nothing of this job in this round; `why` becomes a fault."""
        self.draft.changed.pop(job_id, None)
        self.commands.pop(job_id, None)
        self.faults.append(f"job {job_id} is set aside: {why}"[:500])


def writes_of(before: Job | None, after: Job, intent_revision: int | None) -> tuple[Txn, ...]:
    """One job's change as nested transactions to be applied in this order: mostly one.

    Where one would be too large, states of tasks go first, then what changed of old attempts,
    then the job with its new attempts: whatever breaks off in between is completed by telling
    the same events again.
    `intent_revision` guards a launch: it does not commit once a cancel (or hold) was acknowledged.
    The orelse branch tells a beaten change from a repeated one.
    """
    compare: tuple[Compare, ...] = ()
    if intent_revision is not None:
        compare = (ModRevisionIs(keys.intent(after.id), intent_revision),)
    known = {a.uid: a for a in before.attempts} if before else {}
    first: list[Put] = []
    if after.is_array and before is not None:
        for number in chunks_changed(before, after):
            chunk = encode_chunk(after.task_states, number)
            first.append(Put(keys.task_chunk(after.id, number), chunk))
    last = [Put(keys.job(after.id), encode_job(after))]
    for attempt in after.attempts:
        if known.get(attempt.uid) is not attempt and known.get(attempt.uid) != attempt:
            put = Put(keys.attempt(attempt.cluster, attempt.uid), encode_attempt(attempt))
            (first if attempt.uid in known else last).append(put)
    read = (Get(keys.job(after.id)),)
    pieces = _pieces([*last, *first])
    if len(pieces) == 1:
        return (Txn(compare, pieces[0], read),)
    leading = [Txn(then=piece) for piece in _pieces(first)]
    return (*leading, Txn(compare, tuple(last), read))


def _pieces(puts: list[Put]) -> list[tuple[Op, ...]]:
    pieces: list[tuple[Op, ...]] = []
    piece: list[Op] = []
    size = 0
    for put in puts:
        if piece and (len(piece) == OPS_A_PIECE or size + len(put.value) > BYTES_A_PIECE):
            pieces.append(tuple(piece))
            piece, size = [], 0
        piece.append(put)
        size += len(put.value)
    return [*pieces, tuple(piece)] if piece else pieces


def chunks_changed(before: Job, after: Job) -> tuple[int, ...]:
    """Task chunks to write again; a new round of failed tasks takes states back."""
    if before.task_states is after.task_states:
        return ()
    forward = chunks_touched(before.task_states, after.task_states)
    back = chunks_touched(after.task_states, before.task_states)
    return tuple(sorted({*forward, *back}))


def changed_attempts(before: Job | None, after: Job) -> list[Attempt]:
    """Attempts that differ."""
    known = {a.uid: a for a in before.attempts} if before else {}
    return [a for a in after.attempts if known.get(a.uid) != a]


def may_let_start(before: Job, after: Job) -> bool:
    """Whether a change may let something start: an end, another wish; not a new reason to wait,
    nor progress within a slice."""
    if before is after:
        return True
    freed = {a.uid for a in before.live_attempts} - {a.uid for a in after.live_attempts}
    asked = _wishes(before) != _wishes(after)
    return bool(freed) or asked or before.phase is not after.phase


def _wishes(job: Job) -> tuple[object, ...]:
    return job.priority, job.held, job.awaits
