"""The keys of a planning problem in its public JSON form, and how each is read."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, TypeVar

from broker.decide.refusal_file import read_refusal
from broker.decide.strict_json import (
    Key,
    ProblemError,
    Reader,
    amount,
    as_object,
    did_you_mean,
    listed,
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
from broker.decide.warm_file import read_warm, topology
from broker.model.problem import Later, Mode, NodeGroup, PriceWindow, Queue, Window
from broker.model.topology import Topology

T = TypeVar("T")
W = TypeVar("W", Window, PriceWindow)

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


def _by_level(value: Any, path: str) -> dict[Topology, float]:
    found = mapped(amount)(value, path)
    return {topology(level, f'{path}["{level}"]'): usd for level, usd in found.items()}


def _instant(value: Any, path: str) -> str:
    try:
        datetime.fromisoformat(text(value, path))
    except ValueError:
        advice = "must be a time like 2026-11-30T12:00:00Z"
        raise ProblemError(path, f"{advice}, not {shown(value)}") from None
    return str(value)


def _speeds(value: Any, path: str) -> dict[str, float]:
    return mapped(positive)(value, path)


def _built(value_type: Callable[..., T], keys: dict[str, Key]) -> Reader[T]:
    """Reads an object as a value of a type whose fields have the names of the keys."""
    return lambda value, path: value_type(**read_keys(value, path, keys))


def _windows(read: Reader[W]) -> Reader[tuple[W, ...]]:
    """Spans of hours that do not overlap."""

    def reader(value: Any, path: str) -> tuple[W, ...]:
        windows = listed(read)(value, path)
        end_h = 0.0
        for index, window in enumerate(windows):
            if window.to_h <= window.from_h:
                raise ProblemError(f"{path}[{index}].to_h", "must be later than from_h")
            if window.from_h < end_h:
                raise ProblemError(f"{path}[{index}].from_h", "starts before the last one ends")
            end_h = window.to_h
        return windows

    return reader


def _later_starts(value: Any, path: str) -> tuple[Later, ...]:
    """Starts to come, one after the other."""
    starts = listed(_built(Later, LATER_KEYS))(value, path)
    for index, (one, other) in enumerate(zip(starts, starts[1:], strict=False), 1):
        if other.start_h <= one.start_h:
            raise ProblemError(f"{path}[{index}].start_h", "must be later than the one before")
    return starts


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
    "domain": Key(text, ""),
}
QUEUE_KEYS = {
    "start_s": Key(amount, required=True),
    "max_pending": Key(whole, required=True),
    "waiting_usd_per_accelerator_h": Key(amount, 0.0),
}

LATER_KEYS = {
    "start_h": Key(positive, required=True),
    "free_accelerators": Key(whole, required=True),
}

WINDOW_KEYS = {
    "from_h": Key(amount, required=True),
    "to_h": Key(amount, required=True),
}
MAINTENANCE_KEYS = {**WINDOW_KEYS, "reason": Key(text, "")}
PRICE_KEYS = {
    **WINDOW_KEYS,
    "price_usd_per_accelerator_hour": Key(amount, required=True),
}
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
    "when_empty": Key(listed(_built(NodeGroup, NODES_KEYS)), ()),
    "unusable": Key(read_refusal),
    "queue": Key(_built(Queue, QUEUE_KEYS)),
    "prices": Key(_windows(_built(PriceWindow, PRICE_KEYS)), ()),
    "maintenance": Key(_windows(_built(Window, MAINTENANCE_KEYS)), ()),
    "preemptions_per_h": Key(amount, 0.0),
    "accelerator_memory_gib": Key(amount),
    "extras": Key(mapped(whole), {}),
    "domain": Key(text, ""),
    "later": Key(_later_starts),
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
    "data_regions": Key(listed(text), ()),
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
    "max_runtime_h": Key(positive),
    "checkpoint_h": Key(positive),
    "accelerator_memory_gib": Key(amount, 0.0),
    "extras_per_replica": Key(mapped(size), {}),
    "spread_max_per_cluster": Key(size),
    "apart": Key(text),
    "apart_region": Key(text),
    "max_queue_s": Key(amount),
    "defer_h": Key(amount, 0.0),
    "topology": Key(topology, Topology.CLUSTER),
    "topology_usd": Key(_by_level, {}),
    "several_pools": Key(truth, default=False),
    "one_per_node": Key(truth, default=False),
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
    "bandwidth_gbps": Key(listed(listed(amount))),
    "clusters": Key(_objects(CLUSTER_KEYS), required=True),
    "pools": Key(_objects(POOL_KEYS), required=True),
    "tenants": Key(_objects(TENANT_KEYS)),
    "exclusions": Key(mapped(mapped(read_refusal)), {}),
    "jobs": Key(_objects(JOB_KEYS), required=True),
    "warm": Key(read_warm),
    "recorded": Key(_anything),
}
