"""What a namespace may still use of a cluster: its ResourceQuotas and its queue of Kueue. Pure.

https://kubernetes.io/docs/concepts/policy/resource-quotas/,
https://kueue.sigs.k8s.io/docs/concepts/local_queue/
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from regional_agent.kubernetes.api import Object
from regional_agent.kubernetes.cards import CPU, GPU
from regional_agent.kubernetes.told import amount_of
from regional_agent.session.ledger import Pool
from regional_agent.session.resettle import NodeSeen

NONE = float("inf")
_CPUS, _MEMORY = ("cpu", "requests.cpu"), ("memory", "requests.memory", "limits.memory")
_CARDS, _PODS = (f"requests.{GPU}", f"limits.{GPU}"), ("pods", "count/pods", "count/jobs.batch")
KNOWN = {*_CPUS, *_MEMORY, *_CARDS, *_PODS}


@dataclass(frozen=True, slots=True)
class Left:
    """What is left of all quotas together, infinite where none bounds it; and what could not be
    understood, in sentences."""

    cpus: float = NONE
    memory_bytes: float = NONE
    cards: float = NONE
    pods: float = NONE
    notes: tuple[str, ...] = ()


def left_of(quotas: Iterable[Object]) -> Left:
    """The least that any quota leaves. One with scopes is for some pods only, and not counted."""
    least: dict[str, float] = {}
    notes: list[str] = []
    for quota in quotas:
        name, spec = quota["metadata"]["name"], quota.get("spec") or {}
        if spec.get("scopes") or spec.get("scopeSelector"):
            notes.append(f"the quota {name} has scopes: what it leaves is not counted")
            continue
        status = quota.get("status") or {}
        used = status.get("used") or {}
        for key, said in (status.get("hard") or {}).items():
            if key in KNOWN:
                left = max(0.0, amount_of(said) - amount_of(used.get(key)))
                least[key] = min(left, least.get(key, NONE))

    def of(keys: Sequence[str]) -> float:
        return min((least[key] for key in keys if key in least), default=NONE)

    return Left(of(_CPUS), of(_MEMORY), of(_CARDS), of(_PODS), tuple(notes))


def bounded(
    pools: Iterable[Pool], nodes: Mapping[str, tuple[NodeSeen, ...]], left: Left
) -> dict[str, tuple[NodeSeen, ...]]:
    """The nodes with no more free, in a pool together, than is left. Pools do not share it out:
    what two of them would take together waits at the cluster."""
    return {pool.name: _bounded(pool, nodes[pool.name], left) for pool in pools}


def _bounded(pool: Pool, nodes: tuple[NodeSeen, ...], left: Left) -> tuple[NodeSeen, ...]:
    cpus, memory = left.cpus * 1000, left.memory_bytes
    slots = min(left.pods, left.cpus if pool.accelerator == CPU else left.cards)
    found = []
    for node in nodes:
        free = (
            min(pool.accelerators_per_node - node.accelerators_used, slots),
            min(pool.cpus_milli - node.cpus_used_milli, cpus),
            min(pool.memory_bytes - node.memory_used_bytes, memory),
        )
        if node.takes_jobs:
            slots, cpus, memory = slots - free[0], cpus - free[1], memory - free[2]
        found.append(
            replace(
                node,
                accelerators_used=pool.accelerators_per_node - int(max(0, free[0])),
                cpus_used_milli=pool.cpus_milli - int(max(0, free[1])),
                memory_used_bytes=pool.memory_bytes - int(max(0, free[2])),
            )
        )
    return tuple(found)


def only_by_claim(slices: Iterable[Object], with_plugin: Collection[str]) -> tuple[str, ...]:
    """A sentence for each driver whose devices can only be had by a ResourceClaim, on nodes that
    offer no cards by a device plugin: jobs here make none unless the site says how.
    https://kubernetes.io/docs/concepts/scheduling-eviction/dynamic-resource-allocation/"""
    found: dict[str, int] = {}
    for each in slices:
        spec = each.get("spec") or {}
        if spec.get("nodeName") and spec["nodeName"] not in with_plugin:
            count = len(spec.get("devices") or ())
            found[str(spec["driver"])] = found.get(str(spec["driver"]), 0) + count
    return tuple(
        f"{count} devices of {driver} are offered by resource claims (DRA) only, and not counted; "
        "say kubernetes.devices, if they are cards"
        for driver, count in sorted(found.items())
        if count
    )


def queue_trouble(name: str, queue: Object | None) -> str:
    """Why nothing goes through a LocalQueue now; empty if something may."""
    if queue is None:
        return f"there is no LocalQueue {name} in the namespace: nothing is let go"
    for each in (queue.get("status") or {}).get("conditions") or ():
        if each.get("type") == "Active" and each.get("status") != "True":
            said = ": ".join(str(each[k]) for k in ("reason", "message") if each.get(k))
            return f"the LocalQueue {name} is not active: {said}"
    return ""


def waiting_in(queue: Object | None) -> int:
    """How many workloads wait in a LocalQueue."""
    return int(((queue or {}).get("status") or {}).get("pendingWorkloads") or 0)
