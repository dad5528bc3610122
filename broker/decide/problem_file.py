"""The public JSON form of a planning problem, read strictly (docs/planning-problem.md)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from broker.decide.refusal_file import read_refusal
from broker.decide.strict_json import (
    LARGEST,
    Key,
    ProblemError,
    amount,
    as_object,
    did_you_mean,
    listed,
    loads,
    mapped,
    mapped_by_integer,
    positive,
    read_keys,
    shown,
    size,
    text,
    truth,
    whole,
)
from broker.decide.warm_file import read_warm
from broker.model.problem import (
    Cluster,
    Job,
    Mode,
    NodeGroup,
    Objective,
    Pool,
    Problem,
    Queue,
    Tenant,
)
from federation.refusals import Refusal

__all__ = ["Key", "ProblemError", "parse_problem", "problem_from_json"]

# Readers of one value ------------------------------------------------------------------------


def _version(value: Any, path: str) -> int:
    if value != 1 or isinstance(value, bool):
        raise ProblemError(path, f"this reader knows version 1 only, not {shown(value)}")
    return 1


def _mode(value: Any, path: str) -> Mode:
    names = [mode.value for mode in Mode]
    if value not in names:
        hint = did_you_mean(value, names) if isinstance(value, str) else ""
        raise ProblemError(path, f"must be one of {', '.join(names)}, not {shown(value)}{hint}")
    return Mode(value)


def _instant(value: Any, path: str) -> str:
    try:
        datetime.fromisoformat(text(value, path))
    except ValueError:
        advice = "must be a time like 2026-11-30T12:00:00Z"
        raise ProblemError(path, f"{advice}, not {shown(value)}") from None
    return str(value)


def _speeds(value: Any, path: str) -> dict[str, float]:
    return mapped(positive)(value, path)


def _node_group(value: Any, path: str) -> NodeGroup:
    return NodeGroup(**read_keys(value, path, NODES_KEYS))


def _anything(value: Any, path: str) -> Any:
    return as_object(value, path)


# Objects ------------------------------------------------------------------------------------

OBJECTIVE_KEYS = {
    "mode": Key(_mode, required=True),
    "weight_per_accelerator": Key(mapped_by_integer(amount)),
    "value_usd_per_accelerator": Key(mapped_by_integer(amount)),
    "fragmentation_usd_per_node": Key(amount, 0.0),
}
CLUSTER_KEYS = {
    "name": Key(text, required=True),
    "region": Key(text, required=True),
    "cold_start_s": Key(mapped(amount), {}),
    "start_delay_s": Key(amount, 0.0),
    "unknown": Key(read_refusal),
}
NODES_KEYS = {
    "count": Key(size, 1),
    "free_accelerators": Key(whole, required=True),
    "free_cpus": Key(amount),
    "free_memory_gib": Key(amount),
}
QUEUE_KEYS = {
    "start_s": Key(amount, required=True),
    "max_pending": Key(whole, required=True),
}


def _queue(value: Any, path: str) -> Queue:
    return Queue(**read_keys(value, path, QUEUE_KEYS))


POOL_KEYS = {
    "name": Key(text, required=True),
    "cluster": Key(text, required=True),
    "accelerator": Key(text, required=True),
    "spot": Key(truth, default=False),
    "price_usd_per_accelerator_hour": Key(amount, required=True),
    "accelerators_per_node": Key(size, required=True),
    "free_nodes": Key(mapped_by_integer(whole)),
    "free_cpus": Key(amount),
    "free_memory_gib": Key(amount),
    "nodes": Key(listed(lambda value, path: read_keys(value, path, NODES_KEYS))),
    "when_empty": Key(listed(_node_group), ()),
    "unusable": Key(read_refusal),
    "queue": Key(_queue),
}
TENANT_KEYS = {
    "name": Key(text, required=True),
    "weight": Key(amount, 1.0),
    "quota_accelerators": Key(whole),
    "cluster_quota": Key(mapped(whole), {}),
}
JOB_KEYS = {
    "id": Key(text, required=True),
    "tenant": Key(text, required=True),
    "count": Key(size, 1),
    "priority": Key(whole, 0),
    "replicas": Key(size, 1),
    "accelerators_per_replica": Key(size, 1),
    "accelerators": Key(_speeds, required=True),
    "runtime_h": Key(positive, required=True),
    "cpus_per_accelerator": Key(amount),
    "memory_gib_per_accelerator": Key(amount),
    "cpus_per_replica": Key(amount),
    "memory_gib_per_replica": Key(amount),
    "spot_ok": Key(truth, default=False),
    "user_region": Key(text),
    "data_region": Key(text),
    "input_gb": Key(amount, 0.0),
    "regions": Key(listed(text)),
    "max_rtt_ms": Key(amount),
    "latency_usd_per_ms": Key(amount, 0.0),
    "deadline_h": Key(amount),
    "budget_usd": Key(amount),
    "max_price_usd_per_accelerator_hour": Key(amount),
    "image": Key(text),
    "current_pool": Key(text),
    "migration_usd": Key(amount, 0.0),
    "value_of_time_usd_per_h": Key(amount, 0.0),
    "lost_work_usd": Key(amount, 0.0),
    "excluded": Key(text),
}


def _objects(keys: dict[str, Key]) -> Callable[[Any, str], tuple[dict[str, Any], ...]]:
    return listed(lambda value, path: read_keys(value, path, keys))


PROBLEM_KEYS = {
    "version": Key(_version, required=True),
    "now": Key(_instant),
    "objective": Key(lambda value, path: read_keys(value, path, OBJECTIVE_KEYS), required=True),
    "regions": Key(listed(text), required=True),
    "rtt_ms": Key(listed(listed(amount))),
    "egress_usd_per_gb": Key(listed(listed(amount))),
    "clusters": Key(_objects(CLUSTER_KEYS), required=True),
    "pools": Key(_objects(POOL_KEYS), required=True),
    "tenants": Key(_objects(TENANT_KEYS)),
    "exclusions": Key(mapped(mapped(read_refusal)), {}),
    "jobs": Key(_objects(JOB_KEYS), required=True),
    "warm": Key(read_warm),
    "recorded": Key(_anything),
}

# The whole ----------------------------------------------------------------------------------


def parse_problem(data: bytes | str) -> Problem:
    """Read a problem from JSON text (UTF-8 when bytes). Raises `ProblemError` naming the
    path."""
    return problem_from_json(loads(data))


def problem_from_json(document: Any) -> Problem:
    """Build a problem from parsed JSON. Raises `ProblemError` naming the path."""
    read = read_keys(document, "$", PROBLEM_KEYS)
    regions = _unique(read["regions"], "regions[{}]", "region")
    clusters = _clusters(read["clusters"], regions)
    pools = _pools(read["pools"], clusters)
    tenants = _tenants(read["tenants"], clusters)
    scalar = read["objective"]["mode"] is Mode.SCALAR
    map_name = "value_usd_per_accelerator" if scalar else "weight_per_accelerator"
    priorities = read["objective"][map_name]
    names = _Names(
        regions=set(regions),
        pools={pool.name for pool in pools},
        tenants=None if read["tenants"] is None else {tenant.name for tenant in tenants},
        priority_map=f"objective.{map_name}",
        priorities={} if scalar and priorities is None else priorities,
        exclusions=_exclusions(read["exclusions"], clusters),
    )
    jobs = tuple(_job(item, f"jobs[{index}]", names) for index, item in enumerate(read["jobs"]))
    _unique([job.id for job in jobs], "jobs[{}].id", "job")
    return Problem(
        regions=tuple(regions),
        clusters=clusters,
        pools=pools,
        jobs=jobs,
        objective=_objective(read["objective"]),
        tenants=tenants,
        rtt_ms=_square(read["rtt_ms"], "rtt_ms", len(regions)),
        egress_usd_per_gb=_square(read["egress_usd_per_gb"], "egress_usd_per_gb", len(regions)),
        now=read["now"] or "",
        warm=read["warm"],
        recorded=read["recorded"],
    )


@dataclass(frozen=True, slots=True)
class _Names:
    """What jobs may refer to; `tenants` and `priorities` None = anything."""

    regions: Set[str]
    pools: Set[str]
    tenants: Set[str] | None
    priority_map: str
    priorities: Mapping[int, float] | None
    exclusions: Mapping[str, Mapping[str, Refusal]]


def _unique(names: Sequence[str], path: str, kind: str) -> list[str]:
    seen: set[str] = set()
    for index, name in enumerate(names):
        if name in seen:
            raise ProblemError(path.format(index), f"this {kind} is listed twice: {shown(name)}")
        seen.add(name)
    return list(names)


def _known(name: str | None, names: Set[str], path: str, kind: str) -> None:
    if name is not None and name not in names:
        hint = did_you_mean(name, sorted(names))
        raise ProblemError(path, f"no {kind} {shown(name)} is listed{hint}")


def _square(
    rows: tuple[tuple[float, ...], ...] | None, path: str, side: int
) -> tuple[tuple[float, ...], ...]:
    if rows is None:
        return ()
    if len(rows) != side:
        raise ProblemError(path, f"must have one row per region ({side}), but has {len(rows)}")
    for index, row in enumerate(rows):
        if len(row) != side:
            reason = f"must have one figure per region ({side}), but has {len(row)}"
            raise ProblemError(f"{path}[{index}]", reason)
    return rows


def _clusters(items: Sequence[dict[str, Any]], regions: Sequence[str]) -> tuple[Cluster, ...]:
    known = set(regions)
    for index, item in enumerate(items):
        _known(item["region"], known, f"clusters[{index}].region", "region")
    _unique([item["name"] for item in items], "clusters[{}].name", "cluster")
    return tuple(Cluster(**item) for item in items)


def _pools(items: Sequence[dict[str, Any]], clusters: Sequence[Cluster]) -> tuple[Pool, ...]:
    known = {cluster.name for cluster in clusters}
    for index, item in enumerate(items):
        _known(item["cluster"], known, f"pools[{index}].cluster", "cluster")
    _unique([item["name"] for item in items], "pools[{}].name", "pool")
    return tuple(_pool(item, f"pools[{index}]") for index, item in enumerate(items))


def _pool(item: dict[str, Any], path: str) -> Pool:
    per_node, histogram = item.pop("nodes"), item.pop("free_nodes")
    largest = item["accelerators_per_node"]
    if per_node is None and histogram is None:
        raise ProblemError(path, 'one of the keys "free_nodes" and "nodes" is missing')
    if per_node is not None:
        for name in ("free_cpus", "free_memory_gib"):
            if item[name] is not None:
                raise ProblemError(f"{path}.{name}", 'is given per node when "nodes" is used')
        if histogram is not None:
            raise ProblemError(f"{path}.free_nodes", 'give either "free_nodes" or "nodes"')
        nodes = tuple(NodeGroup(**group) for group in per_node)
        paths = [f"{path}.nodes[{index}].free_accelerators" for index in range(len(nodes))]
    else:
        order = sorted(histogram, reverse=True)
        nodes = tuple(NodeGroup(histogram[free], free) for free in order if histogram[free])
        paths = [f'{path}.free_nodes["{free}"]' for free in order if histogram[free]]
    for group, where in zip(nodes, paths, strict=True):
        if group.free_accelerators > largest:
            free = group.free_accelerators
            raise ProblemError(where, f"a node has {largest} accelerators, not {free}")
    if sum(group.count for group in nodes) > LARGEST:
        raise ProblemError(path, "must have at most 2^53 nodes")
    return Pool(nodes=nodes, per_node=per_node is not None, **item)


def _tenants(
    items: Sequence[dict[str, Any]] | None, clusters: Sequence[Cluster]
) -> tuple[Tenant, ...]:
    if items is None:
        return ()
    known = {cluster.name for cluster in clusters}
    _unique([item["name"] for item in items], "tenants[{}].name", "tenant")
    for index, item in enumerate(items):
        for name in item["cluster_quota"]:
            where = f'tenants[{index}].cluster_quota["{name}"]'
            _known(name, known, where, "cluster")
    return tuple(Tenant(**item) for item in items)


def _exclusions(
    found: Mapping[str, Mapping[str, Refusal]], clusters: Sequence[Cluster]
) -> Mapping[str, Mapping[str, Refusal]]:
    known = {cluster.name for cluster in clusters}
    for name, closed in found.items():
        for cluster in closed:
            _known(cluster, known, f'exclusions["{name}"]["{cluster}"]', "cluster")
    return found


def _objective(item: dict[str, Any]) -> Objective:
    maps = ("weight_per_accelerator", "value_usd_per_accelerator")
    return Objective(**{**item, **{name: item[name] or {} for name in maps}})


def _job(item: dict[str, Any], path: str, names: _Names) -> Job:
    _check_references(item, path, names)
    if names.priorities is not None and item["priority"] not in names.priorities:
        reason = f'{names.priority_map} has no entry "{item["priority"]}"'
        raise ProblemError(f"{path}.priority", reason)
    if item["user_region"] is None:
        for name in ("max_rtt_ms", "latency_usd_per_ms"):
            if item[name] is not None and (item[name] > 0 or name == "max_rtt_ms"):
                raise ProblemError(f"{path}.{name}", 'needs the key "user_region"')
    if item["data_region"] is None and item["input_gb"] > 0:
        raise ProblemError(f"{path}.input_gb", 'needs the key "data_region"')
    for kind in ("cpus", "memory_gib"):
        if item[f"{kind}_per_accelerator"] is None:
            item[f"{kind}_per_accelerator"] = 0.0
        elif item[f"{kind}_per_replica"] is not None:
            reason = f'give either "{kind}_per_replica" or "{kind}_per_accelerator"'
            raise ProblemError(f"{path}.{kind}_per_replica", reason)
    if item["replicas"] * item["accelerators_per_replica"] > LARGEST:
        raise ProblemError(f"{path}.replicas", "a copy must take at most 2^53 accelerators")
    closed = item.pop("excluded")
    return Job(excluded={} if closed is None else names.exclusions[closed], **item)


def _check_references(item: dict[str, Any], path: str, names: _Names) -> None:
    for name in ("user_region", "data_region"):
        _known(item[name], names.regions, f"{path}.{name}", "region")
    for index, name in enumerate(item["regions"] or ()):
        _known(name, names.regions, f"{path}.regions[{index}]", "region")
    _known(item["excluded"], names.exclusions.keys(), f"{path}.excluded", "entry of exclusions")
    _known(item["current_pool"], names.pools, f"{path}.current_pool", "pool")
    if names.tenants is not None:
        _known(item["tenant"], names.tenants, f"{path}.tenant", "tenant")
