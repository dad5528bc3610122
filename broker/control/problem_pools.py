"""The pools of a cluster as a planning problem takes them. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

from broker.control.featured import Featured, featured_places
from broker.control.price_hours import price_windows, windows_ahead
from broker.model import problem as pm
from broker.model.fleet import PARTS, ClusterView, NodeGroup, PoolCapacity
from broker.model.jobs import Attempt
from broker.sense.accounting import free_pools
from broker.sense.duplicates import PoolKey
from broker.sense.fleet import unusable
from broker.sense.preemptions import rate_per_h
from broker.sense.site_queues import joined_queue
from federation.refusals import Refusal, RefusalCode

GIB = 1024**3


def pool_name(cluster: str, pool: str) -> str:
    """Name of a pool within the federation."""
    return f"{cluster}/{pool}"


def pools_of(
    view: ClusterView,
    attempts: Sequence[Attempt],
    doubled: Mapping[PoolKey, Refusal],
    preempted: Mapping[PoolKey, tuple[int, float]],
    now_ms: int,
    featured: Collection[Featured] = (),
) -> Iterable[pm.Pool]:
    """What a cluster has free now. `attempts`: its live ones and those ended lately; `doubled`:
    pools that do not count; `preempted`: what was seen of runs that were cut short; `featured`:
    what the jobs of the problem ask of nodes."""
    if view.capacity is None:
        return
    refusal = unusable(view, now_ms)
    free = free_pools(view.capacity, attempts)
    may_wait = view.capacity.max_queued - sum(attempt.waiting_copies for attempt in attempts)
    racks = PARTS in view.identity.capabilities
    closing = windows_ahead(view.capacity.windows, now_ms)
    for now, whole in zip(free, view.capacity.pools, strict=True):
        price = view.prices.get(now.pool)
        key = str(view.identity.name), now.pool
        name = pool_name(*key)
        why = refusal or doubled.get(key)
        if why is None and price is None:
            why = Refusal(RefusalCode.PRICE_UNKNOWN, name, available="no price was reported")
        elif why is None and price is not None and 0 < price.valid_until_ms < now_ms:
            why = Refusal(RefusalCode.PRICE_UNKNOWN, name, available="its price has expired")
        price_usd = price.marginal_micro_usd / 1e6 if price else 0.0
        stated_per_h = price.preemptions_per_h if price else 0.0
        yield pm.Pool(
            name=name,
            cluster=view.identity.name,
            accelerator=whole.groups[0].accelerator if whole.groups else pm.CPU,
            price_usd_per_accelerator_hour=price_usd,
            accelerators_per_node=max((g.total for g in whole.groups), default=1),
            nodes=_nodes(now.groups, by_rack=racks, free=True),
            when_empty=_nodes(whole.groups, by_rack=racks, free=False),
            spot=price is not None and price.kind == "spot",
            domain=_domain(whole),
            prices=price_windows(price, now_ms),
            preemptions_per_h=rate_per_h(stated_per_h, preempted.get(key, (0, 0.0))),
            extras={name: free for name, (_, free) in now.extras.items()}
            | featured_places(now.groups, featured),
            maintenance=closing,
            per_node=True,
            unusable=why,
            queue=joined_queue(whole.queue, may_wait, price_usd),
        )


def _domain(pool: PoolCapacity) -> str:
    """The rack or switch that all nodes of a pool share; empty where none is known."""
    first, *others = {group.domain for group in pool.groups} or {""}
    return "" if others else first


def _nodes(groups: Iterable[NodeGroup], *, by_rack: bool, free: bool) -> tuple[pm.NodeGroup, ...]:
    """What the decision takes of them; what else they are makes no groups of their own. Racks do
    where the site puts replicas into the one it is told."""
    alike: Counter[tuple[int, int, int, str]] = Counter()
    for g in groups:
        rack = g.domain if by_rack else ""
        now = (g.free, g.free_cpus_milli, g.free_memory_bytes, rack)
        alike[now if free else (g.total, g.cpus_milli, g.memory_bytes, rack)] += g.count
    return tuple(
        pm.NodeGroup(count, accelerators, cpus_milli / 1000, memory_bytes / GIB, rack)
        for (accelerators, cpus_milli, memory_bytes, rack), count in alike.items()
    )
