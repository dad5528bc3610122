"""A store that fails as etcd does: slow, unavailable, or silent about what it has done."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from broker.app import Backends
from broker.control.submission import Request
from broker.control.viewing import Viewer
from broker.model.jobs import Intent, Job, JobPhase
from broker.state import keys
from broker.state.backends.memory import MemoryStore
from broker.state.codec import encode_intent
from federation.kv import (
    AmbiguousCommit,
    KeyValue,
    Put,
    RangeResult,
    StoreUnavailable,
    Txn,
    TxnResult,
    WatchBatch,
)
from tests.unit.control.federation import WITHIN_S, Federation, Site, until


class FaultyStore:
    """A `Store` over another one. `before` and `after` may raise for a transaction."""

    def __init__(self, inner: MemoryStore) -> None:
        self.inner = inner
        self.before: Callable[[Txn], None] = lambda txn: None
        self.after: Callable[[Txn], None] = lambda txn: None
        self.delay_s = 0.0
        self.written: list[str] = []

    async def get(self, key: str) -> KeyValue | None:
        return await self.inner.get(key)

    async def range(
        self, prefix: str, *, after: str = "", limit: int = 0, revision: int = 0
    ) -> RangeResult:
        return await self.inner.range(prefix, after=after, limit=limit, revision=revision)

    async def txn(self, txn: Txn) -> TxnResult:
        if self.delay_s and not only_beats(txn):
            await asyncio.sleep(self.delay_s)
        self.before(txn)
        result = await self.inner.txn(txn)
        self.written.extend(put_keys(txn))
        self.after(txn)
        return result

    def watch(self, prefix: str, from_revision: int) -> AsyncIterator[WatchBatch]:
        return self.inner.watch(prefix, from_revision)

    async def grant(self, ttl_s: int) -> int:
        return await self.inner.grant(ttl_s)

    async def keep(self, lease: int) -> int:
        return await self.inner.keep(lease)

    async def revoke(self, lease: int) -> None:
        await self.inner.revoke(lease)

    async def compact(self, revision: int) -> None:
        await self.inner.compact(revision)

    async def close(self) -> None:
        await self.inner.close()

    # Ways to fail -------------------------------------------------------------------------------

    def heal(self) -> None:
        """No fault from now on."""
        self.before = self.after = lambda txn: None
        self.delay_s = 0.0

    def down(self) -> None:
        """Nothing is taken any more, beats neither."""

        def refuse(_: Txn) -> None:
            raise StoreUnavailable("no quorum", retry_after_s=0.05)

        self.before = refuse

    def at_random(self, dice: random.Random, share: float) -> None:
        """A share of all transactions fails, half of them after they were applied."""

        def before(txn: Txn) -> None:
            if not only_beats(txn) and dice.random() < share / 2:
                raise StoreUnavailable("a member is gone", retry_after_s=0.01)

        def after(txn: Txn) -> None:
            if not only_beats(txn) and dice.random() < share / 2:
                raise AmbiguousCommit("the connection broke")

        self.before, self.after = before, after


def put_keys(txn: Txn) -> list[str]:
    """Keys a transaction writes, nested ones too."""
    found: list[str] = []
    for op in txn.then:
        if isinstance(op, Put):
            found.append(op.key)
        elif isinstance(op, Txn):
            found.extend(put_keys(op))
    return found


def only_beats(txn: Txn) -> bool:
    """Whether a transaction is leadership's own."""
    return set(put_keys(txn)) <= {keys.LEADER, keys.EPOCH}


async def faulty_federation(directory: Path, *sites: Site) -> tuple[Federation, FaultyStore]:
    """A federation over a store that can fail; not started."""
    made = await Federation.make(directory, *sites)
    store = FaultyStore(made.store)
    backends: Backends = replace(made.backends, store=store)
    made.backends = backends
    return made, store


async def submit(fed: Federation, n: int = 1, **spec: Any) -> list[str]:
    """Submit copies of a job; returns their ids."""
    assert fed.plane is not None
    data = [{"command": ["true"], **spec} for _ in range(n)]
    request = Request(Viewer("ada", ("default",)), b"")
    taken = await fed.plane.services.submissions().submit(data, request)
    return [str(job) for job in taken.ids]


async def ask(fed: Federation, job: str, intent: Intent) -> None:
    """What another replica's API would write while this one may be dead."""
    put = Put(keys.intent(job), encode_intent(replace(intent, subject="ada", at_ms=1)))
    await fed.store.txn(Txn(then=(put,)))


def job_of(fed: Federation, job: str) -> Job | None:
    """A job as the API sees it."""
    assert fed.plane is not None
    return fed.plane.services.projection.job(job)


def phase(fed: Federation, job: str) -> JobPhase | None:
    """The phase of a job as the API sees it."""
    found = job_of(fed, job)
    return found.phase if found else None


async def all_end(fed: Federation, jobs: list[str], within_s: float = WITHIN_S) -> None:
    """Wait until every job has ended."""
    await until(lambda: all(phase(fed, job) is JobPhase.ENDED for job in jobs), within_s)


def starts(fed: Federation) -> dict[str, int]:
    """How often each job or task was started, over all sites."""
    found: dict[str, int] = {}
    for site in fed.sites.sites.values():
        for key, count in site.starts.items():
            found[key] = found.get(key, 0) + count
    return found


def epoch(fed: Federation) -> int:
    """The epoch of the leadership now."""
    assert fed.plane is not None
    return fed.plane.office.epoch()


def alarms(fed: Federation) -> list[str]:
    """What operators were told."""
    assert fed.plane is not None
    return [text for _, text in fed.plane.office.alarms]
