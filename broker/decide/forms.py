"""The forms in which a problem is decided where gangs care about racks or may lie in several pools.

A pool whose nodes are in several racks becomes a pool for each rack. A gang becomes one form for
each way in which it may lie: whole in one pool or rack, for each level that it pays for; and member
by member over racks or pools, so many members making a copy (`Bundle`). Copies of all forms of a
job count together. In every other problem nothing is changed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from broker.decide.later_starts import starts_of
from broker.model.problem import Job, Pool, Problem
from broker.model.topology import Topology

POOL, CLUSTER, RACK = "pool", "cluster", "rack"
"""What the members of a copy share: `Job.scope`."""

Places = Mapping[str, Mapping[tuple[str, ...], tuple[Pool, ...]]]
"""By scope and what is shared, the two or more pools that share it."""


@dataclass(frozen=True, slots=True)
class Leaf:
    """What a pool while deciding is: a rack of a pool, and by group of its nodes where these are
    there: the first and how many."""

    pool: str
    rack: str
    nodes: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Forms:
    """`problem` is decided instead of `original`. `leaves` are the pools that are one rack of a
    pool, by name; `jobs` has the forms by id."""

    original: Problem
    problem: Problem
    leaves: Mapping[str, Leaf]
    jobs: Mapping[str, Job]


def formed(problem: Problem) -> Forms | None:
    """The forms of a problem; None where it is decided as it is."""
    if not any(map(_has_forms, problem.jobs)):
        return None
    leaves: dict[str, Leaf] = {}
    models = {m for job in problem.jobs if _wants_racks(job) for m in job.accelerators}
    names = {pool.name for pool in problem.pools}
    pools: list[Pool] = []
    for pool in problem.pools:
        if pool.accelerator not in models or len(pool.racks) == 1:
            pools.append(replace(pool, domain=pool.one_rack))
            continue
        # The pool itself stays without nodes: queues and starts to come are before it.
        pools.append(replace(pool, nodes=(), around=pool.nodes, later=starts_of(pool)))
        for leaf in _racks(pool, names):
            pools.append(leaf)
            leaves[leaf.name] = Leaf(pool.name, leaf.domain, _numbers(pool, leaf.domain))
    places = _places(pools)
    ids = {job.id for job in problem.jobs}
    jobs = [form for job in problem.jobs for form in _forms(job, places, ids)]
    made = replace(problem, pools=tuple(pools), jobs=tuple(jobs))
    return Forms(problem, made, leaves, {job.id: job for job in jobs})


def shared_place(scope: str, pool: Pool) -> tuple[str, ...]:
    """What members of a copy in this pool share with those in others; equal for these."""
    if scope == POOL:
        return (pool.part_of,)
    one = (pool.cluster, pool.accelerator)
    return one if scope == CLUSTER else (*one, pool.domain)


def unused(name: str, taken: set[str]) -> str:
    """A name that nobody has yet, taken from now on."""
    while name in taken:
        name += "'"
    taken.add(name)
    return name


def _has_forms(job: Job) -> bool:
    if job.replicas == 1:
        return False
    return bool(job.topology_usd) or _wants_racks(job) or (_may_split(job) and job.several_pools)


def _may_split(job: Job) -> bool:
    return job.replicas > 1 and job.topology is not Topology.NODE


def _wants_racks(job: Job) -> bool:
    return _may_split(job) and (job.topology is Topology.RACK or bool(job.topology_usd))


def _racks(pool: Pool, names: set[str]) -> Iterator[Pool]:
    for rack in pool.racks:
        yield replace(
            pool,
            name=unused(f"{pool.name} in {rack or 'no rack'}", names),
            nodes=tuple(group for group in pool.nodes if pool.rack(group) == rack),
            when_empty=tuple(group for group in pool.when_empty if pool.rack(group) == rack),
            domain=rack,
            queue=None,
            later=(),
            part_of=pool.name,
            around=pool.nodes,
        )


def _numbers(pool: Pool, rack: str) -> tuple[tuple[int, int], ...]:
    first, found = 0, []
    for group in pool.nodes:
        if pool.rack(group) == rack:
            found.append((first, group.count))
        first += group.count
    return tuple(found)


def _places(pools: list[Pool]) -> Places:
    found: dict[str, dict[tuple[str, ...], tuple[Pool, ...]]] = {}
    for scope in (POOL, CLUSTER, RACK):
        groups: dict[tuple[str, ...], list[Pool]] = defaultdict(list)
        for pool in pools:
            if pool.nodes and all(shared_place(scope, pool)):
                groups[shared_place(scope, pool)].append(pool)
        found[scope] = {key: tuple(some) for key, some in groups.items() if len(some) > 1}
    return found


def _forms(job: Job, places: Places, ids: set[str]) -> Iterator[Job]:
    """All forms of a job; the first has its id."""
    if not _may_split(job):
        if job.topology is Topology.NODE and job.topology_usd and job.replicas > 1:
            job = replace(job, level_usd=job.topology_usd.get(Topology.NODE, 0.0))
        yield job
        return
    levels = job.topology.and_better if job.topology_usd else (job.topology,)
    if job.one_per_node:
        levels = tuple(level for level in levels if level is not Topology.NODE)
    found: list[Job] = []
    for level in levels:
        whole = replace(job, topology=level, level_usd=job.topology_usd.get(level, 0.0))
        found.append(whole)
        scope = _scope(job, level)
        among = _among(job, places.get(scope, {}))
        if among:
            found.append(_by_member(whole, scope, among))
    for index, form in enumerate(found):
        name = job.id if index == 0 else unused(f"{job.id} by {form.topology}", ids)
        yield replace(form, id=name, form_of=job.id if len(found) > 1 else "")


def _scope(job: Job, level: Topology) -> str:
    if level is Topology.CLUSTER:
        return CLUSTER if job.several_pools else POOL
    return RACK if level is Topology.RACK and job.several_pools else ""


def _among(job: Job, places: Mapping[tuple[str, ...], tuple[Pool, ...]]) -> frozenset[str]:
    """The pools over which copies of a job may lie."""
    return frozenset(
        pool.name
        for some in places.values()
        if some[0].accelerator in job.accelerators
        for pool in some
    )


def _by_member(job: Job, scope: str, among: frozenset[str]) -> Job:
    """A gang as its members: amounts of money are the share of one."""
    size = job.replicas
    return replace(
        job,
        replicas=1,
        count=job.count * size,
        members=size,
        scope=scope,
        among=among,
        cpus_per_replica=job.replica_cpus,
        memory_gib_per_replica=job.replica_memory_gib,
        budget_usd=None if job.budget_usd is None else job.budget_usd / size,
        latency_usd_per_ms=job.latency_usd_per_ms / size,
        migration_usd=job.migration_usd / size,
        value_of_time_usd_per_h=job.value_of_time_usd_per_h / size,
        lost_work_usd=job.lost_work_usd / size,
        level_usd=job.level_usd / size,
    )

