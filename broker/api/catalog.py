"""Jobs wherever they are: in etcd while they live, in the ledger after, as one list."""

from __future__ import annotations

import asyncio
import json
from bisect import bisect_left
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from broker.api.problems import field_problem, not_found
from broker.api.requests import JobsQuery
from broker.api.views import (
    SpecFacts,
    attempt_entry_view,
    ended_job_view,
    facts_of_spec,
    job_view,
)
from broker.control.closing_receipt import Closing, read_closing
from broker.control.viewing import Viewer
from broker.feedback.ports import JobCursor, JobEntry, JobFilter, Ledger
from broker.model.jobs import Job, JobPhase
from broker.state import keys
from broker.state.codec import decode_job
from broker.state.projection import Projection
from broker.state.store import Store
from federation.ids import InvalidJobId, JobId, job_time_ms
from federation.wire import records as pb

_FACTS_MAX = 50_000
_YIELD_EVERY = 500
_LEDGER_PAGES_MAX = 20


@dataclass(frozen=True, slots=True)
class Found:
    """A job in etcd, in the ledger, or for some minutes in both; at least one is set."""

    job: Job | None
    entry: JobEntry | None

    @property
    def tenant(self) -> str:
        """Whose job it is."""
        if self.job is not None:
            return self.job.tenant
        return self.entry.tenant if self.entry is not None else ""

    @property
    def ended(self) -> bool:
        """Whether it has ended."""
        return self.job is None or self.job.phase is JobPhase.ENDED


@dataclass(frozen=True, slots=True)
class Page:
    """A page of job views, newest first."""

    jobs: list[dict[str, Any]]
    next_cursor: str | None


class Catalog:
    """Finds and lists jobs for a viewer; what is not theirs does not exist."""

    def __init__(self, projection: Projection, ledger: Ledger, store: Store) -> None:
        self._projection = projection
        self._ledger = ledger
        self._store = store
        self._facts: dict[str, SpecFacts] = {}

    # One job ----------------------------------------------------------------------------------

    async def find(self, job_id: str, viewer: Viewer) -> Found:
        """The job, if it is the viewer's. Raises Problem 404, StoreUnavailable,
        FeedbackUnavailable."""
        job = self._projection.job(job_id)
        entry = await self._ledger.job(job_id) if job is None else None
        if job is None and entry is None:
            # Taken on by another replica a moment ago, and not yet seen here.
            kv = await self._store.get(keys.job(job_id))
            job = decode_job(kv.key, kv.value) if kv is not None else None
        found = Found(job, entry)
        if (job is None and entry is None) or not viewer.may_see(found.tenant):
            raise not_found("job", job_id)
        return found

    async def live(self, job_id: str, viewer: Viewer) -> Job | None:
        """The job while it is in etcd; None when only the ledger has it. Raises as `find`."""
        return (await self.find(job_id, viewer)).job

    async def spec_bytes(self, found: Found) -> bytes:
        """The canonical spec as stored; empty where it is nowhere any more."""
        if found.job is not None:
            key = keys.spec(found.job.id)
            value = self._projection.value(key)
            if value is None:
                kv = await self._store.get(key)
                value = kv.value if kv is not None else None
            if value is not None:
                return pb.SpecRecord.FromString(value).spec
        entry = found.entry
        if entry is None and found.job is not None:
            entry = await self._ledger.job(found.job.id)
        return entry.spec_json if entry is not None else b""

    async def whole_view(self, found: Found) -> dict[str, Any]:
        """A job with its spec and every attempt it ever had."""
        job_id = found.job.id if found.job is not None else _entry(found).job
        spec = await self.spec_bytes(found)
        closed = await self.closed_attempts(job_id)
        if found.job is not None:
            facts = facts_of_spec(json.loads(spec)) if spec else SpecFacts()
            view = job_view(found.job, facts, closed)
        else:
            view = ended_job_view(_entry(found), closed)
        view["spec"] = json.loads(spec) if spec else None
        return view

    async def closed_attempts(self, job_id: str) -> list[dict[str, Any]]:
        """Views of the attempts the ledger has."""
        entries = await self._ledger.attempts(job_id)
        if not entries:
            return []
        closings: dict[str, Closing] = {}
        for receipt in await self._ledger.receipts(job_id):
            closing = read_closing(receipt)
            if closing is not None:
                closings[receipt.attempt] = closing
        return [attempt_entry_view(entry, closings.get(entry.uid)) for entry in entries]

    def view(self, job: Job) -> dict[str, Any]:
        """A job in etcd, as lists show it."""
        return job_view(job, self.facts(job.id))

    def facts(self, job_id: str) -> SpecFacts:
        """Kind and labels of a job in etcd."""
        known = self._facts.get(job_id)
        if known is not None:
            return known
        value = self._projection.value(keys.spec(job_id))
        if value is None:
            return SpecFacts()
        facts = facts_of_spec(json.loads(pb.SpecRecord.FromString(value).spec))
        if len(self._facts) >= _FACTS_MAX:
            self._facts.clear()
        self._facts[job_id] = facts
        return facts

    # Lists ------------------------------------------------------------------------------------

    async def page(self, query: JobsQuery, viewer: Viewer) -> Page:
        """One page. Raises Problem 400 for a cursor that is none, FeedbackUnavailable."""
        before = _cursor(query.cursor)
        labels = [tuple(item.split("=", 1)) for item in query.label]
        wanted = _Wanted(query, viewer, {key: value for key, value in labels})
        room = query.limit + 1
        rows = [(str(job.id), self.view(job)) async for job in self._live(wanted, before, room)]
        if query.phase in (None, "ended"):
            rows += [(e.job, ended_job_view(e)) for e in await self._ended(wanted, before, room)]
        rows.sort(key=lambda row: row[0], reverse=True)
        shown = rows[: query.limit]
        more = len(rows) > query.limit
        return Page([view for _, view in shown], shown[-1][0] if more else None)

    async def _live(
        self, wanted: _Wanted, before: JobId | None, room: int
    ) -> AsyncIterator[Job]:
        ids = self._projection.job_ids()
        end = bisect_left(ids, before) if before is not None else len(ids)
        for looked, job_id in enumerate(reversed(ids[:end])):
            if looked % _YIELD_EVERY == _YIELD_EVERY - 1:
                await asyncio.sleep(0)
            job = self._projection.job(job_id)
            if job is not None and wanted.takes(job, self.facts):
                yield job
                room -= 1
                if room == 0:
                    return

    async def _ended(
        self, wanted: _Wanted, before: JobId | None, room: int
    ) -> list[JobEntry]:
        found: list[JobEntry] = []
        for tenant in wanted.ledger_tenants():
            after = JobCursor(job_time_ms(before), before) if before is not None else None
            taken = 0
            for _ in range(_LEDGER_PAGES_MAX):
                page = await self._ledger.jobs(wanted.ledger_filter(tenant, after, room))
                for entry in page.jobs:
                    # For some minutes an ended job is in both places.
                    if self._projection.job(entry.job) is None and wanted.clusters_fit(entry):
                        found.append(entry)
                        taken += 1
                after = page.next
                if after is None or taken >= room:
                    break
        found.sort(key=lambda entry: entry.job, reverse=True)
        return found[:room]


def _entry(found: Found) -> JobEntry:
    if found.entry is None:
        raise AssertionError("a found job is in etcd or in the ledger")
    return found.entry


def _cursor(text: str) -> JobId | None:
    if not text:
        return None
    try:
        job_time_ms(JobId(text))
    except InvalidJobId:
        raise field_problem(
            400, "bad_query", "cursor", "not a cursor", "use next_cursor of the page before"
        ) from None
    return JobId(text)


@dataclass(frozen=True, slots=True)
class _Wanted:
    """The conditions of a list, as both sources need them."""

    query: JobsQuery
    viewer: Viewer
    labels: dict[str, str]

    def takes(self, job: Job, facts: Callable[[str], SpecFacts]) -> bool:
        """Whether a job in etcd belongs in the list."""
        query = self.query
        if not self.viewer.may_see(job.tenant) or query.tenant not in (None, job.tenant):
            return False
        if query.phase not in (None, job.phase.value) or not job.name.startswith(query.name):
            return False
        if query.outcome is not None and (
            job.outcome is None or job.outcome.kind.value != query.outcome
        ):
            return False
        if query.cluster is not None and all(a.cluster != query.cluster for a in job.attempts):
            return False
        return not self.labels or self.labels.items() <= facts(job.id).labels.items()

    def ledger_tenants(self) -> Sequence[str | None]:
        """For which tenants to ask the ledger; None = all."""
        if self.query.tenant is not None:
            return (self.query.tenant,) if self.viewer.may_see(self.query.tenant) else ()
        return (None,) if self.viewer.operator else self.viewer.tenants

    def ledger_filter(
        self, tenant: str | None, after: JobCursor | None, room: int
    ) -> JobFilter:
        """The same conditions for the ledger."""
        query = self.query
        return JobFilter(
            tenant=tenant,
            outcomes=frozenset([query.outcome]) if query.outcome else frozenset(),
            name_prefix=query.name,
            labels=tuple(sorted(self.labels.items())),
            after=after,
            limit=min(room, 1000),
        )

    def clusters_fit(self, entry: JobEntry) -> bool:
        """Whether an ended job ran in the cluster asked for."""
        return self.query.cluster is None or self.query.cluster in entry.clusters.split(",")
