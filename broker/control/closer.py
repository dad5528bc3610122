"""What follows an end: logs come back, the ledger is written, the site may forget, etcd is freed.

Everything here may be repeated: a new leader closes what it finds ended, and the ledger and the log
store take a second copy for the first. Nothing leaves etcd before the ledger has it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, fields
from functools import partial

from broker.act.gateway import Forget, Gateway, SiteSilent
from broker.control.books import Books
from broker.control.closing_receipt import closing_receipt
from broker.control.ledger_entries import (
    attempt_entry,
    audit_entry,
    job_entry,
    start_prediction,
    usage_entry,
)
from broker.feedback.entries import merged
from broker.feedback.ports import (
    AuditEntry,
    FeedbackUnavailable,
    Ledger,
    LedgerBatch,
    LogGap,
    LogStore,
    ReceiptEntry,
)
from broker.lifecycle.commands import Audit
from broker.model.jobs import Attempt, AttemptPhase, Job, JobPhase
from broker.state import keys
from broker.state.group_commit import GroupCommitter
from broker.state.projection import Projection
from federation.environment import Clock
from federation.kv import Delete, DeletePrefix, Op, StoreError, Txn
from federation.task_group import TaskGroup

KEEP_ENDED_S = 600.0
"""How long an ended job stays in etcd once the ledger has it."""
LOG_PART_BYTES = 256 * 1024
LOG_STREAMS_MAX = 64
"""Streams of a slice that are fetched at its end; others stay at the site and are read there."""
FETCHERS = 32
"""Logs asked for at once. Each is a round trip to its site: at 100 ms that is 320 a second."""
RETRY_S = 5.0
OPS_A_PIECE = 50
ROWS_A_BATCH = 250
"""Batches in one write: what is between two turns of the event loop takes some 10 ms."""
ROWS_WAITING_MAX = 100_000
REMOVED_AT_ONCE = 200
LAST_ROWS_S = 2.0


@dataclass(frozen=True, slots=True)
class CloserPorts:
    """What closing needs."""

    books: Books
    projection: Projection
    committer: GroupCommitter
    gateway: Gateway
    ledger: Ledger
    logs: LogStore
    clock: Clock
    keep_ended_s: float = KEEP_ENDED_S
    alarm: Callable[[str], None] = lambda text: None


class Closer:
    """Closes attempts and jobs of one leadership, in the background."""

    def __init__(self, ports: CloserPorts) -> None:
        self._ports = ports
        self._attempts: asyncio.Queue[Attempt] = asyncio.Queue()
        self._parked: dict[str, deque[Attempt]] = {}
        self._probing: dict[str, str] = {}
        self._rows: list[LedgerBatch] = []
        self._writing: list[LedgerBatch] = []
        self._rows_waiting = asyncio.Event()
        self._oldest_row_ms = 0
        self._writing_since_ms = 0
        self._audit_count = 0
        self._ended_jobs: dict[str, int] = {}
        self._logs_done: set[str] = set()
        self._jobs_in_ledger: set[str] = set()

    # From the leader ------------------------------------------------------------------------------

    def audit(self, audits: Sequence[Audit]) -> None:
        """Transitions to write down."""
        now_ms = self._ports.clock.now_ms()
        rows: list[AuditEntry] = []
        for audit in audits:
            job = self._ports.books.job(audit.subject.split("-", 1)[0])
            self._audit_count += 1
            key = f"{now_ms:013d}.{self._audit_count:08d}"
            rows.append(audit_entry(audit, job.tenant if job else "", now_ms, key))
        self._add(LedgerBatch(audit=tuple(rows)))

    def receipts(self, entries: Sequence[ReceiptEntry]) -> None:
        """Receipts of a decision to write down."""
        self.add(LedgerBatch(receipts=tuple(entries)))

    def add(self, batch: LedgerBatch) -> None:
        """Anything else for the ledger. Dropped where the ledger has been away for so long that
        these rows would be all this process is made of."""
        if len(self._rows) < ROWS_WAITING_MAX:
            self._add(batch)

    def close_attempt(self, job: Job, attempt: Attempt) -> None:
        """An attempt ended: its row now, its logs as soon as the site gives them."""
        usage, predicted = usage_entry(attempt), start_prediction(attempt)
        self._add(
            LedgerBatch(
                attempts=(attempt_entry(attempt),),
                receipts=(closing_receipt(attempt),),
                usage=(usage,) if usage else (),
                predictions=(predicted,) if predicted else (),
            )
        )
        self._attempts.put_nowait(attempt)

    def close_job(self, job: Job) -> None:
        """A job ended: its row now; it leaves etcd later."""
        admitted = self._ports.books.admitted(job.id)
        labels = tuple(sorted(admitted.spec.labels.items())) if admitted else ()
        self._add(LedgerBatch(jobs=(job_entry(job, admitted.raw if admitted else b"", labels),)))
        self._ended_jobs[job.id] = job.ended_ms

    def ledger_lag_ms(self) -> int:
        """How long the oldest row that is not yet in the ledger has waited; 0 where none waits."""
        since_ms = self._writing_since_ms or self._oldest_row_ms
        return max(self._ports.clock.now_ms() - since_ms, 0) if since_ms else 0

    def _add(self, batch: LedgerBatch) -> None:
        self._oldest_row_ms = self._oldest_row_ms or self._ports.clock.now_ms()
        self._rows.append(batch)
        self._rows_waiting.set()

    # Work -----------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Write, fetch and clear for ever; at the end what waits is still written."""
        try:
            async with TaskGroup() as tasks:
                tasks.create_task(self._write_rows(), name="closer-ledger")
                tasks.create_task(self._clear_etcd(), name="closer-clear")
                tasks.create_task(self._probe(), name="closer-probe")
                for number in range(FETCHERS):
                    tasks.create_task(self._fetch_logs(), name=f"closer-logs-{number}")
        finally:
            await self._last_rows()

    async def _last_rows(self) -> None:
        """Transitions are told once only: the next leader knows nothing of these."""
        rows = [*self._writing, *self._rows]
        if not rows:
            return
        try:
            async with asyncio.timeout(LAST_ROWS_S):
                await self._write(rows)
        except TimeoutError:
            self._ports.alarm(f"{len(rows)} transitions or receipts did not reach the ledger")

    async def _write_rows(self) -> None:
        while True:
            await self._rows_waiting.wait()
            self._rows_waiting.clear()
            self._writing, self._rows = self._rows, []
            self._writing_since_ms, self._oldest_row_ms = self._oldest_row_ms, 0
            while self._writing:
                await self._write(self._writing[:ROWS_A_BATCH])
                del self._writing[:ROWS_A_BATCH]
            self._writing_since_ms = 0

    async def _write(self, rows: Sequence[LedgerBatch]) -> None:
        """Write rows; one that the ledger cannot hold is left out, and an alarm."""
        batch = merged(rows)
        try:
            await self._patiently(partial(self._ports.ledger.record, batch))
        except ValueError as error:
            parts = list(rows) if len(rows) > 1 else _entries(batch)
            if len(rows) == 1 and len(parts) == 1:
                self._ports.alarm(f"a row is not in the ledger: {error}"[:500])
                return
            middle = (len(parts) + 1) // 2
            for half in (parts[:middle], parts[middle:]):
                if half:
                    await self._write(half)
            return
        self._jobs_in_ledger.update(entry.job for entry in batch.jobs)

    async def _patiently(self, write: Callable[[], Awaitable[None]]) -> None:
        while True:
            try:
                await write()
                return
            except FeedbackUnavailable:
                await asyncio.sleep(RETRY_S)

    async def _fetch_logs(self) -> None:
        while True:
            attempt = await self._attempts.get()
            cluster = attempt.cluster
            if self._ports.books.job(attempt.job) is None:
                continue  # its job has left etcd: nothing waits for these logs any more
            if cluster in self._parked and self._probing.get(cluster) != attempt.uid:
                self._parked[cluster].append(attempt)
                continue
            try:
                await self._fetch(attempt)
                self._logs_done.add(attempt.uid)
                await self._ports.gateway.send(cluster, [Forget(attempt.uid)])
            except (SiteSilent, TimeoutError):
                self._parked.setdefault(cluster, deque()).append(attempt)
                self._probing.pop(cluster, None)
                continue
            except FeedbackUnavailable:
                asyncio.get_running_loop().call_later(
                    RETRY_S, self._attempts.put_nowait, attempt
                )
                continue
            self._probing.pop(cluster, None)
            for waiting in self._parked.pop(cluster, ()):
                self._attempts.put_nowait(waiting)

    async def _probe(self) -> None:
        """Ask a silent site for one log now and then; when it answers, all are asked for."""
        while True:
            await asyncio.sleep(RETRY_S)
            for cluster, waiting in self._parked.items():
                if waiting:
                    first = waiting.popleft()
                    self._probing[cluster] = first.uid
                    self._attempts.put_nowait(first)

    async def _fetch(self, attempt: Attempt) -> None:
        for stream, total_bytes in wanted_streams(attempt):
            try:
                await self._fetch_stream(attempt, stream, total_bytes)
            except LogGap as gap:
                self._ports.alarm(f"log {stream} of {attempt.uid} is incomplete: {gap}")
            except ValueError as error:
                self._ports.alarm(f"log {stream[:80]!r} of {attempt.uid} is refused: {error}")

    async def _fetch_stream(self, attempt: Attempt, stream: str, total_bytes: int) -> None:
        logs, uid = self._ports.logs, attempt.uid
        before, have = -1, await logs.length(uid, stream)
        while before < have < total_bytes:  # a site, or a full store, that adds nothing ends it
            try:
                part = await self._ports.gateway.read_log(
                    attempt.cluster, uid, stream, have, LOG_PART_BYTES
                )
            except LookupError:  # the site no longer has it: what is here is all there is
                total_bytes = have
                break
            if not part.data:
                break
            before, have = have, await logs.append(uid, stream, part.offset, part.data)
        await logs.mark_complete(uid, stream, total_bytes)

    async def _clear_etcd(self) -> None:
        while True:
            await asyncio.sleep(min(RETRY_S, self._ports.keep_ended_s))
            now_ms = self._ports.clock.now_ms()
            ready: list[Job] = []
            for job_id, ended_ms in list(self._ended_jobs.items()):
                old = now_ms - ended_ms > self._ports.keep_ended_s * 1000
                job = self._ports.books.job(job_id)
                if job is None:
                    self._forget(job_id, ())
                elif old and job_id in self._jobs_in_ledger and self._logs_settled(job, now_ms):
                    ready.append(job)
            for start in range(0, len(ready), REMOVED_AT_ONCE):
                some = ready[start : start + REMOVED_AT_ONCE]
                await asyncio.gather(*(self._remove(job) for job in some))

    def _forget(self, job_id: str, attempts: Sequence[Attempt]) -> None:
        self._ended_jobs.pop(job_id, None)
        self._jobs_in_ledger.discard(job_id)
        self._logs_done.difference_update(a.uid for a in attempts)

    def _logs_settled(self, job: Job, now_ms: int) -> bool:
        """All logs are here, or their site has been away for a day. What was replaced and has not
        told its end is waited for: it is to be metered."""
        if job.live_attempts:
            return False
        day_old = now_ms - job.ended_ms > 24 * 3600 * 1000
        return day_old or all(a.uid in self._logs_done for a in job.attempts)

    async def _remove(self, job: Job) -> None:
        if job.phase is not JobPhase.ENDED:
            return
        attempts: list[Op] = [Delete(keys.attempt(a.cluster, a.uid)) for a in job.attempts]
        record: list[Op] = [
            Delete(keys.spec(job.id)),
            Delete(keys.job(job.id)),
            Delete(keys.intent(job.id)),
        ]
        if job.is_array:
            record.append(DeletePrefix(keys.tasks_of(job.id)))
        pieces = [attempts[i : i + OPS_A_PIECE] for i in range(0, len(attempts), OPS_A_PIECE)]
        try:
            for piece in (*pieces, record):  # the job's own record last: a crash leaves no orphan
                await self._ports.committer.enqueue(Txn(then=tuple(piece)))
        except StoreError:
            return  # tried again on the next sweep
        self._ports.books.forget(job.id)
        self._forget(job.id, job.attempts)


def wanted_streams(attempt: Attempt) -> list[tuple[str, int]]:
    """Which log streams are fetched at the end: all of a few, the first of many."""
    if attempt.phase is not AttemptPhase.ENDED:
        return []
    return list(attempt.log_bytes[:LOG_STREAMS_MAX])


def _entries(batch: LedgerBatch) -> list[LedgerBatch]:
    """A batch as batches of one entry each."""
    return [
        LedgerBatch(**{kind.name: (entry,)})
        for kind in fields(LedgerBatch)
        for entry in getattr(batch, kind.name)
    ]
