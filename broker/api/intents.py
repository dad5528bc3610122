"""Intents: what users ask of a job after it was submitted, durable when acknowledged.

An intent is committed only against the job's record as it was read, so a cancel that was
acknowledged came before the end, and one that came after is told so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from zlib import crc32

from broker.api.problems import Problem, unavailable
from broker.model.jobs import Intent, Job, JobPhase
from broker.state import keys
from broker.state.codec import decode_intent, decode_job, encode_intent
from broker.state.group_commit import GroupCommitter
from broker.state.projection import Projection
from broker.state.store import Store
from federation.kv import AmbiguousCommit, Get, KeyValue, ModRevisionIs, Put, Txn

TRIES_MAX = 8

Change = Callable[[Job, Intent], Intent]
"""The new intent, or a Problem raised to refuse."""


def ended(job_id: str) -> Problem:
    """409: nothing can be asked of a job that has ended."""
    return Problem(409, "already_ended", f"job {job_id} has already ended")


class Intents:
    """Writes intents through the replica's lanes."""

    def __init__(
        self, store: Store, projection: Projection, lanes: Sequence[GroupCommitter]
    ) -> None:
        self._store = store
        self._projection = projection
        self._lanes = lanes

    async def ask(self, job_id: str, change: Change, *, subject: str, now_ms: int) -> Intent:
        """Change what is asked of a job. Raises Problem 409, what `change` raises, and
        StoreUnavailable; a repeat asks for the same, so an uncertain commit is repeated here."""
        for attempt in range(TRIES_MAX):
            records = self._seen(job_id) if attempt == 0 else None
            records = records or await self._read(job_id)
            if records is None:
                raise ended(job_id)
            job_kv, intent_kv = records
            job = decode_job(job_kv.key, job_kv.value)
            if job.phase is JobPhase.ENDED:
                raise ended(job_id)
            key = keys.intent(job_id)
            before = decode_intent(key, intent_kv.value) if intent_kv else Intent()
            asked = change(job, before)
            if asked == before:
                return before
            asked = replace(asked, subject=subject, at_ms=now_ms)
            put = Put(key, encode_intent(asked))
            compare = (
                ModRevisionIs(job_kv.key, job_kv.mod_revision),
                ModRevisionIs(key, intent_kv.mod_revision if intent_kv else 0),
            )
            lane = self._lanes[crc32(job_id.encode()) % len(self._lanes)]
            try:
                result = await lane.commit(compare, (put,))
            except AmbiguousCommit:
                continue
            if result.succeeded:
                self._projection.fold_own(result.revision, (put,))
                return asked
        raise unavailable("busy", f"job {job_id} changes too fast at this moment")

    def _seen(self, job_id: str) -> tuple[KeyValue, KeyValue | None] | None:
        key, intent = keys.job(job_id), keys.intent(job_id)
        value = self._projection.value(key)
        if value is None:
            return None
        job_kv = KeyValue(key, value, 0, self._projection.mod_revision(key), 0)
        asked = self._projection.value(intent)
        if asked is None:
            return job_kv, None
        return job_kv, KeyValue(intent, asked, 0, self._projection.mod_revision(intent), 0)

    async def _read(self, job_id: str) -> tuple[KeyValue, KeyValue | None] | None:
        reads = (Get(keys.job(job_id)), Get(keys.intent(job_id)))
        job_kv, intent_kv = (r.kv for r in (await self._store.txn(Txn(then=reads))).results)
        return (job_kv, intent_kv) if job_kv is not None else None
