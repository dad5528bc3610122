"""Memory twins of the feedback stores, for simulation: no threads, no disk, no clock."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Collection, Set
from dataclasses import dataclass, field, replace
from typing import Final

from broker.feedback.blobs import StreamCheck, check_sha256, check_tenant
from broker.feedback.decision_days import decision_days
from broker.feedback.decision_entries import DecisionDays, GainEntry, PredictionEntry
from broker.feedback.decisions import (
    DecisionLimits,
    DecisionStore,
    StoredDecision,
    check_cycle,
    superseded,
)
from broker.feedback.entries import clean_text, cleaned_batch, cleaned_filter
from broker.feedback.logs import (
    StreamMark,
    check_append,
    check_stream,
    check_uid,
    completed,
    plan_append,
    stream_order,
    stream_state,
)
from broker.feedback.ports import (
    MAX_APPEND_BYTES,
    MAX_BLOB_BYTES,
    MAX_LOG_BYTES,
    AttemptEntry,
    AuditEntry,
    BlobNotFound,
    BlobStat,
    BlobStore,
    CycleEntry,
    JobCursor,
    JobEntry,
    JobFilter,
    JobPage,
    Ledger,
    LedgerBatch,
    LogStore,
    LogStream,
    OutcomeTotal,
    ReceiptEntry,
    SweepResult,
    UsageEntry,
    UsageTotal,
)

_CHUNK_BYTES: Final = 1024 * 1024


class MemoryLedger(Ledger):
    """`Ledger` in dictionaries, which keep the order of insertion as the SQL tables do."""

    def __init__(self) -> None:
        self._jobs: dict[str, JobEntry] = {}
        self._attempts: dict[str, AttemptEntry] = {}
        self._receipts: dict[tuple[str, str, str], ReceiptEntry] = {}
        self._usage: dict[tuple[str, int], UsageEntry] = {}
        self._cycles: dict[str, CycleEntry] = {}
        self._audit: dict[str, dict[str, AuditEntry]] = {}
        self._gains: dict[str, GainEntry] = {}
        self._predictions: dict[tuple[str, str], PredictionEntry] = {}

    async def record(self, batch: LedgerBatch) -> None:
        """See `Ledger`."""
        batch = cleaned_batch(batch)
        for job in batch.jobs:
            self._jobs.setdefault(job.job, job)
        for attempt in batch.attempts:
            self._attempts.setdefault(attempt.uid, attempt)
        for receipt in batch.receipts:
            key = (receipt.job, receipt.attempt, receipt.cycle)
            self._receipts.setdefault(key, receipt)
        for usage in batch.usage:
            self._usage.setdefault((usage.attempt, usage.seq), usage)
        for cycle in batch.cycles:
            self._cycles.setdefault(cycle.cycle, cycle)
        for audit in batch.audit:
            self._audit.setdefault(audit.subject, {}).setdefault(audit.key, audit)
        for gain in batch.gains:
            self._gains.setdefault(gain.cycle, gain)
        for made in batch.predictions:
            self._predictions.setdefault((made.subject, made.kind), made)

    async def job(self, job: str) -> JobEntry | None:
        """See `Ledger`."""
        return self._jobs.get(clean_text(job))

    async def jobs(self, query: JobFilter) -> JobPage:
        """See `Ledger`."""
        query = cleaned_filter(query)
        found = sorted(
            (entry for entry in self._jobs.values() if _matches(entry, query)),
            key=_place,
            reverse=True,
        )
        page = tuple(replace(entry, spec_json=b"") for entry in found[: query.limit])
        return JobPage(page, _place(page[-1]) if len(found) > query.limit else None)

    async def attempts(self, job: str) -> tuple[AttemptEntry, ...]:
        """See `Ledger`."""
        found = (entry for entry in self._attempts.values() if entry.job == clean_text(job))
        return tuple(sorted(found, key=lambda e: (e.placed_ms, len(e.uid), e.uid)))

    async def starts(self, cluster: str, limit: int) -> tuple[AttemptEntry, ...]:
        """See `Ledger`."""
        found = (
            e for e in self._attempts.values() if e.cluster == clean_text(cluster) and e.started_ms
        )
        return tuple(sorted(found, key=lambda e: (-e.ended_ms, e.uid))[:limit])

    async def receipts(self, job: str) -> tuple[ReceiptEntry, ...]:
        """See `Ledger`."""
        found = (entry for entry in self._receipts.values() if entry.job == clean_text(job))
        return tuple(sorted(found, key=lambda e: (e.created_ms, e.attempt, e.cycle)))

    async def audit(self, subject: str) -> tuple[AuditEntry, ...]:
        """See `Ledger`."""
        return tuple(self._audit.get(clean_text(subject), {}).values())

    async def usage(self, tenant: str | None, from_ms: int, to_ms: int) -> tuple[UsageTotal, ...]:
        """See `Ledger`."""
        groups: dict[tuple[str, str, str, str], list[UsageEntry]] = {}
        for entry in self._usage.values():
            if tenant in (None, entry.tenant) and from_ms <= entry.to_ms < to_ms:
                group = (entry.tenant, entry.cluster, entry.pool, entry.accelerator)
                groups.setdefault(group, []).append(entry)
        return tuple(_total(groups[group]) for group in sorted(groups))

    async def outcomes(
        self, tenant: str | None, from_ms: int, to_ms: int
    ) -> tuple[OutcomeTotal, ...]:
        """See `Ledger`."""
        groups: dict[tuple[str, str], list[JobEntry]] = {}
        for entry in self._jobs.values():
            if tenant in (None, entry.tenant) and from_ms <= entry.ended_ms < to_ms:
                groups.setdefault((entry.tenant, entry.outcome), []).append(entry)
        return tuple(
            OutcomeTotal(
                tenant=of, outcome=outcome, jobs=len(entries),
                cost_micro_usd=sum(entry.cost_micro_usd for entry in entries),
            )
            for (of, outcome), entries in sorted(groups.items())
        )  # fmt: skip

    async def cycles(self, limit: int) -> tuple[CycleEntry, ...]:
        """See `Ledger`."""
        return tuple(reversed(self._cycles.values()))[:limit]

    async def decision_days(self, from_ms: int, to_ms: int) -> DecisionDays:
        """See `Ledger`."""
        rows = (self._cycles.values(), self._gains.values(), self._predictions.values())
        return decision_days(*rows, (from_ms, to_ms))

    async def forget_cycles(self, before_ms: int) -> int:
        """See `Ledger`."""
        self._gains = {k: e for k, e in self._gains.items() if e.at_ms >= before_ms}
        self._predictions = {k: e for k, e in self._predictions.items() if e.at_ms >= before_ms}
        old = [cycle for cycle, entry in self._cycles.items() if entry.at_ms < before_ms]
        for cycle in old:
            del self._cycles[cycle]
        return len(old)

    async def close(self) -> None:
        """See `Ledger`."""


class MemoryBlobs(BlobStore):
    """`BlobStore` in dictionaries."""

    def __init__(self) -> None:
        self._blobs: dict[str, tuple[bytes, BlobStat]] = {}
        self._grants: dict[str, set[str]] = {}

    async def put(
        self,
        sha256: str,
        chunks: AsyncIterable[bytes],
        *,
        now_ms: int,
        max_bytes: int = MAX_BLOB_BYTES,
    ) -> BlobStat:
        """See `BlobStore`."""
        check = StreamCheck(sha256, max_bytes)
        parts = []
        async for chunk in chunks:
            check.count(len(chunk))
            check.digest(chunk)
            parts.append(chunk)
        check.finish()
        stat = BlobStat(sha256, check.size_bytes, now_ms)
        self._blobs[sha256] = (b"".join(parts), stat)
        return stat

    async def open(self, sha256: str, *, offset: int = 0) -> AsyncIterator[bytes]:
        """See `BlobStore`."""
        if check_sha256(sha256) not in self._blobs:
            raise BlobNotFound(sha256)
        data, _ = self._blobs[sha256]
        for start in range(offset, len(data), _CHUNK_BYTES):
            yield data[start : start + _CHUNK_BYTES]

    async def stat(self, sha256: str) -> BlobStat | None:
        """See `BlobStore`."""
        found = self._blobs.get(check_sha256(sha256))
        return None if found is None else found[1]

    async def exists(self, sha256s: Collection[str]) -> frozenset[str]:
        """See `BlobStore`."""
        return frozenset(sha for sha in map(check_sha256, sha256s) if sha in self._blobs)

    async def grant(self, sha256: str, tenant: str) -> None:
        """See `BlobStore`."""
        if check_sha256(sha256) not in self._blobs:
            raise BlobNotFound(sha256)
        self._grants.setdefault(sha256, set()).add(check_tenant(tenant))

    async def readable(self, sha256s: Collection[str], tenant: str) -> frozenset[str]:
        """See `BlobStore`."""
        check_tenant(tenant)
        stored = await self.exists(sha256s)
        return frozenset(sha for sha in stored if tenant in self._grants.get(sha, ()))

    async def may_read(self, sha256: str, tenant: str) -> bool:
        """See `BlobStore`."""
        return sha256 in await self.readable((sha256,), tenant)

    async def sweep(self, keep: Set[str], *, older_than_ms: int) -> SweepResult:
        """See `BlobStore`."""
        old = [
            stat
            for sha256, (_, stat) in self._blobs.items()
            if sha256 not in keep and stat.stored_ms < older_than_ms
        ]
        for stat in old:
            self._grants.pop(stat.sha256, None)
            del self._blobs[stat.sha256]
        return SweepResult(len(old), sum(stat.size_bytes for stat in old))

    async def close(self) -> None:
        """See `BlobStore`."""


@dataclass(slots=True)
class _Stream:
    data: bytearray = field(default_factory=bytearray)
    mark: StreamMark = field(default_factory=StreamMark)


class MemoryLogs(LogStore):
    """`LogStore` in dictionaries."""

    def __init__(self, *, cap_bytes: int = MAX_LOG_BYTES) -> None:
        self._cap_bytes = cap_bytes
        self._attempts: dict[str, dict[str, _Stream]] = {}

    async def append(self, uid: str, stream: str, offset: int, data: bytes) -> int:
        """See `LogStore`."""
        check_append(uid, stream, offset, len(data))
        found = self._attempts.get(uid, {}).get(stream) or _Stream()
        plan = plan_append(len(found.data), offset, len(data), self._cap_bytes)
        if plan.take or plan.truncated:
            self._attempts.setdefault(uid, {})[stream] = found
            found.data += data[plan.skip : plan.skip + plan.take]
        if plan.truncated:
            found.mark = StreamMark(found.mark.total_bytes, cut=True)
        return len(found.data)

    async def read(self, uid: str, stream: str, offset: int, limit: int) -> bytes:
        """See `LogStore`."""
        found = self._attempts.get(check_uid(uid), {}).get(check_stream(stream))
        if found is None or offset < 0 or limit <= 0:
            return b""
        return bytes(found.data[offset : offset + min(limit, MAX_APPEND_BYTES)])

    async def length(self, uid: str, stream: str) -> int:
        """See `LogStore`."""
        found = self._attempts.get(check_uid(uid), {}).get(check_stream(stream))
        return 0 if found is None else len(found.data)

    async def mark_complete(self, uid: str, stream: str, total_bytes: int) -> LogStream:
        """See `LogStore`."""
        check_append(uid, stream, total_bytes, 0)
        found = self._attempts.setdefault(uid, {}).setdefault(stream, _Stream())
        found.mark = completed(found.mark, len(found.data), total_bytes)
        return stream_state(stream, len(found.data), found.mark, self._cap_bytes)

    async def streams(self, uid: str) -> tuple[LogStream, ...]:
        """See `LogStore`."""
        found = self._attempts.get(check_uid(uid), {})
        return tuple(
            stream_state(name, len(found[name].data), found[name].mark, self._cap_bytes)
            for name in sorted(found, key=stream_order)
        )

    async def remove(self, uid: str) -> None:
        """See `LogStore`."""
        self._attempts.pop(check_uid(uid), None)

    async def close(self) -> None:
        """See `LogStore`."""


def _place(entry: JobEntry) -> JobCursor:
    return JobCursor(entry.created_ms, entry.job)


def _matches(entry: JobEntry, query: JobFilter) -> bool:
    return all(
        (
            query.tenant in (None, entry.tenant),
            not query.outcomes or entry.outcome in query.outcomes,
            entry.name.startswith(query.name_prefix),
            set(query.labels) <= set(entry.labels),
            query.created_from_ms is None or entry.created_ms >= query.created_from_ms,
            query.created_to_ms is None or entry.created_ms < query.created_to_ms,
            query.after is None or _place(entry) < query.after,
        )
    )


def _total(entries: list[UsageEntry]) -> UsageTotal:
    first = entries[0]
    return UsageTotal(
        tenant=first.tenant,
        cluster=first.cluster,
        pool=first.pool,
        accelerator=first.accelerator,
        attempts=len({entry.attempt for entry in entries}),
        accelerator_ms=sum(entry.accelerator_ms for entry in entries),
        cpu_ms=sum(entry.cpu_ms for entry in entries),
        memory_mib_s=sum(entry.memory_mib_s for entry in entries),
        cost_micro_usd=sum(entry.cost_micro_usd for entry in entries),
    )


class MemoryDecisions(DecisionStore):
    """`DecisionStore` in a dictionary."""

    def __init__(self, limits: DecisionLimits | None = None) -> None:
        self._limits = limits or DecisionLimits()
        self._kept: dict[str, tuple[StoredDecision, bytes]] = {}

    async def put(self, cycle: str, why: str, body: bytes) -> None:
        """See `DecisionStore`. Without a clock, `stored_ms` counts what was put."""
        stored = StoredDecision(check_cycle(cycle), len(self._kept) + 1, len(body), why)
        self._kept[cycle] = stored, body
        for gone in superseded([item for item, _ in self._kept.values()], self._limits):
            del self._kept[gone]

    async def get(self, cycle: str) -> bytes | None:
        """See `DecisionStore`."""
        found = self._kept.get(check_cycle(cycle))
        return found[1] if found else None

    async def stored(self) -> tuple[StoredDecision, ...]:
        """See `DecisionStore`."""
        items = (item for item, _ in self._kept.values())
        return tuple(sorted(items, key=lambda item: item.order, reverse=True))
