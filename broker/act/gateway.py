"""The gateway port: sessions with agents, as values. Backends: gRPC and simulated.

What is sent may be lost with the session; nothing here is an outbox. The leader re-drives every
attempt that lags when a session opens, so a lost message costs time, never a job.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from broker.lifecycle.events import SiteEvent
from broker.model.fleet import Cache, Capacity, PoolPrice, RoundTrip
from broker.model.plan import Part
from federation.runs import Runs

# Commands -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Dispatch:
    """Reserve, prepare and launch. `adopt_only`: find it or say it is lost, never launch;
    `fence_after_s`: stop it after so long without contact, 0 = never; `queued`: where nothing is
    free it waits in the site's queue; `parts`: where the replicas of a gang go."""

    dispatch_seq: int
    uid: str
    ticket: bytes
    spec: bytes
    pool: str
    accelerator: str
    replicas: int
    accelerators_per_replica: int
    cpus_milli_per_replica: int
    memory_bytes_per_replica: int
    max_runtime_s: int
    stop_grace_s: int
    max_start_delay_s: int
    tasks: Runs
    width: int
    traceparent: str = ""
    adopt_only: bool = False
    fence_after_s: int = 0
    queued: bool = False
    parts: tuple[Part, ...] = ()


@dataclass(frozen=True, slots=True)
class Stop:
    """End it: `why` is cancelled, preempted, withdrawn or lost (it was replaced).
    `unless_started`: only while it waits; one that has begun, or begins, runs on."""

    uid: str
    why: str
    grace_s: int
    unless_started: bool = False


@dataclass(frozen=True, slots=True)
class SetSlice:
    """The absolute set of tasks of a slice from now on."""

    dispatch_seq: int
    uid: str
    tasks: Runs
    width: int


@dataclass(frozen=True, slots=True)
class Forget:
    """Its end is in the broker's books: the site may drop journal entry and work directory."""

    uid: str


@dataclass(frozen=True, slots=True)
class Prepare:
    """Fetch ahead what the ticket's job starts with; `uid` has number 0. Nothing is reserved,
    nothing answers, and a site may leave it."""

    uid: str
    ticket: bytes
    spec: bytes


Command = Dispatch | Stop | SetSlice | Forget | Prepare

# What comes in ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SessionOpened:
    """An agent was let in. `session` numbers the sessions of this gateway."""

    cluster: str
    session: int
    instance: str
    journal: str
    disk_replaced: bool
    event_seq: int
    dispatch_seq: int
    scheduler: str
    isolation: str
    capabilities: tuple[str, ...]
    version: str
    sealing_key: bytes
    certificate_serial: str
    certificate_expires_ms: int
    handshake_ms: int


@dataclass(frozen=True, slots=True)
class SessionClosed:
    """A session is over; its cluster is silent until another opens."""

    cluster: str
    session: int
    why: str


@dataclass(frozen=True, slots=True)
class EventsArrived:
    """Events of one cluster in the order of its journal. `last_seq` may be acknowledged once
    all of them are durable."""

    cluster: str
    session: int
    events: tuple[SiteEvent, ...]
    last_seq: int


@dataclass(frozen=True, slots=True)
class CapacityArrived:
    """A capacity report, validated and stamped with the receive time."""

    cluster: str
    session: int
    capacity: Capacity
    raw: bytes


@dataclass(frozen=True, slots=True)
class PricesArrived:
    """A price report; `rejected` names what was refused and why."""

    cluster: str
    session: int
    prices: tuple[PoolPrice, ...]
    raw: bytes
    rejected: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RoundTripsArrived:
    """A latency report."""

    cluster: str
    session: int
    round_trips: tuple[RoundTrip, ...]
    raw: bytes


@dataclass(frozen=True, slots=True)
class CacheArrived:
    """What lies in a site's cache."""

    cluster: str
    session: int
    cache: Cache
    raw: bytes


GatewayEvent = (
    SessionOpened
    | SessionClosed
    | EventsArrived
    | CapacityArrived
    | PricesArrived
    | RoundTripsArrived
    | CacheArrived
)


@dataclass(frozen=True, slots=True)
class LogPart:
    """A piece of a log: `complete` says the stream will not grow beyond `total_bytes`."""

    data: bytes
    offset: int
    total_bytes: int
    complete: bool


class SiteSilent(Exception):
    """The cluster has no session here now."""


class Gateway(Protocol):
    """Sessions with agents as one replica holds them."""

    def inbox(self) -> AsyncIterator[tuple[GatewayEvent, ...]]:
        """What arrived, in order, in batches; for ever."""

    async def send(self, cluster: str, commands: Sequence[Command]) -> None:
        """Send commands in this order. Raises `SiteSilent`; may be lost all the same."""

    async def acknowledge(self, cluster: str, event_seq: int) -> None:
        """All events up to this one are durable. Silently dropped without a session."""

    async def read_log(
        self, cluster: str, uid: str, stream: str, offset: int, limit: int, *, wait_ms: int = 0
    ) -> LogPart:
        """Read a log at the site. Raises `SiteSilent`, `LookupError` for an unknown stream."""

    def answered_s(self, cluster: str) -> float:
        """When a heartbeat of this cluster was last answered here, by the monotonic clock; minus
        infinity for never. Heartbeats are answered while this replica leads, and only then: by
        the answer a site knows that its contact deadlines are put off."""

    def leave_office(self, successor: str) -> None:
        """This replica leads no more: send every agent to `successor` (empty: unknown)."""

    async def close(self) -> None:
        """End all sessions and stop listening."""
