"""Claims against truth: what the store and the ledger say, beside what happened at the sites.

The auditor follows the store as one more replica would; it decides nothing and asserts nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from broker.feedback.backends.memory import MemoryLedger
from broker.feedback.ports import JobFilter
from broker.lifecycle.invariants import violations
from broker.model.jobs import Attempt, AttemptPhase, Job, JobPhase, OutcomeKind
from broker.simulator.truth import SUPERSEDED, Span, Truth
from broker.state import keys
from broker.state.codec import decode_attempt, decode_intent, decode_job
from broker.state.projection import Projection

NowS = Callable[[], float]
Say = Callable[[str], None]
METER_SLACK_S = 3.0
PLACED_MAX_S = 120.0
"""From placed to running or back, whatever a site does: longer is no way to a start."""


@dataclass(slots=True)
class Ended:
    """How a job ended, as the store said."""

    kind: str
    code: str
    at_s: float


@dataclass(slots=True)
class Auditor:
    """What the store has said over time."""

    projection: Projection
    truth: Truth
    phases: dict[str, list[tuple[float, str]]] = field(default_factory=dict)
    jobs: dict[str, Job] = field(default_factory=dict)
    attempts: dict[str, Attempt] = field(default_factory=dict)
    ended: dict[str, Ended] = field(default_factory=dict)
    cancelled: dict[str, int] = field(default_factory=dict)

    async def run(self, now_s: NowS, say: Say) -> None:
        """Follow for ever."""
        async for change in self.projection.follow():
            if change is None or change.value is None:
                continue
            if change.key.startswith(keys.JOBS):
                self._job(decode_job(change.key, change.value), now_s(), say)
            elif change.key.startswith(keys.ATTEMPTS):
                attempt = decode_attempt(change.key, change.value)
                self._attempt(attempt, change.revision, now_s(), say)
            elif change.key.startswith(keys.INTENTS):
                intent = decode_intent(change.key, change.value)
                if intent.cancel:
                    self.cancelled.setdefault(keys.last_part(change.key), change.revision)

    def phase_of(self, cluster: str, uid: str) -> str:
        """What the store says of an attempt; empty for nothing."""
        raw = self.projection.value(keys.attempt(cluster, uid))
        if raw is None:
            known = self.attempts.get(uid)
            return SUPERSEDED if known is not None and known.superseded_ms else ""
        attempt = decode_attempt(uid, raw)
        return SUPERSEDED if attempt.superseded_ms else attempt.phase.value

    def _job(self, job: Job, now_s: float, say: Say) -> None:
        whole = self.projection.job(job.id)
        for text in violations(whole) if whole is not None else ():
            self.truth.wrong(f"{job.id}: {text}")
        before = self.ended.get(job.id)
        if before is not None and job.phase is not JobPhase.ENDED:
            self.truth.wrong(f"{job.id} is {job.phase.value} again after it had ended")
        reason = self.jobs[job.id].reason_code if job.id in self.jobs else ""
        self.jobs[job.id] = job
        if self._moved(job.id, job.phase.value, now_s) or reason != job.reason_code:
            say(f"store {job.id} {job.phase.value} {job.reason_code}")
        if job.phase is JobPhase.ENDED and before is None and job.outcome is not None:
            self.ended[job.id] = Ended(job.outcome.kind.value, job.outcome.code, now_s)

    def _attempt(self, attempt: Attempt, revision: int, now_s: float, say: Say) -> None:
        fresh = attempt.uid not in self.attempts
        cancelled = self.cancelled.get(attempt.job, 0)
        if fresh and 0 < cancelled < revision:
            self.truth.wrong(f"{attempt.uid} is placed after its cancel was acknowledged")
        before = self.attempts.get(attempt.uid)
        if attempt.moves_to and (before is None or not before.moves_to):
            say(f"store {attempt.uid} is to leave {attempt.cluster} for {attempt.moves_to}")
        self.attempts[attempt.uid] = attempt
        if self._moved(attempt.uid, attempt.phase.value, now_s):
            say(f"store {attempt.uid} {attempt.phase.value} at {attempt.cluster}")

    def _moved(self, subject: str, phase: str, now_s: float) -> bool:
        seen = self.phases.setdefault(subject, [])
        if seen and seen[-1][1] == phase:
            return False
        seen.append((now_s, phase))
        return True

    # At the end -------------------------------------------------------------------------------

    async def conclude(
        self, ledger: MemoryLedger, submitted: set[str], now_s: float
    ) -> None:
        """Everything that can only be looked at once it is over."""
        in_ledger = {e.job: e for e in (await ledger.jobs(JobFilter(limit=500))).jobs}
        for job_id in sorted(submitted):
            job = self.jobs.get(job_id)
            if job is None:
                self.truth.wrong(f"{job_id} was acknowledged and is nowhere")
            elif job_id not in self.ended:
                self._waits_for_a_reason(job, now_s)
            else:
                self._tells_the_truth(job)
                if len(submitted) <= 500 and job_id not in in_ledger:
                    self.truth.wrong(f"{job_id} ended and is not in the ledger")
        for job_id in sorted(set(self.jobs) - submitted):
            self.truth.wrong(f"{job_id} exists and nobody submitted it")
        for uid in sorted(self.attempts):
            await self._metered(ledger, self.attempts[uid])
        for subject in sorted(self.phases):
            await self._explained(ledger, subject)

    def _waits_for_a_reason(self, job: Job, now_s: float) -> None:
        """Liveness: what has not ended runs, or waits for something that has a name."""
        if job.phase is JobPhase.RUNNING:
            if not any(span.job == job.id for span in self.truth.running.values()):
                self.truth.wrong(f"{job.id} is said to run, and runs nowhere")
        elif job.phase is JobPhase.PLACED:
            since_s = self.phases[job.id][-1][0]
            if now_s - since_s > PLACED_MAX_S:
                self.truth.wrong(f"{job.id} is placed since {since_s:.3f} s, and does not start")
        elif not job.reason_code:
            self.truth.wrong(f"{job.id} is {job.phase.value} for no reason")

    def _tells_the_truth(self, job: Job) -> None:
        kind = self.ended[job.id].kind
        if any(span.job == job.id for span in self.truth.running.values()):
            self.truth.wrong(f"{job.id} has ended as {kind} and still runs")
        if job.is_array:
            whole = self.projection.job(job.id)
            for task in whole.task_states.succeeded if whole is not None else ():
                if not self.truth.succeeded(job.id, task, anyhow=True):
                    self.truth.wrong(f"{job.id}/{task} is said to have succeeded and has not")
        elif (kind == OutcomeKind.SUCCEEDED.value) != self.truth.succeeded(job.id):
            self.truth.wrong(f"{job.id} is said to be {kind}; at the sites it was not so")

    async def _metered(self, ledger: MemoryLedger, attempt: Attempt) -> None:
        if attempt.phase is not AttemptPhase.ENDED:
            return
        spans = [span for span in self.truth.spans if span.uid == attempt.uid]
        ran_s = sum(ran(span) * span.cards for span in spans)
        rows = [e for e in await ledger.attempts(attempt.job) if e.uid == attempt.uid]
        if len(rows) != 1:
            self.truth.wrong(f"{attempt.uid} ended and has {len(rows)} rows in the ledger")
            return
        row = rows[0]
        held_ms = row.ended_ms - (row.started_ms or row.ended_ms)
        metered_s = held_ms / 1000 * row.accelerators
        slack_s = METER_SLACK_S * row.accelerators
        # A slice is metered by what it holds, which is its width from its start to its end.
        over = metered_s > ran_s + slack_s and not attempt.width
        if over or metered_s < ran_s - slack_s:
            self.truth.wrong(
                f"{attempt.uid} ran {ran_s:.1f} accelerator seconds and is metered {metered_s:.1f}"
            )

    async def _explained(self, ledger: MemoryLedger, subject: str) -> None:
        """Each phase the store showed is the end of a transition that the audit names."""
        rows = await ledger.audit(subject.split("-", 1)[0])
        own = subject if "-" in subject else ""
        named = {row.what.rsplit(" -> ", 1)[-1] for row in rows if row.attempt == own}
        seen = self.phases[subject]
        for at_s, phase in seen if own else seen[1:]:
            if phase not in named:
                self.truth.wrong(f"{subject} became {phase} at {at_s:.3f} s and no audit says why")


def ran(span: Span) -> float:
    """Seconds a run took; 0 while it is under way."""
    return 0.0 if span.until_s is None else span.until_s - span.since_s
