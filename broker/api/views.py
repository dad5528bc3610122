"""Jobs and attempts as the API shows them, from live records and from the ledger alike."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

import pydantic_core

from broker.control.closing_receipt import Closing, measured_start
from broker.feedback.ports import AttemptEntry, JobEntry
from broker.model.jobs import Attempt, Job, JobPhase, Outcome, Output
from federation.units import MICRO

_UNDECIDED = {"code": "undecided", "text": "waiting for the next decision"}
_ENCODER = json.JSONEncoder(separators=(",", ":"), allow_nan=False)
_SUSPECT = re.compile(rb"NaN|Infinity")
"""Where a number that is not finite may have been written."""


def to_json(payload: Mapping[str, Any]) -> bytes:
    """Compact ASCII JSON. Raises ValueError for a number that is not finite."""
    try:
        text = pydantic_core.to_json(payload, ensure_ascii=True)  # several times faster
    except pydantic_core.PydanticSerializationError:
        text = b"NaN"  # a type or a surrogate it does not write: the standard library says
    return _ENCODER.encode(payload).encode("ascii") if _SUSPECT.search(text) else text


def utc(epoch_ms: int | None) -> str | None:
    """RFC 3339 text with milliseconds; None for 0 and None: it has not happened."""
    if not epoch_ms:
        return None
    return f"{_second(epoch_ms // 1000)}.{epoch_ms % 1000:03d}Z"


@lru_cache(maxsize=4_096)
def _second(epoch_s: int) -> str:
    return datetime.fromtimestamp(epoch_s, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def usd(micro_usd: int) -> float:
    """USD of integer micro-USD."""
    return micro_usd / MICRO


@dataclass(frozen=True, slots=True)
class SpecFacts:
    """What lists show of a spec beside the job's own record."""

    kind: str = "batch"
    labels: Mapping[str, str] = field(default_factory=dict)


def facts_of_spec(spec: Mapping[str, Any]) -> SpecFacts:
    """From the canonical JSON of a spec."""
    return SpecFacts(spec.get("kind", "batch"), spec.get("labels", {}))


# Jobs ---------------------------------------------------------------------------------------------


def outcome_view(outcome: Outcome | None) -> dict[str, Any] | None:
    """How something ended; None while it has not."""
    if outcome is None:
        return None
    return {
        "kind": outcome.kind.value,
        "exit_code": outcome.exit_code,
        "signal": outcome.signal or None,
        "code": outcome.code,
        "text": outcome.text,
    }


def job_view(
    job: Job, facts: SpecFacts, closed: Iterable[dict[str, Any]] = ()
) -> dict[str, Any]:
    """A job in etcd; `closed` are views of its attempts that are only in the ledger."""
    live = [attempt_view(attempt) for attempt in job.attempts]
    seen = {view["uid"] for view in live}
    earlier = [view for view in closed if view["uid"] not in seen]
    return {
        "id": job.id,
        "name": job.name,
        "tenant": job.tenant,
        "subject": job.subject,
        "kind": facts.kind,
        "phase": job.phase.value,
        "outcome": outcome_view(job.outcome),
        "priority": job.priority,
        "created_at": utc(job.created_ms),
        "started_at": utc(job.started_ms),
        "ended_at": utc(job.ended_ms),
        "reason": _reason(job),
        "waits_for": [{"job": each.job, "when": each.when} for each in job.awaits],
        "array": _array(job),
        "attempts": [*earlier, *live],
        "clusters": sorted({view["cluster"] for view in (*earlier, *live)}),
        "cost_usd": usd(job.cost_micro_usd),
        "labels": dict(facts.labels),
    }


def _reason(job: Job) -> dict[str, str] | None:
    if job.reason_code or job.reason_text:
        return {"code": job.reason_code, "text": job.reason_text}
    if job.phase is JobPhase.QUEUED:
        return dict(_UNDECIDED)
    return None


def _array(job: Job) -> dict[str, int] | None:
    if not job.is_array:
        return None
    states = job.task_states
    ended = states.ended
    running = sum(a.started_tasks.difference(ended).count for a in job.counting_attempts)
    return {
        "tasks": job.tasks.count,
        "unstarted": max(job.tasks.count - ended.count - running, 0),
        "running": running,
        "succeeded": states.succeeded.count,
        "failed": states.failed_runs.count,
        "cancelled": states.cancelled.count,
    }


def ended_job_view(
    entry: JobEntry, attempts: Iterable[dict[str, Any]] = ()
) -> dict[str, Any]:
    """A job that is only in the ledger."""
    outcome = {
        "kind": entry.outcome,
        "exit_code": entry.exit_code,
        "signal": None,
        "code": "",
        "text": entry.reason,
    }
    ended = entry.tasks_succeeded + entry.tasks_failed + entry.tasks_cancelled
    array = {
        "tasks": entry.tasks_total,
        "unstarted": max(entry.tasks_total - ended, 0),
        "running": 0,
        "succeeded": entry.tasks_succeeded,
        "failed": entry.tasks_failed,
        "cancelled": entry.tasks_cancelled,
    }
    return {
        "id": entry.job,
        "name": entry.name,
        "tenant": entry.tenant,
        "subject": entry.subject,
        "kind": entry.kind,
        "phase": JobPhase.ENDED.value,
        "outcome": outcome,
        "priority": entry.priority,
        "created_at": utc(entry.created_ms),
        "started_at": utc(entry.started_ms),
        "ended_at": utc(entry.ended_ms),
        "reason": {"code": "", "text": entry.reason} if entry.reason else None,
        "array": array if entry.tasks_total else None,
        "attempts": list(attempts),
        "clusters": [name for name in entry.clusters.split(",") if name],
        "cost_usd": usd(entry.cost_micro_usd),
        "labels": dict(entry.labels),
    }


# Attempts -----------------------------------------------------------------------------------------


def output_view(output: Output) -> dict[str, Any]:
    """A result file that lies here as a blob."""
    return {
        "path": output.path,
        "sha256": output.sha256,
        "size_bytes": output.size_bytes,
        "mode": output.mode,
    }


def _price(micro_usd: int, source: str, as_of_ms: int) -> dict[str, Any]:
    return {
        "price_usd_per_accelerator_hour": usd(micro_usd),
        "price_source": source,
        "price_as_of_at": utc(as_of_ms),
    }


def _expected_at(attempt: Attempt) -> str | None:
    """When one that waits in its site's queue was expected to start, as it joined."""
    if not attempt.waits_in_queue:
        return None
    return utc(attempt.placed_ms + attempt.expected_start_delay_ms)


def attempt_view(attempt: Attempt) -> dict[str, Any]:
    """An attempt in etcd. Resources are those of all its copies and replicas."""
    members = attempt.copies * attempt.replicas
    return {
        "uid": attempt.uid,
        "cluster": attempt.cluster,
        "region": attempt.region,
        "pool": attempt.pool,
        "phase": attempt.phase.value,
        "outcome": outcome_view(attempt.outcome),
        "placed_at": utc(attempt.placed_ms),
        "reserved_at": utc(attempt.reserved_ms),
        "prepared_at": utc(attempt.prepared_ms),
        "started_at": utc(attempt.started_ms),
        "ended_at": utc(attempt.ended_ms),
        "superseded_at": utc(attempt.superseded_ms),
        "accelerator": attempt.accelerator,
        "accelerators": attempt.accelerators_per_replica * members,
        "cpus": attempt.cpus_milli_per_replica * members / 1000,
        "memory_bytes": attempt.memory_bytes_per_replica * members,
        **_price(
            attempt.price_micro_usd_per_accelerator_hour,
            attempt.price_source,
            attempt.price_as_of_ms,
        ),
        "queued": attempt.queued,
        "moves_to": attempt.moves_to,
        "expected_start_at": _expected_at(attempt),
        "expected_start_delay_s": attempt.expected_start_delay_ms / 1000,
        "expected_start_p90_s": attempt.expected_start_p90_ms / 1000,
        "measured_start": measured_start(attempt),
        "handshake_ms": attempt.handshake_ms,
        "prepare_ms": attempt.prepare_ms,
        "launch_ms": attempt.launch_ms,
        "replicas": attempt.replicas,
        "nodes": list(attempt.nodes),
        "tasks": str(attempt.tasks),
        "width": attempt.width,
        "outputs": [output_view(output) for output in attempt.outputs],
    }


def attempt_entry_view(entry: AttemptEntry, closing: Closing | None) -> dict[str, Any]:
    """An attempt that is only in the ledger, with its closing receipt if there is one."""
    rest = closing or Closing()
    outcome = {
        "kind": entry.outcome,
        "exit_code": entry.exit_code,
        "signal": entry.signal or None,
        "code": rest.code,
        "text": entry.text,
    }
    return {
        "uid": entry.uid,
        "cluster": entry.cluster,
        "region": entry.region,
        "pool": entry.pool,
        "phase": "ended",
        "outcome": outcome,
        "placed_at": utc(entry.placed_ms),
        "reserved_at": utc(entry.reserved_ms),
        "prepared_at": utc(entry.prepared_ms),
        "started_at": utc(entry.started_ms),
        "ended_at": utc(entry.ended_ms),
        "superseded_at": utc(rest.superseded_ms),
        "accelerator": entry.accelerator,
        "accelerators": entry.accelerators,
        "cpus": entry.cpus_milli / 1000,
        "memory_bytes": entry.memory_bytes,
        **_price(
            entry.price_micro_usd_per_accelerator_hour, rest.price_source, rest.price_as_of_ms
        ),
        "queued": bool(entry.queued),
        "moves_to": "",
        "expected_start_at": None,
        "expected_start_delay_s": rest.expected_start_delay_ms / 1000,
        "expected_start_p90_s": rest.expected_start_p90_ms / 1000,
        "measured_start": measured_start(entry),
        "handshake_ms": entry.handshake_ms or 0,
        "prepare_ms": entry.prepare_ms or 0,
        "launch_ms": entry.launch_ms or 0,
        "replicas": rest.replicas,
        "nodes": list(rest.nodes),
        "tasks": entry.tasks,
        "width": entry.width if entry.tasks else 0,
        "outputs": [output_view(output) for output in rest.outputs],
    }
