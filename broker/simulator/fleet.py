"""The fleet of a scenario as pools of sites, from its own lines or from a planning problem."""

from __future__ import annotations

import gzip
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC
from pathlib import Path

from broker.decide.problem_file import ProblemError, parse_problem
from broker.model import problem as pm
from broker.settings import TypedRtt
from broker.simulator.scenario import FleetPart, PoolPart, ScenarioError
from federation.accelerators import InvalidAccelerator, identify
from federation.units import GIB
from federation.virtual_time import EPOCH_MS
from regional_agent.price_settings import PriceHours
from regional_agent.sense.prices import DeclaredPrice, HourlyPrice, PriceKind
from regional_agent.session.hours import Hours
from regional_agent.session.ledger import Pool

CPUS_PER_UNIT = 16
GIB_PER_UNIT = 128
CPU = "CPU"


@dataclass(frozen=True, slots=True)
class SitePlan:
    """A cluster to be: `start_s` is what its scheduler needs to start a job."""

    name: str
    region: str
    start_s: float
    pools: tuple[Pool, ...]
    prices: tuple[DeclaredPrice, ...]

    @property
    def accelerators(self) -> int:
        """All cards, or CPU slots."""
        return sum(pool.nodes * pool.accelerators_per_node for pool in self.pools)


@dataclass(frozen=True, slots=True)
class FleetPlan:
    """All clusters and the typed round trips between their regions."""

    sites: tuple[SitePlan, ...]
    typed_rtt: tuple[TypedRtt, ...] = ()

    @property
    def models(self) -> tuple[str, ...]:
        """Accelerator models of the fleet, CPU slots not among them."""
        found = {pool.accelerator for site in self.sites for pool in site.pools}
        return tuple(sorted(found - {CPU}))

    @property
    def node_size(self) -> int:
        """Accelerators of the largest node."""
        return max(p.accelerators_per_node for site in self.sites for p in site.pools)

    def rtt_ms(self, a: str, b: str) -> float:
        """Between two regions; 0.4 ms within one, 20 where nobody said."""
        for typed in self.typed_rtt:
            if {typed.a, typed.b} == {a, b}:
                return typed.rtt_ms
        return 0.4 if a == b else 20.0


def plan_fleet(part: FleetPart, directory: Path) -> FleetPlan:
    """The fleet of a scenario; relative paths start at `directory`. Raises ScenarioError."""
    if part.problem:
        return _from_problem(directory / part.problem)
    sites = []
    names = {cluster.name for cluster in part.clusters}
    for pool in part.pools:
        if pool.cluster not in names:
            raise ScenarioError(f"fleet.pools: {pool.name}: no cluster {pool.cluster!r}")
    for cluster in part.clusters:
        own = [pool for pool in part.pools if pool.cluster == cluster.name]
        if not own:
            raise ScenarioError(f"fleet.clusters: {cluster.name} has no pool")
        pools = tuple(_pool(pool, size, nodes) for pool in own for size, nodes in _sizes(pool))
        prices = tuple(
            replace(_price(name, pool.price_usd_per_accelerator_hour, pool.spot), hours=hours)
            for pool in own
            for hours in [tuple(_hourly(each) for each in pool.hours)]
            for name in [pool.name + _suffix(pool, size) for size, _ in _sizes(pool)]
        )
        sites.append(SitePlan(cluster.name, cluster.region, cluster.start, pools, prices))
    regions = part.regions or tuple(sorted({c.region for c in part.clusters}))
    return FleetPlan(tuple(sites), _typed(regions, part.rtt_ms))


def with_capacity(fleet: FleetPlan, accelerators: Mapping[str, int]) -> FleetPlan:
    """The fleet with so many accelerators in the pools named `cluster/pool` (at least a node)."""
    left = dict(accelerators)

    def sized(site: SitePlan, pool: Pool) -> Pool:
        wanted = left.pop(f"{site.name}/{pool.name}", None)
        if wanted is None:
            return pool
        return replace(pool, nodes=max(1, -(-wanted // pool.accelerators_per_node)))

    sites = tuple(replace(s, pools=tuple(sized(s, p) for p in s.pools)) for s in fleet.sites)
    if left:
        raise ScenarioError(f"fleet.capacity: no pool {min(left)!r}")
    return replace(fleet, sites=sites)


def _sizes(pool: PoolPart) -> list[tuple[int, int]]:
    return sorted(pool.free_nodes.items(), reverse=True)


def _suffix(pool: PoolPart, size: int) -> str:
    """Nodes of which part is taken for good are a pool of their own."""
    return "" if size == pool.accelerators_per_node else f"-{size}"


def _pool(pool: PoolPart, size: int, nodes: int) -> Pool:
    cpus = pool.cpus_per_node or CPUS_PER_UNIT * size
    memory_gib = pool.memory_gib_per_node or GIB_PER_UNIT * size
    return Pool(
        name=pool.name + _suffix(pool, size),
        accelerator=pool.accelerator,
        nodes=nodes,
        accelerators_per_node=size,
        cpus_milli=round(cpus * 1000),
        memory_bytes=round(memory_gib * GIB),
    )


def _price(pool: str, usd: float, spot: bool) -> DeclaredPrice:  # noqa: FBT001
    kind = PriceKind.SPOT if spot else PriceKind.OWNED
    micro = round(usd * 1e6)
    return DeclaredPrice(pool, kind, micro, micro, EPOCH_MS, "scenario")


def _hourly(part: PriceHours) -> HourlyPrice:
    hours = Hours(part.days, part.from_minute, part.until_minute, UTC)
    return HourlyPrice(hours, part.marginal_micro_usd)


def _typed(
    regions: Sequence[str], rows: Sequence[Sequence[float]], floor_ms: float = 0.01
) -> tuple[TypedRtt, ...]:
    if rows and (len(rows) != len(regions) or any(len(r) != len(regions) for r in rows)):
        raise ScenarioError("fleet.rtt_ms: one row and one column per region")
    return tuple(
        TypedRtt(
            a=a,
            b=regions[j],
            rtt_ms=max(rows[i][j], floor_ms),
            source="scenario",
            as_of="2026-01-05T00:00:00Z",
        )
        for i, a in enumerate(regions)
        for j in range(i + 1, len(regions))
        if rows
    )


def _from_problem(path: Path) -> FleetPlan:
    try:
        raw = path.read_bytes()
        problem = parse_problem(gzip.decompress(raw) if path.suffix == ".gz" else raw)
    except (OSError, EOFError, ProblemError) as fault:
        raise ScenarioError(f"fleet.problem: {path}: {fault}") from fault
    sites = []
    for cluster in problem.clusters:
        own = [pool for pool in problem.pools if pool.cluster == cluster.name]
        made = [(pool, _problem_pool(pool, g)) for pool in own for g in pool.nodes if g.count]
        made = [(pool, each) for pool, each in made if each.accelerators_per_node]
        if made:
            prices = tuple(
                _price(each.name, pool.price_usd_per_accelerator_hour, pool.spot)
                for pool, each in made
            )
            start_s = cluster.start_delay_s + cluster.cold_start_s.get("*", 0.5)
            pools = tuple(each for _, each in made)
            sites.append(SitePlan(cluster.name, cluster.region, start_s, pools, prices))
    return FleetPlan(tuple(sites), _typed(problem.regions, problem.rtt_ms))


def _problem_pool(pool: pm.Pool, group: pm.NodeGroup) -> Pool:
    size = group.free_accelerators
    name = re.sub(r"[^a-z0-9-]+", "-", pool.name.lower()).strip("-")
    suffix = "" if size == pool.accelerators_per_node else f"-{size}"
    try:
        model = identify(pool.accelerator).name
    except InvalidAccelerator as fault:
        raise ScenarioError(f"fleet.problem: pool {pool.name}: {fault}") from fault
    cpus = group.free_cpus or CPUS_PER_UNIT * size
    memory_gib = group.free_memory_gib or GIB_PER_UNIT * size
    return Pool(
        f"p-{name}{suffix}"[:63],
        model,
        group.count,
        size,
        round(cpus * 1000),
        round(memory_gib * GIB),
    )
