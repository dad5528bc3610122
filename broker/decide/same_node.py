"""Gangs whose replicas share a node are decided as one replica of the size of them all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace

from broker.model.plan import NodeFill, Plan
from broker.model.problem import Job, Problem
from broker.model.topology import Topology


def merged(problem: Problem) -> Problem:
    """The problem with each gang that must share a node as one replica."""
    if not any(map(_shares, problem.jobs)):
        return problem
    return replace(problem, jobs=tuple(map(as_one, problem.jobs)))


def as_one(job: Job) -> Job:
    """A gang that must share a node as one replica; any other job as it is."""
    if not _shares(job):
        return job
    replicas = job.replicas
    return replace(
        job,
        replicas=1,
        together=replicas,
        accelerators_per_replica=job.gang_accelerators,
        cpus_per_accelerator=0.0,
        memory_gib_per_accelerator=0.0,
        cpus_per_replica=job.replica_cpus * replicas,
        memory_gib_per_replica=job.replica_memory_gib * replicas,
        extras_per_replica={name: n * replicas for name, n in job.extras_per_replica.items()},
    )


def as_asked(job: Job) -> Job:
    """What `as_one` was made of."""
    if job.together == 1:
        return job
    return replace(
        job,
        replicas=job.together,
        together=1,
        accelerators_per_replica=job.accelerators_per_replica // job.together,
        cpus_per_replica=job.replica_cpus / job.together,
        memory_gib_per_replica=job.replica_memory_gib / job.together,
        extras_per_replica={n: each // job.together for n, each in job.extras_per_replica.items()},
    )


def in_replicas(fill: NodeFill, jobs: dict[str, Job]) -> NodeFill:
    """A fill of what `merged` made, told in the replicas that were asked for."""
    contents = tuple((name, n * jobs[name].together) for name, n in fill.contents)
    return replace(fill, contents=contents)


def in_gangs(fill: NodeFill, jobs: dict[str, Job]) -> NodeFill:
    """The other way round. A part of a gang counts as a whole one."""
    contents = tuple((name, -(-n // jobs[name].together)) for name, n in fill.contents)
    return replace(fill, contents=contents)


@dataclass(frozen=True, slots=True)
class Told:
    """A problem and a plan in which copies that share a node by the plan are of a job of their own,
    which asks for that; `wrong` says which of them do not."""

    problem: Problem
    plan: Plan
    wrong: tuple[str, ...] = ()


def told_by_gang(problem: Problem, plan: Plan) -> Told:
    """A plan as `merged` needs it, where copies pay for the level that they share."""
    told = [item for item in plan.assignments if item.level is Topology.NODE]
    if not told:
        return Told(problem, plan)
    jobs = {job.id: job for job in problem.jobs if job.topology is not Topology.NODE}
    told = [item for item in told if item.job in jobs]
    if not told:
        return Told(problem, plan)
    left = Counter[tuple[str, str]]()
    for item in told:
        left[item.job, item.pool] += item.count
    fills: list[NodeFill] = []
    for fill in plan.fills:
        fills += _split(fill, jobs, left)
    short = [(job, pool, n) for (job, pool), n in left.items() if n]
    wrong = tuple(f"{job} in {pool}: {n} copies share no node" for job, pool, n in short)
    names = {item.job for item in told}
    own = tuple(_alone(job) for job in problem.jobs if job.id in names)
    items = tuple(
        replace(item, job=_own(item.job)) if item in told else item for item in plan.assignments
    )
    made = replace(problem, jobs=(*problem.jobs, *own))
    return Told(made, replace(plan, assignments=items, fills=tuple(fills)), wrong)


def _own(name: str) -> str:
    return f"{name} on one node"


def _alone(job: Job) -> Job:
    return replace(job, id=_own(job.id), topology=Topology.NODE)


def _split(
    fill: NodeFill, jobs: dict[str, Job], left: Counter[tuple[str, str]]
) -> Iterator[NodeFill]:
    """A fill with whole gangs, as many as are `left` to be found, told as what they are."""
    gangs = {
        name: n // jobs[name].replicas
        for name, n in fill.contents
        if left[name, fill.pool] and n >= jobs[name].replicas
    }
    if not gangs:
        yield fill
        return
    nodes = fill.nodes
    for name, each in gangs.items():
        nodes = min(nodes, max(1, left[name, fill.pool] // each))
    contents: list[tuple[str, int]] = []
    for name, n in fill.contents:
        found = min(gangs.get(name, 0), left[name, fill.pool])
        left[name, fill.pool] -= found * nodes
        own = found * jobs[name].replicas if found else 0
        contents += [(_own(name), own)] if own else []
        contents += [(name, n - own)] if n > own else []
    yield replace(fill, nodes=nodes, contents=tuple(contents))
    if nodes < fill.nodes:
        rest = replace(fill, first_node=fill.first_node + nodes, nodes=fill.nodes - nodes)
        yield from _split(rest, jobs, left)


def _shares(job: Job) -> bool:
    return job.topology is Topology.NODE and job.replicas > 1
