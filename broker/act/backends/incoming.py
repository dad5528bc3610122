"""What an agent's updates mean to the leader: events in order, reports validated and bounded."""

from __future__ import annotations

import logging
from collections.abc import Iterator

from broker.act.gateway import (
    CacheArrived,
    CapacityArrived,
    EventsArrived,
    GatewayEvent,
    PricesArrived,
    RoundTripsArrived,
)
from broker.act.session_facts import ReportReaders
from broker.act.translate import BadFrame, envelope, event_from_wire
from federation.wire import session as pb

REPORT_BYTES_MAX = 256 * 1024
REPORTS_PER_S = 1.0
REPORTS_AT_ONCE = 3.0
COMPLAIN_EVERY_S = 10.0
_log = logging.getLogger(__name__)


class Allowance:
    """Reports of one kind: one a second, and a few at once after a quiet time."""

    def __init__(self, now_s: float) -> None:
        self._left = REPORTS_AT_ONCE
        self._at_s = now_s

    def take(self, now_s: float) -> bool:
        """Whether one more may pass now."""
        earned = (now_s - self._at_s) * REPORTS_PER_S
        self._left = min(REPORTS_AT_ONCE, self._left + earned)
        self._at_s = now_s
        if self._left < 1:
            return False
        self._left -= 1
        return True


class Incoming:
    """The updates of one session, in order. `last_seq` is the last event taken in."""

    def __init__(
        self, cluster: str, session: int, readers: ReportReaders, last_seq: int
    ) -> None:
        self._cluster = cluster
        self._session = session
        self._readers = readers
        self._allowances: dict[str, Allowance] = {}
        self._complained_s = float("-inf")
        self.last_seq = last_seq

    def take(
        self, update: pb.AgentUpdate, now_ms: int, now_s: float
    ) -> Iterator[GatewayEvent]:
        """What an update brings; events come before reports, which may reflect them.

        Raises BadFrame for events that cannot be right; a bad report is dropped, with one line
        in the log: the next one comes within seconds.
        """
        events = self._events(update)
        if events is not None:
            yield events
        for report in update.reports:
            try:
                found = self._report(report, now_ms, now_s)
            except ValueError as problem:
                if now_s - self._complained_s > COMPLAIN_EVERY_S:
                    self._complained_s = now_s
                    _log.warning("report of %s dropped: %s", self._cluster, problem)
                continue
            if found is not None:
                yield found

    def _events(self, update: pb.AgentUpdate) -> EventsArrived | None:
        fresh = []
        for event in update.events:
            if event.event_seq <= self.last_seq:
                continue  # sent again after a reconnect, and in the books already
            fresh.append(event_from_wire(event))
            self.last_seq = event.event_seq
        if not fresh:
            return None
        return EventsArrived(self._cluster, self._session, tuple(fresh), self.last_seq)

    def _report(
        self, report: pb.Report, now_ms: int, now_s: float
    ) -> GatewayEvent | None:
        kind = report.WhichOneof("what") or ""
        size_bytes = report.ByteSize()
        if size_bytes > REPORT_BYTES_MAX:
            raise BadFrame(f"{kind}: {size_bytes} bytes, at most {REPORT_BYTES_MAX}")
        allowance = self._allowances.setdefault(kind, Allowance(now_s))
        if not allowance.take(now_s):
            raise BadFrame(f"{kind}: more than one a second")
        raw = envelope(report, now_ms)
        head = (self._cluster, self._session)
        if kind == "capacity":
            return CapacityArrived(
                *head, self._readers.capacity(report.capacity, now_ms), raw
            )
        if kind == "price":
            prices, rejected = self._readers.prices(report.price)
            return PricesArrived(*head, prices, raw, rejected)
        if kind == "latency":
            return RoundTripsArrived(*head, self._readers.round_trips(report.latency), raw)
        if kind == "cache" and self._readers.cache is not None:
            return CacheArrived(*head, self._readers.cache(report.cache, now_ms), raw)
        return None
