"""Ended jobs, attempts and transitions as rows of the ledger. Pure."""

from __future__ import annotations

from broker.feedback.ports import (
    AttemptEntry,
    AuditEntry,
    JobEntry,
    PredictionEntry,
    UsageEntry,
)
from broker.lifecycle.commands import Audit
from broker.lifecycle.outcomes import cost_micro_usd
from broker.model.jobs import Attempt, Job, Outcome


def attempt_entry(attempt: Attempt) -> AttemptEntry:
    """The row of an ended attempt."""
    outcome = _outcome(attempt.outcome)
    return AttemptEntry(
        uid=attempt.uid,
        job=attempt.job,
        tenant=attempt.tenant,
        cluster=attempt.cluster,
        region=attempt.region,
        pool=attempt.pool,
        placed_ms=attempt.placed_ms,
        reserved_ms=attempt.reserved_ms or None,
        prepared_ms=attempt.prepared_ms or None,
        started_ms=attempt.started_ms or None,
        ended_ms=attempt.ended_ms,
        outcome=outcome.kind.value,
        exit_code=outcome.exit_code,
        signal=outcome.signal or None,
        text=outcome.text,
        accelerator=attempt.accelerator,
        accelerators=attempt.accelerators,
        cpus_milli=attempt.cpus_milli_per_replica * attempt.replicas * attempt.copies,
        memory_bytes=attempt.memory_bytes_per_replica * attempt.replicas * attempt.copies,
        price_micro_usd_per_accelerator_hour=attempt.price_micro_usd_per_accelerator_hour,
        cost_micro_usd=cost_micro_usd(attempt),
        cpu_time_ms=outcome.usage.cpu_ms,
        memory_peak_bytes=outcome.usage.max_rss_bytes,
        tasks=str(attempt.tasks) if attempt.tasks else "",
        width=attempt.copies,
        handshake_ms=attempt.handshake_ms,
        prepare_ms=attempt.prepare_ms,
        launch_ms=attempt.launch_ms,
        fetched_bytes=attempt.fetched_bytes,
        cached_bytes=attempt.cached_bytes,
        queued=int(attempt.queued),
    )


def start_prediction(attempt: Attempt) -> PredictionEntry | None:
    """How its start was expected when it was placed, and how it was; None where it never started,
    or nothing had been learned yet to expect it by."""
    took_ms = attempt.started_ms - attempt.placed_ms
    if not attempt.started_ms or not attempt.expected_start_p90_ms or took_ms < 0:
        return None
    return PredictionEntry(
        subject=attempt.uid,
        kind="start",
        at_ms=attempt.placed_ms,
        p50_ms=attempt.expected_start_delay_ms,
        p90_ms=attempt.expected_start_p90_ms,
        actual_ms=took_ms,
    )


def usage_entry(attempt: Attempt) -> UsageEntry | None:
    """What an attempt is metered with; None if it never started."""
    if not attempt.started_ms:
        return None
    ran_ms = max(attempt.ended_ms - attempt.started_ms, 0)
    usage = _outcome(attempt.outcome).usage
    return UsageEntry(
        attempt=attempt.uid,
        seq=0,
        job=attempt.job,
        tenant=attempt.tenant,
        cluster=attempt.cluster,
        pool=attempt.pool,
        from_ms=attempt.started_ms,
        to_ms=max(attempt.ended_ms, attempt.started_ms),
        accelerator=attempt.accelerator,
        accelerator_ms=ran_ms * attempt.accelerators,
        cpu_ms=usage.cpu_ms,
        memory_mib_s=_memory_mib(attempt) * ran_ms // 1000,
        cost_micro_usd=cost_micro_usd(attempt),
    )


def _memory_mib(attempt: Attempt) -> int:
    """What was held for it, whether used or not."""
    return attempt.memory_bytes_per_replica * attempt.replicas * attempt.copies >> 20


def job_entry(job: Job, spec_json: bytes, labels: tuple[tuple[str, str], ...]) -> JobEntry:
    """The row of an ended job."""
    outcome = _outcome(job.outcome)
    states = job.task_states
    return JobEntry(
        job=job.id,
        tenant=job.tenant,
        name=job.name,
        created_ms=job.created_ms,
        ended_ms=job.ended_ms,
        started_ms=job.started_ms or None,
        outcome=outcome.kind.value,
        exit_code=outcome.exit_code,
        reason=outcome.text,
        spec_json=spec_json,
        labels=labels,
        subject=job.subject,
        priority=job.priority,
        clusters=",".join(sorted({a.cluster for a in job.attempts})),
        attempts=job.attempts_made,
        tasks_total=job.tasks.count,
        tasks_succeeded=states.succeeded.count,
        tasks_failed=states.failed_runs.count,
        tasks_cancelled=states.cancelled.count,
        cost_micro_usd=job.cost_micro_usd,
    )


def audit_entry(audit: Audit, tenant: str, at_ms: int, key: str) -> AuditEntry:
    """One transition, under the job it belongs to."""
    job = audit.subject.split("-", 1)[0]
    return AuditEntry(
        subject=job,
        key=key,
        at_ms=at_ms,
        who=audit.actor,
        what=f"{audit.what}: {audit.before or 'new'} -> {audit.after}",
        why=audit.why,
        tenant=tenant,
        attempt=audit.subject if audit.subject != job else "",
    )


def _outcome(outcome: Outcome | None) -> Outcome:
    if outcome is None:
        raise ValueError("only what has ended goes to the ledger")
    return outcome
