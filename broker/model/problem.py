"""A planning problem: everything one decision depends on, as one frozen value.

`broker.decide.problem_file` reads it from the public JSON form (docs/planning-problem.md); the
running broker builds it from a snapshot. Amounts of a job are per copy. Money is in USD, time
in the unit the name says, memory in GiB, the order of `jobs` is age with the oldest first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from broker.model.topology import Topology
from broker.model.warm import Warm
from federation.refusals import Refusal

CPU = "CPU"
"""The model of what jobs without accelerators take: slots of a cpu each."""
_EMPTY: dict[Any, Any] = {}


def _nothing() -> Mapping[Any, Any]:
    """One empty mapping for all: tens of thousands of jobs need none of their own."""
    return _EMPTY


class Mode(StrEnum):
    """What "best" means."""

    PLACE_FIRST = "place_first"
    """Priority by priority from the highest the most placed weight; then the least cost."""
    SCALAR = "scalar"
    """The most value of what is placed minus all cost."""


@dataclass(frozen=True, slots=True)
class Objective:
    """`weight_per_accelerator` is read in `place_first` (a priority without entry weighs 1),
    `value_usd_per_accelerator` in `scalar` (every priority of a job needs an entry).
    `fragmentation_usd_per_node` is charged for each whole node given to smaller replicas."""

    mode: Mode = Mode.PLACE_FIRST
    weight_per_accelerator: Mapping[int, float] = field(default_factory=dict)
    value_usd_per_accelerator: Mapping[int, float] = field(default_factory=dict)
    fragmentation_usd_per_node: float = 0.0


@dataclass(frozen=True, slots=True)
class Cluster:
    """One local scheduler. `cold_start_s` maps an image to seconds, "*" to those of any other.
    `start_delay_s` passes before any copy starts there, beside the cold start. `unknown` says why
    it is not known what the cluster has: it then has no pools, and that is what is told of it."""

    name: str
    region: str
    cold_start_s: Mapping[str, float] = field(default_factory=dict)
    start_delay_s: float = 0.0
    unknown: Refusal | None = None


@dataclass(frozen=True, slots=True)
class NodeGroup:
    """`count` nodes that are alike. `free_cpus` and `free_memory_gib` bind on each of them;
    None is no limit. `domain` is the rack or switch they share: that of the pool where empty."""

    count: int
    free_accelerators: int
    free_cpus: float | None = None
    free_memory_gib: float | None = None
    domain: str = ""


@dataclass(frozen=True, slots=True)
class Window:
    """Hours from the time of the problem, from `from_h` until before `to_h`; `reason` is for
    people."""

    from_h: float
    to_h: float
    reason: str = ""


@dataclass(frozen=True, slots=True)
class PriceWindow:
    """What an accelerator hour costs in these hours."""

    from_h: float
    to_h: float
    price_usd_per_accelerator_hour: float


@dataclass(frozen=True, slots=True)
class Queue:
    """The waiting line of a site: a copy that joins it starts after `start_s`, its cold start
    included; at most `max_pending` copies may join. `waiting_usd_per_accelerator_h` is what an
    hour of waiting costs, per accelerator, a job that does not say what its time is worth."""

    start_s: float
    max_pending: int
    waiting_usd_per_accelerator_h: float = 0.0


@dataclass(frozen=True, slots=True)
class Later:
    """A start to come: copies may start `start_h` hours from now, and the pool is expected to have
    so many accelerators free then, those that copies of this plan hold by that time included."""

    start_h: float
    free_accelerators: int


@dataclass(frozen=True, slots=True)
class Pool:
    """Nodes of one cluster with the same accelerator, price kind and node shape.

    `nodes` is what is free now, including what copies with `current_pool` here hold. Node numbers
    in a plan count through `nodes` in its order, each group `count` times. `free_cpus` and
    `free_memory_gib` bind over the whole pool, beside the limits of the nodes; None is no limit.
    `per_node` says that the pool was given node by node, so that a plan must name the nodes.
    `when_empty` is the pool with nothing running (empty = not known); it only serves explanations.
    `prices` hold in their hours instead of the price beside them; neither they nor the windows of
    `maintenance` overlap. `preemptions_per_h` is how often a copy is thrown out there.
    `accelerator_memory_gib` None is not known, `extras` are other things that are counted, free
    now. `domain` is the rack or switch that all nodes share, empty where nobody knows of one. A
    pool with `unusable` takes nothing, and that refusal is why. `queue` is where copies may wait
    for it instead. While deciding, a queue is a pool too (`as_queue`): `queue_of` is then the name
    of the pool it stands before, otherwise empty. `later` are the starts to come, in order (None:
    as its prices say, `broker.decide.later_starts`); each is a pool too then, as a queue that takes
    `starts_h` hours. A rack of a pool may be one too (`decide.forms`): `part_of` is then the name
    of that pool and `around` are all of its nodes.
    """

    name: str
    cluster: str
    accelerator: str
    price_usd_per_accelerator_hour: float
    accelerators_per_node: int
    nodes: tuple[NodeGroup, ...]
    spot: bool = False
    free_cpus: float | None = None
    free_memory_gib: float | None = None
    per_node: bool = False
    when_empty: tuple[NodeGroup, ...] = ()
    unusable: Refusal | None = None
    queue: Queue | None = None
    prices: tuple[PriceWindow, ...] = ()
    maintenance: tuple[Window, ...] = ()
    preemptions_per_h: float = 0.0
    accelerator_memory_gib: float | None = None
    extras: Mapping[str, int] = field(default_factory=_nothing)
    domain: str = ""
    queue_of: str = ""
    later: tuple[Later, ...] | None = None
    starts_h: float = 0.0
    part_of: str = ""
    around: tuple[NodeGroup, ...] = ()

    @property
    def stands_in_parts(self) -> bool:
        """Whether its racks stand for it."""
        return bool(self.around) and not (self.part_of or self.queue_of)

    @property
    def racks(self) -> tuple[str, ...]:
        """The racks or switches of its nodes, "" for those of which none is known; in order."""
        return tuple(dict.fromkeys(self.rack(group) for group in self.nodes)) or (self.domain,)

    @property
    def one_rack(self) -> str:
        """The rack or switch that all its nodes are in; empty where they are not, or none is
        known."""
        first, *others = self.racks
        return "" if others else first

    def rack(self, group: NodeGroup) -> str:
        """The rack or switch that a group of its nodes shares; empty where none is known."""
        return group.domain or self.domain

    def as_queue(self) -> Pool:
        """The queue before this pool, as a pool that nothing can fill."""
        return replace(self, queue_of=self.name)

    def as_later(self, start: Later) -> Pool:
        """This pool from a start to come on, as a queue of which that is the end."""
        queue = Queue(3600 * start.start_h, 0)
        return replace(
            self, queue_of=self.name, queue=queue, later=(start,), starts_h=start.start_h
        )

    @property
    def place(self) -> tuple[str, bool, float]:
        """Name of the pool, whether its queue is meant, and the hours until a start to come: as in
        `Assignment.place`."""
        queued = bool(self.queue_of) and not self.starts_h
        return (self.queue_of or self.name, queued, self.starts_h)


@dataclass(frozen=True, slots=True)
class Tenant:
    """Quotas count placed accelerators: over all clusters, and per cluster. None is no limit.
    `weight` is not used by the decision (fair share acts in admission)."""

    name: str
    weight: float = 1.0
    quota_accelerators: int | None = None
    cluster_quota: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Job:
    """`count` identical copies of a gang of `replicas`, each with `accelerators_per_replica` on
    one node; a copy stays in one pool.

    `accelerators` maps each model that will do to its speed; runtime there is `runtime_h / speed`.
    `regions` None is everywhere, empty nowhere. cpus and memory are given per accelerator or, when
    the `_per_replica` figure is not None, per replica. With `current_pool` every copy runs there
    now. `data_regions` all have the input, instead of `data_region` alone. `max_runtime_h` is when
    a copy is ended at the latest, None = when its run time is over; `checkpoint_h` the time from
    one checkpoint to the next, None = none is written. At most `spread_max_per_cluster` copies of
    the job go to one cluster (None = any number), and of all jobs with the same `apart` at most one
    copy, or one to a region with the same `apart_region`. `excluded` maps a cluster to the reason
    why this job may not go there. It joins no queue that takes longer than `max_queue_s` (None =
    any, 0 = none), and its start may be put off by `defer_h`. Replicas share what `topology` says,
    or something better: `topology_usd` is what a copy costs by what its replicas share (a level
    that is not in it costs nothing). With `several_pools` they may lie in several pools of one
    cluster with the same accelerator. With `one_per_node` no node takes two replicas of the job
    (where they share a node: two copies).
    While deciding, a gang that shares a node is one replica made of `together`, and one that may
    lie in several places is decided by `members`, of which so many make a copy; a job may have
    several forms (`decide.forms`), `form_of` is then its id, `level_usd` what `topology_usd` has
    for this form, `among` the pools it may go to and `scope` what the members of a copy share.
    """

    id: str
    tenant: str
    accelerators: Mapping[str, float]
    runtime_h: float
    count: int = 1
    priority: int = 0
    replicas: int = 1
    accelerators_per_replica: int = 1
    cpus_per_accelerator: float = 0.0
    memory_gib_per_accelerator: float = 0.0
    cpus_per_replica: float | None = None
    memory_gib_per_replica: float | None = None
    spot_ok: bool = False
    user_region: str | None = None
    data_region: str | None = None
    data_regions: tuple[str, ...] = ()
    input_gb: float = 0.0
    regions: tuple[str, ...] | None = None
    max_rtt_ms: float | None = None
    latency_usd_per_ms: float = 0.0
    deadline_h: float | None = None
    budget_usd: float | None = None
    max_price_usd_per_accelerator_hour: float | None = None
    image: str | None = None
    current_pool: str | None = None
    migration_usd: float = 0.0
    value_of_time_usd_per_h: float = 0.0
    lost_work_usd: float = 0.0
    max_runtime_h: float | None = None
    checkpoint_h: float | None = None
    accelerator_memory_gib: float = 0.0
    extras_per_replica: Mapping[str, int] = field(default_factory=_nothing)
    spread_max_per_cluster: int | None = None
    apart: str | None = None
    apart_region: str | None = None
    max_queue_s: float | None = None
    defer_h: float = 0.0
    topology: Topology = Topology.CLUSTER
    topology_usd: Mapping[Topology, float] = field(default_factory=_nothing)
    several_pools: bool = False
    one_per_node: bool = False
    together: int = 1
    members: int = 1
    form_of: str = ""
    level_usd: float = 0.0
    among: frozenset[str] | None = None
    scope: str = ""
    excluded: Mapping[str, Refusal] = field(default_factory=_nothing)

    @property
    def gang_accelerators(self) -> int:
        """Accelerators of one copy."""
        return self.replicas * self.accelerators_per_replica

    @property
    def units(self) -> int:
        """Replicas as asked for that one of its copies, or of its members, stands for."""
        return self.replicas * self.together

    @property
    def data_sources(self) -> tuple[str, ...]:
        """Regions that have the input."""
        return self.data_regions or (() if self.data_region is None else (self.data_region,))

    @property
    def replica_cpus(self) -> float:
        """cpus of one replica."""
        if self.cpus_per_replica is not None:
            return self.cpus_per_replica
        return self.cpus_per_accelerator * self.accelerators_per_replica

    @property
    def replica_memory_gib(self) -> float:
        """Memory of one replica in GiB."""
        if self.memory_gib_per_replica is not None:
            return self.memory_gib_per_replica
        return self.memory_gib_per_accelerator * self.accelerators_per_replica


@dataclass(frozen=True, slots=True)
class Problem:
    """All of it. `rtt_ms`, `egress_usd_per_gb` and `bandwidth_gbps` are square in the order of
    `regions`, row = from, column = to; empty = all zero, and no bandwidth takes no time. A tenant
    of a job that is not in `tenants` has no quota. `warm` is where to start from, `recorded` what
    was decided before: it decides nothing."""

    regions: tuple[str, ...]
    clusters: tuple[Cluster, ...]
    pools: tuple[Pool, ...]
    jobs: tuple[Job, ...]
    objective: Objective = Objective()
    tenants: tuple[Tenant, ...] = ()
    rtt_ms: tuple[tuple[float, ...], ...] = ()
    egress_usd_per_gb: tuple[tuple[float, ...], ...] = ()
    bandwidth_gbps: tuple[tuple[float, ...], ...] = ()
    now: str = ""
    warm: Warm | None = None
    recorded: Mapping[str, object] | None = field(default=None, compare=False)
