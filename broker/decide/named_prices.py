"""Prices by row of a relaxation, and by name: the first for computing, the second to keep."""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from broker.decide.options import Floats
from broker.decide.relaxation import Relaxation
from broker.model.prices import PoolPrice, Prices, TenantPrice


def by_name(rows: Relaxation, prices: Floats) -> Prices:
    """Prices of rows as values by name; what costs nothing is left out."""
    problem = rows.case.problem
    padded = np.append(prices, 0.0)
    pools: dict[str, PoolPrice] = {}
    for index, pool in enumerate(problem.pools):
        blocks = padded[rows.level_row[index]].tolist()
        found = PoolPrice(
            whole_node_usd=float(padded[rows.whole_row[index]]),
            block_usd={s: usd for s, usd in zip(rows.sizes, blocks, strict=True) if usd > 0},
            cpu_usd=float(padded[rows.cpus_row[index]]),
            memory_gib_usd=float(padded[rows.memory_row[index]]),
        )
        if found != PoolPrice():
            pools[pool.name] = found
    total: dict[str, float] = {}
    local: dict[str, dict[str, float]] = defaultdict(dict)
    for quota, (tenant, cluster) in enumerate(rows.case.quotas.names):
        usd = float(padded[rows.quota_row[quota]])
        if usd > 0 and cluster is None:
            total[tenant] = usd
        elif usd > 0 and cluster is not None:
            local[tenant][cluster] = usd
    tenants = {
        name: TenantPrice(total.get(name, 0.0), dict(local.get(name, {})))
        for name in dict.fromkeys([*total, *local])
    }
    tiers = {priority: float(prices[row]) for priority, row in rows.tiers.items()}
    return Prices(pools, tenants, tiers)


def by_row(rows: Relaxation, prices: Prices) -> Floats:
    """Prices by name as one per row; those of rows that no longer exist are passed over, and those
    of classes are 0."""
    problem = rows.case.problem
    found = np.zeros(rows.rows + 1)
    slots = {size: slot for slot, size in enumerate(rows.sizes)}
    for index, pool in enumerate(problem.pools):
        price = prices.pools.get(pool.name)
        if price is None:
            continue
        found[rows.whole_row[index]] = price.whole_node_usd
        for size, usd in price.block_usd.items():
            if size in slots:
                found[rows.level_row[index, slots[size]]] = usd
        found[rows.cpus_row[index]] = price.cpu_usd
        found[rows.memory_row[index]] = price.memory_gib_usd
    for quota, (tenant, cluster) in enumerate(rows.case.quotas.names):
        given = prices.tenants.get(tenant)
        if given is not None:
            usd = given.accelerator_usd if cluster is None else given.in_cluster_usd.get(cluster, 0)
            found[rows.quota_row[quota]] = usd
    for priority, row in rows.tiers.items():
        found[row] = prices.tiers.get(priority, 0.0)
    # The last entry stands for rows that do not exist.
    rest: Floats = found[:-1]
    return rest
