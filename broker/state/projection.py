"""The records of etcd as one replica sees them: listed once, then followed by watch.

Reads of the API come from here, so a list costs etcd nothing; the leader builds its books from it.
A replica's own writes are folded in from their answers, so it reads what it wrote. Folding is by
revision: an older value never replaces a newer one.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable
from typing import NamedTuple

from google.protobuf.message import DecodeError

from broker.model.jobs import Attempt, Intent, Job, TaskStates
from broker.model.replacing import replace
from broker.state import keys
from broker.state.codec import RecordUnreadable, decode_attempt, decode_intent, decode_job
from broker.state.parsed_specs import ParsedSpecs
from broker.state.store import Store
from broker.state.task_chunks import decode_chunks
from federation.ids import InvalidAttemptUid, JobId, parse_attempt_uid
from federation.kv import Compacted, Delete, KeyValue, Op, Put, StoreUnavailable, WatchBatch

RETRY_S = 0.5
PAGE = 1000
EXPECTED_MAX = 20_000


class Change(NamedTuple):
    """One record changed, at this place among those of its revision; `value` None = deleted."""

    revision: int
    place: int
    key: str
    value: bytes | None


class Projection:
    """Everything under the root, by key, with jobs and attempts decoded on demand."""

    def __init__(self, store: Store, on_unreadable: Callable[[str], None]) -> None:
        self._store = store
        self._on_unreadable = on_unreadable
        self._values: dict[str, tuple[int, bytes]] = {}
        self._kinds: dict[str, set[str]] = {}
        self._tombstones: dict[str, int] = {}
        self._jobs: dict[str, Job] = {}
        self._listed: dict[str, Job] = {}
        self._attempts: dict[str, dict[str, Attempt]] = {}
        self._chunks: dict[str, set[str]] = {}
        self._followers: dict[asyncio.Queue[Change | None], tuple[str, ...]] = {}
        self._listeners: set[asyncio.Queue[WatchBatch | None]] = set()
        self._expected: dict[str, tuple[bytes, Job]] = {}
        self.specs = ParsedSpecs()
        self.revision = 0
        self.policy_changes = 0  # counts them: what was made of the policies is old when it moves
        self.ready = asyncio.Event()

    # Following ------------------------------------------------------------------------------------

    async def run(self) -> None:
        """List everything, then follow it for ever; re-lists after a compaction."""
        while True:
            try:
                await self._list()
                self._tell(None)
                self.ready.set()
                async for batch in self._store.watch(keys.ROOT, self.revision + 1):
                    for index, event in enumerate(batch.events):
                        value = event.kv.value if event.kv else None
                        self._fold(event.key, event.mod_revision, index, value)
                    self.revision = max(self.revision, batch.revision)
                    self._tell(batch)
            except Compacted:
                self._reset_followers()
            except StoreUnavailable as error:
                await asyncio.sleep(min(error.retry_after_s, RETRY_S))

    async def _list(self) -> None:
        seen: set[str] = set()
        after, revision = "", 0
        while True:
            page = await self._store.range(
                keys.ROOT, after=after, limit=PAGE, revision=revision
            )
            revision = revision or page.revision
            for kv in page.kvs:
                seen.add(kv.key)
                self._fold(kv.key, kv.mod_revision, 0, kv.value)
            if not page.more:
                break
            after = page.kvs[-1].key
        for gone in [k for k, (at, _) in self._values.items() if k not in seen and at <= revision]:
            self._fold(gone, revision, 0, None)
        self.revision = max(self.revision, revision)

    def expect(self, ops: Iterable[Op], job: Job) -> None:
        """This replica is about to write these: what they say of `job` and its attempts is
        known, and need not be read when it comes, by the answer or by the watch before it."""
        if len(self._expected) > EXPECTED_MAX:
            self._expected.clear()
        for op in ops:
            if isinstance(op, Put):
                self._expected[op.key] = op.value, job

    def fold_own(self, revision: int, ops: Iterable[Op]) -> None:
        """Fold in what this replica just wrote, at the revision of its answer."""
        for index, op in enumerate(ops):
            if isinstance(op, Put):
                self._fold(op.key, revision, index, op.value)
                self._expected.pop(op.key, None)
            elif isinstance(op, Delete):
                self._fold(op.key, revision, index, None)

    def _fold(self, key: str, revision: int, index: int, value: bytes | None) -> None:
        known = self._values.get(key)
        newest = known[0] if known else self._tombstones.get(key, 0)
        if revision <= newest:
            return
        if value is None:
            if known is not None:
                del self._values[key]
                self._kinds[kind_of(key)].discard(key)
            self._tombstones[key] = revision
            if len(self._tombstones) > 20_000:
                self._tombstones = dict(list(self._tombstones.items())[10_000:])
        else:
            self._values[key] = (revision, value)
            self._kinds.setdefault(kind_of(key), set()).add(key)
        self._index(key, value)
        for queue, prefixes in self._followers.items():
            if key.startswith(prefixes):
                queue.put_nowait(Change(revision, index, key, value))

    def _known(self, key: str, value: bytes) -> Job | None:
        """The job this record is of, as we wrote it; None where others did."""
        expected = self._expected.get(key)
        return expected[1] if expected and expected[0] == value else None

    def _index(self, key: str, value: bytes | None) -> None:
        try:
            if key.startswith(keys.JOBS):
                job_id = keys.last_part(key)
                self._jobs.pop(job_id, None)
                self._listed.pop(job_id, None)
                if value is not None:
                    known = self._known(key, value)
                    self._jobs[job_id] = _bare(known) if known else _read_job(key, job_id, value)
            elif key.startswith(keys.ATTEMPTS):
                self._index_attempt(key, value)
            elif key.startswith(keys.POLICIES):
                self.policy_changes += 1
            elif key.startswith(keys.TASKS):
                self._index_chunk(key, value)
        except RecordUnreadable as error:
            self._on_unreadable(str(error))

    def _index_attempt(self, key: str, value: bytes | None) -> None:
        uid = keys.last_part(key)
        job_id = uid.rsplit("-", 1)[0]
        self._listed.pop(job_id, None)
        of_job = dict(self._attempts.pop(job_id, {}))
        of_job.pop(uid, None)
        try:
            if value is not None:
                known = self._known(key, value)
                of_job[uid] = (known and known.attempt(uid)) or _read_attempt(key, value)
        finally:
            if of_job:
                self._attempts[job_id] = of_job

    def _index_chunk(self, key: str, value: bytes | None) -> None:
        job_id = key[len(keys.TASKS) :].split("/")[0]
        chunks = self._chunks.setdefault(job_id, set())
        if value is not None:
            chunks.add(key)
            return
        chunks.discard(key)
        if not chunks:
            del self._chunks[job_id]

    # Followers ------------------------------------------------------------------------------------

    def follow(
        self, prefixes: tuple[str, ...] = (keys.ROOT,)
    ) -> AsyncGenerator[Change | None, None]:
        """Every change of keys that begin so, from this call on; None = changes were missed, look
        at everything again.

        Iterate it, or its changes gather for ever.
        """
        queue: asyncio.Queue[Change | None] = asyncio.Queue()
        self._followers[queue] = prefixes
        return self._changes(queue)

    def batches(self) -> AsyncGenerator[WatchBatch | None, None]:
        """What the watch brings from this call on, as it came: what others wrote and what we
        did, in the order of the store. None = some was missed; it goes on after `revision`.

        Iterate it, or its batches gather for ever.
        """
        queue: asyncio.Queue[WatchBatch | None] = asyncio.Queue()
        self._listeners.add(queue)
        return self._told(queue)

    async def _told(
        self, queue: asyncio.Queue[WatchBatch | None]
    ) -> AsyncGenerator[WatchBatch | None, None]:
        try:
            while True:
                yield await queue.get()
        finally:
            self._listeners.discard(queue)

    def _tell(self, batch: WatchBatch | None) -> None:
        for queue in self._listeners:
            queue.put_nowait(batch)

    async def _changes(
        self, queue: asyncio.Queue[Change | None]
    ) -> AsyncGenerator[Change | None, None]:
        try:
            while True:
                yield await queue.get()
        finally:
            self._followers.pop(queue, None)

    def _reset_followers(self) -> None:
        for queue in self._followers:
            queue.put_nowait(None)

    # Reading --------------------------------------------------------------------------------------

    def value(self, key: str) -> bytes | None:
        """The bytes of one record."""
        known = self._values.get(key)
        return known[1] if known else None

    def mod_revision(self, key: str) -> int:
        """Revision of the last write of a record, 0 = absent."""
        known = self._values.get(key)
        return known[0] if known else 0

    def under(self, prefix: str) -> list[KeyValue]:
        """All records under a prefix, in key order."""
        kind = kind_of(prefix)
        found: Iterable[str] = self._kinds.get(kind, ()) if kind else self._values
        return [
            KeyValue(key, self._values[key][1], 0, self._values[key][0], 0)
            for key in sorted(key for key in found if key.startswith(prefix))
        ]

    def job(self, job: str) -> Job | None:
        """A job with its attempts and task states; None when unknown (perhaps in the ledger).
        Raises `RecordUnreadable` for task states that cannot be decoded."""
        found = self._jobs.get(job)
        return self._whole(found) if found is not None else None

    def job_ids(self) -> list[JobId]:
        """Ids of all jobs in etcd, oldest first: for lists that look at one page of them."""
        return [job.id for _, job in sorted(self._jobs.items())]

    def attempt_counts(self) -> dict[str, int]:
        """How many live attempts each cluster has."""
        counts: dict[str, int] = {}
        for of_job in self._attempts.values():
            for attempt in of_job.values():
                if attempt.live:
                    counts[attempt.cluster] = counts.get(attempt.cluster, 0) + 1
        return counts

    def jobs(self) -> list[Job]:
        """All jobs in etcd, oldest first, with attempts but without task states."""
        return [self._with_attempts(job_id) for job_id in sorted(self._jobs)]

    def whole_jobs(self) -> list[Job]:
        """All jobs in etcd with attempts and task states, oldest first. Raises
        `RecordUnreadable`."""
        return [self._whole(job) for _, job in sorted(self._jobs.items())]

    def intent(self, job: str) -> tuple[Intent, int]:
        """What users asked of a job and the revision of that record (0 = nothing asked).
        Raises `RecordUnreadable`."""
        known = self._values.get(keys.intent(job))
        if known is None:
            return Intent(), 0
        return decode_intent(keys.intent(job), known[1]), known[0]

    def _with_attempts(self, job_id: str) -> Job:
        """Put together once per change: lists are asked for far more often."""
        listed = self._listed.get(job_id)
        if listed is None:
            job = self._jobs[job_id]
            attempts = self._attempts_of(job.id)
            listed = self._listed[job_id] = replace(job, attempts=attempts) if attempts else job
        return listed

    def _attempts_of(self, job: JobId) -> tuple[Attempt, ...]:
        of_job = self._attempts.get(job, {})
        return tuple(sorted(of_job.values(), key=lambda a: int(a.uid.rsplit("-", 1)[1])))

    def _whole(self, job: Job) -> Job:
        if job.id not in self._attempts and job.id not in self._chunks:
            return job
        chunks = (self._values[key][1] for key in sorted(self._chunks.get(job.id, ())))
        try:
            states = decode_chunks(chunks)
        except (DecodeError, ValueError) as error:
            raise RecordUnreadable(f"{keys.tasks_of(job.id)}: {error}") from error
        return replace(job, attempts=self._attempts_of(job.id), task_states=states)


def _bare(job: Job) -> Job:
    """A job as its own record has it."""
    if not job.attempts and not job.is_array:
        return job
    return replace(job, attempts=(), task_states=TaskStates())


def _read_job(key: str, job_id: str, value: bytes) -> Job:
    job = decode_job(key, value)
    if job.id != job_id:
        raise RecordUnreadable(f"{key} holds a record of {job.id[:40]!r}")
    return job


def _read_attempt(key: str, value: bytes) -> Attempt:
    attempt = decode_attempt(key, value)
    try:
        job, _ = parse_attempt_uid(attempt.uid)
    except InvalidAttemptUid as error:
        raise RecordUnreadable(f"{key}: {error}") from error
    if key != keys.attempt(attempt.cluster, attempt.uid) or job != attempt.job:
        raise RecordUnreadable(f"{key} holds a record of {attempt.uid[:80]!r}")
    return attempt


def kind_of(key: str) -> str:
    """The prefix of all records of a key's kind: `/tradewind/v1/jobs/` of a job; empty for a
    text that does not reach so far."""
    return key[: key.find("/", len(keys.ROOT)) + 1] if key.startswith(keys.ROOT) else ""
