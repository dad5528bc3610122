"""What Kueue still lets go of this site's jobs: the quotas of its ClusterQueue. Pure.

https://kueue.sigs.k8s.io/docs/concepts/cluster_queue/. Per flavour and resource it admits up to
the nominal quota, and within a cohort up to `borrowingLimit` more of what the others of the cohort
leave unused and lend. What is reserved counts as used. Cohorts of cohorts are not looked at.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from regional_agent.kubernetes.api import Object
from regional_agent.kubernetes.cards import GPU
from regional_agent.kubernetes.told import amount_of
from regional_agent.sense.kubernetes_limits import NONE, Left

CPUS, MEMORY, PODS = "cpu", "memory", "pods"
_Key = tuple[str, str]
"""Flavour and resource."""


@dataclass(frozen=True, slots=True)
class Flavour:
    """Nodes that a flavour stands for, by labels (none: any), and what is left of its quota, by
    resource."""

    labels: Mapping[str, str]
    left: Mapping[str, float]


def flavours_left(
    queue: Object, others: Iterable[Object], flavours: Iterable[Object]
) -> tuple[Flavour, ...]:
    """What is left in a ClusterQueue. `others`: all ClusterQueues, of which those of its cohort
    matter."""
    labels = {
        str(each["metadata"]["name"]): (each.get("spec") or {}).get("nodeLabels") or {}
        for each in flavours
    }
    name, cohort = queue["metadata"]["name"], _cohort(queue)
    peers = [
        each for each in others
        if cohort and _cohort(each) == cohort and each["metadata"]["name"] != name
    ]  # fmt: skip
    used = _used(queue)
    left: dict[str, dict[str, float]] = {}
    for (flavour, resource), said in _quotas(queue):
        nominal, taken = amount_of(said.get("nominalQuota")), used.get((flavour, resource), 0.0)
        free = nominal - taken
        if cohort:
            more = said.get("borrowingLimit")
            most = NONE if more is None else amount_of(more)
            free = min(free + most, free + sum(_lent(p, (flavour, resource)) for p in peers))
        left.setdefault(flavour, {})[resource] = max(0.0, free)
    return tuple(Flavour(labels.get(each, {}), amounts) for each, amounts in left.items())


def left_for(nodes: Sequence[Mapping[str, str]], flavours: Iterable[Flavour]) -> Left:
    """What is left for nodes with these labels: that of all flavours that stand for some of them.
    Cards that no flavour has are not let go; cpus and memory that none has are not counted."""
    total: dict[str, float] = {}
    for flavour in flavours:
        if any(_stands_for(flavour, labels) for labels in nodes):
            for resource, amount in flavour.left.items():
                total[resource] = total.get(resource, 0.0) + amount
    if not total:
        return Left(0, 0, 0, 0)
    return Left(
        total.get(CPUS, NONE), total.get(MEMORY, NONE), total.get(GPU, 0.0), total.get(PODS, NONE)
    )


def held_back(queue: Object) -> str:
    """Why a ClusterQueue lets nothing go; empty if it may."""
    name = queue["metadata"]["name"]
    policy = str((queue.get("spec") or {}).get("stopPolicy") or "None")
    return "" if policy == "None" else f"the ClusterQueue {name} is stopped ({policy})"


def _cohort(queue: Object) -> str:
    spec = queue.get("spec") or {}
    return str(spec.get("cohort") or spec.get("cohortName") or "")  # v1beta1, v1beta2


def _quotas(queue: Object) -> Iterator[tuple[_Key, Mapping[str, object]]]:
    for group in (queue.get("spec") or {}).get("resourceGroups") or ():
        for flavour in group.get("flavors") or ():
            for each in flavour.get("resources") or ():
                yield (str(flavour["name"]), str(each["name"])), each


def _used(queue: Object) -> dict[_Key, float]:
    """Reserved, which is at least what has been admitted; borrowed amounts included."""
    status = queue.get("status") or {}
    return {
        (str(flavour["name"]), str(each["name"])): amount_of(each.get("total"))
        for flavour in status.get("flavorsReservation") or status.get("flavorsUsage") or ()
        for each in flavour.get("resources") or ()
    }


def _lent(peer: Object, key: _Key) -> float:
    """What a queue of the cohort adds to what others may borrow; what it has borrowed itself
    takes away from it."""
    for found, said in _quotas(peer):
        if found == key:
            free = amount_of(said.get("nominalQuota")) - _used(peer).get(key, 0.0)
            limit = said.get("lendingLimit")
            return free if limit is None else min(free, amount_of(limit))
    return -_used(peer).get(key, 0.0)


def _stands_for(flavour: Flavour, labels: Mapping[str, str]) -> bool:
    return all(labels.get(key) == value for key, value in flavour.labels.items())
