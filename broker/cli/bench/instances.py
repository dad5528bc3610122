"""Made-up planning problems, like what large federations see: heavy-tailed arrays and gangs, pools
of very different sizes, spot, quotas, residency, deadlines, budgets, data in other regions, and one
class in seven running somewhere already. The same arguments give the same problem.

Five accelerator models with their speeds and prices, nodes of 8, regions on up to five continents:
near and cheap to reach within one, far and dear between them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

Document = dict[str, Any]

_MODELS = ("H100", "A100", "L40S", "910B", "CPU")
_POOL_SHARE = (0.25, 0.27, 0.14, 0.12, 0.22)
_WANTED = (0.42, 0.33, 0.15, 0.10)
"""How often jobs that do not want CPUs name the first four."""
_PRICE = {"H100": 3.2, "A100": 1.85, "L40S": 0.87, "910B": 1.27, "CPU": 0.25}
_SPEED = {"H100": 2.2, "A100": 1.0, "L40S": 0.55, "910B": 0.9, "CPU": 1.0}
_CPUS = {"H100": 12, "A100": 12, "L40S": 12, "910B": 12, "CPU": 8}
_MEMORY = {"H100": 120, "A100": 120, "L40S": 96, "910B": 110, "CPU": 32}
_VALUE = {"0": 500.0, "1": 2000.0, "2": 8000.0, "3": 32000.0}
_IMAGES = 40
_NODE = 8


@dataclass(frozen=True, slots=True)
class Size:
    """`jobs` copies in `classes` classes over `clusters` clusters; `load` is the accelerators asked
    for over those free. With as many classes as jobs nothing is identical."""

    clusters: int
    jobs: int
    classes: int
    load: float = 1.0


def an_instance(size: Size, seed: int, mode: str = "scalar") -> Document:
    """A problem in the public JSON form, in `scalar` or `place_first` mode."""
    dice = np.random.default_rng([seed, size.clusters, size.jobs, size.classes])
    world = _a_world(dice, size.clusters)
    regions = world.regions
    clusters = _clusters(dice, size.clusters, regions)
    jobs, wanted = _jobs(dice, size, world)
    pools = _pools(dice, [c["name"] for c in clusters], wanted, size.load)
    _start_some(dice, jobs, pools)
    objective: Document = {"mode": mode, "fragmentation_usd_per_node": 20.0}
    if mode == "scalar":
        objective["value_usd_per_accelerator"] = _VALUE
    return {
        "version": 1,
        "now": "2026-01-01T00:00:00Z",
        "objective": objective,
        "regions": regions,
        "rtt_ms": world.rtt_ms.tolist(),
        "egress_usd_per_gb": world.egress.tolist(),
        "clusters": clusters,
        "pools": pools,
        "tenants": _tenants(dice, jobs, pools, clusters),
        "jobs": jobs,
    }


def changed(document: Document, share: float, seed: int) -> Document:
    """The problem a cycle later: that share of the jobs has gone and as many others have come, with
    the ids of their own."""
    dice = np.random.default_rng([seed, 7])
    jobs = document["jobs"]
    gone = set(dice.choice(len(jobs), max(1, int(len(jobs) * share)), replace=False).tolist())
    kept: list[Document] = []
    for index, job in enumerate(jobs):
        if index not in gone:
            kept.append(job)
            continue
        new = {k: v for k, v in job.items() if k not in ("current_pool", "migration_usd")}
        new["id"] = f"{job['id']}n"
        new["runtime_h"] = job["runtime_h"] * float(dice.uniform(0.6, 1.6))
        new["input_gb"] = job["input_gb"] * float(dice.uniform(0.5, 2.0))
        new["image"] = f"img{int(dice.integers(_IMAGES))}"
        kept.append(new)
    return {**document, "jobs": kept}


@dataclass(frozen=True, slots=True)
class _World:
    regions: list[str]
    continent: Any
    rtt_ms: Any
    egress: Any


def _a_world(dice: np.random.Generator, clusters: int) -> _World:
    number = next(n for most, n in ((20, 4), (60, 8), (120, 16), (1 << 60, 24)) if clusters <= most)
    continent = np.arange(number) % min(number, 5)
    centres = dice.uniform(0, 150, (5, 2))
    places = centres[continent] + dice.uniform(0, 12, (number, 2))
    far = np.sqrt(((places[:, None] - places[None, :]) ** 2).sum(axis=2))
    same = continent[:, None] == continent[None, :]
    rtt = np.round(np.where(same, 1.0 + far, 60.0 + far), 3)
    np.fill_diagonal(rtt, 1.0)
    egress = np.where(same, 0.02, 0.09)
    np.fill_diagonal(egress, 0.0)
    return _World([f"r{i}" for i in range(number)], continent, rtt, egress)


def _clusters(dice: np.random.Generator, number: int, regions: list[str]) -> list[Document]:
    found = []
    for index in range(number):
        cached = dice.random(_IMAGES) < 0.4
        cold = np.where(cached, 15.0, np.round(dice.uniform(60, 900, _IMAGES), 1))
        found.append(
            {
                "name": f"c{index}",
                "region": regions[int(dice.integers(len(regions)))],
                "cold_start_s": {f"img{i}": float(s) for i, s in enumerate(cold)},
            }
        )
    return found


def _jobs(
    dice: np.random.Generator, size: Size, world: _World
) -> tuple[list[Document], dict[str, float]]:
    """The jobs, and the accelerators asked for by model (shared among those that will do)."""
    counts = np.ones(size.classes, dtype=np.int64)
    if size.jobs > size.classes:
        weights = dice.pareto(1.6, size.classes) + 0.5
        more = dice.multinomial(size.jobs - size.classes, weights / weights.sum())
        counts += more
    wanted = dict.fromkeys(_MODELS, 0.0)
    jobs = []
    for index in range(size.classes):
        job = _job(dice, index, int(counts[index]), world)
        jobs.append(job)
        amount = job["count"] * job["replicas"] * job["accelerators_per_replica"]
        for model in job["accelerators"]:
            wanted[model] += amount / len(job["accelerators"])
    return jobs, wanted


def _job(dice: np.random.Generator, index: int, count: int, world: _World) -> Document:
    regions = world.regions
    models = _models(dice)
    speeds = {m: round(_SPEED[m] * float(dice.uniform(0.8, 1.2)), 4) for m in models}
    each = int(dice.choice([1, 2, 4, 8], p=[0.39, 0.17, 0.16, 0.28]))
    gang = 1
    if each == _NODE and models != ["CPU"] and dice.random() < 0.35:
        gang = int(dice.choice([2, 4, 8, 16], p=[0.3, 0.3, 0.28, 0.12]))
    user = int(dice.integers(len(regions)))
    data = user if dice.random() < 0.8 else int(dice.integers(len(regions)))
    runtime = round(float(np.exp(dice.normal(1.1, 1.0))) + 0.05, 4)
    job: Document = {
        "id": f"j{index}",
        "tenant": f"t{min(19, int(dice.geometric(0.12)) - 1)}",
        "count": count,
        "priority": int(dice.choice(4, p=[0.3, 0.44, 0.18, 0.08])),
        "replicas": gang,
        "accelerators_per_replica": each,
        "accelerators": speeds,
        "runtime_h": runtime,
        "cpus_per_accelerator": 8 if models == ["CPU"] else int(dice.choice([4, 8, 12, 16])),
        "memory_gib_per_accelerator": int(
            dice.choice([16, 32]) if models == ["CPU"] else dice.choice([32, 64, 96, 160])
        ),
        "spot_ok": bool(dice.random() < 0.52),
        "user_region": regions[user],
        "data_region": regions[data],
        "input_gb": round(float(np.exp(dice.normal(3.0, 1.8))), 2),
        "regions": _allowed(dice, data, world),
        "latency_usd_per_ms": round(max(0.0, float(dice.normal(-0.005, 0.01))), 5),
        "image": f"img{int(dice.integers(_IMAGES))}",
    }
    if dice.random() < 0.3:
        job["deadline_h"] = round(runtime * float(dice.uniform(0.8, 2.45)), 4)
    if dice.random() < 0.18:
        cheapest = min(_PRICE[m] * runtime / speed for m, speed in speeds.items())
        job["budget_usd"] = round(cheapest * gang * each * float(dice.uniform(0.8, 2.6)) + 0.2, 2)
    if dice.random() < 0.31:
        near = np.sort(world.rtt_ms[user][world.continent == world.continent[user]])
        job["max_rtt_ms"] = round(float(near[-1]) * float(dice.uniform(0.8, 3.0)) + 2.0, 2)
    return job


def _models(dice: np.random.Generator) -> list[str]:
    """The accelerator models that will do, the preferred first."""
    if dice.random() < 0.19:
        return ["CPU"]
    number = int(dice.choice([1, 2, 3, 4], p=[0.24, 0.42, 0.27, 0.07]))
    chosen = dice.choice(4, number, replace=False, p=_WANTED)
    return [_MODELS[i] for i in sorted(chosen.tolist())]


def _allowed(dice: np.random.Generator, data: int, world: _World) -> list[str]:
    """Everywhere; or the continent of the data, or that and another one."""
    if dice.random() < 0.5:
        return world.regions
    kept = {int(world.continent[data])}
    if dice.random() < 0.35:
        kept.add(int(dice.integers(int(world.continent.max()) + 1)))
    return [r for r, c in zip(world.regions, world.continent.tolist(), strict=True) if c in kept]


def _pools(
    dice: np.random.Generator, clusters: list[str], wanted: dict[str, float], load: float
) -> list[Document]:
    """Two to six pools a cluster; together they have what is wanted over the load, model by
    model."""
    drawn: list[tuple[str, str, bool, float]] = []
    for cluster in clusters:
        for _ in range(int(dice.choice([2, 3, 4, 5, 6], p=[0.1, 0.25, 0.35, 0.2, 0.1]))):
            model = _MODELS[int(dice.choice(len(_MODELS), p=_POOL_SHARE))]
            spot = model != "CPU" and bool(dice.random() < 0.27)
            if (cluster, model, spot) not in {(c, m, s) for c, m, s, _ in drawn}:
                drawn.append((cluster, model, spot, float(dice.pareto(1.3) + 0.15)))
    total = {model: sum(w for _, m, _, w in drawn if m == model) for model in _MODELS}
    pools = []
    for index, (cluster, model, spot, weight) in enumerate(drawn):
        free = max(1, round(wanted[model] / load * weight / total[model]))
        nodes = _free_nodes(dice, free)
        real = sum(int(k) * n for k, n in nodes.items())
        price = _PRICE[model] * float(dice.uniform(0.78, 1.25)) * (0.42 if spot else 1.0)
        pools.append(
            {
                "name": f"p{index}",
                "cluster": cluster,
                "accelerator": model,
                "spot": spot,
                "price_usd_per_accelerator_hour": round(price, 4),
                "accelerators_per_node": _NODE,
                "free_nodes": nodes,
                "free_cpus": round(real * _CPUS[model] * float(dice.uniform(0.8, 1.5))),
                "free_memory_gib": round(real * _MEMORY[model] * float(dice.uniform(0.8, 1.3))),
            }
        )
    return pools


def _free_nodes(dice: np.random.Generator, free: int) -> dict[str, int]:
    """Mostly whole nodes, and an eighth of the accelerators on partly free ones."""
    nodes: dict[str, int] = {}
    parts = free if free < _NODE else int(free * 0.12)
    while parts > 0:
        some = min(parts, int(dice.integers(1, _NODE)))
        nodes[str(some)] = nodes.get(str(some), 0) + 1
        parts -= some
    if free >= _NODE:
        nodes[str(_NODE)] = max(1, round(free * 0.88 / _NODE))
    return nodes


def _start_some(dice: np.random.Generator, jobs: list[Document], pools: list[Document]) -> None:
    """One class in seven runs somewhere it may."""
    by_model: dict[str, list[Document]] = {}
    for pool in pools:
        by_model.setdefault(pool["accelerator"], []).append(pool)
    for job in jobs:
        if dice.random() < 0.15:
            model = next(iter(job["accelerators"]))
            fitting = [p for p in by_model.get(model, []) if job["spot_ok"] or not p["spot"]]
            if fitting:
                job["current_pool"] = fitting[int(dice.integers(len(fitting)))]["name"]
                gang = job["replicas"] * job["accelerators_per_replica"]
                job["migration_usd"] = round(0.5 + 0.3 * gang, 2)


def _tenants(
    dice: np.random.Generator,
    jobs: list[Document],
    pools: list[Document],
    clusters: list[Document],
) -> list[Document]:
    """Quotas of 0.6 to 1.6 of what a tenant asks for; in one cluster in ten also one there."""
    asked: dict[str, int] = {}
    for job in jobs:
        gang = job["replicas"] * job["accelerators_per_replica"]
        asked[job["tenant"]] = asked.get(job["tenant"], 0) + job["count"] * gang
    free = sum(int(k) * n for pool in pools for k, n in pool["free_nodes"].items())
    mean = free / len(clusters)
    tenants = []
    for name in sorted(asked):
        chosen = [c["name"] for c in clusters if dice.random() < 0.1]
        tenants.append(
            {
                "name": name,
                "quota_accelerators": max(8, int(asked[name] * float(dice.uniform(0.6, 1.6)))),
                "cluster_quota": {c: int(mean * float(dice.uniform(0.02, 0.4))) for c in chosen},
            }
        )
    return tenants
