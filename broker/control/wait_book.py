"""Predictions of waits for room, kept until the job has started: what came of them is published.

The first prediction made for a job counts, however much later it was looked at again. The next
leader takes over those of the last, as far as they were written (`wait_records`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from broker.control.cycle import CycleRecord
from broker.control.ends import ends_of
from broker.control.forecast import FULL, JOBS_MAX, Forecast
from broker.feedback.ports import PredictionEntry
from broker.model.jobs import Attempt, Job
from broker.sense.start_delay import StartEstimate

LOOK_GAP_S = 5.0
KEPT_MAX = 50_000
log = logging.getLogger("tradewind.waits")


@dataclass(frozen=True, slots=True)
class Predicted:
    """A wait as it was predicted at `at_ms` (UTC): over at the earliest, and at the latest."""

    at_ms: int
    from_ms: int
    until_ms: int


class WaitBook:
    """What was predicted under one leadership. `said_s` knows how long a job said it takes."""

    def __init__(self, said_s: Callable[[str], int | None]) -> None:
        self._said_s = said_s
        self._made: dict[str, Predicted] = {}
        self._newest: CycleRecord | None = None
        self._bell = asyncio.Event()

    def consider(self, cycle: CycleRecord) -> None:
        """Look at what a cycle left waiting, soon."""
        if any(item.refusal.code in FULL for item in cycle.decided.plan.unplaced):
            self._newest = cycle
            self._bell.set()

    def take_over(self, made: Mapping[str, Predicted]) -> None:
        """What earlier leaders predicted."""
        self._made.update(made)

    @property
    def made(self) -> Mapping[str, Predicted]:
        """What was predicted and is not known yet, by job."""
        return self._made

    def forget(self, job: str) -> None:
        """A job will never show whether it was right."""
        self._made.pop(job, None)

    def predicted(self, job: str) -> Predicted | None:
        """What was predicted first for a job that waits."""
        return self._made.get(job)

    def ended(self, job: Job, attempt: Attempt) -> PredictionEntry | None:
        """A prediction that came true or not, once an attempt of its job is over."""
        made = self._made.pop(job.id, None)
        if made is None or not attempt.started_ms or attempt.started_ms < made.at_ms:
            return None
        return PredictionEntry(
            subject=job.id,
            kind="wait",
            at_ms=made.at_ms,
            p50_ms=made.from_ms - made.at_ms,
            p90_ms=made.until_ms - made.at_ms,
            actual_ms=attempt.started_ms - made.at_ms,
        )

    async def run(self) -> None:
        """For ever. A look that fails costs nothing but a prediction."""
        while True:
            await self._bell.wait()
            self._bell.clear()
            cycle, self._newest = self._newest, None
            if cycle is not None:
                try:
                    await self.look(cycle)
                except Exception:  # noqa: BLE001  no job waits longer for want of a prediction
                    log.exception("no waits are predicted after cycle %s", cycle.cycle)
            await asyncio.sleep(LOOK_GAP_S)

    async def look(self, cycle: CycleRecord) -> None:
        """Predict for those of a cycle for whom nothing was predicted yet."""
        turns = dict(_turns(cycle, self._made))
        if not turns or len(self._made) >= KEPT_MAX:
            return
        attempts = [a for of_cluster in cycle.world.attempts.values() for a in of_cluster]
        now_ms, heads = cycle.started_ms, {head for head, _ in turns.values()}
        early, late = [
            Forecast(
                cycle.problem, cycle.decided.plan, ends_of(attempts, said_s, now_ms), now_ms, heads
            )
            for said_s in (self._said_s, lambda job: None)
        ]
        for forecast in (early, late):
            for _ in forecast.steps():
                await asyncio.sleep(0)
        for job_id, (head, turn) in turns.items():
            first, last = early.of(head, turn), late.of(head, turn)
            if first is None or last is None:
                continue
            start = cycle.world.start_at(first.cluster, cycle.blobs.get(head, {}))
            self._made[job_id] = _predicted(now_ms, first.start_ms, last.start_ms, start)


def _predicted(now_ms: int, from_ms: int, until_ms: int, start: StartEstimate) -> Predicted:
    earliest = from_ms + start.p50_ms
    return Predicted(now_ms, earliest, max(until_ms + start.p90_ms, earliest))


def _turns(
    cycle: CycleRecord, known: Mapping[str, Predicted]
) -> Iterable[tuple[str, tuple[str, int]]]:
    """Jobs that wait for room and are not known: who stands for each, and how many stand before
    it. Of arrays the first copy that waits."""
    left = JOBS_MAX
    for item in cycle.decided.plan.unplaced:
        waiting = cycle.applier.waiting.get(item.job)
        if item.refusal.code not in FULL or waiting is None or left <= 0:
            continue
        members = waiting.members[-item.count :] if waiting.members else (waiting.job.id,)
        for turn, job_id in enumerate(members[:left]):
            left -= 1
            if str(job_id) not in known and not waiting.job.live_attempts:
                yield str(job_id), (item.job, turn)
