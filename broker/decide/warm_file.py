"""Prices, and what to start from, in the public JSON form (docs/planning-problem.md)."""

from __future__ import annotations

from typing import Any

from broker.decide.strict_json import (
    LARGEST,
    Key,
    ProblemError,
    amount,
    did_you_mean,
    listed,
    mapped,
    mapped_by_integer,
    read_keys,
    shown,
    size,
    text,
    truth,
)
from broker.model.plan import Assignment, Part
from broker.model.prices import PoolPrice, Prices, TenantPrice
from broker.model.topology import Topology
from broker.model.warm import Warm


def topology(value: Any, path: str) -> Topology:
    """A level by its name. Raises `ProblemError`."""
    names = [level.value for level in Topology]
    if value not in names:
        hint = did_you_mean(value, names) if isinstance(value, str) else ""
        raise ProblemError(path, f"must be one of {', '.join(names)}, not {shown(value)}{hint}")
    return Topology(value)


PART_KEYS = {
    "pool": Key(text, required=True),
    "rack": Key(text, ""),
    "replicas": Key(size, required=True),
}


def _part(value: Any, path: str) -> Part:
    return Part(**read_keys(value, path, PART_KEYS))


ASSIGNMENT_KEYS = {
    "job": Key(text, required=True),
    "pool": Key(text, required=True),
    "count": Key(size, 1),
    "queued": Key(truth, default=False),
    "start_h": Key(amount, 0.0),
    "parts": Key(listed(_part), ()),
    "level": Key(topology),
}
POOL_PRICE_KEYS = {
    "whole_node_usd": Key(amount, 0.0),
    "block_usd": Key(mapped_by_integer(amount), {}),
    "cpu_usd": Key(amount, 0.0),
    "memory_gib_usd": Key(amount, 0.0),
}
TENANT_PRICE_KEYS = {
    "accelerator_usd": Key(amount, 0.0),
    "in_cluster_usd": Key(mapped(amount), {}),
}


def _pool_price(value: Any, path: str) -> PoolPrice:
    return PoolPrice(**read_keys(value, path, POOL_PRICE_KEYS))


def _tenant_price(value: Any, path: str) -> TenantPrice:
    return TenantPrice(**read_keys(value, path, TENANT_PRICE_KEYS))


def _assignment(value: Any, path: str) -> Assignment:
    return Assignment(**read_keys(value, path, ASSIGNMENT_KEYS))


PRICES_KEYS = {
    "pools": Key(mapped(_pool_price), {}),
    "tenants": Key(mapped(_tenant_price), {}),
    "tiers": Key(mapped_by_integer(amount), {}),
}


def _prices(value: Any, path: str) -> Prices:
    return Prices(**read_keys(value, path, PRICES_KEYS))


WARM_KEYS = {
    "assignments": Key(listed(_assignment), ()),
    "prices": Key(_prices),
}


def read_warm(value: Any, path: str) -> Warm:
    """What to start from. Names that the problem does not have are no errors: jobs end. Raises
    `ProblemError`."""
    return Warm(**read_keys(value, path, WARM_KEYS))


def assignment_to_json(item: Assignment) -> dict[str, Any]:
    """An assignment as it is read again."""
    written: dict[str, Any] = {"job": item.job, "pool": item.pool, "count": item.count}
    if item.queued:
        written["queued"] = True
    if item.start_h:
        written["start_h"] = item.start_h
    if item.parts:
        written["parts"] = [_part_to_json(part) for part in item.parts]
    return written if item.level is None else {**written, "level": item.level.value}


def _part_to_json(part: Part) -> dict[str, Any]:
    written: dict[str, Any] = {"pool": part.pool, "replicas": part.replicas}
    return {**written, "rack": part.rack} if part.rack else written


def prices_to_json(prices: Prices) -> dict[str, Any]:
    """Prices as they are read again; what costs nothing is left out."""
    return {
        "pools": {
            name: _without_zeros(
                {
                    "whole_node_usd": price.whole_node_usd,
                    "block_usd": {str(size): usd for size, usd in price.block_usd.items()},
                    "cpu_usd": price.cpu_usd,
                    "memory_gib_usd": price.memory_gib_usd,
                }
            )
            for name, price in prices.pools.items()
        },
        "tenants": {
            name: _without_zeros(
                {
                    "accelerator_usd": price.accelerator_usd,
                    "in_cluster_usd": dict(price.in_cluster_usd),
                }
            )
            for name, price in prices.tenants.items()
        },
        "tiers": {str(priority): min(usd, LARGEST) for priority, usd in prices.tiers.items()},
    }


def _without_zeros(figures: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in figures.items() if value}
