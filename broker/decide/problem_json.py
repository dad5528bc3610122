"""A planning problem written in its public JSON form: what `problem_file` reads back the same."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any

from broker.decide.problem_keys import (
    CLUSTER_KEYS,
    JOB_KEYS,
    LATER_KEYS,
    MAINTENANCE_KEYS,
    NODES_KEYS,
    OBJECTIVE_KEYS,
    POOL_KEYS,
    PRICE_KEYS,
    QUEUE_KEYS,
    TENANT_KEYS,
)
from broker.decide.refusal_file import refusal_to_json
from broker.decide.strict_json import Key
from broker.decide.warm_file import assignment_to_json, prices_to_json
from broker.model.problem import Job, Later, NodeGroup, Pool, PriceWindow, Problem, Queue, Window
from broker.model.warm import Warm
from federation.refusals import Refusal


def problem_to_json(problem: Problem) -> dict[str, Any]:
    """The problem as a JSON object, with what differs from the defaults only."""
    written: dict[str, Any] = {"version": 1}
    if problem.now:
        written["now"] = problem.now
    written["objective"] = _object(problem.objective, OBJECTIVE_KEYS)
    written["regions"] = list(problem.regions)
    for name in ("rtt_ms", "egress_usd_per_gb", "bandwidth_gbps"):
        table = getattr(problem, name)
        if table:
            written[name] = [list(row) for row in table]
    written["clusters"] = [_object(cluster, CLUSTER_KEYS) for cluster in problem.clusters]
    written["pools"] = [_pool(pool) for pool in problem.pools]
    if problem.tenants:  # else any tenant may be named, without quota
        others = {job.tenant for job in problem.jobs} - {t.name for t in problem.tenants}
        tenants = [_object(tenant, TENANT_KEYS) for tenant in problem.tenants]
        written["tenants"] = tenants + [{"name": name} for name in sorted(others)]
    rules = _Rules()
    written["jobs"] = [_job(job, rules) for job in problem.jobs]
    if rules.written:
        written["exclusions"] = rules.written
    if problem.warm is not None:
        written["warm"] = warm_to_json(problem.warm)
    return written


def warm_to_json(warm: Warm) -> dict[str, Any]:
    """What to start from, as it is read again."""
    written: dict[str, Any] = {}
    if warm.assignments:
        written["assignments"] = [assignment_to_json(item) for item in warm.assignments]
    if warm.prices is not None:
        written["prices"] = prices_to_json(warm.prices)
    return written


def _pool(pool: Pool) -> dict[str, Any]:
    written = _object(pool, {name: key for name, key in POOL_KEYS.items() if name != "nodes"})
    if pool.per_node:
        written["nodes"] = [_object(group, NODES_KEYS) for group in pool.nodes]
    else:
        free: dict[str, int] = {}
        for group in pool.nodes:
            size = str(group.free_accelerators)
            free[size] = free.get(size, 0) + group.count
        written["free_nodes"] = free
    return written


_KEYS: dict[type, Mapping[str, Key]] = {
    NodeGroup: NODES_KEYS,
    Queue: QUEUE_KEYS,
    Later: LATER_KEYS,
    Window: MAINTENANCE_KEYS,
    PriceWindow: PRICE_KEYS,
}


class _Rules:
    """What jobs are excluded from, written once for all jobs under the same rules."""

    def __init__(self) -> None:
        self.written: dict[str, dict[str, Any]] = {}
        self._names: dict[int, str] = {}
        self._alike: dict[str, str] = {}

    def name(self, excluded: Mapping[str, Refusal]) -> str:
        """The entry that says it."""
        known = self._names.get(id(excluded))
        if known is None:
            told = {cluster: refusal_to_json(why) for cluster, why in excluded.items()}
            known = self._alike.setdefault(repr(told), str(len(self.written)))
            self._names[id(excluded)] = known
            self.written.setdefault(known, told)
        return known


_PLAIN_JOB_KEYS = {name: key for name, key in JOB_KEYS.items() if name != "excluded"}


def _job(job: Job, rules: _Rules) -> dict[str, Any]:
    written = _object(job, _PLAIN_JOB_KEYS)
    for kind in ("cpus", "memory_gib"):  # either form; one of nothing is not told
        if not written.get(f"{kind}_per_accelerator", 1.0):
            del written[f"{kind}_per_accelerator"]
    if job.excluded:
        written["excluded"] = rules.name(job.excluded)
    return written


def _object(value: object, keys: Mapping[str, Key]) -> dict[str, Any]:
    """The keys of an object that the value has, and that differ from their default."""
    written = {}
    for name, key in keys.items():
        found = getattr(value, name, None)
        absent = found is None or found == key.default or found == {}
        if key.required or not absent:
            written[name] = _value(found)
    return written


def _value(value: Any) -> Any:
    if isinstance(value, Refusal):
        return refusal_to_json(value)
    keys = _KEYS.get(type(value))
    if keys is not None:
        return _object(value, keys)
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return {str(name): _value(item) for name, item in value.items()}
    if isinstance(value, tuple | list):
        return [_value(item) for item in value]
    return value
