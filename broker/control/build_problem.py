"""A snapshot of the queue and the fleet as one planning problem. Pure.

Running jobs stay where they are: they are not in the problem, what they hold is already missing
from the free figures and is taken off the quotas here.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from broker.control.affinity import Neighbour, Neighbours, kept_apart
from broker.control.closed_clusters import (
    avoided,
    clusters_held,
    not_named,
    not_trusted,
    rtt_unknown,
    spread_out,
)
from broker.control.cold_start import ColdStarts, blobs_of, planned_delay_s
from broker.control.data_ways import Ways
from broker.control.deferring import Deferring
from broker.control.distances import Distances, measure
from broker.control.featured import featured, features_missing
from broker.control.inputs import Inputs, padded
from broker.control.policy_limits import policy_refusal
from broker.control.policy_preferences import preferred, put_off, spread_full
from broker.control.problem_pools import GIB, pools_of
from broker.control.site_rules import site_refusal
from broker.control.tenant_limits import tenants_of
from broker.control.waitlist import (
    WaitingClass,
    expected_s,
    planned_deadline_ms,
    planned_runtime_s,
)
from broker.decide.terms import Geography
from broker.model import problem as pm
from broker.model.data import Datasets, Links
from broker.model.fleet import ClusterView, Fleet, TenantPolicy
from broker.model.jobs import Attempt, Job
from broker.model.policies import Ruling
from broker.model.topology import Topology
from broker.sense.duplicates import duplicates
from broker.sense.fleet import unusable
from broker.sense.start_delay import StartDelays, StartEstimate
from federation.ids import Cluster, JobId
from federation.jobs import JobSpec, runtime_bucket_s
from federation.refusals import Refusal, RefusalCode
from federation.units import format_duration

FRAGMENTATION_USD_PER_NODE = 0.05
"""A nudge to keep whole nodes free for gangs; far below any real price, so it decides ties."""
PLANNED_COPIES_MAX = 100_000


@dataclass(frozen=True, slots=True)
class Waiting:
    """A job that wants places: so many copies (1, or tasks of an array).

    `spec` has the limits of the job and of its policies; `ruling` says whose they are. With
    `members` it stands for all of these, the oldest first, of which `job` is one; `alike` is the
    class they were of. Some copies of a job may go into the problem apart from the rest: `part`.
    """

    job: Job
    spec: JobSpec
    copies: int
    ruling: Ruling | None = None
    members: tuple[JobId, ...] = ()
    alike: WaitingClass | None = None
    part: int = 0

    @property
    def key(self) -> str:
        """Its name in the problem."""
        return f"{self.job.id}~{self.part}" if self.part else self.job.id

    @staticmethod
    def under(ruling: Ruling, job: Job, copies: int) -> Waiting:
        """A job as its policies have it."""
        return Waiting(job, ruling.spec, copies, ruling)

    @property
    def user_region(self) -> str | None:
        """Where its users, or what it must be near to, are."""
        place = self.spec.placement
        return place.max_rtt.to if place.max_rtt else place.user_region


@dataclass(frozen=True, slots=True)
class World:
    """What the problem is built from, at one instant."""

    fleet: Fleet
    attempts: Mapping[str, Sequence[Attempt]]  # by cluster: live ones and ended lately
    tenants: Mapping[str, TenantPolicy]
    now_ms: int
    typed_rtt_ms: Mapping[tuple[str, str], float] = field(default_factory=dict)
    starts: StartDelays = field(default_factory=StartDelays)
    preempted: Mapping[tuple[str, str], tuple[int, float]] = field(default_factory=dict)
    links: Links = field(default_factory=dict)
    datasets: Datasets = field(default_factory=dict)
    neighbours: Neighbours | None = None  # None: nobody keeps apart from anybody

    @property
    def ways(self) -> Ways:
        """What it takes to bring data from a region to another."""
        return Ways(self.links, self.fleet.clusters.values(), self.now_ms)

    def start_at(self, cluster: str, blobs: Mapping[str, int]) -> StartEstimate:
        """The expected start of a job that needs these blobs there. Raises KeyError."""
        return self.starts.estimate(self.fleet.clusters[Cluster(cluster)], blobs, self.now_ms)


def build(world: World, waiting: Iterable[Waiting]) -> pm.Problem:
    """The problem: oldest job first."""
    jobs = sorted(waiting, key=lambda w: (w.job.created_ms, w.job.id))
    builder = ProblemBuilder(world, jobs)
    for _ in builder.pools():
        pass
    return builder.problem([builder.job(w) for w in jobs])


class ProblemBuilder:
    """Builds one problem job by job, so that others may work in between. Which clusters are
    closed to a job is worked out once for all jobs under the same rules."""

    def __init__(self, world: World, waiting: Sequence[Waiting]) -> None:
        """`waiting`: all jobs that may be asked for; the regions they name belong to it."""
        self._world, fleet = world, world.fleet
        wanted = {w.user_region for w in waiting if w.user_region}
        wanted |= {trip.to for w in waiting if w.ruling for trip in w.ruling.round_trips}
        self._regions = tuple(sorted({*map(str, fleet.regions), *wanted}))
        costly = any(w.ruling and w.ruling.latency_usd_per_ms for w in waiting)
        self._distances = measure(fleet, world.typed_rtt_ms, self._regions, unknown_is_far=costly)
        self._views = [fleet.clusters[name] for name in sorted(fleet.clusters)]
        self._inputs = Inputs(world.ways, world.datasets, self._regions)
        self._cold = ColdStarts(self._views, world.starts, world.now_ms)
        self._excluded: dict[Hashable, tuple[Waiting, dict[str, Refusal]]] = {}
        self._pools: list[pm.Pool] = []
        self._closing = any(v.capacity.windows for v in self._views if v.capacity is not None)
        self._duplicates = duplicates(fleet)
        asked = (featured(w.spec, slots(w.spec)[1]) for w in waiting if w.spec.resources.features)
        self._featured = frozenset(one for one in asked if one is not None)
        self._deferring = Deferring(self._priced, world.now_ms)

    def pools(self) -> Iterator[str]:
        """Work out what is free, a cluster at a step; once, before `problem`."""
        now_ms = self._world.now_ms
        for view in self._views:
            lately = self._world.attempts.get(view.identity.name, ())
            found = pools_of(
                view, lately, self._duplicates, self._world.preempted, now_ms, self._featured
            )
            self._pools.extend(found)
            yield view.identity.name

    def job(self, waiting: Waiting) -> pm.Job:
        """One job of the problem."""
        image = self._cold.image(waiting.spec)
        in_time = waiting.spec.placement.max_start_delay_s
        rules: Hashable = (_rules(waiting), None if in_time is None else image)
        if self._world.neighbours is not None:
            own = waiting.job.id if waiting.job.is_array else ""
            rules = rules, tuple(sorted(waiting.spec.labels.items())), own
        known = self._excluded.get(rules)
        now_ms = self._world.now_ms
        if known is None:
            found = _excluded(waiting, self._views, self._distances, self._world)
            for view in self._views if waiting.spec.inputs else ():
                refusal = self._inputs.refusal(waiting.spec, view)
                if refusal is not None:
                    found.setdefault(view.identity.name, refusal)
            known = self._excluded[rules] = waiting, found
        data = self._inputs.place(waiting.spec) if waiting.spec.inputs else (None, 0.0)
        planned = _job(waiting, known[1], now_ms, image, data)
        if self._closing:
            limit_s = waiting.spec.max_runtime_s or 0
            longest_s = runtime_bucket_s(limit_s) if len(waiting.members) > 1 else limit_s
            planned = replace(planned, max_runtime_h=longest_s / 3600 or None)
        planned = preferred(planned, waiting.job, waiting.ruling, now_ms)
        if not waiting.spec.defer_s:
            return planned
        return self._deferring.apply(planned, waiting.job, waiting.spec)

    def _priced(self) -> tuple[Geography, list[pm.Pool]]:
        """Where everything is and what it costs by the hour; what is free is not looked at."""
        seen, now_ms = self._world.preempted, self._world.now_ms
        pools = [p for v in self._views for p in pools_of(v, (), self._duplicates, seen, now_ms)]
        return Geography(self.problem([], pools)), pools

    @property
    def worked_out(self) -> tuple[pm.Pool, ...]:
        """The pools, once all steps of `pools` are done."""
        return tuple(self._pools)

    @property
    def cluster_regions(self) -> dict[str, str]:
        """The region of every cluster."""
        return {view.identity.name: view.identity.region for view in self._views}

    def problem(
        self,
        jobs: Sequence[pm.Job],
        pools: Sequence[pm.Pool] | None = None,
        limits: Mapping[str, int] | None = None,
    ) -> pm.Problem:
        """The problem of these jobs, which stand oldest first, in these pools (None: all as worked
        out). `limits`: what tenants may still take (None: their quotas, and what they may borrow
        if nobody else wants anything)."""
        world, regions = self._world, self._inputs.regions
        egress, bandwidth = self._inputs.tables()
        priorities = sorted({job.priority for job in jobs})
        return pm.Problem(
            regions=regions,
            clusters=tuple(self._cluster(view) for view in self._views),
            pools=self.worked_out if pools is None else tuple(pools),
            jobs=tuple(jobs),
            objective=pm.Objective(
                mode=pm.Mode.PLACE_FIRST,
                weight_per_accelerator=dict.fromkeys(priorities, 1.0),
                fragmentation_usd_per_node=FRAGMENTATION_USD_PER_NODE,
            ),
            tenants=tenants_of(world.tenants, world.attempts, limits),
            rtt_ms=padded(self._distances.rtt_ms, regions),
            egress_usd_per_gb=egress,
            bandwidth_gbps=bandwidth,
        )

    def _cluster(self, view: ClusterView) -> pm.Cluster:
        """What a start takes there: what is not paid for, and by image what is."""
        name, region = view.identity.name, view.identity.region
        start_s = planned_delay_s(self._world.start_at(name, {}).p50_s)
        unknown = unusable(view, self._world.now_ms) if view.capacity is None else None
        return pm.Cluster(name, region, self._cold.seconds(name), start_s, unknown)


def _rules(waiting: Waiting) -> Hashable:
    """What of a job decides which clusters are closed to it. A ruling that adds something is
    told by its identity: copies of a class share theirs."""
    spec, ruling = waiting.spec, waiting.ruling
    plain = ruling is None or not (
        ruling.origins
        or ruling.conflicts
        or ruling.round_trips
        or ruling.wheres
        or ruling.hours
        or ruling.by_age
    )
    of_policies = 0 if plain else id(ruling)
    of_spec = (
        spec.placement.model_dump_json(),
        spec.resources.isolation,
        spec.resources.features,
        spec.image,
        spec.max_runtime_s,
        spec.on_disconnect.replace,
        spec.inputs,
    )
    held = (*clusters_held(waiting.job, spec), *spread_full(waiting.job, ruling))
    age = waiting.job.created_ms if ruling and ruling.by_age else 0
    return waiting.job.tenant, waiting.job.avoid, of_spec, of_policies, held, age


def slots(spec: JobSpec) -> tuple[dict[str, float], int]:
    """Models that will do with their speed, and units per replica.

    A job without accelerators takes CPU slots: one per cpu it asks for, rounded up.
    """
    resources = spec.resources
    if resources.accelerator_models:
        return dict.fromkeys(resources.accelerator_models, 1.0), resources.accelerator_count
    return {pm.CPU: 1.0}, max(1, -(-resources.cpus_milli // 1000))


def _extras(spec: JobSpec, per_replica: int) -> Mapping[str, int]:
    """What a replica takes of its pool beside accelerators, cpus and memory."""
    on_nodes = featured(spec, per_replica)
    extras = spec.resources.extras
    return {**extras, on_nodes.name: 1} if on_nodes else extras


def _job(
    waiting: Waiting,
    excluded: dict[str, Refusal],
    now_ms: int,
    image: str | None,
    data: tuple[str | None, float],
) -> pm.Job:
    job, spec = waiting.job, waiting.spec
    place, resources = spec.placement, spec.resources
    models, per_replica = slots(spec)
    rtt = place.max_rtt
    user_region = waiting.user_region
    latency_usd = waiting.ruling.latency_usd_per_ms if waiting.ruling and user_region else 0.0
    deadline_ms, runtime_s = spec.deadline_ms(job.created_ms), expected_s(spec)
    if len(waiting.members) > 1:  # what holds for all of them
        deadline_ms = planned_deadline_ms(spec, job.created_ms)
        runtime_s = planned_runtime_s(spec)
    return pm.Job(
        id=waiting.key,
        tenant=job.tenant,
        accelerators=models,
        runtime_h=runtime_s / 3600,
        count=min(waiting.copies, PLANNED_COPIES_MAX),
        priority=job.priority,
        replicas=resources.replicas,
        accelerators_per_replica=per_replica,
        cpus_per_replica=resources.cpus_milli / 1000,
        memory_gib_per_replica=resources.memory_bytes / GIB,
        spot_ok=bool(place.spot),
        user_region=user_region,
        data_region=data[0],
        input_gb=data[1],
        regions=tuple(place.regions) or None,
        max_rtt_ms=rtt.ms if rtt else None,
        latency_usd_per_ms=latency_usd,
        deadline_h=None if deadline_ms is None else max(deadline_ms - now_ms, 0) / 3_600_000,
        budget_usd=_usd(place.budget_micro_usd),
        extras_per_replica=_extras(spec, per_replica),
        topology=Topology(resources.topology or "cluster"),
        topology_usd={Topology(n): usd / 1e6 for n, usd in resources.topology_micro_usd.items()},
        several_pools=resources.several_pools,
        max_price_usd_per_accelerator_hour=_usd(place.max_price_micro_usd_per_accelerator_hour),
        image=image,
        checkpoint_h=_checkpoint_h(spec),
        # No queue for tasks on nodes of their own: it would take more of them than it has nodes.
        max_queue_s=0.0 if spec.apart_on_nodes == "tasks" else place.max_start_delay_s,
        value_of_time_usd_per_h=(spec.value_of_time_micro_usd_per_hour or 0) / 1e6,
        apart=job.id if spec.placement.spread == "cluster" and job.is_array else None,
        one_per_node=bool(spec.apart_on_nodes),
        apart_region=job.id if spec.placement.spread == "region" and job.is_array else None,
        excluded=excluded,
    )


def _checkpoint_h(spec: JobSpec) -> float | None:
    every_s = spec.checkpoint.interval_s if spec.checkpoint else None
    return every_s / 3600 if every_s else None


def _usd(micro_usd: int | None) -> float | None:
    return None if micro_usd is None else micro_usd / 1e6


def _excluded(
    waiting: Waiting,
    views: Sequence[ClusterView],
    distances: Distances,
    world: World,
) -> dict[str, Refusal]:
    found: dict[str, Refusal] = {}
    for view in views:
        refusal = (
            policy_refusal(waiting.ruling, view, distances, world.now_ms)
            or not_named(waiting.spec, view)
            or not_trusted(waiting.job, waiting.spec, view)
            or features_missing(waiting.spec, view)
            or avoided(waiting.job, view, world.now_ms)
            or _kept_apart(waiting, view, world)
            or spread_out(waiting.job, waiting.spec, view)
            or put_off(waiting.ruling, waiting.job, view, views, world.now_ms)
            or rtt_unknown(waiting.spec, view, distances.known)
            or _starts_late(waiting.spec, view, world)
            or site_refusal(waiting.job.tenant, waiting.spec, view, world.now_ms)
        )
        if refusal is not None:
            found[view.identity.name] = refusal
    return found


def _kept_apart(waiting: Waiting, view: ClusterView, world: World) -> Refusal | None:
    there = (world.neighbours or {}).get(str(view.identity.name), ())
    if not there:
        return None
    job = waiting.job
    return kept_apart(Neighbour.of(job.id, job.tenant, waiting.spec), view.identity.name, there)


def _starts_late(spec: JobSpec, view: ClusterView, world: World) -> Refusal | None:
    limit_s = spec.placement.max_start_delay_s
    if limit_s is None:
        return None
    delay_s = world.start_at(view.identity.name, blobs_of(spec)).p50_s
    if delay_s <= limit_s:
        return None
    return Refusal(
        RefusalCode.START_DELAY_EXCEEDED,
        view.identity.name,
        needed=f"a start within {format_duration(limit_s)}",
        available=f"{delay_s:.4g} s as measured",
        advice=f"max_start_delay {format_duration(math.ceil(delay_s))}",
    )
