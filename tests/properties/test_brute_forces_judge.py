"""Each hard constraint is judged by a brute force: on some problem that is drawn, the best plan
gets better once that constraint is lifted in the document. So a constraint that the brute forces do
not know of, or never meet, cannot be listed."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from broker.decide.constraints import CONSTRAINTS
from tests.properties import test_decide_brute_force as whole
from tests.properties import test_gangs_brute_force as gangs
from tests.properties.test_decide_brute_force import Document, free_now

SEEDS = 300
BY_CALLER = {"usable", "exclusion"}
"""A caller says these pair by pair: they have no figure that a brute force could weigh."""
Lift = Callable[[Document], None]


def of_jobs(*names: str) -> Lift:
    """Jobs without some keys."""

    def lift(document: Document) -> None:
        for job in document["jobs"]:
            for name in names:
                job.pop(name, None)

    return lift


def all_jobs(**values: object) -> Lift:
    """Jobs with some values."""
    return lambda document: [job.update(values) for job in document["jobs"]] and None


def of_pools(*names: str) -> Lift:
    """Pools, and their nodes, without some keys."""

    def lift(document: Document) -> None:
        for pool in document["pools"]:
            for item in (pool, *pool.get("nodes", [])):
                for name in names:
                    item.pop(name, None)

    return lift


def any_model(document: Document) -> None:
    for job in document["jobs"]:
        job["accelerators"] = {"H100": 1, "A100": 1, **job["accelerators"]}


def four_times_the_nodes(document: Document) -> None:
    for pool in document["pools"]:
        for start in pool.get("later", []):
            start["free_accelerators"] += 3 * free_now(pool)
        for group in pool.get("nodes", []):
            group["count"] *= 4
        for size in pool.get("free_nodes", {}):
            pool["free_nodes"][size] *= 4


def one_large_node_each(document: Document) -> None:
    if document["objective"]["fragmentation_usd_per_node"]:
        return
    for pool in document["pools"]:
        if "nodes" not in pool and sum(pool["free_nodes"].values()) > 1:
            total = max(free_now(pool), pool["accelerators_per_node"])
            pool |= {"free_nodes": {str(free_now(pool)): 1}, "accelerators_per_node": total}


def more_in_queues(document: Document) -> None:
    for pool in document["pools"]:
        if "queue" in pool:
            pool["queue"]["max_pending"] += 3


def more_later(document: Document) -> None:
    for pool in document["pools"]:
        for start in pool.get("later", []):
            start["free_accelerators"] += 20


def more_licences(document: Document) -> None:
    for pool in document["pools"]:
        pool["extras"] = {"licence": 99}


def one_rack_of_all(document: Document) -> None:
    for pool in document["pools"]:
        for item in (pool, *pool.get("nodes", [])):
            item["domain"] = "r0"


def no_tenant_quota(document: Document) -> None:
    for tenant in document["tenants"]:
        tenant.pop("quota_accelerators", None)


def no_cluster_quota(document: Document) -> None:
    for tenant in document["tenants"]:
        tenant["cluster_quota"] = {}


LIFTS: dict[str, Lift] = {
    "model": any_model,
    "spot": all_jobs(spot_ok=True),
    "region": of_jobs("regions"),
    "round trip": of_jobs("max_rtt_ms"),
    "accelerator memory": of_jobs("accelerator_memory_gib"),
    "rack": one_rack_of_all,
    "deadline": of_jobs("deadline_h"),
    "maintenance": of_pools("maintenance"),
    "budget": of_jobs("budget_usd"),
    "price cap": of_jobs("max_price_usd_per_accelerator_hour"),
    "tenant quota": no_tenant_quota,
    "cluster quota": no_cluster_quota,
    "topology": of_jobs("topology"),
    "one rack": one_rack_of_all,
    "one per node": all_jobs(one_per_node=False),
    "several pools": all_jobs(several_pools=True),
    "node shape": one_large_node_each,
    "capacity": four_times_the_nodes,
    "cpus": of_pools("free_cpus"),
    "memory": of_pools("free_memory_gib"),
    "queue": more_in_queues,
    "later": more_later,
    "extras": more_licences,
    "spread": of_jobs("spread_max_per_cluster"),
    "apart": of_jobs("apart"),
    "apart region": of_jobs("apart_region"),
}
OF_GANGS = {"one rack", "one per node", "several pools"}
TIGHT = {"cpus", "memory", "later"}


def best_of_gangs(document: Document) -> tuple[tuple[float, ...], float] | None:
    force = gangs.Force(document)
    return force.solve() if force.size() <= gangs.MOST_WAYS // 10 else None


def drawn(name: str, seed: int) -> Document:
    if name in OF_GANGS:
        return gangs.within_reach(seed)
    return whole.a_tight_document(seed) if name in TIGHT else whole.a_document(seed)


def gains(name: str, seed: int) -> bool:
    """Whether the best plan of a drawn problem gets better without a constraint."""
    document = drawn(name, seed)
    lifted = json.loads(json.dumps(document))
    LIFTS[name](lifted)
    if lifted == document:
        return False
    if name not in OF_GANGS:
        return whole.Force(lifted).best() > whole.Force(document).best()
    before, after = best_of_gangs(document), best_of_gangs(lifted)
    return before is not None and after is not None and after > before


def test_each_constraint_can_be_lifted() -> None:
    names = {constraint.name for constraint in CONSTRAINTS}
    assert names - BY_CALLER == LIFTS.keys()
    assert all(not c.codes for c in CONSTRAINTS if c.name in BY_CALLER)
    assert all(c.codes for c in CONSTRAINTS if c.name not in BY_CALLER)


@pytest.mark.parametrize("name", LIFTS)
def test_a_brute_force_finds_better_plans_without_it(name: str) -> None:
    assert any(gains(name, seed) for seed in range(SEEDS))
