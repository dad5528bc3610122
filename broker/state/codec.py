"""Jobs, attempts, intents and task chunks as the bytes that lie in etcd, and back.

Fields of a newer version are carried in `extra` and appended on rewrite (concatenated protobuf
messages merge), so an older broker never loses what a newer one wrote.
"""

from __future__ import annotations

from collections.abc import Iterable

from google.protobuf.message import DecodeError, Message
from google.protobuf.unknown_fields import UnknownFieldSet

from broker.model.jobs import (
    Attempt,
    AttemptPhase,
    AvoidedCluster,
    Awaited,
    Desired,
    Intent,
    Job,
    JobPhase,
    Outcome,
    OutcomeKind,
    Output,
)
from broker.model.plan import Part
from federation.ids import AttemptUid, Cluster, JobId, Tenant
from federation.runs import Runs
from federation.usage import Usage
from federation.wire import records as pb

SCHEMA = 1


class RecordUnreadable(ValueError):
    """Bytes in etcd that are no record of ours; names the key."""


def unknown_part(record: Message) -> bytes:
    """Serialised fields of `record` that this version does not know (mostly none)."""
    if len(UnknownFieldSet(record)) == 0:
        return b""
    rest = type(record)()
    rest.CopyFrom(record)
    for name in rest.DESCRIPTOR.fields_by_name:
        rest.ClearField(name)
    return rest.SerializeToString()


# Parts --------------------------------------------------------------------------------------------


def runs_to_pb(runs: Runs) -> list[pb.Run]:
    """Runs as repeated messages."""
    return [pb.Run(first=first, last=last) for first, last in runs.runs]


def runs_from_pb(runs: Iterable[pb.Run]) -> Runs:
    """Repeated `Run` messages as runs; order and overlaps do not matter."""
    return Runs.of((run.first, run.last) for run in runs)


def usage_to_pb(usage: Usage) -> pb.Usage:
    """Usage figures as a message."""
    return pb.Usage(
        wall_ms=usage.wall_ms,
        cpu_ms=usage.cpu_ms,
        max_rss_bytes=usage.max_rss_bytes,
        accelerator_ms=usage.accelerator_ms,
    )


def usage_from_pb(record: pb.Usage) -> Usage:
    """A usage message as a value."""
    return Usage(
        wall_ms=record.wall_ms,
        cpu_ms=record.cpu_ms,
        max_rss_bytes=record.max_rss_bytes,
        accelerator_ms=record.accelerator_ms,
    )


def outcome_to_pb(outcome: Outcome) -> pb.Outcome:
    """An outcome as a message."""
    return pb.Outcome(
        kind=outcome.kind.value,
        exit_code=outcome.exit_code,
        signal=outcome.signal,
        code=outcome.code,
        text=outcome.text[:500],
        usage=usage_to_pb(outcome.usage),
    )


def outcome_from_pb(record: pb.Outcome) -> Outcome | None:
    """An outcome message as a value; None where the kind is empty (not ended)."""
    if not record.kind:
        return None
    return Outcome(
        kind=OutcomeKind(record.kind),
        exit_code=record.exit_code,
        signal=record.signal,
        code=record.code,
        text=record.text,
        usage=usage_from_pb(record.usage),
    )


def output_to_pb(output: Output) -> pb.Output:
    """A result file as a message."""
    return pb.Output(
        path=output.path, sha256=output.sha256, size_bytes=output.size_bytes, mode=output.mode
    )


def output_from_pb(record: pb.Output) -> Output:
    """A result file message as a value."""
    return Output(record.path, record.sha256, record.size_bytes, record.mode)


# Jobs ---------------------------------------------------------------------------------------------


def task_counts(job: Job) -> pb.Counts:
    """How many tasks of an array are in each state."""
    states = job.task_states
    ended = states.ended.count
    running = sum(
        a.started_tasks.difference(states.ended).count for a in job.counting_attempts
    )
    return pb.Counts(
        unstarted=job.tasks.count - ended - running,
        running=running,
        succeeded=states.succeeded.count,
        failed=states.failed_runs.count,
        cancelled=states.cancelled.count,
    )


def encode_job(job: Job) -> bytes:
    """A job's own record; attempts and task chunks are records of their own."""
    record = pb.JobRecord(
        schema=SCHEMA,
        job=job.id,
        tenant=job.tenant,
        name=job.name,
        subject=job.subject,
        priority=job.priority,
        class_key=job.class_key,
        phase=job.phase.value,
        created_ms=job.created_ms,
        changed_ms=job.changed_ms,
        reason_code=job.reason_code,
        reason_text=job.reason_text[:400],
        attempts=job.attempts_made,
        ended_ms=job.ended_ms,
        retries_used=job.retries_used,
        not_before_ms=job.not_before_ms,
        started_ms=job.started_ms,
        cost_micro_usd=job.cost_micro_usd,
    )
    # What most jobs have none of costs most to put in.
    for attempt in job.live_attempts:
        record.live.add(uid=attempt.uid, cluster=attempt.cluster)
    for entry in job.avoid:
        record.avoid.add(cluster=entry.cluster, code=entry.code, until_ms=entry.until_ms)
    for each in job.awaits:
        record.awaits.add(job=each.job, when=each.when)
    if job.is_array:
        record.tasks = job.tasks.count
        record.task_runs.extend(runs_to_pb(job.tasks))
        record.counts.CopyFrom(task_counts(job))
    if job.outcome is not None:
        record.outcome.CopyFrom(outcome_to_pb(job.outcome))
    return record.SerializeToString() + job.extra


def decode_job(key: str, value: bytes) -> Job:
    """The job of a record, without its attempts and task states. Raises `RecordUnreadable`."""
    record = pb.JobRecord()
    try:
        record.ParseFromString(value)
        return _job_of(record)
    except (ValueError, DecodeError) as error:
        raise RecordUnreadable(f"{key}: {error}") from error


def _job_of(record: pb.JobRecord) -> Job:
    phase = JobPhase(record.phase)
    return Job(
        id=JobId(record.job),
        tenant=Tenant(record.tenant),
        name=record.name,
        subject=record.subject,
        priority=record.priority,
        class_key=record.class_key,
        created_ms=record.created_ms,
        changed_ms=record.changed_ms,
        tasks=runs_from_pb(record.task_runs),
        phase=phase,
        held=phase is JobPhase.HELD,
        reason_code=record.reason_code,
        reason_text=record.reason_text,
        attempts_made=record.attempts,
        retries_used=record.retries_used,
        not_before_ms=record.not_before_ms,
        avoid=tuple(
            AvoidedCluster(Cluster(a.cluster), a.code, a.until_ms) for a in record.avoid
        ),
        started_ms=record.started_ms,
        ended_ms=record.ended_ms,
        outcome=outcome_from_pb(record.outcome),
        cost_micro_usd=record.cost_micro_usd,
        awaits=tuple(Awaited(JobId(each.job), each.when) for each in record.awaits),
        extra=unknown_part(record),
    )


# Attempts -----------------------------------------------------------------------------------------


def encode_attempt(attempt: Attempt) -> bytes:
    """An attempt as its record."""
    record = pb.AttemptRecord(
        schema=SCHEMA,
        uid=attempt.uid,
        job=attempt.job,
        tenant=attempt.tenant,
        cluster=attempt.cluster,
        region=attempt.region,
        pool=attempt.pool,
        desired=attempt.desired.value,
        stop_why=attempt.stop_why.value if attempt.stop_why else "",
        stop_text=attempt.stop_text[:400],
        confirmed=attempt.phase.value,
        dispatch_seq=attempt.dispatch_seq,
        placed_seq=attempt.placed_seq,
        confirmed_seq=attempt.confirmed_seq,
        epoch=attempt.epoch,
        ticket=attempt.ticket,
        width=attempt.width,
        replicas=attempt.replicas,
        accelerators_per_replica=attempt.accelerators_per_replica,
        cpus_milli_per_replica=attempt.cpus_milli_per_replica,
        memory_bytes_per_replica=attempt.memory_bytes_per_replica,
        accelerator=attempt.accelerator,
        max_runtime_s=attempt.max_runtime_s,
        stop_grace_s=attempt.stop_grace_s,
        placed_ms=attempt.placed_ms,
        reserved_ms=attempt.reserved_ms,
        prepared_ms=attempt.prepared_ms,
        started_ms=attempt.started_ms,
        ended_ms=attempt.ended_ms,
        event_seq=attempt.event_seq,
        price_micro_usd_per_accelerator_hour=attempt.price_micro_usd_per_accelerator_hour,
        price_source=attempt.price_source,
        price_as_of_ms=attempt.price_as_of_ms,
        expected_start_delay_ms=attempt.expected_start_delay_ms,
        handshake_ms=attempt.handshake_ms,
        prepare_ms=attempt.prepare_ms,
        fetched_bytes=attempt.fetched_bytes,
        cached_bytes=attempt.cached_bytes,
        expected_start_p90_ms=attempt.expected_start_p90_ms,
        launch_ms=attempt.launch_ms,
        local_id=attempt.local_id,
        receipt_cycle=attempt.cycle,
        fence_after_s=attempt.fence_after_s,
        superseded_ms=attempt.superseded_ms,
        queued=attempt.queued,
        stop_unless_started=attempt.stop_unless_started,
        moves_to=attempt.moves_to,
    )
    _put_lists(record, attempt)
    if attempt.outcome is not None:
        record.outcome.CopyFrom(outcome_to_pb(attempt.outcome))
    return record.SerializeToString() + attempt.extra


def _put_lists(record: pb.AttemptRecord, attempt: Attempt) -> None:
    """What most attempts have none of, and costs most to put in."""
    if attempt.tasks:
        record.tasks.extend(runs_to_pb(attempt.tasks))
    if attempt.started_tasks:
        record.started_tasks.extend(runs_to_pb(attempt.started_tasks))
    if attempt.extras_per_replica:
        record.extras_per_replica.update(attempt.extras_per_replica)
    for part in attempt.parts:
        record.parts.add(pool=part.pool, rack=part.rack, replicas=part.replicas)
    record.nodes.extend(attempt.nodes)
    record.outputs.extend(map(output_to_pb, attempt.outputs))
    for stream, size_bytes in attempt.log_bytes:
        record.logs.add(stream=stream, bytes=size_bytes)


def decode_attempt(key: str, value: bytes) -> Attempt:
    """The attempt of a record. Raises `RecordUnreadable`."""
    record = pb.AttemptRecord()
    try:
        record.ParseFromString(value)
        return _attempt_of(record)
    except (ValueError, DecodeError) as error:
        raise RecordUnreadable(f"{key}: {error}") from error


def _attempt_of(r: pb.AttemptRecord) -> Attempt:
    phase, desired = AttemptPhase(r.confirmed), Desired(r.desired)
    stop_why = OutcomeKind(r.stop_why) if r.stop_why else None
    return Attempt(
        uid=AttemptUid(r.uid),
        job=JobId(r.job),
        tenant=Tenant(r.tenant),
        cluster=Cluster(r.cluster),
        region=r.region,
        pool=r.pool,
        epoch=r.epoch,
        dispatch_seq=r.dispatch_seq,
        placed_seq=r.placed_seq,
        ticket=r.ticket,
        placed_ms=r.placed_ms,
        desired=desired,
        stop_why=stop_why,
        stop_text=r.stop_text,
        phase=phase,
        confirmed_seq=r.confirmed_seq,
        tasks=runs_from_pb(r.tasks),
        width=r.width,
        replicas=r.replicas,
        accelerators_per_replica=r.accelerators_per_replica,
        accelerator=r.accelerator,
        cpus_milli_per_replica=r.cpus_milli_per_replica,
        memory_bytes_per_replica=r.memory_bytes_per_replica,
        extras_per_replica=tuple(sorted(r.extras_per_replica.items())),
        max_runtime_s=r.max_runtime_s,
        stop_grace_s=r.stop_grace_s,
        reserved_ms=r.reserved_ms,
        prepared_ms=r.prepared_ms,
        started_ms=r.started_ms,
        ended_ms=r.ended_ms,
        outcome=outcome_from_pb(r.outcome),
        event_seq=r.event_seq,
        price_micro_usd_per_accelerator_hour=r.price_micro_usd_per_accelerator_hour,
        price_source=r.price_source,
        price_as_of_ms=r.price_as_of_ms,
        expected_start_delay_ms=r.expected_start_delay_ms,
        handshake_ms=r.handshake_ms,
        prepare_ms=r.prepare_ms,
        fetched_bytes=r.fetched_bytes,
        cached_bytes=r.cached_bytes,
        expected_start_p90_ms=r.expected_start_p90_ms,
        launch_ms=r.launch_ms,
        outputs=tuple(output_from_pb(o) for o in r.outputs),
        local_id=r.local_id,
        nodes=tuple(r.nodes),
        cycle=r.receipt_cycle,
        log_bytes=tuple((e.stream, e.bytes) for e in r.logs),
        started_tasks=runs_from_pb(r.started_tasks),
        fence_after_s=r.fence_after_s,
        superseded_ms=r.superseded_ms,
        queued=r.queued,
        stop_unless_started=r.stop_unless_started,
        moves_to=r.moves_to,
        parts=tuple(Part(p.pool, p.rack, p.replicas) for p in r.parts),
        extra=unknown_part(r),
    )


# Intents ------------------------------------------------------------------------------------------


def encode_intent(intent: Intent) -> bytes:
    """What users asked of a job, as its record."""
    record = pb.IntentRecord(
        schema=SCHEMA,
        cancel=intent.cancel,
        hold=intent.hold,
        at_ms=intent.at_ms,
        subject=intent.subject,
        why=intent.why,
    )
    if intent.priority is not None:
        record.priority = intent.priority
    return record.SerializeToString()


def decode_intent(key: str, value: bytes) -> Intent:
    """The intent of a record. Raises `RecordUnreadable`."""
    record = pb.IntentRecord()
    try:
        record.ParseFromString(value)
    except DecodeError as error:
        raise RecordUnreadable(f"{key}: {error}") from error
    return Intent(
        cancel=record.cancel,
        hold=record.hold,
        priority=record.priority if record.HasField("priority") else None,
        at_ms=record.at_ms,
        subject=record.subject,
        why=record.why,
    )
