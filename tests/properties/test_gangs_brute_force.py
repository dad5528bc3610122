"""Where the replicas of gangs lie: the decided objective equals an independent brute force.

The brute force is written from docs/planning-problem.md alone. It puts every replica of every copy
on every node it may be on, sees from that what each copy shares and costs, and keeps the best.
"""

from __future__ import annotations

import itertools
import json
import math
import random
from typing import Any

import pytest

from broker.decide.decision import decide
from broker.decide.problem_file import parse_problem
from broker.decide.verify import verify
from broker.model.plan import Plan, PlanStatus

PROBLEMS = 200
BATCH = 25
SIZE = 4
MOST_WAYS = 40_000
Document = dict[str, Any]
Node = tuple[int, str]
"""Pool by index, and rack ("" where none is known)."""


def a_document(seed: int) -> Document:
    dice = random.Random(seed)
    clusters = [{"name": f"c{i}", "region": "here"} for i in range(dice.randint(1, 2))]
    pools = [a_pool(dice, i, clusters) for i in range(dice.randint(1, 3))]
    mode = dice.choice(["scalar", "place_first"])
    objective: Document = {"mode": mode, "fragmentation_usd_per_node": dice.choice([0, 0, 3])}
    if mode == "scalar":
        objective["value_usd_per_accelerator"] = {x: dice.choice([2, 9, 50]) for x in "01"}
    quota = dice.choice([{}, {}, {"quota_accelerators": dice.randint(2, 10)}])
    return {
        "version": 1,
        "objective": objective,
        "regions": ["here"],
        "clusters": clusters,
        "pools": pools,
        "tenants": [{"name": "t", **quota}],
        "jobs": [a_job(dice, i, pools) for i in range(dice.randint(1, 4))],
    }


def a_pool(dice: random.Random, index: int, clusters: list[Document]) -> Document:
    groups = [
        {
            "count": dice.choice([1, 1, 2]),
            "free_accelerators": dice.choice([SIZE, SIZE, dice.randint(1, SIZE)]),
            **dice.choice([{}, {"domain": "r0"}, {"domain": "r1"}, {"domain": "r1"}]),
            **dice.choice([{}, {}, {}, {"free_cpus": dice.choice([3, 5.5])}]),
        }
        for _ in range(dice.randint(1, 3))
    ]
    return {
        "name": f"p{index}",
        "cluster": dice.choice(clusters)["name"],
        "accelerator": dice.choice(["H100", "H100", "H100", "A100"]),
        "price_usd_per_accelerator_hour": dice.choice([1, 1.5, 4]),
        "accelerators_per_node": SIZE,
        "nodes": groups,
        **dice.choice([{}, {}, {"domain": "r0"}]),
        **dice.choice([{}, {}, {"extras": {"licence": dice.randint(0, 4)}}]),
    }


def a_job(dice: random.Random, index: int, pools: list[Document]) -> Document:
    job: Document = {
        "id": f"j{index}",
        "tenant": "t",
        "count": dice.choice([1, 1, 2]),
        "priority": dice.randint(0, 1),
        "replicas": dice.choice([1, 2, 2, 3]),
        "accelerators_per_replica": dice.choice([1, 1, 2, 3, SIZE]),
        "accelerators": dice.choice([{"H100": 1}, {"H100": 2, "A100": 1}]),
        "runtime_h": dice.choice([1, 2.5]),
        "topology": dice.choice(["cluster", "cluster", "cluster", "rack", "rack", "node"]),
    }
    if dice.random() < 0.4:
        job["topology_usd"] = dice.choice(
            [{"rack": 2, "cluster": 11}, {"cluster": 4.5}, {"node": 1, "rack": 3, "cluster": 3}]
        )
    job["several_pools"] = dice.random() < 0.5
    job["one_per_node"] = dice.random() < 0.25
    others: list[Document] = [
        {"cpus_per_replica": dice.choice([1, 2.6])},
        {"budget_usd": dice.choice([6, 20])},
        {"apart": "group"},
        {"apart_region": "group"},
        {"spread_max_per_cluster": 1},
        {"extras_per_replica": {"licence": 1}},
        {"current_pool": dice.choice(pools)["name"], "migration_usd": 7, "lost_work_usd": 5},
    ]
    for other in dice.sample(others, dice.choice([0, 0, 1])):
        job.update(other)
    return job


# Brute force ------------------------------------------------------------------------------------


class Force:
    def __init__(self, document: Document) -> None:
        self.document = document
        self.pools, self.jobs = document["pools"], document["jobs"]
        self.nodes: list[Node] = []
        self.free: list[float] = []
        self.cpus: list[float] = []
        for p, pool in enumerate(self.pools):
            for group in pool["nodes"]:
                for _ in range(group["count"]):
                    self.nodes.append((p, group.get("domain", pool.get("domain", ""))))
                    self.free.append(group["free_accelerators"])
                    self.cpus.append(group.get("free_cpus", math.inf))
        self.whole = [free == SIZE for free in self.free]
        self.used = [False] * len(self.nodes)
        self.best: tuple[tuple[float, ...], float] = ((-1.0,), -math.inf)

    def ways(self, job: Document) -> list[tuple[tuple[int, ...], float]]:
        """Nodes for the replicas of one copy, and what it costs there."""
        found = []
        for seats in itertools.combinations_with_replacement(
            range(len(self.nodes)), job["replicas"]
        ):
            usd = self.copy_usd(job, seats)
            if usd is not None and all(
                seats.count(n) * job["accelerators_per_replica"] <= self.free[n] for n in {*seats}
            ):
                found.append((seats, usd))
        return found

    def copy_usd(self, job: Document, seats: tuple[int, ...]) -> float | None:
        pools = {self.nodes[n][0] for n in seats}
        if len(pools) > 1 and not job["several_pools"]:
            return None
        kinds = {(self.pools[p]["cluster"], self.pools[p]["accelerator"]) for p in pools}
        if len(kinds) > 1 or not all(a in job["accelerators"] for _, a in kinds):
            return None
        alone = len({*seats}) == 1
        racks = {self.nodes[n][1] for n in seats}
        level = "node" if alone else "rack" if len(racks) == 1 and "" not in racks else "cluster"
        order = ["node", "rack", "cluster"]
        if job["replicas"] > 1 and order.index(level) > order.index(job["topology"]):
            return None
        in_rack = job["topology"] == "rack" and not job.get("topology_usd")
        if job["replicas"] > 1 and in_rack and "" in racks:
            # Without prices nobody says that one node is enough: the rack must be known.
            return None
        if job["one_per_node"] and not alone and len({*seats}) < len(seats):
            return None
        if job["one_per_node"] and alone and job["replicas"] > 1 and job["topology"] != "node":
            return None
        usd = 0.0
        gang = job["replicas"] * job["accelerators_per_replica"]
        for n in seats:
            pool = self.pools[self.nodes[n][0]]
            hours = job["runtime_h"] / job["accelerators"][pool["accelerator"]]
            run_usd = gang * hours * pool["price_usd_per_accelerator_hour"]
            if run_usd > job.get("budget_usd", math.inf) * (1 + 1e-9):
                return None
            if job.get("current_pool", pool["name"]) != pool["name"]:
                run_usd += job["migration_usd"] + job["lost_work_usd"]
            usd += run_usd / job["replicas"]
        if job["replicas"] > 1:
            # A copy may be said to share less than it does, where that is cheaper.
            prices = job.get("topology_usd", {})
            allowed = order[order.index(level) : order.index(job["topology"]) + 1]
            usd += min(prices.get(name, 0) for name in allowed)
        return usd

    def solve(self) -> tuple[tuple[float, ...], float]:
        self.levels = sorted({job["priority"] for job in self.jobs}, reverse=True)
        self.choices = [self.ways(job) for job in self.jobs]
        self.rest(0, 0, 0, 0.0, {}, {})
        return self.best

    def size(self) -> int:
        """About how many plans there are."""
        total = 1
        for job in self.jobs:
            total *= math.comb(len(self.ways(job)) + job["count"], job["count"])
        return total

    def rest(
        self, index: int, copy: int, least: int, usd: float, placed: Document, used: Document
    ) -> None:
        """Copies of a job from one on, each in a way that is not before that of the last."""
        if index == len(self.jobs):
            self.judge(usd, placed)
            return
        job = self.jobs[index]
        lost = job.get("lost_work_usd", 0) * (job["count"] - copy)
        self.rest(index + 1, 0, 0, usd + lost, placed, used)
        if copy == job["count"]:
            return
        gang = job["replicas"] * job["accelerators_per_replica"]
        tenant = self.document["tenants"][0]
        if sum(placed.values()) + gang > tenant.get("quota_accelerators", math.inf):
            return
        for way in range(least, len(self.choices[index])):
            seats, cost = self.choices[index][way]
            now = self.taken(job, seats, used)
            if now is None:
                continue
            before = self.free, self.cpus, self.used
            self.free, self.cpus, self.used = [*self.free], [*self.cpus], [*self.used]
            if self.sit(job, seats):
                more = {**placed, job["priority"]: placed.get(job["priority"], 0) + gang}
                self.rest(index, copy + 1, way, usd + cost, more, now)
            self.free, self.cpus, self.used = before

    def taken(self, job: Document, seats: tuple[int, ...], used: Document) -> Document | None:
        """What copies share beside nodes, with one more; None where that is too much."""
        now = dict(used)
        cluster = self.pools[self.nodes[seats[0]][0]]["cluster"]
        limits: list[tuple[Any, int]] = []
        if "apart" in job:
            limits.append((("apart", cluster), 1))
        if "apart_region" in job:
            limits.append((("region",), 1))
        if "spread_max_per_cluster" in job:
            limits.append(((job["id"], cluster), job["spread_max_per_cluster"]))
        if job["one_per_node"]:
            limits += [((job["id"], n), 1) for n in {*seats}]
        if "extras_per_replica" in job:
            for n in seats:
                p = self.nodes[n][0]
                limits.append((("licence", p), self.pools[p].get("extras", {}).get("licence", 0)))
        for key, most in limits:
            now[key] = now.get(key, 0) + 1
            if now[key] > most:
                return None
        return now

    def sit(self, job: Document, seats: tuple[int, ...]) -> bool:
        # What shares a node counts as one replica.
        together = self.together(job, seats)
        for n in seats:
            self.free[n] -= job["accelerators_per_replica"]
            self.cpus[n] -= job.get("cpus_per_replica", 0)
            self.used[n] |= together < SIZE
        return all(self.free[n] >= 0 and self.cpus[n] >= -1e-6 for n in seats)

    def together(self, job: Document, seats: tuple[int, ...]) -> int:
        size: int = job["accelerators_per_replica"]
        pays = job["topology"] == "node" or bool(job.get("topology_usd"))
        if len({*seats}) == 1 and pays:
            prices, order = job.get("topology_usd", {}), ["node", "rack", "cluster"]
            allowed = order[: order.index(job["topology"]) + 1]
            if prices.get("node", 0) <= min(prices.get(name, 0) for name in allowed):
                return size * job["replicas"]
        return size

    def judge(self, usd: float, placed: Document) -> None:
        objective = self.document["objective"]
        opened = sum(u and w for u, w in zip(self.used, self.whole, strict=True))
        usd += opened * objective["fragmentation_usd_per_node"]
        tiers: tuple[float, ...] = tuple(placed.get(level, 0) for level in self.levels)
        found = (tiers, -usd)
        if objective["mode"] == "scalar":
            values = objective["value_usd_per_accelerator"]
            found = ((), sum(values[str(x)] * n for x, n in placed.items()) - usd)
        if found > self.best or self.best[0] == (-1.0,):
            self.best = found


# The test ---------------------------------------------------------------------------------------


def within_reach(seed: int) -> Document:
    """A problem whose plans can be counted out: jobs leave it until that is so."""
    document = a_document(seed)
    while len(document["jobs"]) > 1 and Force(document).size() > MOST_WAYS:
        document["jobs"].pop()
    return document


def lies_as_said(document: Document, plan: Plan) -> None:
    """Every copy has all its replicas, where its parts say."""
    jobs = {job["id"]: job for job in document["jobs"]}
    for item in plan.assignments:
        job = jobs[item.job]
        if item.parts:
            assert sum(part.replicas for part in item.parts) == job["replicas"]
            assert len({part.pool for part in item.parts}) == 1 or job["several_pools"]
        assert (item.level is not None) == (bool(job.get("topology_usd")) and job["replicas"] > 1)


@pytest.mark.parametrize("batch", range(PROBLEMS // BATCH))
def test_gangs_lie_as_well_as_brute_force_finds(batch: int) -> None:
    for seed in range(batch * BATCH, (batch + 1) * BATCH):
        document = within_reach(seed)
        if Force(document).size() > MOST_WAYS:
            continue
        problem = parse_problem(json.dumps(document))
        plan = decide(problem)
        assert verify(problem, plan) == (), f"seed {seed}"
        assert plan.status is PlanStatus.OPTIMAL, f"seed {seed}: {plan.status} {plan.notes}"
        lies_as_said(document, plan)
        tiers, objective = Force(document).solve()
        if tiers:
            assert tuple(plan.placed[x] for x in sorted(plan.placed)[::-1]) == tiers, f"seed {seed}"
        assert plan.objective_usd == pytest.approx(objective, rel=1e-6, abs=1e-4), f"seed {seed}"
