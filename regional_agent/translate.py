"""Between the wire, the journal and the scheduler on one side and the conversation on the other."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from typing import Any

from federation.runs import InvalidRuns, Runs
from federation.site_limits import NameRule, SiteLimits
from federation.traces import parse_traceparent
from federation.wire import records
from federation.wire import session as pb
from regional_agent.act.cache import Inventory
from regional_agent.act.journal import JournalledAttempt
from regional_agent.act.schedulers.port import LocalState, Outcome
from regional_agent.sense.reports import CapacityReport, LatencyReport, PriceReport
from regional_agent.session import events as ev
from regional_agent.session.commands import (
    Command,
    Dispatch,
    Forget,
    Placement,
    Prepare,
    SetSlice,
    Stop,
)
from regional_agent.session.conversation import Remembered
from regional_agent.session.inputs import End, LocalView
from regional_agent.session.requests import Part

TEXT_CHARS_MAX = 2_000


class BadCommand(ValueError):
    """A command of the broker that makes no sense; the text says what in it."""


# Commands ----------------------------------------------------------------------------------------


def command_from_wire(command: pb.Command, contact_s: float = float("-inf")) -> Command:
    """A command as the conversation takes it; `contact_s` as `Dispatch` has it. Raises
    BadCommand."""
    kind = command.WhichOneof("what")
    try:
        if kind == "dispatch":
            return _dispatch(command, contact_s)
        if kind == "set_slice":
            part = command.set_slice
            return SetSlice(command.dispatch_seq, command.uid, runs_of(part.tasks), part.width)
    except InvalidRuns as error:
        raise BadCommand(f"{command.uid}: {error}") from error
    if kind == "stop":
        stop = command.stop
        grace_s = max(0, stop.grace_s)
        return Stop(
            command.uid, stop.why, grace_s, command.dispatch_seq, stop.unless_started
        )
    if kind == "forget":
        return Forget(command.uid, command.dispatch_seq)
    if kind == "prepare":
        return Prepare(command.uid, command.prepare.ticket, command.prepare.spec)
    raise BadCommand(f"{command.uid}: a command this agent does not know")


def _dispatch(command: pb.Command, contact_s: float) -> Dispatch:
    said = command.dispatch
    return Dispatch(
        dispatch_seq=command.dispatch_seq,
        uid=command.uid,
        ticket=said.ticket,
        spec=said.spec,
        placement=placement_from_wire(said.placement),
        adopt_only=said.adopt_only,
        traceparent=said.traceparent if parse_traceparent(said.traceparent) else "",
        contact_s=contact_s,
    )


def placement_from_wire(said: pb.Placement) -> Placement:
    """A placement. Raises InvalidRuns."""
    return Placement(
        pool=said.pool,
        accelerator=said.accelerator,
        replicas=max(1, said.replicas),
        accelerators_per_replica=said.accelerators_per_replica,
        cpus_milli_per_replica=said.cpus_milli_per_replica,
        memory_bytes_per_replica=said.memory_bytes_per_replica,
        max_runtime_s=max(0, said.max_runtime_s),
        stop_grace_s=max(0, said.stop_grace_s),
        tasks=runs_of(said.tasks),
        width=said.width,
        max_start_delay_s=max(0, said.max_start_delay_s),
        fence_after_s=max(0, said.fence_after_s),
        queued=said.queued,
        parts=tuple(Part(part.pool, part.rack, part.replicas) for part in said.parts),
    )


def placement_bytes(placement: Placement) -> bytes:
    """A placement as the journal keeps it."""
    kept = pb.Placement(
        pool=placement.pool,
        accelerator=placement.accelerator,
        replicas=placement.replicas,
        accelerators_per_replica=placement.accelerators_per_replica,
        cpus_milli_per_replica=placement.cpus_milli_per_replica,
        memory_bytes_per_replica=placement.memory_bytes_per_replica,
        max_runtime_s=placement.max_runtime_s,
        stop_grace_s=placement.stop_grace_s,
        tasks=wire_runs(placement.tasks),
        width=placement.width,
        max_start_delay_s=placement.max_start_delay_s,
        fence_after_s=placement.fence_after_s,
        queued=placement.queued,
        parts=[records.Part(**asdict(part)) for part in placement.parts],
    )
    return kept.SerializeToString()


def remembered(row: JournalledAttempt) -> Remembered:
    """A row of the journal as the conversation takes it."""
    a = row.acceptance
    return Remembered(
        uid=a.uid,
        dispatch_seq=a.dispatch_seq,
        epoch=a.epoch,
        ticket=a.ticket,
        spec=a.spec,
        placement=placement_from_wire(pb.Placement.FromString(a.placement)),
        reservation=a.reservation,
        accepted_ms=a.accepted_ms,
        state=row.state,
        detail=row.detail,
        ended_seq=row.ended_seq,
    )


def runs_of(runs: Iterable[records.Run]) -> Runs:
    """Runs of a frame, in any order. Raises InvalidRuns."""
    return Runs.of((run.first, run.last) for run in runs)


def wire_runs(runs: Runs) -> list[records.Run]:
    """Runs as frames carry them."""
    return [records.Run(first=first, last=last) for first, last in runs.runs]


# Events ------------------------------------------------------------------------------------------


def event_to_wire(event_seq: int, event: ev.Event) -> pb.Event:
    """An event as it is sent and journalled."""
    made = pb.Event(
        event_seq=event_seq, uid=event.uid, epoch=event.epoch, at_ms=max(0, event.at_ms)
    )
    _FILL[type(event.said)](made, event.said)
    return made


def _accepted(made: pb.Event, said: ev.Accepted) -> None:
    made.accepted.dispatch_seq = said.dispatch_seq
    made.accepted.nodes.extend(said.nodes)
    made.accepted.reserve_us = said.reserve_us


def _refused(made: pb.Event, said: ev.Refused) -> None:
    made.refused.dispatch_seq = said.dispatch_seq
    made.refused.code = said.code
    made.refused.text = said.text[:TEXT_CHARS_MAX]


def _prepared(made: pb.Event, said: ev.Prepared) -> None:
    made.prepared.SetInParent()
    made.prepared.prepare_ms = said.prepare_ms
    made.prepared.fetched_bytes = said.fetched_bytes
    made.prepared.cached_bytes = said.cached_bytes


def _started(made: pb.Event, said: ev.Started) -> None:
    made.started.launch_ms = said.launch_ms
    made.started.local_id = said.local_id
    made.started.SetInParent()


def _tasks(made: pb.Event, said: ev.TasksChanged) -> None:
    made.tasks.SetInParent()
    made.tasks.started.extend(wire_runs(said.started))
    made.tasks.succeeded.extend(wire_runs(said.succeeded))
    for group in said.failed:
        made.tasks.failed.extend(
            records.FailedRun(run=run, exit_code=group.exit_code, signal=group.signal)
            for run in wire_runs(group.tasks)
        )


def _slice_set(made: pb.Event, said: ev.SliceSet) -> None:
    made.slice_set.dispatch_seq = said.dispatch_seq
    made.slice_set.tasks.extend(wire_runs(said.tasks))
    made.slice_set.SetInParent()


def _ended(made: pb.Event, said: ev.Ended) -> None:
    used = said.usage
    made.ended.outcome.CopyFrom(
        records.Outcome(
            kind=said.kind,
            exit_code=said.exit_code,
            signal=said.signal,
            code=said.code,
            text=said.text[:TEXT_CHARS_MAX],
            usage=records.Usage(
                wall_ms=used.wall_ms,
                cpu_ms=used.cpu_ms,
                max_rss_bytes=used.max_rss_bytes,
                accelerator_ms=used.accelerator_ms,
            ),
        )
    )
    made.ended.outputs.extend(
        records.Output(path=o.path, sha256=o.sha256, size_bytes=o.size_bytes, mode=o.mode)
        for o in said.outputs
    )
    made.ended.unstarted.extend(wire_runs(said.unstarted))
    made.ended.logs.extend(pb.LogExtent(stream=s, bytes=size) for s, size in said.logs)


_FILL: Mapping[type, Callable[[pb.Event, Any], None]] = {
    ev.Accepted: _accepted,
    ev.Refused: _refused,
    ev.Prepared: _prepared,
    ev.Started: _started,
    ev.TasksChanged: _tasks,
    ev.SliceSet: _slice_set,
    ev.Ended: _ended,
}


# The local scheduler -----------------------------------------------------------------------------


def view_of(state: LocalState) -> LocalView:
    """A state of the scheduler port as the conversation takes it."""
    return LocalView(
        uid=state.uid,
        phase=state.phase,
        unstarted=state.tasks.unstarted,
        running=state.tasks.running,
        ended=tuple((_end(outcome), tasks) for outcome, tasks in state.tasks.ended),
        submitted_ms=state.submitted_ms,
        started_ms=state.started_ms,
        ended_ms=state.ended_ms,
        outcome=None if state.outcome is None else _end(state.outcome),
        wall_ms=state.usage.wall_ms,
        cpu_ms=state.usage.cpu_ms,
        max_rss_bytes=state.usage.max_rss_bytes,
        detail=state.detail,
    )


def _end(outcome: Outcome) -> End:
    return End(outcome.kind, outcome.exit_code, outcome.signal)


# Reports -----------------------------------------------------------------------------------------


def capacity_to_wire(report: CapacityReport) -> pb.Report:
    """A capacity report as it is sent."""
    site = report.site
    made = records.CapacityReport(
        generation=report.generation,
        as_of_ms=site.as_of_ms,
        reflects_dispatch_seq=site.dispatch_seq,
        reflects_event_seq=site.event_seq,
        locally_pending=site.locally_pending,
        start_p50_ms=site.start_p50_ms,
        start_p90_ms=site.start_p90_ms,
        state=site.state,
        max_submit=site.max_submit,
        max_array=site.max_array,
        max_queued=site.max_queued,
        state_reason=site.state_reason[:TEXT_CHARS_MAX],
        limits=limits_to_wire(site.limits),
        local_load=records.LocalLoad(
            running=site.others_running,
            waiting=site.others_waiting,
            accelerators=report.others_accelerators,
        ),
    )
    for window in site.windows:
        made.windows.add(
            from_ms=window.from_ms, until_ms=window.until_ms, reason=window.reason[:200]
        )
    for pool in report.pools:
        kept = made.pools.add(pool=pool.pool, simulated=pool.simulated, cards=pool.cards)
        if pool.queue is not None:
            kept.queue.CopyFrom(records.LocalQueue(**asdict(pool.queue)))
        for name, total, free in pool.extras:
            kept.extras.add(name=name, total=total, free=free)
        for g in pool.groups:
            kept.groups.add(
                count=g.count,
                accelerator=g.accelerator,
                total=g.total,
                free=g.free,
                cpus_milli=g.cpus_milli,
                free_cpus_milli=g.free_cpus_milli,
                memory_bytes=g.memory_bytes,
                free_memory_bytes=g.free_memory_bytes,
                domain=g.domain,
                features=g.features,
            )
    return pb.Report(capacity=made)


def limits_to_wire(limits: SiteLimits) -> records.SiteLimits:
    """The site's rules as they are sent."""
    made = records.SiteLimits(
        max_pending=limits.max_pending,
        max_walltime_s=limits.max_walltime_s,
        guest_permille=limits.guest_permille,
        nothing_for_guests=not limits.guest_permille,
        banned=sorted(limits.banned),
    )
    for name in ("tenants", "users", "images", "commands", "pools"):
        rule: NameRule = getattr(limits, name)
        if not rule.empty:
            getattr(made, name).CopyFrom(records.NameRule(allow=rule.allow, deny=rule.deny))
    return made


def prices_to_wire(report: PriceReport) -> pb.Report:
    """A price report as it is sent."""
    made = records.PriceReport(generation=report.generation)
    for p in report.pools:
        made.pools.add(
            pool=p.pool,
            kind=p.kind,
            marginal_micro_usd=p.marginal_micro_usd,
            full_micro_usd=p.full_micro_usd,
            as_of_ms=p.as_of_ms,
            source=p.source,
            valid_until_ms=p.valid_until_ms,
            preemptions_per_h=p.preemptions_per_h,
            steps=[
                records.PriceStep(
                    from_ms=s.from_ms, until_ms=s.until_ms, marginal_micro_usd=s.marginal_micro_usd
                )
                for s in p.steps
            ],
        )
    return pb.Report(price=made)


def cache_to_wire(generation: int, inventory: Inventory) -> pb.Report:
    """What lies in the cache, as it is sent."""
    made = records.CacheReport(
        generation=generation,
        total_items=inventory.total_items,
        total_bytes=inventory.total_bytes,
        limit_bytes=inventory.limit_bytes,
        fetch_bytes_per_s=inventory.fetch_bytes_per_s,
    )
    for item in inventory.items:
        made.items.add(sha256=item.sha256, bytes=item.size_bytes, kind=item.kind.value)
    return pb.Report(cache=made)


def latency_to_wire(report: LatencyReport) -> pb.Report:
    """A latency report as it is sent."""
    made = records.LatencyReport(generation=report.generation)
    for r in report.round_trips:
        made.round_trips.add(
            target_region=r.target_region,
            target=r.target,
            rtt_us=r.rtt_us,
            measured_ms=r.measured_ms,
        )
    for rate in report.data_rates:
        made.data_rates.add(**asdict(rate))
    return pb.Report(latency=made)
