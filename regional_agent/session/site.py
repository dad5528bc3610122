"""What the agent knows, and the few ways in which it changes: every change is written down.

Event numbers are given here, so that what a report reflects is known at the instant it is made;
the journal confirms them in the same commit.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from federation.local_queue import LocalQueue
from federation.site_limits import ClosedWindow
from federation.tickets import Ticket
from regional_agent.session.actions import Accept, Actions, Remember, Tell
from regional_agent.session.admission import SiteRules
from regional_agent.session.commands import Dispatch
from regional_agent.session.events import Ended, Refused, Said
from regional_agent.session.held import ENDED, Held, detail_of, reservation_text
from regional_agent.session.inputs import Now
from regional_agent.session.ledger import Ledger, Request
from regional_agent.session.queue_waits import Known, QueueWaits, queues_of
from regional_agent.session.resettle import SiteSeen, closed_windows
from regional_agent.session.site_policy import QUEUED_LEAST, SitePolicy, Standing
from regional_agent.session.turnover import Turnover

MEASURED_STARTS = 200
_MINUTE_MS = 60_000
TASK_EVENTS_UNACKNOWLEDGED_MAX = 4


@dataclass(slots=True)
class Site:
    """All state of the conversation. `keys` are the ticket keys of the last Welcome."""

    rules: SiteRules
    ledger: Ledger
    event_seq: int = 0
    acked: int = 0
    dispatch_seq: int = 0
    epoch: int = 0
    keys: Mapping[str, bytes] = field(default_factory=dict)
    attempts: dict[str, Held] = field(default_factory=dict)
    looking: dict[str, Dispatch | None] = field(default_factory=dict)
    look_first: bool = False
    start_delays_ms: deque[int] = field(default_factory=lambda: deque(maxlen=MEASURED_STARTS))
    waits: QueueWaits = field(default_factory=QueueWaits)
    turnover: Turnover = field(default_factory=Turnover)
    changes: int = 0
    seen: SiteSeen | None = None
    _windows: tuple[int, tuple[ClosedWindow, ...]] = (0, ())

    def hold(self, command: Dispatch, ticket: Ticket | None, now: Now) -> Held:
        """Begin to know an attempt; without a ticket it is one that never runs here."""
        held = Held(
            uid=command.uid,
            dispatch_seq=command.dispatch_seq,
            epoch=ticket.epoch if ticket else self.epoch,
            ticket=command.ticket,
            job=ticket.job if ticket else command.uid.rpartition("-")[0],
            tenant=ticket.tenant if ticket else "",
            spec=None,
            placement=command.placement,
            accepted_ms=now.broker_ms,
            traceparent=command.traceparent,
        )
        self.attempts[held.uid] = held
        return held

    def write_acceptance(self, held: Held, command: Dispatch, do: Actions) -> None:
        """Put the attempt into the journal, as it now stands."""
        text = reservation_text(held)
        do.writes.append(Accept(command, held.epoch, text, held.accepted_ms))

    def tell(self, held: Held, said: Said, at_ms: int, do: Actions) -> int:
        """Queue an event; returns its number."""
        self.event_seq += 1
        held.last_seq = self.event_seq
        do.writes.append(Tell(self.event_seq, held.event(said, at_ms)))
        return self.event_seq

    def remember(self, held: Held, now: Now, do: Actions) -> None:
        """Keep how far an attempt came."""
        do.writes.append(Remember(held.uid, held.state, now.broker_ms, detail_of(held)))

    def end(self, held: Held, said: Ended | Refused, at_ms: int, do: Actions) -> None:
        """The last event of an attempt: its capacity is free from this number on."""
        held.last, held.ended_ms, held.state = said, at_ms, ENDED
        self.event_seq += 1
        held.last_seq = self.event_seq
        do.writes.append(
            Tell(self.event_seq, held.event(said, at_ms), last=True, detail=detail_of(held))
        )
        self.release(held)
        held.view = None
        held.spec = None

    def release(self, held: Held) -> None:
        """Give the capacity of an attempt back."""
        if held.uid in self.ledger.reservations:
            self.ledger = self.ledger.release(held.uid)
            self.changes += 1
            self.seat_queued()

    def seat_queued(self) -> None:
        """What is free now is the queue's before anybody else's, in the order of the commands."""
        in_vain: set[Request] = set()
        for held in sorted(self.queued, key=lambda held: held.dispatch_seq):
            waits = self.ledger.reservations.get(held.uid)
            if waits is None or waits.places or waits.request in in_vain:
                continue
            self.ledger = self.ledger.seated(held.uid)
            if not self.ledger.reservations[held.uid].places:
                in_vain.add(waits.request)

    @property
    def queued(self) -> list[Held]:
        """Attempts that were sent to wait and do not run yet."""
        return [held for held in self.live if held.placement.queued and not held.started]

    def repeat(self, held: Held, now: Now, do: Actions) -> None:
        """Say again how an attempt stands, unless that is still on its way."""
        if held.last_seq > self.acked:
            return
        for said, at_ms in held.story():
            if said is not held.last:
                self.tell(held, said, at_ms or now.broker_ms, do)
        if held.last is not None:
            self.end(held, held.last, held.ended_ms or now.broker_ms, do)

    def standing(self, now_ms: int) -> Standing:
        """The site as its rules look at it; when it closes is worked out once a minute."""
        minute = now_ms // _MINUTE_MS + 1
        if self._windows[0] != minute:
            rules = self.rules.policy.windows(now_ms)
            self._windows = minute, closed_windows(rules, self.seen, now_ms)
        return Standing(self.ledger, self.waiting, self._windows[1], now_ms)

    def set_policy(self, policy: SitePolicy) -> None:
        """Other rules from now on; what was accepted stays accepted."""
        if policy != self.rules.policy:
            self.rules = replace(self.rules, policy=policy)
            self._windows = 0, ()
            self.changes += 1

    def queues(self) -> dict[str, LocalQueue]:
        """The queue of each pool, where the site's scheduler has any."""
        if not self.max_queued:
            return {}
        seen = self.seen.queues if self.seen else {}
        pools = [pool.name for pool in self.ledger.pools]
        stated_ms = self.rules.policy.queue_start_ms
        return queues_of(pools, seen, Known(self.waits, stated_ms))

    @property
    def max_queued(self) -> int:
        """How many attempts may wait in the queue of the site's scheduler; 0 where it has none."""
        if "queue" not in self.rules.features:
            return 0
        said = self.rules.policy.max_queued
        return max(QUEUED_LEAST, self.turnover.most) if said is None else said

    @property
    def waiting(self) -> int:
        """Attempts accepted and not yet running."""
        return sum(1 for held in self.attempts.values() if held.live and not held.started)

    @property
    def live(self) -> Iterable[Held]:
        """Attempts that have not ended."""
        return [held for held in self.attempts.values() if held.live]

    def start_delay_ms(self, quantile: float) -> int:
        """A quantile of the measured delays from acceptance to running; 0: none measured."""
        if not self.start_delays_ms:
            return 0
        ordered = sorted(self.start_delays_ms)
        return max(1, ordered[min(len(ordered) - 1, int(quantile * len(ordered)))])
