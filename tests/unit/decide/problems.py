"""Builders of planning problems in the public JSON form, for tests."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

Document = dict[str, Any]


def a_pool(name: str = "p0", **changes: Any) -> Document:
    """A pool of two whole 8-card nodes at 1 USD an hour."""
    pool: Document = {
        "name": name,
        "cluster": "c0",
        "accelerator": "H100",
        "price_usd_per_accelerator_hour": 1.0,
        "accelerators_per_node": 8,
        "free_nodes": {"8": 2},
    }
    pool.update(changes)
    if "nodes" in changes:
        pool.pop("free_nodes")
    return pool


def a_job(name: str = "j0", **changes: Any) -> Document:
    """A job of one card for an hour."""
    job: Document = {"id": name, "tenant": "t0", "accelerators": {"H100": 1}, "runtime_h": 1}
    return {**job, **changes}


def a_problem(**changes: Any) -> Document:
    """One region, one cluster, one pool, one job; `place_first`."""
    problem: Document = {
        "version": 1,
        "objective": {"mode": "place_first"},
        "regions": ["east", "west"],
        "clusters": [{"name": "c0", "region": "east"}],
        "pools": [a_pool()],
        "jobs": [a_job()],
    }
    return {**problem, **changes}


def scalar(value: float = 100, **changes: Any) -> Document:
    """An objective in scalar mode with one value for priorities 0 to 3."""
    values = {str(level): value for level in range(4)}
    return {"mode": "scalar", "value_usd_per_accelerator": values, **changes}


def data_dir() -> Path | None:
    """Where the example problems lie: `TRADEWIND_DATA`, or ../shared/data beside the checkout."""
    default = Path(__file__).resolve().parents[4] / "shared" / "data"
    found = Path(os.environ.get("TRADEWIND_DATA", default))
    return found if (found / "problems").is_dir() else None
