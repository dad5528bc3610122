"""Taking jobs on: spec, job and idempotency record in one transaction, or nothing at all.

An acknowledged job is durable; a repeat under the same Idempotency-Key gives the same ids, also
after a crash in the middle. A commit whose fate is unknown is repeated as it was: the compares
let only one of the two through, and the loser reads back what the winner wrote.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from broker.control.admission_rules import blobs_named, display_name
from broker.control.predecessors import Predecessors
from broker.control.steps import in_steps
from broker.control.submitted_specs import ERRORS_MAX, Ready, SubmittedSpecs
from broker.control.viewing import DEFAULT_TENANT, Viewer
from broker.control.waitlist import UNTOLD, Reason
from broker.feedback.entries import JobEntry
from broker.model.jobs import Awaited, Job
from broker.model.policies import Ruling
from broker.model.replacing import replace
from broker.state import keys
from broker.state.codec import encode_job
from broker.state.group_commit import GroupCommitter, fill_first
from broker.state.projection import Projection
from broker.state.store import Store
from federation.environment import Clock, Ids
from federation.ids import JobId, Tenant, derive_job_id
from federation.jobs import FieldError, InvalidJob, JobSpec
from federation.kv import (
    REQUEST_BYTES_MAX,
    Absent,
    AmbiguousCommit,
    Delete,
    Get,
    Op,
    Put,
    RequestTooLarge,
    StoreUnavailable,
    Txn,
    TxnResult,
)
from federation.refusals import RefusalCode
from federation.runs import Runs
from federation.tickets import admission_mac
from federation.wire import records as pb

SCHEMA = 1
BATCH_JOBS_MAX = 1_000
COMMIT_TRIES = 4
_NEW = Job(JobId(""), Tenant(""), "", "", 0, "", 0, 0)
"""What every new job has in common: to fill it in takes a third of what its constructor does."""
_NESTED_OPS = 64  # a nested level of 64 beside at most 64 others: 128 in all (measured)
_OP_OVERHEAD_BYTES = 32


class MacKeys(Protocol):
    """The key under which admissions are sealed (`broker.state.keyring.Keyring`)."""

    @property
    def mac_key(self) -> tuple[str, bytes]:
        """(kid, key) in use now."""
        ...


class BlobAccess(Protocol):
    """Which uploaded blobs a tenant may use (`broker.feedback.ports.BlobStore`)."""

    async def readable(self, sha256s: Collection[str], tenant: str) -> frozenset[str]:
        """Those of `sha256s` that are stored and granted to the tenant."""
        ...


class IdempotencyConflict(Exception):
    """The Idempotency-Key was used for another request."""


class BatchTooLarge(Exception):
    """More than one transaction holds; the text says how to split it."""


class OutcomeUnknown(StoreUnavailable):
    """The jobs may or may not have been taken on; repeating with the same key is safe."""


class Request(NamedTuple):
    """Who submits, and under which key; `body_sha256` is over what was sent, route included."""

    viewer: Viewer
    body_sha256: bytes
    idempotency_key: str = ""
    traceparent: str = ""


class Submitted(NamedTuple):
    """The ids in the order given; `jobs` is empty for a replay."""

    ids: tuple[JobId, ...]
    jobs: tuple[Job, ...] = ()
    specs: tuple[JobSpec, ...] = ()
    replayed: bool = False


class _Draft(NamedTuple):
    """A job ready to be written."""

    job: Job
    spec: JobSpec
    stored: bytes
    ops: tuple[Put, Put]


@dataclass(frozen=True, slots=True)
class Shell:
    """What submission works with; `lanes` are group committers without a guard."""

    store: Store
    lanes: Sequence[GroupCommitter]
    projection: Projection
    mac_keys: MacKeys
    blobs: BlobAccess
    clock: Clock
    ids: Ids
    ended: Callable[[str], Awaitable[JobEntry | None]]
    retry_delay_s: float = 0.2
    told: Callable[[Job, Ruling], Reason] = lambda job, ruling: UNTOLD
    """Why jobs alike wait (`Books.told`)."""


class Submissions:
    """The one place where jobs come into being."""

    def __init__(self, shell: Shell) -> None:
        self._shell = shell
        self.specs = SubmittedSpecs(shell.projection, shell.clock)
        self._predecessors = Predecessors(shell.projection, shell.ended)

    async def submit(self, data: Sequence[object], request: Request) -> Submitted:
        """Take on every job in `data` (parsed JSON), or none.

        Raises InvalidJob, TenantRefused, IdempotencyConflict, BatchTooLarge, StoreUnavailable
        (nothing was taken on) and its kind OutcomeUnknown.
        """
        replay_key = self._replay_key(request)
        known = self._shell.projection.value(replay_key) if replay_key else None
        if known is not None:
            return _replay(known, request)
        specs = await self.specs.read_all(data, request.viewer)
        await self._check_blobs(specs)
        awaits = await self._predecessors.awaited([r.spec for r in specs], request.viewer)
        while True:
            now_ms = self._shell.clock.now_ms()
            first = self._shell.ids.job_id(now_ms)
            drafts = await self._drafts(specs, awaits, (first, now_ms), request)
            outcome = await self._write(drafts, request, replay_key)
            if outcome is not None:
                return outcome

    # Reading ----------------------------------------------------------------------------------

    async def _check_blobs(self, specs: Sequence[Ready]) -> None:
        named: dict[str, dict[str, str]] = {}
        for index, spec in enumerate(ready.spec for ready in specs):
            prefix = f"jobs[{index}]." if len(specs) > 1 else ""
            for sha256, path in blobs_named(spec).items():
                of_tenant = named.setdefault(spec.tenant or DEFAULT_TENANT, {})
                of_tenant.setdefault(sha256, prefix + path)
        errors = []
        for tenant, wanted in named.items():
            there = await self._shell.blobs.readable(wanted.keys(), tenant)
            errors += [
                FieldError(
                    path,
                    sha256,
                    f"no such blob of tenant {tenant}",
                    f"upload it first: PUT /v1/blobs/{sha256}?tenant={tenant}",
                )
                for sha256, path in wanted.items()
                if sha256 not in there
            ]
        if errors:
            raise InvalidJob(errors[:ERRORS_MAX])

    # Writing ----------------------------------------------------------------------------------

    async def _drafts(
        self,
        specs: Sequence[Ready],
        awaits: Sequence[tuple[Awaited, ...]],
        made: tuple[JobId, int],
        request: Request,
    ) -> list[_Draft]:
        """`made`: the id of the first, and when it was made (UTC epoch ms)."""
        first, now_ms = made
        drafts = [self._draft(specs[0], awaits[0], first, now_ms, request)]
        async for index, ready in in_steps(enumerate(specs[1:], 1)):
            job_id = derive_job_id(first, index)
            drafts.append(self._draft(ready, awaits[index], job_id, now_ms, request))
        return drafts

    def _draft(
        self,
        ready: Ready,
        awaits: tuple[Awaited, ...],
        job_id: JobId,
        now_ms: int,
        request: Request,
    ) -> _Draft:
        spec, stored, viewer = ready.spec, ready.stored, request.viewer
        tenant = spec.tenant or DEFAULT_TENANT
        kid, key = self._shell.mac_keys.mac_key
        mac = admission_mac(key, job_id, tenant, ready.digest, viewer.subject)
        record = pb.SpecRecord(
            schema=SCHEMA,
            job=job_id,
            tenant=tenant,
            spec=stored,
            mac=mac,
            kid=kid,
            created_ms=now_ms,
            subject=viewer.subject,
            traceparent=request.traceparent,
        )
        job = replace(
            _NEW,
            id=job_id,
            tenant=Tenant(tenant),
            name=display_name(spec),
            subject=viewer.subject,
            priority=spec.priority,
            class_key=self.specs.class_key(ready),
            created_ms=now_ms,
            changed_ms=now_ms,
            tasks=spec.array.tasks if spec.array else Runs(),
            awaits=awaits,
        )
        code, text = self._reason(job, ready)
        if code:
            job = replace(job, reason_code=code, reason_text=text)
        puts = (
            Put(keys.spec(job_id), record.SerializeToString()),
            Put(keys.job(job_id), encode_job(job)),
        )
        return _Draft(job, spec, stored, puts)

    def _reason(self, job: Job, ready: Ready) -> Reason:
        """Why it waits, where that is known at once: for other jobs, or behind jobs alike, for
        what these wait for. The leader then need not write it down a second time."""
        if job.awaits:
            return RefusalCode.DEPENDENCY_PENDING.value, job.awaits_text
        return self._shell.told(job, self.specs.ruling(ready))

    async def _write(
        self, drafts: Sequence[_Draft], request: Request, replay_key: str
    ) -> Submitted | None:
        """One transaction; None when the first id was taken by someone else (try another)."""
        puts = [put for draft in drafts for put in draft.ops]
        first = puts[0]
        reads: tuple[Op, ...] = (Get(first.key),)
        compare = [Absent(first.key)]
        if replay_key:
            record = pb.IdempotencyRecord(
                schema=SCHEMA,
                request_sha256=request.body_sha256,
                first_job=drafts[0].job.id,
                count=len(drafts),
                created_ms=drafts[0].job.created_ms,
            )
            puts.append(Put(replay_key, record.SerializeToString()))
            compare.append(Absent(replay_key))
            reads = (*reads, Get(replay_key))
        self._expect(drafts)
        result = await self._commit(tuple(compare), puts, reads)
        revision = result.revision
        if not result.succeeded:
            spec, *others = (read.kv for read in result.results)
            if spec is None or spec.value != first.value:
                return _replay(others[0].value, request) if others and others[0] else None
            # Ours after all: an earlier try went through. The leader may have gone on since.
            revision = spec.mod_revision
        self._shell.projection.fold_own(revision, puts)
        return Submitted(
            tuple(draft.job.id for draft in drafts),
            tuple(draft.job for draft in drafts),
            tuple(draft.spec for draft in drafts),
        )

    def _expect(self, drafts: Sequence[_Draft]) -> None:
        """What is about to be written is known here, and need not be read again."""
        projection = self._shell.projection
        for draft in drafts:
            projection.specs.keep(draft.stored, draft.spec)
            projection.expect(draft.ops[1:], draft.job)

    async def _commit(
        self, compare: tuple[Absent, ...], puts: Sequence[Put], reads: tuple[Op, ...]
    ) -> TxnResult:
        doubt: Exception | None = None
        for attempt in range(COMMIT_TRIES):
            try:
                return await self._once(compare, puts, reads)
            except AmbiguousCommit as error:
                doubt = error
            except RequestTooLarge as error:
                raise _too_large(puts) from error
            except StoreUnavailable:
                if doubt is None:
                    raise
            await asyncio.sleep(self._shell.retry_delay_s * (attempt + 1))
        raise OutcomeUnknown(
            "the state store did not say whether the jobs were taken on; look with GET /v1/jobs, "
            "or repeat with the same Idempotency-Key"
        ) from doubt

    async def _once(
        self, compare: tuple[Absent, ...], puts: Sequence[Put], reads: tuple[Op, ...]
    ) -> TxnResult:
        if len(puts) <= 3:
            return await fill_first(self._shell.lanes).commit(compare, tuple(puts), reads)
        if sum(len(p.key) + len(p.value) + _OP_OVERHEAD_BYTES for p in puts) > REQUEST_BYTES_MAX:
            raise RequestTooLarge("more bytes than one request may carry")
        nested = tuple(
            Txn(then=tuple(puts[start : start + _NESTED_OPS]))
            for start in range(0, len(puts), _NESTED_OPS)
        )
        return await self._shell.store.txn(Txn(compare, nested, reads))

    # Replays ----------------------------------------------------------------------------------

    def _replay_key(self, request: Request) -> str:
        if not request.idempotency_key:
            return ""
        viewer = request.viewer
        named = f"{viewer.subject}\n{request.idempotency_key}".encode()
        return keys.idempotency(viewer.home_tenant, hashlib.sha256(named).hexdigest())

    async def forget_replays(self, before_ms: int) -> int:
        """Drop idempotency records made before this UTC instant (at least 24 h ago); returns
        how many. Raises StoreError."""
        dropped = 0
        for kv in self._shell.projection.under(keys.IDEMPOTENCY):
            if pb.IdempotencyRecord.FromString(kv.value).created_ms < before_ms:
                await self._drop(kv.key)
                dropped += 1
        return dropped

    async def _drop(self, key: str) -> None:
        ops = (Delete(key),)
        result = await self._shell.lanes[0].commit((), ops)
        self._shell.projection.fold_own(result.revision, ops)


def _replay(value: bytes, request: Request) -> Submitted:
    record = pb.IdempotencyRecord.FromString(value)
    if record.request_sha256 != request.body_sha256:
        raise IdempotencyConflict("this Idempotency-Key was used for another request")
    first = JobId(record.first_job)
    ids = tuple(derive_job_id(first, index) for index in range(record.count))
    return Submitted(ids, replayed=True)


def _too_large(puts: Sequence[Put]) -> BatchTooLarge:
    size = sum(len(put.value) for put in puts)
    return BatchTooLarge(
        f"these jobs take {size} bytes as stored, and one transaction holds "
        f"{REQUEST_BYTES_MAX} with its keys; submit them in smaller batches"
    )
