"""The feedback ports: ledger, blobs, logs. What is kept after a job has left the live state.

Backends in `backends/` (SQL and directories for real, memory for simulation) pass one
conformance suite per port. The ledger's values are in `entries` and can be imported from here.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import AsyncIterable, AsyncIterator, Collection, Sequence, Set
from dataclasses import dataclass
from typing import Final, Protocol

from broker.feedback.decision_entries import DecisionDays, GainEntry, PredictionEntry
from broker.feedback.entries import (
    AttemptEntry,
    AuditEntry,
    CycleEntry,
    JobCursor,
    JobEntry,
    JobFilter,
    JobPage,
    LedgerBatch,
    OutcomeTotal,
    ReceiptEntry,
    UsageEntry,
    UsageTotal,
)

__all__ = [
    "MAX_APPEND_BYTES",
    "MAX_BLOB_BYTES",
    "MAX_LOG_BYTES",
    "AttemptEntry",
    "AuditEntry",
    "BlobCorrupt",
    "BlobMismatch",
    "BlobNotFound",
    "BlobStat",
    "BlobStore",
    "BlobTooLarge",
    "CycleEntry",
    "DecisionDays",
    "FeedbackUnavailable",
    "GainEntry",
    "JobCursor",
    "JobEntry",
    "JobFilter",
    "JobPage",
    "Ledger",
    "LedgerBatch",
    "LogGap",
    "LogStore",
    "LogStream",
    "OutcomeTotal",
    "PredictionEntry",
    "ReceiptEntry",
    "SchemaTooNew",
    "SweepResult",
    "UsageEntry",
    "UsageTotal",
]

MAX_BLOB_BYTES: Final = 64 * 1024 * 1024
MAX_LOG_BYTES: Final = 16 * 1024 * 1024
MAX_APPEND_BYTES: Final = 1024 * 1024


class FeedbackUnavailable(Exception):
    """The database or disk did not take or give it; the same call may be repeated later."""


class SchemaTooNew(Exception):
    """The ledger was written by a newer Tradewind; this one must not touch it."""

    def __init__(self, found: int, known: int) -> None:
        super().__init__(
            f"the ledger has schema version {found}, this build knows up to {known}: "
            "run the newer version, or restore a backup made before the upgrade"
        )
        self.found = found
        self.known = known


class BlobNotFound(Exception):
    """No such blob here."""

    def __init__(self, sha256: str) -> None:
        super().__init__(f"no blob {sha256}")
        self.sha256 = sha256


class BlobMismatch(Exception):
    """The bytes sent do not have the digest they were sent under; nothing was kept."""

    def __init__(self, sha256: str, actual: str) -> None:
        super().__init__(f"content has sha256 {actual}, not {sha256}")
        self.sha256 = sha256
        self.actual = actual


class BlobTooLarge(Exception):
    """More bytes than allowed were sent; nothing was kept."""

    def __init__(self, sha256: str, max_bytes: int) -> None:
        super().__init__(f"blob {sha256} is larger than {max_bytes} bytes")
        self.sha256 = sha256
        self.max_bytes = max_bytes


class BlobCorrupt(Exception):
    """The stored bytes no longer have their digest; uploading them again repairs the blob."""

    def __init__(self, sha256: str) -> None:
        super().__init__(f"blob {sha256} is damaged on disk; upload it again")
        self.sha256 = sha256


class LogGap(Exception):
    """An append begins after the end of what is stored: send from `expected_offset`."""

    def __init__(self, expected_offset: int, offset: int) -> None:
        super().__init__(f"log bytes from {offset} would leave a gap after {expected_offset}")
        self.expected_offset = expected_offset
        self.offset = offset


@dataclass(frozen=True, slots=True)
class BlobStat:
    """A stored blob; `stored_ms` is when it was last put, UTC epoch milliseconds."""

    sha256: str
    size_bytes: int
    stored_ms: int


@dataclass(frozen=True, slots=True)
class SweepResult:
    """What a sweep removed."""

    blobs: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class LogStream:
    """One stream of one attempt as stored here.

    `total_bytes` is what the site says the stream has in all, None while it may still grow.
    `truncated` means bytes beyond the cap were, or will be, left out.
    """

    name: str
    length_bytes: int
    total_bytes: int | None = None
    truncated: bool = False

    @property
    def complete(self) -> bool:
        """Nothing more will be stored: all of it is here, or the cap is reached."""
        if self.truncated:
            return True
        return self.total_bytes is not None and self.length_bytes >= self.total_bytes


class Ledger(Protocol):
    """Append-only history in SQL; every write is idempotent by the entry's key (first one
    wins).

    A write has been committed to disk when it returns.
    Writes raise ValueError for numbers no database holds, and, like reads,
    `FeedbackUnavailable` when the database does not answer (then nothing of the batch was
    written, or all of it). Backends derive from this class: the single-kind writes are the same
    for all.
    """

    @abstractmethod
    async def record(self, batch: LedgerBatch) -> None:
        """Write the batch in one SQL transaction."""

    async def record_job(self, entry: JobEntry) -> None:
        """Write one ended job."""
        await self.record(LedgerBatch(jobs=(entry,)))

    async def record_attempts(self, entries: Sequence[AttemptEntry]) -> None:
        """Write ended attempts."""
        await self.record(LedgerBatch(attempts=tuple(entries)))

    async def record_receipts(self, entries: Sequence[ReceiptEntry]) -> None:
        """Write receipts of decisions."""
        await self.record(LedgerBatch(receipts=tuple(entries)))

    async def record_usage(self, entries: Sequence[UsageEntry]) -> None:
        """Write metered usage."""
        await self.record(LedgerBatch(usage=tuple(entries)))

    async def record_cycle(self, entry: CycleEntry) -> None:
        """Write the figures of one decision."""
        await self.record(LedgerBatch(cycles=(entry,)))

    async def record_audit(self, entries: Sequence[AuditEntry]) -> None:
        """Append to the audit trail, in the order given."""
        await self.record(LedgerBatch(audit=tuple(entries)))

    @abstractmethod
    async def job(self, job: str) -> JobEntry | None:
        """One ended job with its spec, or None."""

    @abstractmethod
    async def jobs(self, query: JobFilter) -> JobPage:
        """Ended jobs newest first. Raises ValueError for a limit outside 1..1000."""

    @abstractmethod
    async def attempts(self, job: str) -> tuple[AttemptEntry, ...]:
        """The ended attempts of a job in the order they were placed."""

    @abstractmethod
    async def starts(self, cluster: str, limit: int) -> tuple[AttemptEntry, ...]:
        """The last ended attempts of a cluster that had started, the latest end first."""

    @abstractmethod
    async def receipts(self, job: str) -> tuple[ReceiptEntry, ...]:
        """The receipts of a job, oldest first."""

    @abstractmethod
    async def audit(self, subject: str) -> tuple[AuditEntry, ...]:
        """The trail of a job or other object, in the order it was appended."""

    @abstractmethod
    async def usage(self, tenant: str | None, from_ms: int, to_ms: int) -> tuple[UsageTotal, ...]:
        """Totals per tenant, cluster, pool and accelerator of entries with
        `from_ms <= entry.to_ms < to_ms`, so adjacent periods add up. Tenant None = all."""

    @abstractmethod
    async def outcomes(
        self, tenant: str | None, from_ms: int, to_ms: int
    ) -> tuple[OutcomeTotal, ...]:
        """Jobs with `from_ms <= ended_ms < to_ms` by tenant and outcome. Tenant None = all."""

    @abstractmethod
    async def cycles(self, limit: int) -> tuple[CycleEntry, ...]:
        """The last decisions, newest first."""

    @abstractmethod
    async def decision_days(self, from_ms: int, to_ms: int) -> DecisionDays:
        """Decisions, their gains and the predictions with `from_ms <= at_ms < to_ms`, by day."""

    @abstractmethod
    async def forget_cycles(self, before_ms: int) -> int:
        """Drop figures of decisions, gains and predictions older than this (they come every few
        seconds, and are the only tables that may shrink); returns how many decisions went."""

    @abstractmethod
    async def close(self) -> None:
        """Finish accepted writes and release the database. Nothing may be called after."""


class BlobStore(Protocol):
    """Content-addressed bytes, and who may read them.

    Knowing a digest opens nothing: a tenant reads what it was granted, by having uploaded the
    content itself or because a job of its own produced it. Digests are 64 lower-case hex
    digits; anything else raises ValueError, as does a malformed tenant. Disk errors raise
    `FeedbackUnavailable`.
    """

    async def put(
        self,
        sha256: str,
        chunks: AsyncIterable[bytes],
        *,
        now_ms: int,
        max_bytes: int = MAX_BLOB_BYTES,
    ) -> BlobStat:
        """Store what the chunks yield, if its digest is `sha256`; durable on return.

        The content is read and verified also when the blob is already here: only that proves
        the sender has it. Raises `BlobMismatch`, `BlobTooLarge`, and whatever `chunks` raises.
        """

    def open(self, sha256: str, *, offset: int = 0) -> AsyncIterator[bytes]:
        """Yield the bytes from `offset`. Raises `BlobNotFound` before the first; from offset 0
        also `BlobCorrupt` after the last, so the receiver's digest is not the only check."""

    async def stat(self, sha256: str) -> BlobStat | None:
        """Size and age, or None."""

    async def exists(self, sha256s: Collection[str]) -> frozenset[str]:
        """Those of `sha256s` that are stored, whoever may read them."""

    async def grant(self, sha256: str, tenant: str) -> None:
        """Let the tenant read the blob; durable on return. Raises `BlobNotFound`."""

    async def readable(self, sha256s: Collection[str], tenant: str) -> frozenset[str]:
        """Those of `sha256s` that are stored and granted to the tenant."""

    async def may_read(self, sha256: str, tenant: str) -> bool:
        """Whether the blob is stored and granted to the tenant."""

    async def sweep(self, keep: Set[str], *, older_than_ms: int) -> SweepResult:
        """Delete blobs not in `keep` that were last put before the instant `older_than_ms`,
        with their grants. A blob being put meanwhile stays."""

    async def close(self) -> None:
        """Release threads. Nothing may be called after."""


class LogStore(Protocol):
    """Logs by attempt and stream: `output`, and `task-<n>` for the tasks of an array.

    Offsets count bytes of the stream from its start at the site. Malformed attempt uids or
    stream names raise ValueError; disk errors raise `FeedbackUnavailable`.
    """

    async def append(self, uid: str, stream: str, offset: int, data: bytes) -> int:
        """Store bytes at `offset`; returns the stored length afterwards.

        Bytes already stored are skipped, so a repeat changes nothing. Beyond the cap bytes are
        dropped and the stream is marked truncated: the length then stays at the cap. Raises
        `LogGap` if `offset` is after the stored length, ValueError beyond `MAX_APPEND_BYTES`.
        """

    async def read(self, uid: str, stream: str, offset: int, limit: int) -> bytes:
        """At most `limit` bytes (and 1 MiB) from `offset`; empty at or after the end."""

    async def length(self, uid: str, stream: str) -> int:
        """Stored bytes, 0 for a stream never seen."""

    async def mark_complete(self, uid: str, stream: str, total_bytes: int) -> LogStream:
        """The site says the stream has ended with `total_bytes` in all.

        What is still missing may be appended after; once nothing is, the stream is on disk for
        good. A repeat with a smaller total changes nothing.
        """

    async def streams(self, uid: str) -> tuple[LogStream, ...]:
        """The streams of an attempt: `output` first, then tasks by number."""

    async def remove(self, uid: str) -> None:
        """Forget all logs of an attempt; an unknown one is not an error."""

    async def close(self) -> None:
        """Finish accepted appends and release threads. Nothing may be called after."""
