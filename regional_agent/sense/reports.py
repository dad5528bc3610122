"""What the agent reports of its site: values, and the pure merge that makes them.

A report is one instant: what the site's nodes have, minus all the agent has said yes to.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from federation.local_queue import LocalQueue
from federation.site_limits import ClosedWindow, SiteLimits
from regional_agent.session.ledger import OTHERS, Ledger, NodeGroup, Pool

__all__ = [
    "CapacityReport",
    "DataRate",
    "LatencyReport",
    "NodeGroup",
    "PoolCapacity",
    "PoolPrice",
    "PriceReport",
    "PriceStep",
    "RoundTrip",
    "SiteState",
    "capacity_report",
    "changed",
]

OPEN = "open"
BLACKOUT = "blackout"


@dataclass(frozen=True, slots=True)
class PoolCapacity:
    """One pool: groups of nodes that are alike. `simulated` cards exist on paper only. `extras`:
    by name how many there are, and how many are free."""

    pool: str
    groups: tuple[NodeGroup, ...]
    simulated: bool
    cards: tuple[str, ...] = ()
    queue: LocalQueue | None = None
    extras: tuple[tuple[str, int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class SiteState:
    """What the agent knows of its own doings at the instant of a report.

    `dispatch_seq`, `event_seq`: the last command taken and event written that the figures
    reflect. `start_p50_ms`, `start_p90_ms`: learned, 0 = unknown. `state`: open, draining, paused
    or blackout. `room`: per pool how many accelerators more the site's rules let us hold.
    `others_*` are jobs of the site that are none of ours. `queues`: by pool; `max_queued`: of
    our jobs that may wait in them.
    """

    as_of_ms: int
    dispatch_seq: int
    event_seq: int
    locally_pending: int = 0
    start_p50_ms: int = 0
    start_p90_ms: int = 0
    state: str = OPEN
    max_submit: int = 0
    max_array: int = 0
    state_reason: str = ""
    limits: SiteLimits = field(default_factory=SiteLimits)
    windows: tuple[ClosedWindow, ...] = ()
    room: Mapping[str, int] = field(default_factory=dict)
    others_running: int = 0
    others_waiting: int = 0
    queues: Mapping[str, LocalQueue] = field(default_factory=dict)
    max_queued: int = 0


@dataclass(frozen=True, slots=True)
class CapacityReport:
    """`generation` counts reports; a later one replaces an earlier one whole."""

    generation: int
    site: SiteState
    pools: tuple[PoolCapacity, ...]
    others_accelerators: int = 0


@dataclass(frozen=True, slots=True)
class PriceStep:
    """What one more accelerator hour costs from `from_ms` until before `until_ms` (UTC)."""

    from_ms: int
    until_ms: int
    marginal_micro_usd: int


@dataclass(frozen=True, slots=True)
class PoolPrice:
    """Per accelerator hour in micro-USD: what one more costs (`marginal`, decides) and in full.
    `steps` are coming hours with another marginal price."""

    pool: str
    kind: str
    marginal_micro_usd: int
    full_micro_usd: int
    as_of_ms: int
    source: str
    valid_until_ms: int = 0
    steps: tuple[PriceStep, ...] = ()
    preemptions_per_h: float = 0.0


@dataclass(frozen=True, slots=True)
class PriceReport:
    """Prices valid at the instant it was made."""

    generation: int
    pools: tuple[PoolPrice, ...]


@dataclass(frozen=True, slots=True)
class RoundTrip:
    """TCP connect time to a target of a region in microseconds; -1 = unreachable."""

    target_region: str
    target: str
    rtt_us: int
    measured_ms: int


@dataclass(frozen=True, slots=True)
class DataRate:
    """How fast data of a region comes here: `bytes_per_s` is the lower quartile of so many
    `readings`, -1 = the last one failed. `at_least`: the way may be faster."""

    source_region: str
    target: str
    bytes_per_s: int
    at_least: bool
    readings: int
    measured_ms: int


@dataclass(frozen=True, slots=True)
class LatencyReport:
    """The newest measurement to every target."""

    generation: int
    round_trips: tuple[RoundTrip, ...]
    data_rates: tuple[DataRate, ...] = ()


def capacity_report(
    generation: int,
    ledger: Ledger,
    site: SiteState,
    unschedulable: Mapping[str, frozenset[int]] | None = None,
) -> CapacityReport:
    """The capacity of the ledger's pools less what it holds.

    `unschedulable` names nodes by pool and index that take nothing new (cordoned, failed): they
    are left out altogether, not shown as full. A site that is not open has nothing free.
    """
    out = unschedulable or {}
    closed = site.state != OPEN
    pools = tuple(
        PoolCapacity(
            pool.name,
            _within(groups, 0 if closed else site.room.get(pool.name)),
            pool.simulated,
            pool.cards,
            site.queues.get(pool.name),
            _extras(pool, ledger),
        )
        for pool, groups in (
            (pool, ledger.groups(pool, out.get(pool.name, frozenset()))) for pool in ledger.pools
        )
    )
    others = [r.request for uid, r in ledger.reservations.items() if uid.startswith(OTHERS)]
    held = sum(r.accelerators * r.replicas * r.width for r in others)
    return CapacityReport(generation, site, pools, held)


def _extras(pool: Pool, ledger: Ledger) -> tuple[tuple[str, int, int], ...]:
    left = ledger.extras(pool)
    return tuple((name, total, max(left[name], 0)) for name, total in pool.extras)


def changed(before: CapacityReport | None, now: CapacityReport) -> bool:
    """True if `now` says something new: more than another time or generation."""
    if before is None:
        return True
    same_time = replace(now.site, as_of_ms=before.site.as_of_ms)
    return (before.pools, before.site) != (now.pools, same_time)


def merge_pools(declared: Sequence[Pool], found: Sequence[Pool]) -> tuple[Pool, ...]:
    """Declared pools, then those found that no declared one has the name of.

    What the operator declares stands, also where a collector sees something else.
    """
    names = {pool.name for pool in declared}
    return (*declared, *(pool for pool in found if pool.name not in names))


def _within(groups: tuple[NodeGroup, ...], room: int | None) -> tuple[NodeGroup, ...]:
    """At most `room` accelerators free together, whole nodes before parts of one: a gang needs
    whole ones. None = no limit."""
    if room is None:
        return groups
    kept: list[NodeGroup] = []
    for group in sorted(groups, key=lambda g: -g.free):
        whole = min(group.count, room // group.free) if group.free else group.count
        room -= whole * group.free
        part = 1 if whole < group.count and room else 0
        kept.append(replace(group, count=whole))
        kept.append(replace(group, count=part, free=room if part else 0))
        kept.append(replace(_full(group), count=group.count - whole - part))
        room = 0 if part else room
    return tuple(group for group in kept if group.count)


def _full(group: NodeGroup) -> NodeGroup:
    return replace(group, free=0, free_cpus_milli=0, free_memory_bytes=0)
