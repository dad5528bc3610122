"""What happens at the site: staging, the local scheduler, results. Each step is told once."""

from __future__ import annotations

from dataclasses import replace

from regional_agent.session.actions import (
    Actions,
    Cancel,
    Clear,
    Collect,
    Complain,
    Drop,
    Withdraw,
)
from regional_agent.session.events import Ended, Prepared, Refused, SliceSet, Started
from regional_agent.session.held import SUBMITTED, Held, ended_of
from regional_agent.session.inputs import (
    Collected,
    Forgotten,
    LaunchRefused,
    LocalView,
    Now,
    SiteStops,
    SliceIs,
    Staged,
    StaysHere,
    Submitted,
)
from regional_agent.session.obey import launch
from regional_agent.session.site import TASK_EVENTS_UNACKNOWLEDGED_MAX, Site

TOMBSTONE_MS = 24 * 3_600_000
NEVER_STARTED = "never started here"
EVICTED = "evicted"
EVICTED_TEXT = "evicted by the site"


def staged(site: Site, done: Staged, now: Now, do: Actions) -> None:
    """Files and code are there."""
    held = site.attempts.get(done.uid)
    if held is None or not held.live or held.prepared is not None:
        return
    held.prepared = Prepared(done.prepare_ms, done.fetched_bytes, done.cached_bytes)
    site.tell(held, held.prepared, now.broker_ms, do)
    site.remember(held, now, do)


def launch_refused(site: Site, refused: LaunchRefused, now: Now, do: Actions) -> None:
    """It will not run here after all."""
    held = site.attempts.get(refused.uid)
    if held is None or not held.live:
        return
    if held.stop_why or held.withdrawn:
        ended = _as_stopped(held, Ended("cancelled", text=NEVER_STARTED))
        site.end(held, ended, now.broker_ms, do)
        return
    said = Refused(held.dispatch_seq, refused.code, refused.text)
    site.end(held, said, now.broker_ms, do)


def submitted(site: Site, done: Submitted, now: Now, do: Actions) -> None:
    """The local scheduler has it: from here on, not finding it there means that it is lost."""
    held = site.attempts.get(done.uid)
    if held is None or not held.live:
        return
    held.local_id = done.local_id
    if held.state == SUBMITTED:
        return
    held.state = SUBMITTED
    site.remember(held, now, do)


def local_changed(site: Site, view: LocalView, now: Now, do: Actions) -> None:
    """The newest state of one attempt at the scheduler."""
    held = site.attempts.get(view.uid)
    if held is None or not held.live:
        return
    held.view = view
    before = site.event_seq
    if view.started_ms and held.started is None:
        _started(site, held, view, now, do)
    if held.is_array:
        tell_tasks(site, held, now, do, final=False)
    if site.event_seq != before:
        site.remember(held, now, do)
    if view.phase == "ended" and not held.collecting:
        held.collecting = True
        if view.started_ms:
            outputs = held.spec.outputs if held.spec else ()
            paths = tuple(output.path for output in outputs if output.to is None)
            do.effects.append(Collect(held.uid, held.ticket, paths))
        else:
            _end(site, held, Collected(held.uid, (), ()), now, do)


def _started(site: Site, held: Held, view: LocalView, now: Now, do: Actions) -> None:
    launch_ms = max(0, view.started_ms - view.submitted_ms)
    at_ms = _broker_time(view.started_ms, now)
    held.started = Started(launch_ms, held.local_id or view.uid)
    held.started_ms = max(at_ms, held.accepted_ms)
    held.withdrawn = False
    site.tell(held, held.started, held.started_ms, do)
    if held.accepted_ms:  # else accepted in an earlier journal
        waited_ms = held.started_ms - held.accepted_ms
        if held.placement.queued:
            site.waits.started(held.placement.pool, waited_ms)
        else:
            site.start_delays_ms.append(waited_ms)
    site.ledger = site.ledger.seated(held.uid)
    site.changes += 1


def stays_here(site: Site, stays: StaysHere, now: Now, do: Actions) -> None:
    """It was to be taken back and has begun."""
    held = site.attempts.get(stays.uid)
    if held is not None and held.live and held.withdrawn:
        held.withdrawn = False
        site.remember(held, now, do)


def _broker_time(site_ms: int, now: Now) -> int:
    """A time of the site's clock as broker time."""
    return min(site_ms + now.broker_ms - now.site_ms, now.broker_ms)


def tell_tasks(site: Site, held: Held, now: Now, do: Actions, *, final: bool) -> None:
    """Tell what is new of the tasks of a slice; not more than a few times ahead of the broker,
    so that a long silence makes one long event and not thousands."""
    if held.view is None:
        return
    held.task_events = [seq for seq in held.task_events if seq > site.acked]
    if len(held.task_events) >= TASK_EVENTS_UNACKNOWLEDGED_MAX and not final:
        return
    news = held.news(held.view)
    if news is not None:
        held.task_events.append(site.tell(held, news, now.broker_ms, do))


def collected(site: Site, done: Collected, now: Now, do: Actions) -> None:
    """Its results are at the broker, or known to be missing: it has ended."""
    held = site.attempts.get(done.uid)
    if held is not None and held.live and held.view is not None:
        _end(site, held, done, now, do)


def _end(site: Site, held: Held, done: Collected, now: Now, do: Actions) -> None:
    view = held.view
    assert view is not None and view.outcome is not None, "an ended attempt has its outcome"
    if held.is_array:
        tell_tasks(site, held, now, do, final=True)
    detail = view.detail if view.started_ms else (view.detail or NEVER_STARTED)
    texts = [text for text in (detail, done.note) if text]
    said = replace(
        _as_stopped(held, ended_of(view.outcome, "; ".join(texts))),
        usage=held.usage(view),
        outputs=done.outputs,
        unstarted=view.unstarted if held.is_array else Ended("").unstarted,
        logs=done.logs,
    )
    site.end(held, said, _broker_time(view.ended_ms or now.site_ms, now), do)
    if view.started_ms:
        site.turnover.ended(now.broker_ms)


def _as_stopped(held: Held, ended: Ended) -> Ended:
    """What the site's people evicted was preempted: it may run elsewhere."""
    if held.stop_why != EVICTED or ended.kind != "cancelled":
        return ended
    text = f"{EVICTED_TEXT}; {ended.text}" if ended.text else EVICTED_TEXT
    return replace(ended, kind="preempted", text=text)


def site_stops(site: Site, stops: SiteStops, now: Now, do: Actions) -> None:
    """End attempts for the site's people. What is being stopped already keeps its reason."""
    for held in site.live:
        if held.stop_why or not (stops.uids is None or held.uid in stops.uids):
            continue
        held.stop_why = stops.why
        site.remember(held, now, do)
        do.effects.append(Cancel(held.uid, stops.grace_s))


def slice_is(site: Site, done: SliceIs, now: Now, do: Actions) -> None:
    """The scheduler took over another set of tasks, or will not: then the slice stays as it is,
    and that is the answer, so that the broker gives the other tasks to another and asks no more."""
    held = site.attempts.get(done.uid)
    if held is None or not held.live:
        return
    tasks = done.tasks
    if tasks is None:
        do.effects.append(Complain(f"{done.uid}: its slice stays as it is: {done.text}"))
        tasks = held.placement.tasks
    held.slice_set = SliceSet(done.dispatch_seq, tasks)
    held.placement = replace(held.placement, tasks=tasks)
    site.tell(held, held.slice_set, now.broker_ms, do)
    site.remember(held, now, do)


def forgotten(site: Site, done: Forgotten, do: Actions) -> None:
    """The scheduler dropped it: the tombstone may go too."""
    held = site.attempts.get(done.uid)
    if held is not None and not held.live:
        del site.attempts[done.uid]
        do.writes.append(Drop(done.uid))


def acknowledged(site: Site, event_seq: int, now: Now, do: Actions) -> None:
    """The broker caught up: slices that held their news back may tell them."""
    site.acked = max(site.acked, min(event_seq, site.event_seq))
    for held in site.live:
        if held.task_events and held.task_events[0] <= site.acked:
            before = site.event_seq
            tell_tasks(site, held, now, do, final=False)
            if site.event_seq != before:
                site.remember(held, now, do)


def time_passed(site: Site, now: Now, do: Actions) -> None:
    """Tombstones nobody asked to forget go after a day."""
    site.turnover.passed(now.broker_ms)
    for held in site.attempts.values():
        old = held.ended_ms and now.broker_ms - held.ended_ms > TOMBSTONE_MS
        if not held.live and old and held.last_seq <= site.acked:
            do.effects.append(Clear(held.uid))


def recovered(site: Site, held: Held, view: LocalView, now: Now, do: Actions) -> None:
    """After a restart: what the scheduler says of a live attempt decides how it goes on."""
    if view.phase != "unknown":
        stopping = held.stop_why or held.withdrawn
        if held.state != SUBMITTED and held.spec is not None and not stopping:
            launch(held, do, staged=True)  # it is there: only its local id is asked for
        local_changed(site, view, now, do)
        if held.live and held.stop_why:
            do.effects.append(Cancel(held.uid, held.placement.stop_grace_s))
        elif held.live and held.withdrawn:
            do.effects.append(Withdraw(held.uid))
    elif held.withdrawn and not held.stop_why:
        do.effects.append(Withdraw(held.uid))
    elif held.stop_why:
        do.effects.append(Cancel(held.uid, held.placement.stop_grace_s))
    elif held.state == SUBMITTED or held.spec is None or held.reservation is None:
        text = "the local scheduler does not know it any more: nobody saw its end"
        site.end(held, Ended("lost", text=text), now.broker_ms, do)
    else:
        # Accepted, and the scheduler never heard of it: submitting now is the first time.
        launch(held, do)
