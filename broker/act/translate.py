"""Commands to protobuf, and what agents send to values. Pure; a frame that says nothing that
makes sense raises `BadFrame` with one line."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from broker.act.gateway import Command, Dispatch, Forget, Prepare, SetSlice, Stop
from broker.lifecycle import events as ev
from broker.model.jobs import FailedTasks, Outcome, OutcomeKind, Output
from federation.runs import InvalidRuns, Runs
from federation.usage import Usage
from federation.wire import records, session

TEXT_CHARS_MAX = 2_000
UID_CHARS_MAX = 63


class BadFrame(ValueError):
    """A frame of an agent that cannot be right; the text says what in it."""


# Commands -----------------------------------------------------------------------------------------


def command_to_wire(command: Command) -> session.Command:
    """A command as it is sent."""
    if isinstance(command, Dispatch):
        return session.Command(
            dispatch_seq=command.dispatch_seq, uid=command.uid, dispatch=_dispatch(command)
        )
    if isinstance(command, Stop):
        stop = session.Stop(
            why=command.why, grace_s=command.grace_s, unless_started=command.unless_started
        )
        return session.Command(uid=command.uid, stop=stop)
    if isinstance(command, SetSlice):
        part = session.SetSlice(tasks=runs_to_wire(command.tasks), width=command.width)
        return session.Command(
            dispatch_seq=command.dispatch_seq, uid=command.uid, set_slice=part
        )
    if isinstance(command, Prepare):
        prepare = session.Prepare(ticket=command.ticket, spec=command.spec)
        return session.Command(uid=command.uid, prepare=prepare)
    assert isinstance(command, Forget)
    return session.Command(uid=command.uid, forget=session.Forget())


def _dispatch(command: Dispatch) -> session.Dispatch:
    return session.Dispatch(
        ticket=command.ticket,
        spec=command.spec,
        placement=session.Placement(
            pool=command.pool,
            accelerator=command.accelerator,
            replicas=command.replicas,
            accelerators_per_replica=command.accelerators_per_replica,
            cpus_milli_per_replica=command.cpus_milli_per_replica,
            memory_bytes_per_replica=command.memory_bytes_per_replica,
            max_runtime_s=command.max_runtime_s,
            stop_grace_s=command.stop_grace_s,
            tasks=runs_to_wire(command.tasks),
            width=command.width,
            max_start_delay_s=command.max_start_delay_s,
            fence_after_s=command.fence_after_s,
            queued=command.queued,
            parts=[
                records.Part(pool=part.pool, rack=part.rack, replicas=part.replicas)
                for part in command.parts
            ],
        ),
        traceparent=command.traceparent,
        adopt_only=command.adopt_only,
    )


def runs_to_wire(runs: Runs) -> list[records.Run]:
    """Runs as records carry them."""
    return [records.Run(first=first, last=last) for first, last in runs.runs]


# Events -------------------------------------------------------------------------------------------


def event_from_wire(event: session.Event) -> ev.SiteEvent:
    """An event of a site as the lifecycle takes it. Raises BadFrame."""
    kind = event.WhichOneof("what")
    if kind is None:
        raise BadFrame(f"event {event.event_seq} of {event.uid!r} says nothing")
    if not 0 < len(event.uid) <= UID_CHARS_MAX or event.event_seq == 0:
        raise BadFrame(f"event {event.event_seq} of {event.uid[:80]!r}: no uid, or no number")
    head = (event.uid, event.event_seq, event.at_ms)
    try:
        return _EVENTS[kind](head, getattr(event, kind))
    except InvalidRuns as error:
        raise BadFrame(f"event {event.event_seq} of {event.uid}: {error}") from error


Head = tuple[str, int, int]


def _accepted(head: Head, said: session.Accepted) -> ev.SiteEvent:
    return ev.Accepted(*head, said.dispatch_seq, tuple(said.nodes))


def _refused(head: Head, said: session.Refused) -> ev.SiteEvent:
    return ev.Refused(*head, said.dispatch_seq, said.code, said.text[:TEXT_CHARS_MAX])


def _prepared(head: Head, said: session.Prepared) -> ev.SiteEvent:
    return ev.Prepared(*head, said.prepare_ms, said.fetched_bytes, said.cached_bytes)


def _started(head: Head, said: session.Started) -> ev.SiteEvent:
    return ev.Started(*head, said.launch_ms, said.local_id)


def _tasks(head: Head, said: session.TasksChanged) -> ev.SiteEvent:
    return ev.TasksChanged(
        *head,
        started=runs_from_wire(said.started),
        succeeded=runs_from_wire(said.succeeded),
        failed=_failed(said.failed),
    )


def _slice_set(head: Head, said: session.SliceSet) -> ev.SiteEvent:
    return ev.SliceSet(*head, said.dispatch_seq, runs_from_wire(said.tasks))


def _ended(head: Head, said: session.Ended) -> ev.SiteEvent:
    return ev.Ended(
        *head,
        outcome=_outcome(head, said.outcome),
        outputs=tuple(Output(o.path, o.sha256, o.size_bytes, o.mode) for o in said.outputs),
        log_bytes=tuple((log.stream, log.bytes) for log in said.logs),
    )


_EVENTS: dict[str, Callable[[Head, Any], ev.SiteEvent]] = {
    "accepted": _accepted,
    "refused": _refused,
    "prepared": _prepared,
    "started": _started,
    "tasks": _tasks,
    "slice_set": _slice_set,
    "ended": _ended,
}


def _outcome(head: Head, said: records.Outcome) -> Outcome:
    try:
        kind = OutcomeKind(said.kind)
    except ValueError:
        raise BadFrame(f"event {head[1]} of {head[0]}: no outcome {said.kind[:40]!r}") from None
    used = said.usage
    return Outcome(
        kind=kind,
        exit_code=said.exit_code,
        signal=said.signal,
        code=said.code,
        text=said.text[:TEXT_CHARS_MAX],
        usage=Usage(used.wall_ms, used.cpu_ms, used.max_rss_bytes, used.accelerator_ms),
    )


def _failed(groups: Iterable[records.FailedRun]) -> tuple[FailedTasks, ...]:
    """Runs that ended alike as one group each, in order of exit code and signal."""
    alike: dict[tuple[int, int], list[records.Run]] = {}
    for failed in groups:
        alike.setdefault((failed.exit_code, failed.signal), []).append(failed.run)
    return tuple(
        FailedTasks(runs_from_wire(runs), exit_code, signal)
        for (exit_code, signal), runs in sorted(alike.items(), key=lambda item: item[0])
    )


def runs_from_wire(runs: Iterable[records.Run]) -> Runs:
    """Runs of a frame or record, in any order. Raises InvalidRuns."""
    return Runs.of((run.first, run.last) for run in runs)


# Reports ------------------------------------------------------------------------------------------


def envelope(report: session.Report, received_ms: int) -> bytes:
    """A report as it is kept in etcd, stamped with the receive time. Raises BadFrame."""
    kind = report.WhichOneof("what")
    if kind is None:
        raise BadFrame("a report says nothing")
    body = getattr(report, kind)
    kept = records.ReportEnvelope(
        schema=1, generation=body.generation, received_ms=received_ms, **{kind: body}
    )
    return kept.SerializeToString()
