"""Jobs that are expected to end after their deadlines: looked for again and again, written down
once each."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from broker.control.books import Books
from broker.control.wait_book import WaitBook
from broker.feedback.ports import AuditEntry, LedgerBatch
from broker.model.jobs import Job, JobPhase
from federation.environment import Clock
from federation.units import format_utc

LOOK_GAP_S = 15.0
JOBS_A_STEP = 200


@dataclass(frozen=True, slots=True)
class Slip:
    """A job that is expected to end at `end_ms`, after its deadline (UTC ms)."""

    job: str
    tenant: str
    end_ms: int
    deadline_ms: int


class DeadlineBook:
    """What slips under one leadership."""

    def __init__(
        self, books: Books, waits: WaitBook, clock: Clock, add: Callable[[LedgerBatch], None]
    ) -> None:
        self._books = books
        self._waits = waits
        self._clock = clock
        self._add = add
        self._told: set[tuple[str, int]] = set()
        self.slipping: dict[str, Slip] = {}

    async def run(self) -> None:
        """Look for ever."""
        while True:
            await asyncio.sleep(LOOK_GAP_S)
            await self.look()

    async def look(self) -> None:
        """Find what slips now; what does for the first time is written to its trail."""
        now_ms, found = self._clock.now_ms(), dict[str, Slip]()
        for number, job in enumerate(list(self._books.jobs())):
            slip = self._slip(job, now_ms)
            if slip is not None:
                found[job.id] = slip
            if number % JOBS_A_STEP == JOBS_A_STEP - 1:
                await asyncio.sleep(0)
        self.slipping = found
        for slip in found.values():
            if (slip.job, slip.deadline_ms) not in self._told:
                self._told.add((slip.job, slip.deadline_ms))
                self._add(LedgerBatch(audit=(_entry(slip, now_ms),)))

    def _slip(self, job: Job, now_ms: int) -> Slip | None:
        if job.phase is JobPhase.ENDED or job.is_array:
            return None
        admitted = self._books.admitted(job.id)
        deadline_ms = admitted.spec.deadline_ms(job.created_ms) if admitted else None
        if admitted is None or deadline_ms is None:
            return None
        spec = admitted.spec
        runtime_ms = (spec.expected_runtime_s or spec.max_runtime_s or 0) * 1000
        attempt = job.live_attempts[-1] if job.live_attempts else None
        waits = self._waits.predicted(job.id)
        start_ms = now_ms
        if attempt is not None:
            start_ms = attempt.started_ms or attempt.placed_ms + attempt.expected_start_delay_ms
        elif waits is not None:
            start_ms = max(waits.from_ms, now_ms)
        end_ms = max(start_ms + runtime_ms, now_ms)
        if end_ms <= deadline_ms:
            return None
        return Slip(job.id, job.tenant, end_ms, deadline_ms)


def _entry(slip: Slip, now_ms: int) -> AuditEntry:
    end, due = format_utc(slip.end_ms), format_utc(slip.deadline_ms)
    return AuditEntry(
        subject=slip.job,
        key=f"deadline.{slip.deadline_ms}",
        at_ms=now_ms,
        who="leader",
        what="deadline slips",
        why=f"expected to end {end}, due {due}",
        tenant=slip.tenant,
    )
