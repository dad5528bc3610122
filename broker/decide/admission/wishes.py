"""What waits and what there is, as admission sees it: amounts by resource, and room by size."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from broker.model.problem import Job, NodeGroup, Pool

CPUS, MEMORY_GIB = "cpus", "memory_gib"
"""Resources beside the accelerator models, which go by their own names."""

Amounts = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Wish:
    """`job.count` copies of one class that want places now. `waited_s`: its oldest member.
    `set_back`: it had its turn in vain a moment ago, so it takes no turn from others now.
    `was_stopped`: it made room for others and has not run since. `runtime_s`: its limit."""

    job: Job
    waited_s: float = 0.0
    set_back: bool = False
    was_stopped: bool = False
    runtime_s: float = 24 * 3600.0

    def less(self, copies: int) -> Wish:
        """The same with so many copies fewer."""
        return replace(self, job=replace(self.job, count=self.job.count - copies))

    def amounts(self, model: str) -> dict[str, float]:
        """What one copy takes if it gets this model."""
        job, gang = self.job, float(self.job.gang_accelerators)
        return {
            model: gang,
            CPUS: job.replica_cpus * job.replicas,
            MEMORY_GIB: job.replica_memory_gib * job.replicas,
        }


def capacity(pools: Iterable[Pool], *, empty: bool) -> dict[str, float]:
    """Amounts of all pools that take jobs: what is free, or what is there when nothing runs."""
    found: dict[str, float] = {CPUS: 0.0, MEMORY_GIB: 0.0}
    for pool in pools:
        if pool.unusable is not None:
            continue
        for group in (pool.when_empty or pool.nodes) if empty else pool.nodes:
            cards = group.count * group.free_accelerators
            found[pool.accelerator] = found.get(pool.accelerator, 0.0) + cards
            found[CPUS] += group.count * (group.free_cpus or 0.0)
            found[MEMORY_GIB] += group.count * (group.free_memory_gib or 0.0)
    return found


@dataclass(slots=True)
class Room:
    """How many replicas of a size fit at once into one pool that a class may use. Accelerators
    and the class's own limits only: what is looked at thousands of times has to be cheap, and the
    decision itself looks at the rest."""

    pools: Sequence[Pool]
    regions: Mapping[str, str]  # of clusters
    _found: dict[tuple[object, ...], dict[str, int]] = field(default_factory=dict)

    def models(self, job: Job, *, empty: bool) -> dict[str, int]:
        """By accelerator model: most replicas that one pool takes now, or (`empty`) ever."""
        size = job.accelerators_per_replica
        key = (
            tuple(job.accelerators), size, job.regions, job.spot_ok, empty,
            id(job.excluded) if job.excluded else 0,
        )  # fmt: skip
        found = self._found.get(key)
        if found is None:
            found = self._found[key] = {}
            for pool in self.open_to(job):
                nodes = (pool.when_empty or pool.nodes) if empty else pool.nodes
                most = max(found.get(pool.accelerator, 0), places(nodes, size))
                found[pool.accelerator] = most
        return found

    def open_to(self, job: Job) -> Iterable[Pool]:
        """Pools that a class may use at all."""
        for pool in self.pools:
            if (
                pool.unusable is None
                and pool.accelerator in job.accelerators
                and pool.cluster not in job.excluded
                and (job.spot_ok or not pool.spot)
                and (job.regions is None or self.regions.get(pool.cluster) in job.regions)
            ):
                yield pool


def places(nodes: Iterable[NodeGroup], size: int) -> int:
    """How many replicas of a size fit on some nodes, each within one."""
    return sum(group.count * (group.free_accelerators // size) for group in nodes)
