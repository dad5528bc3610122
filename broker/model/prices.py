"""What capacity and quotas are worth: found by one decision, kept for the next."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class PoolPrice:
    """What one more would gain in a pool: a whole free node, a block of so many accelerators on
    partly free or opened nodes (by size of the block), a cpu, a GiB of memory."""

    whole_node_usd: float = 0.0
    block_usd: Mapping[int, float] = field(default_factory=dict)
    cpu_usd: float = 0.0
    memory_gib_usd: float = 0.0


@dataclass(frozen=True, slots=True)
class TenantPrice:
    """What one more accelerator of quota would gain, over all clusters and by cluster."""

    accelerator_usd: float = 0.0
    in_cluster_usd: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Prices:
    """By name of pool and tenant; what is not named costs nothing. `tiers` are the USD that a
    placed accelerator of a priority counts for, in `place_first` only."""

    pools: Mapping[str, PoolPrice] = field(default_factory=dict)
    tenants: Mapping[str, TenantPrice] = field(default_factory=dict)
    tiers: Mapping[int, float] = field(default_factory=dict)
