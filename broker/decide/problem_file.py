"""The public JSON form of a planning problem, read strictly (docs/planning-problem.md)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

from broker.decide.later_starts import free_of
from broker.decide.problem_keys import (
    CLUSTER_KEYS,
    JOB_KEYS,
    NODES_KEYS,
    OBJECTIVE_KEYS,
    POOL_KEYS,
    PROBLEM_KEYS,
    TENANT_KEYS,
)
from broker.decide.strict_json import (
    LARGEST,
    Key,
    ProblemError,
    did_you_mean,
    loads,
    read_keys,
    shown,
)
from broker.model.problem import (
    Cluster,
    Job,
    Later,
    Mode,
    NodeGroup,
    Objective,
    Pool,
    Problem,
    Tenant,
)
from federation.refusals import Refusal

__all__ = [
    "CLUSTER_KEYS", "JOB_KEYS", "NODES_KEYS", "OBJECTIVE_KEYS", "POOL_KEYS", "PROBLEM_KEYS",
    "TENANT_KEYS", "Key", "ProblemError", "parse_problem", "problem_from_json",
]  # fmt: skip


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
        bandwidth_gbps=_square(read["bandwidth_gbps"], "bandwidth_gbps", len(regions)),
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
    _check_later(item["later"] or (), free_of(nodes), f"{path}.later")
    if sum(group.count for group in nodes) > LARGEST:
        raise ProblemError(path, "must have at most 2^53 nodes")
    return Pool(nodes=nodes, per_node=per_node is not None, **item)


def _check_later(starts: Sequence[Later], free: int, path: str) -> None:
    """Whether no start to come has less room than there is now."""
    for index, start in enumerate(starts):
        if start.free_accelerators < free:
            reason = f"must be at least what is free now ({free}): that stays free"
            raise ProblemError(f"{path}[{index}].free_accelerators", reason)


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
    _check_places(item, path)
    for kind in ("cpus", "memory_gib"):
        if item[f"{kind}_per_accelerator"] is None:
            item[f"{kind}_per_accelerator"] = 0.0
        elif item[f"{kind}_per_replica"] is not None:
            reason = f'give either "{kind}_per_replica" or "{kind}_per_accelerator"'
            raise ProblemError(f"{path}.{kind}_per_replica", reason)
    if item["replicas"] * item["accelerators_per_replica"] > LARGEST:
        raise ProblemError(f"{path}.replicas", "a copy must take at most 2^53 accelerators")
    for name, each in item["extras_per_replica"].items():
        if item["replicas"] * each > LARGEST:
            reason = "a copy must take at most 2^53 of it"
            raise ProblemError(f'{path}.extras_per_replica["{name}"]', reason)
    closed = item.pop("excluded")
    return Job(excluded={} if closed is None else names.exclusions[closed], **item)


def _check_places(item: dict[str, Any], path: str) -> None:
    """Whether where users and data are is told where it is needed, and once; and that what runs is
    not to be put off."""
    if item["defer_h"] and item["current_pool"] is not None:
        raise ProblemError(f"{path}.defer_h", "what runs (current_pool) is not put off")
    if item["user_region"] is None:
        for name in ("max_rtt_ms", "latency_usd_per_ms"):
            if item[name] is not None and (item[name] > 0 or name == "max_rtt_ms"):
                raise ProblemError(f"{path}.{name}", 'needs the key "user_region"')
    if item["data_region"] is not None and item["data_regions"]:
        reason = 'give either "data_region" or "data_regions"'
        raise ProblemError(f"{path}.data_regions", reason)
    if item["data_region"] is None and not item["data_regions"] and item["input_gb"] > 0:
        raise ProblemError(f"{path}.input_gb", 'needs the key "data_region" or "data_regions"')


def _check_references(item: dict[str, Any], path: str, names: _Names) -> None:
    for name in ("user_region", "data_region"):
        _known(item[name], names.regions, f"{path}.{name}", "region")
    for key in ("regions", "data_regions"):
        for index, name in enumerate(item[key] or ()):
            _known(name, names.regions, f"{path}.{key}[{index}]", "region")
    _known(item["excluded"], names.exclusions.keys(), f"{path}.excluded", "entry of exclusions")
    _known(item["current_pool"], names.pools, f"{path}.current_pool", "pool")
    if names.tenants is not None:
        _known(item["tenant"], names.tenants, f"{path}.tenant", "tenant")
