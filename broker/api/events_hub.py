"""The federation's events, one watch for all who listen.

An event's id is `<revision>.<index>`: the store's revision and the place of the change within it,
so it means the same at every replica. Listeners read from one bounded ring; one who asks for
older events is served from the store's own history until it has caught up with the ring, and one
who reads too slowly is told to come again with the last id it saw.
"""

from __future__ import annotations

import asyncio
import re
from bisect import bisect_right
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from broker.api.views import to_json, utc
from broker.model.jobs import Attempt, Job
from broker.state import keys
from broker.state.codec import RecordUnreadable, decode_attempt, decode_job
from broker.state.projection import Projection
from broker.state.store import Store
from federation.kv import Compacted, WatchBatch, WatchEvent
from federation.wire import records as pb

_ALL_OF_REVISION = 1 << 30
_ALIVE = re.compile(re.escape(keys.REPORTS) + r"([^/]+)/alive")


class Cursor(NamedTuple):
    """Where in the stream of events: everything up to and with this is seen."""

    revision: int
    place: int

    def __str__(self) -> str:
        return f"{self.revision}.{self.place}"

    @classmethod
    def parse(cls, text: str) -> Cursor:
        """Of `<revision>.<index>`; ValueError for anything else."""
        revision, _, place = text.partition(".")
        return cls(int(revision), int(place))


@dataclass(frozen=True, slots=True)
class Told:
    """What an event says. `tenant` empty = for everyone; `job` empty = of no job."""

    tenant: str
    job: str
    data: bytes


class Notice:
    """One event; its record is decoded when the first listener wants it, and once."""

    __slots__ = ("_read", "_told", "cursor", "kind")

    def __init__(self, cursor: Cursor, kind: str, read: Callable[[], Told | None]) -> None:
        self.cursor = cursor
        self.kind = kind
        self._read: Callable[[], Told | None] | None = read
        self._told: Told | None = None

    @property
    def told(self) -> Told | None:
        """What it says; None for a record that cannot be read."""
        if self._read is not None:
            self._told, self._read = self._read(), None
        return self._told


@dataclass(frozen=True, slots=True)
class Reset:
    """Events were lost to compaction: look at everything again, then go on from `cursor`."""

    cursor: Cursor


class TooSlow(Exception):
    """The listener fell behind the ring; it can come back with the last id it saw."""


class EventsHub:
    """The projection's watch on the store, for many listeners. `run` must be running."""

    def __init__(self, store: Store, projection: Projection, kept: int) -> None:
        """`kept`: how many events the ring holds."""
        self._store = store
        self._projection = projection
        self._kept = kept
        self._ring: list[Notice] = []
        self._covered = Cursor(0, 0)  # the ring has every event after this
        self._head = Cursor(0, 0)
        self._more = asyncio.Event()
        self._started = asyncio.Event()

    async def run(self) -> None:
        """Follow the store for ever."""
        batches = self._projection.batches()
        translator = Translator()
        if self._projection.ready.is_set():
            self._begin()
        async for batch in batches:
            if batch is None:
                translator = Translator()
                self._begin()
            else:
                self._take(batch, translator)

    def _begin(self) -> None:
        """The ring has what comes from now on; what was before is in the store's history."""
        self._ring = []
        self._covered = self._head = Cursor(self._projection.revision, _ALL_OF_REVISION)
        self._started.set()
        self._wake()

    def _take(self, batch: WatchBatch, translator: Translator) -> None:
        self._ring.extend(translator.notices(batch))
        self._head = Cursor(max(batch.revision, self._head.revision), _ALL_OF_REVISION)
        if len(self._ring) > self._kept:
            # Half at a time, so that trimming costs little per event.
            cut = len(self._ring) - self._kept // 2
            self._covered = self._ring[cut - 1].cursor
            del self._ring[:cut]
        self._wake()

    def _wake(self) -> None:
        self._more.set()
        self._more = asyncio.Event()

    async def follow(self, since: Cursor | None) -> AsyncGenerator[Notice | Reset, None]:
        """Events after `since` (None = from now on), for ever. Raises TooSlow, StoreUnavailable."""
        await self._started.wait()
        cursor = self._head if since is None else since
        if cursor > self._head and await self._never_was(cursor):
            cursor = self._head
            yield Reset(cursor)
        if cursor < self._covered:
            async with aclosing(self._from_history(cursor)) as history:
                async for item in history:
                    if isinstance(item, Cursor):
                        cursor = item
                    else:
                        yield item
        while True:
            more = self._more
            fresh = self._after(cursor)
            if fresh:
                for notice in fresh:
                    yield notice
                cursor = fresh[-1].cursor
            else:
                await more.wait()

    async def _never_was(self, cursor: Cursor) -> bool:
        """Whether the id is of another store's history (one from before a restore)."""
        page = await self._store.range(keys.ROOT, limit=1)
        return cursor.revision > page.revision

    def _after(self, cursor: Cursor) -> list[Notice]:
        if cursor < self._covered:
            raise TooSlow("too slow: come again with the last id")
        start = bisect_right(self._ring, cursor, key=lambda notice: notice.cursor)
        return self._ring[start : start + 256]

    async def _from_history(
        self, since: Cursor
    ) -> AsyncGenerator[Notice | Reset | Cursor, None]:
        """Until the ring has all that follows; at last a cursor: from where the ring goes on."""
        translator = Translator()
        try:
            async with aclosing(_closable(self._store, since.revision)) as watch:
                async for batch in watch:
                    for notice in translator.notices(batch):
                        if notice.cursor > since:
                            yield notice
                    seen = Cursor(batch.revision, _ALL_OF_REVISION)
                    if seen >= self._covered:
                        yield seen
                        return
        except Compacted:
            head = self._head
            yield Reset(head)
            yield head


async def _closable(store: Store, revision: int) -> AsyncGenerator[WatchBatch, None]:
    async for batch in store.watch(keys.ROOT, max(revision, 1)):
        yield batch


# From changes to events ---------------------------------------------------------------------------


class Translator:
    """Changes of records as events. Remembers clusters, whose records change without news."""

    def __init__(self) -> None:
        self._clusters: dict[str, str] = {}

    def notices(self, batch: WatchBatch) -> Iterator[Notice]:
        """The events in a batch, in order."""
        revision, index = 0, 0
        for event in batch.events:
            index = index + 1 if event.mod_revision == revision else 0
            revision = event.mod_revision
            notice = self._notice(Cursor(revision, index), event)
            if notice is not None:
                yield notice

    def _notice(self, cursor: Cursor, event: WatchEvent) -> Notice | None:
        key, value = event.key, event.kv.value if event.kv else None
        if key.startswith(keys.REPORTS):
            return self._alive(cursor, key, up=value is not None)
        if value is None:
            return None
        if key.startswith(keys.JOBS):
            return Notice(cursor, "job", partial(_job_told, key, value))
        if key.startswith(keys.ATTEMPTS):
            return Notice(cursor, "attempt", partial(_attempt_told, key, value))
        if key.startswith(keys.CLUSTERS):
            record = pb.ClusterRecord.FromString(value)
            return self._cluster(cursor, record.cluster, record.state, record.region)
        return None

    def _alive(self, cursor: Cursor, key: str, *, up: bool) -> Notice | None:
        match = _ALIVE.fullmatch(key)
        if match is None:
            return None
        phase = "connected" if up else "silent"
        return self._cluster(cursor, match[1], phase, "", about="alive/")

    def _cluster(
        self, cursor: Cursor, name: str, phase: str, region: str, about: str = ""
    ) -> Notice | None:
        if self._clusters.get(about + name) == phase:
            return None
        self._clusters[about + name] = phase
        data = {"type": "cluster", "id": name, "phase": phase, "region": region or None}
        told = Told("", "", to_json(data))
        return Notice(cursor, "cluster", lambda: told)


def _job_told(key: str, value: bytes) -> Told | None:
    try:
        job = decode_job(key, value)
    except RecordUnreadable:
        return None  # the projection has raised the alarm about it
    return Told(job.tenant, job.id, to_json(_job_event(job)))


def _attempt_told(key: str, value: bytes) -> Told | None:
    try:
        attempt = decode_attempt(key, value)
    except RecordUnreadable:
        return None
    return Told(attempt.tenant, attempt.job, to_json(_attempt_event(attempt)))


def _job_event(job: Job) -> dict[str, Any]:
    return {
        "type": "job",
        "id": job.id,
        "name": job.name,
        "tenant": job.tenant,
        "phase": job.phase.value,
        "outcome": job.outcome.kind.value if job.outcome else None,
        "exit_code": job.outcome.exit_code if job.outcome else None,
        "reason": {"code": job.reason_code, "text": job.reason_text},
        "at": utc(job.changed_ms),
    }


def _attempt_event(attempt: Attempt) -> dict[str, Any]:
    return {
        "type": "attempt",
        "id": attempt.uid,
        "job": attempt.job,
        "tenant": attempt.tenant,
        "cluster": attempt.cluster,
        "region": attempt.region,
        "pool": attempt.pool,
        "phase": attempt.phase.value,
        "desired": attempt.desired.value,
        "outcome": attempt.outcome.kind.value if attempt.outcome else None,
        "at": utc(attempt.ended_ms or attempt.started_ms or attempt.placed_ms),
    }
