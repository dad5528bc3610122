"""Reports: when they are made, and the two ways they may go.

A capacity report is one instant between two commits. It goes out on change, at least a second
apart, right after a session opens, and every 15 s whatever happens.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from dataclasses import dataclass

from federation.environment import Clock
from federation.task_group import TaskGroup
from federation.units import format_utc
from federation.wire import session as pb
from regional_agent.act.cache import BlobCache
from regional_agent.feedback.direct_reports import ReportSink
from regional_agent.link import ReportBuffer
from regional_agent.sense.backends.http_read import HttpRead
from regional_agent.sense.data_rates import FILE, DataRates
from regional_agent.sense.latency import latency_report
from regional_agent.sense.prices import price_report
from regional_agent.sense.reports import (
    BLACKOUT,
    OPEN,
    CapacityReport,
    LatencyReport,
    RoundTrip,
    SiteState,
    capacity_report,
)
from regional_agent.session.conversation import Instant
from regional_agent.session.resettle import closed_windows
from regional_agent.session.site_policy import capped, room
from regional_agent.settings import AgentSettings
from regional_agent.translate import (
    cache_to_wire,
    capacity_to_wire,
    latency_to_wire,
    prices_to_wire,
)
from regional_agent.worker import BrokerTime, Worker

CAPACITY_APART_S = 1.0
CAPACITY_EVERY_S = 15.0
PRICES_EVERY_S = 3_600.0
POOLS_EVERY_S = 60.0
RATES_EVERY_S = 60.0
CACHE_APART_S = 2.0
CACHE_EVERY_S = 60.0
CACHE_ITEMS_MAX = 500
"""Items named in a report of the cache: about 50 KB."""
_log = logging.getLogger(__name__)


def site_state(instant: Instant, now_ms: int) -> SiteState:
    """An instant of the conversation as a report tells it, with what the site's rules say then."""
    rules, seen = instant.rules, instant.seen
    windows = closed_windows(rules.policy.windows(now_ms), seen, now_ms)
    state, reason = rules.state, rules.state_reason
    if state == OPEN and windows and windows[0].from_ms <= now_ms:
        until = f"until {format_utc(windows[0].until_ms)}"
        state, reason = BLACKOUT, ", ".join(part for part in (windows[0].reason, until) if part)
    return SiteState(
        as_of_ms=now_ms,
        dispatch_seq=instant.dispatch_seq,
        event_seq=instant.event_seq,
        locally_pending=instant.waiting,
        start_p50_ms=instant.start_p50_ms,
        start_p90_ms=instant.start_p90_ms,
        state=state,
        state_reason=reason,
        limits=rules.policy.told(now_ms),
        windows=windows,
        max_submit=seen.max_submit if seen else 0,
        max_array=seen.max_array if seen else 0,
        room=capped(room(rules.policy, instant.ledger, now_ms), instant.ledger, seen),
        others_running=seen.others_running if seen else 0,
        others_waiting=seen.others_waiting if seen else 0,
        max_queued=instant.max_queued,
        queues=instant.queues or (seen.queues if seen else {}),
    )


class SessionSink:
    """By the session: the broker validates, stamps and writes."""

    def __init__(self, buffer: ReportBuffer) -> None:
        self._buffer = buffer

    async def put(self, report: pb.Report) -> None:
        """See the port."""
        self._buffer.put(report)


@dataclass(slots=True)
class _Newest:
    """What goes out again when a session opens."""

    price: pb.Report | None = None
    latency: pb.Report | None = None
    cache: pb.Report | None = None


class Reporter:
    """Makes all reports of an agent."""

    def __init__(
        self,
        settings: AgentSettings,
        worker: Worker,
        time: BrokerTime,
        clock: Clock,
        sink: ReportSink,
        cache: BlobCache | None = None,
    ) -> None:
        self._settings = settings
        self._worker = worker
        self._time = time
        self._clock = clock
        self._sink = sink
        self._cache = cache
        # Counts on from the last life of the agent, which counted from its own start.
        self._generation = clock.now_ms()
        self._newest = _Newest()
        self._trips: tuple[RoundTrip, ...] = ()
        self._data_rates = DataRates(
            settings.data_sources,
            settings.state_dir / FILE,
            clock,
            HttpRead(clock, settings.proxies.to_url),
        )
        self.last_capacity: CapacityReport | None = None

    async def run(self, session_opened: asyncio.Event) -> None:
        """For ever."""
        async with TaskGroup() as tasks:
            tasks.create_task(self._capacities())
            tasks.create_task(self._prices())
            tasks.create_task(self._latencies())
            tasks.create_task(self._rates())
            if self._cache is not None:
                tasks.create_task(self._caches(self._cache))
            tasks.create_task(self._greet(session_opened))

    async def _greet(self, session_opened: asyncio.Event) -> None:
        """A broker that was not there knows nothing yet."""
        while True:
            await session_opened.wait()
            session_opened.clear()
            await self._capacity()
            for report in (self._newest.price, self._newest.latency, self._newest.cache):
                if report is not None:
                    await self._sink.put(report)

    async def _capacities(self) -> None:
        while True:
            await self._capacity()
            await asyncio.sleep(CAPACITY_APART_S)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(CAPACITY_EVERY_S - CAPACITY_APART_S):
                    await self._worker.changed()

    async def _capacity(self) -> None:
        instant = await self._worker.instant()
        state = site_state(instant, self._time.now().broker_ms)
        self.last_capacity = capacity_report(
            self._next(),
            instant.ledger,
            state,
            instant.seen.unschedulable if instant.seen else None,
        )
        await self._sink.put(capacity_to_wire(self.last_capacity))

    async def _prices(self) -> None:
        """Every hour, and when there are other pools than before."""
        told: list[str] = []
        due_s = float("-inf")
        while True:
            pools = [pool.name for pool in (await self._worker.instant()).ledger.pools]
            if pools != told or self._clock.monotonic_s() >= due_s:
                told, due_s = pools, self._clock.monotonic_s() + PRICES_EVERY_S
                now_ms = self._time.now().broker_ms
                made = price_report(self._next(), self._settings.prices, pools, now_ms)
                self._newest.price = prices_to_wire(made)
                await self._sink.put(self._newest.price)
            await asyncio.sleep(POOLS_EVERY_S)

    async def _latencies(self) -> None:
        targets = self._settings.latency_targets
        while targets:
            made = await latency_report(self._next(), targets, self._clock)
            self._trips = made.round_trips
            await self._tell_ways()
            await asyncio.sleep(self._settings.latency_every_s)

    async def _rates(self) -> None:
        """Reads where the rules of the site let it; tells of them with the round trips."""
        while self._settings.data_sources:
            policy = (await self._worker.instant()).rules.policy
            fresh = await self._data_rates.measure(policy.data_reads)
            if fresh or not self._settings.latency_targets:  # else they go with the round trips
                await self._tell_ways()
            await asyncio.sleep(RATES_EVERY_S)

    async def _tell_ways(self) -> None:
        rates = self._data_rates.rates(self._time.now().broker_ms)
        self._newest.latency = latency_to_wire(LatencyReport(self._next(), self._trips, rates))
        await self._sink.put(self._newest.latency)

    async def _caches(self, cache: BlobCache) -> None:
        """When something came or went, and every minute."""
        while True:
            try:
                found = await cache.inventory(CACHE_ITEMS_MAX)
            except OSError as problem:
                _log.warning("the cache cannot be looked at: %s", problem)
                await asyncio.sleep(CACHE_EVERY_S)
                continue
            self._newest.cache = cache_to_wire(self._next(), found)
            await self._sink.put(self._newest.cache)
            await asyncio.sleep(CACHE_APART_S)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(CACHE_EVERY_S - CACHE_APART_S):
                    await cache.changed()

    def _next(self) -> int:
        self._generation += 1
        return self._generation
