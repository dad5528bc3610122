"""Gangs whose replicas share a node are decided as one replica of the size of them all."""

from __future__ import annotations

from dataclasses import replace

from broker.model.plan import NodeFill
from broker.model.problem import Job, Problem, Topology


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


def _shares(job: Job) -> bool:
    return job.topology is Topology.NODE and job.replicas > 1
