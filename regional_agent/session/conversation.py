"""The agent's half of the conversation: one total table from what happens to what to do.

Pure: an input and the time go in, writes and effects come out. The shell makes the writes of one
or several inputs durable in one commit, then carries out the effects in order, then sends what
the journal holds and the broker has not acknowledged.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from federation.jobs import InvalidJob, parse_job_spec
from federation.local_queue import LocalQueue
from regional_agent.session import progress
from regional_agent.session.actions import Acknowledge, Actions, Addresses, NumberFrom, Take
from regional_agent.session.admission import SiteRules
from regional_agent.session.commands import Placement
from regional_agent.session.held import ENDED, Held, read_detail, read_reservation
from regional_agent.session.inputs import (
    Collected,
    Forgotten,
    Input,
    LaunchRefused,
    LocalChanged,
    LocalView,
    Looked,
    Now,
    RulesChanged,
    Sensed,
    SessionStands,
    SiteStops,
    SliceIs,
    Staged,
    StaysHere,
    Submitted,
    TimePassed,
    UpdateArrived,
)
from regional_agent.session.ledger import Ledger
from regional_agent.session.obey import looked, obey
from regional_agent.session.resettle import SiteSeen, resettle
from regional_agent.session.site import Site


@dataclass(frozen=True, slots=True)
class Remembered:
    """A row of the journal. `detail` and `reservation` are what `held` wrote."""

    uid: str
    dispatch_seq: int
    epoch: int
    ticket: bytes
    spec: bytes
    placement: Placement
    reservation: str
    accepted_ms: int
    state: str
    detail: bytes
    ended_seq: int


@dataclass(frozen=True, slots=True)
class Restored:
    """What a journal holds at a start; `unacknowledged` maps event numbers to uids."""

    rows: tuple[Remembered, ...] = ()
    unacknowledged: Mapping[int, str] = field(default_factory=dict)
    event_seq: int = 0
    event_seq_acked: int = 0
    dispatch_seq: int = 0
    epoch: int = 0


@dataclass(frozen=True, slots=True)
class Instant:
    """The site at one moment: what is held, and what of the conversation that reflects."""

    ledger: Ledger
    dispatch_seq: int
    event_seq: int
    waiting: int
    start_p50_ms: int
    start_p90_ms: int
    rules: SiteRules
    seen: SiteSeen | None = None
    max_queued: int = 0
    queues: Mapping[str, LocalQueue] = field(default_factory=dict)


class Conversation:
    """See the module. Not for several threads."""

    def __init__(self, rules: SiteRules, ledger: Ledger, restored: Restored) -> None:
        self._site = Site(
            rules,
            ledger,
            restored.event_seq,
            restored.event_seq_acked,
            restored.dispatch_seq,
            restored.epoch,
        )
        for row in restored.rows:
            self._restore(row)
        for seq, uid in restored.unacknowledged.items():
            held = self._site.attempts.get(uid)
            if held is not None:
                held.last_seq = max(held.last_seq, seq)

    # In ---------------------------------------------------------------------------------------

    def take(self, happened: Input, now: Now, do: Actions) -> None:
        """What follows from an input is added to `do`."""
        _TABLE[type(happened)](self._site, happened, now, do)

    def recovered(self, views: Mapping[str, LocalView], now: Now, do: Actions) -> None:
        """After a start: what the scheduler says of `asked`; once, before anything else."""
        for held in list(self._site.live):
            view = views.get(held.uid)
            if view is not None:
                progress.recovered(self._site, held, view, now, do)

    # Out --------------------------------------------------------------------------------------

    @property
    def asked(self) -> tuple[str, ...]:
        """Attempts that have not ended, for the scheduler to tell about after a start."""
        return tuple(held.uid for held in self._site.live)

    @property
    def known(self) -> Iterable[Held]:
        """Every attempt, tombstones too."""
        return self._site.attempts.values()

    @property
    def epoch(self) -> int:
        """The highest epoch seen."""
        return self._site.epoch

    @property
    def dispatch_seq(self) -> int:
        """The last command taken."""
        return self._site.dispatch_seq

    @property
    def event_seq(self) -> int:
        """The last event made."""
        return self._site.event_seq

    @property
    def changes(self) -> int:
        """Counts up whenever a capacity report would say something new."""
        return self._site.changes

    def held(self, uid: str) -> Held | None:
        """One attempt, for showing it."""
        return self._site.attempts.get(uid)

    def set_state(self, state: str) -> None:
        """`open`, `draining` or `paused`, as the site's people decided."""
        if state != self._site.rules.state:
            self._site.rules = replace(self._site.rules, state=state)
            self._site.changes += 1

    def set_features(self, features: frozenset[str]) -> None:
        """What the local scheduler can do; asked once it answers."""
        self._site.rules = replace(self._site.rules, features=features)

    def instant(self) -> Instant:
        """The site at this instant; right to report only once all writes so far are durable."""
        site = self._site
        return Instant(
            ledger=site.ledger,
            dispatch_seq=site.dispatch_seq,
            event_seq=site.event_seq,
            waiting=site.waiting,
            start_p50_ms=site.start_delay_ms(0.5),
            start_p90_ms=site.start_delay_ms(0.9),
            rules=site.rules,
            seen=site.seen,
            max_queued=site.max_queued,
            queues=site.queues(),
        )

    # Inside -----------------------------------------------------------------------------------

    def _restore(self, row: Remembered) -> None:
        held = Held(
            uid=row.uid,
            dispatch_seq=row.dispatch_seq,
            epoch=row.epoch,
            ticket=row.ticket,
            job="",
            tenant="",
            spec=None,
            placement=row.placement,
            accepted_ms=row.accepted_ms,
            state=row.state,
            last_seq=row.ended_seq,
        )
        read_reservation(held, row.reservation)
        read_detail(held, row.detail)
        if row.state != ENDED:
            try:
                held.spec = parse_job_spec(json.loads(row.spec)) if row.spec else None
            except (InvalidJob, ValueError):
                held.spec = None  # of a version this one cannot read: adopted, never launched
            if held.reservation is not None:
                self._site.ledger = self._site.ledger.adopt(held.reservation)
        if held.placement.queued and held.started and held.accepted_ms:
            self._site.waits.started(row.placement.pool, held.started_ms - held.accepted_ms)
        self._site.attempts[held.uid] = held


def _session_stands(site: Site, stands: SessionStands, now: Now, do: Actions) -> None:
    site.keys = stands.ticket_keys
    if stands.epoch > site.epoch:
        site.epoch = stands.epoch
        do.writes.append(Take(epoch=stands.epoch))
    if stands.addresses:
        do.writes.append(Addresses(stands.addresses))
    if stands.disk_replaced:
        site.look_first = True
    if stands.resume_event_seq > site.event_seq:
        site.event_seq = stands.resume_event_seq
        do.writes.append(NumberFrom(stands.resume_event_seq))
    _acknowledged(site, stands.resume_event_seq, now, do)
    site.changes += 1


def _update(site: Site, update: UpdateArrived, now: Now, do: Actions) -> None:
    if update.epoch > site.epoch:
        site.epoch = update.epoch
        do.writes.append(Take(epoch=update.epoch))
    if update.ack_event_seq:
        _acknowledged(site, update.ack_event_seq, now, do)
    for command in update.commands:
        obey(site, command, now, do)


def _acknowledged(site: Site, event_seq: int, now: Now, do: Actions) -> None:
    if event_seq > site.acked:
        do.writes.append(Acknowledge(min(event_seq, site.event_seq)))
        progress.acknowledged(site, event_seq, now, do)


def _local(site: Site, changed: LocalChanged, now: Now, do: Actions) -> None:
    for view in changed.views:
        progress.local_changed(site, view, now, do)


def _rules_changed(site: Site, changed: RulesChanged, now: Now, do: Actions) -> None:
    site.set_policy(changed.policy)
    rules = replace(site.rules, state=changed.state, state_reason=changed.reason)
    if rules != site.rules:
        site.rules = rules
        site.changes += 1


def _sensed(site: Site, sensed: Sensed, now: Now, do: Actions) -> None:
    site.seen = sensed.seen
    settled = resettle(site.ledger, sensed.seen)
    if settled.free() != site.ledger.free():
        site.changes += 1
    site.ledger = settled


_TABLE: dict[type, Callable[[Site, Any, Now, Actions], None]] = {
    SessionStands: _session_stands,
    UpdateArrived: _update,
    LocalChanged: _local,
    Staged: progress.staged,
    LaunchRefused: progress.launch_refused,
    Submitted: progress.submitted,
    StaysHere: progress.stays_here,
    SliceIs: progress.slice_is,
    Looked: looked,
    Collected: progress.collected,
    Forgotten: lambda site, done, now, do: progress.forgotten(site, done, do),
    RulesChanged: _rules_changed,
    SiteStops: progress.site_stops,
    Sensed: _sensed,
    TimePassed: lambda site, _, now, do: progress.time_passed(site, now, do),
}
