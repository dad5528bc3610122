"""The fleet as the broker knows it: clusters and their latest reports, each with its age.

Values only. What a number of a site may be used for is decided in `broker.sense`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from federation.ids import Cluster, Region
from federation.local_queue import LocalQueue
from federation.site_limits import NO_LIMITS, ClosedWindow, SiteLimits

FENCE = "fence"
"""Capability of a site whose keeper stops a job by itself when its contact deadline passes."""

ONE_NODE = "one_node"
"""Capability of a site that puts all members of a gang on one node, where the job says so."""

APART = {"members": "members_apart", "tasks": "tasks_apart"}
"""Capabilities of a site that keeps members of a gang, or tasks of an array, on nodes of their own,
where the job says so."""

SINGLE_GANGS = "single_gangs"
"""What a site says of itself that runs gangs and arrays, but no arrays of gangs."""


PARTS = "parts"
"""Capability of a site that puts each replica of a gang in the pool and rack that it is told."""


class ClusterState(StrEnum):
    """What the operators have decided about a cluster."""

    INVITED = "invited"
    JOINED = "joined"
    DRAINING = "draining"
    REMOVED = "removed"


@dataclass(frozen=True, slots=True)
class ClusterIdentity:
    """The record of a cluster: who it is and what it may be trusted with."""

    name: Cluster
    region: Region
    state: ClusterState
    scheduler: str = ""
    isolation: str = ""
    capabilities: tuple[str, ...] = ()
    certificate_serial: str = ""
    certificate_expires_ms: int = 0
    sealing_key: bytes = b""
    joined_ms: int = 0
    version: str = ""
    journal: str = ""
    instance: str = ""
    revoked_serials: tuple[str, ...] = ()
    tenants: tuple[str, ...] = ()
    drain_deadline_ms: int = 0


@dataclass(frozen=True, slots=True)
class NodeGroup:
    """`count` identical nodes with these totals, and what is free on each now. `features`: the
    words the site has for them."""

    count: int
    accelerator: str
    total: int
    free: int
    cpus_milli: int
    free_cpus_milli: int
    memory_bytes: int
    free_memory_bytes: int
    domain: str = ""
    features: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PoolCapacity:
    """One pool of a cluster as last reported. `cards`: UUIDs, where the site knows them.
    `queue`: None where there is none, or nothing is known of it. `extras`: by name how many there
    are, and how many are free."""

    pool: str
    groups: tuple[NodeGroup, ...]
    simulated: bool = False
    cards: tuple[str, ...] = ()
    queue: LocalQueue | None = None
    extras: Mapping[str, tuple[int, int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LocalLoad:
    """Jobs of a site that did not come through the federation, and what they hold."""

    running: int = 0
    waiting: int = 0
    accelerators: int = 0


@dataclass(frozen=True, slots=True)
class Capacity:
    """A capacity report: one instant of the site, with what it reflects of our commands."""

    received_ms: int
    as_of_ms: int
    generation: int
    reflects_dispatch_seq: int
    reflects_event_seq: int
    pools: tuple[PoolCapacity, ...]
    locally_pending: int = 0
    start_p50_ms: int = 0
    start_p90_ms: int = 0
    state: str = "open"
    state_reason: str = ""
    limits: SiteLimits = NO_LIMITS
    windows: tuple[ClosedWindow, ...] = ()
    local_load: LocalLoad = LocalLoad()
    max_queued: int = 0  # of our jobs that may wait in its scheduler's queue


@dataclass(frozen=True, slots=True)
class PriceStep:
    """What one more accelerator hour costs from `from_ms` until before `until_ms` (UTC)."""

    from_ms: int
    until_ms: int
    marginal_micro_usd: int


@dataclass(frozen=True, slots=True)
class PoolPrice:
    """What one more accelerator hour costs (`marginal`, decides) and the full price (ledger).
    `steps` are hours with another marginal price, in order; `preemptions_per_h` is what the site
    says of how often a copy is thrown out there."""

    pool: str
    kind: str
    marginal_micro_usd: int
    full_micro_usd: int
    as_of_ms: int
    source: str
    valid_until_ms: int = 0
    steps: tuple[PriceStep, ...] = ()
    preemptions_per_h: float = 0.0

    def marginal_at(self, now_ms: int) -> int:
        """The marginal price in micro-USD at that instant."""
        holding = (s.marginal_micro_usd for s in self.steps if s.from_ms <= now_ms < s.until_ms)
        return next(holding, self.marginal_micro_usd)

    def change_after(self, now_ms: int) -> tuple[int, int] | None:
        """When (UTC ms) the marginal price is another one next, and which; None = not known."""
        now_usd = self.marginal_at(now_ms)
        edges = sorted({at for s in self.steps for at in (s.from_ms, s.until_ms) if at > now_ms})
        changes = ((at, self.marginal_at(at)) for at in edges)
        return next((change for change in changes if change[1] != now_usd), None)

    def mean_micro_usd(self, from_ms: int, run_ms: int) -> int:
        """The marginal price on average over a run that starts then."""
        if not self.steps or run_ms <= 0:
            return self.marginal_at(from_ms)
        total = self.marginal_micro_usd * run_ms
        for step in self.steps:
            inside_ms = min(from_ms + run_ms, step.until_ms) - max(from_ms, step.from_ms)
            total += max(inside_ms, 0) * (step.marginal_micro_usd - self.marginal_micro_usd)
        return round(total / run_ms)


@dataclass(frozen=True, slots=True)
class RoundTrip:
    """A TCP connect time to a region's target; -1 = unreachable when measured."""

    target_region: Region
    target: str
    rtt_us: int
    measured_ms: int


@dataclass(frozen=True, slots=True)
class DataRate:
    """How fast data of a region came to a cluster when it last read some: bytes a second as the
    lower quartile of its readings, -1 = the last one failed. `at_least`: the way may be faster."""

    source_region: Region
    target: str
    bytes_per_s: int
    at_least: bool
    readings: int
    measured_ms: int


@dataclass(frozen=True, slots=True)
class Cache:
    """What lies in a site's cache: `blobs` are the largest by digest with their bytes, the totals
    count everything. `fetch_bytes_per_s` is the site's own measure, 0 = none yet."""

    received_ms: int
    blobs: Mapping[str, int] = field(default_factory=dict)
    total_items: int = 0
    total_bytes: int = 0
    limit_bytes: int = 0
    fetch_bytes_per_s: int = 0


@dataclass(frozen=True, slots=True)
class ClusterView:
    """A cluster, what it last reported, and whether it is talking to us now.

    `connected_since_ms` and `silent_since_ms`: exactly one is non-zero once it has ever spoken.
    """

    identity: ClusterIdentity
    capacity: Capacity | None = None
    prices: Mapping[str, PoolPrice] = field(default_factory=dict)
    round_trips: tuple[RoundTrip, ...] = ()
    data_rates: tuple[DataRate, ...] = ()
    connected_since_ms: int = 0
    silent_since_ms: int = 0
    reported: bool = False  # its capacity came in the present session
    price_received_ms: int = 0
    latency_received_ms: int = 0
    cache: Cache | None = None
    handshake_ms: int = 0
    cold_handshake_ms: int = 0

    @property
    def connected(self) -> bool:
        """Whether a session is open now."""
        return self.connected_since_ms > 0


@dataclass(frozen=True, slots=True)
class Fleet:
    """All clusters by name, and the regions in a fixed order."""

    clusters: Mapping[Cluster, ClusterView]

    @property
    def regions(self) -> tuple[Region, ...]:
        """Regions that have a cluster, sorted."""
        return tuple(sorted({view.identity.region for view in self.clusters.values()}))


@dataclass(frozen=True, slots=True)
class TenantPolicy:
    """Quota and defaults of a tenant; `quota_accelerators` None = no limit. Within a `cohort` it
    may hold `borrow_accelerators` more (None: whatever others leave), as long as nobody it borrows
    from wants it back."""

    name: str
    weight: int = 1
    quota_accelerators: int | None = None
    cohort: str = ""
    borrow_accelerators: int | None = None
    cluster_quota: Mapping[str, int] = field(default_factory=dict)
    default_max_runtime_s: int = 24 * 3600
    max_runtime_s: int = 31 * 24 * 3600
