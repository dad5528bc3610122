"""Small scenes for tests of admission: pools, classes, tenants."""

from __future__ import annotations

from typing import Any

from broker.decide.admission.admit import Scene
from broker.decide.admission.running import Running
from broker.decide.admission.wishes import Wish
from broker.model.problem import Job, NodeGroup, Pool


def pool(name: str = "near/h100", free: int = 16, total: int = 16, **rest: Any) -> Pool:
    """Nodes of eight; `free` accelerators lie on whole nodes and one that is partly free."""
    node = rest.pop("node", 8)
    nodes = [NodeGroup(free // node, node)] if free >= node else []
    nodes += [NodeGroup(1, free % node)] if free % node else []
    busy = total // node - len(nodes and nodes[:1]) * (free // node) - bool(free % node)
    nodes += [NodeGroup(busy, 0)] if busy > 0 else []
    usual: dict[str, Any] = {
        "cluster": name.split("/")[0],
        "accelerator": "H100",
        "price_usd_per_accelerator_hour": 1.0,
        "accelerators_per_node": node,
        "nodes": tuple(nodes),
        "when_empty": (NodeGroup(total // node, node),),
    }
    return Pool(name, **(usual | rest))


def wish(tenant: str, count: int = 1, size: int = 1, **rest: Any) -> Wish:
    """`count` copies of `replicas` x `size` H100."""
    more = {key: rest.pop(key) for key in ("waited_s", "set_back", "was_stopped") if key in rest}
    number = rest.pop("id", f"j-{tenant}-{size}-{count}")
    usual: dict[str, Any] = {
        "accelerators": {"H100": 1.0},
        "runtime_h": 1.0,
        "count": count,
        "accelerators_per_replica": size,
    }
    return Wish(Job(number, tenant, **(usual | rest)), **more)


def running(uid: str, tenant: str, size: int = 1, **rest: Any) -> Running:
    """An attempt of `replicas` x `size` H100 in near/h100."""
    usual: dict[str, Any] = {
        "job": uid.rsplit("-", 1)[0],
        "tenant": tenant,
        "priority": 0,
        "pool": "near/h100",
        "accelerator": "H100",
        "replicas": 1,
        "accelerators_per_replica": size,
        "started_ms": 1,
        "ends_ms": 3_600_000,
    }
    return Running(uid, **(usual | rest))


def scene(wishes: list[Wish], pools: list[Pool] | None = None, **rest: Any) -> Scene:
    """Everything that admission looks at."""
    found = pools or [pool()]
    return Scene(wishes, found, {p.cluster: p.cluster for p in found}, **rest)
