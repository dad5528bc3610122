"""The decided objective equals an independent brute force on small problems.

The brute force below is written from docs/planning-problem.md alone: it reads the JSON documents,
tries every way to spread every job's copies over the pools, packs nodes by trying every node for
every replica, and uses none of the code under test.
"""

from __future__ import annotations

import itertools
import json
import math
import random
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

from broker.decide.decision import decide
from broker.decide.problem_file import parse_problem
from broker.decide.verify import verify
from broker.model.plan import Plan, PlanStatus

PROBLEMS = 300
BATCH = 25
SLACK = 1 + 1e-9
PRICE = "price_usd_per_accelerator_hour"
Document = dict[str, Any]


# Random problems --------------------------------------------------------------------------------


def a_document(seed: int) -> Document:
    dice = random.Random(seed)
    regions = ["near", "far", "sea"][: dice.randint(1, 3)]
    size = dice.choice([4, 6, 8, 8])
    clusters = [
        {
            "name": f"c{i}",
            "region": dice.choice(regions),
            "cold_start_s": dice.choice([{}, {"*": 360}, {"img": 1800, "*": 60}]),
            "start_delay_s": dice.choice([0, 0, 0, 900]),
        }
        for i in range(dice.randint(1, 2))
    ]
    pools = [a_pool(dice, i, clusters, size) for i in range(dice.randint(1, 4))]
    mode = dice.choice(["scalar", "place_first"])
    levels = [str(level) for level in range(3)]
    objective: Document = {"mode": mode, "fragmentation_usd_per_node": dice.choice([0, 3, 40])}
    if mode == "scalar":
        objective["value_usd_per_accelerator"] = {
            x: dice.choice([2, 30, 300, 1000]) for x in levels
        }
    elif dice.random() < 0.5:
        objective["weight_per_accelerator"] = {x: dice.choice([0, 1, 2.5]) for x in levels}
    tenants = [
        {
            "name": f"t{i}",
            **dice.choice([{}, {}, {"quota_accelerators": dice.randint(4, 24)}]),
            "cluster_quota": dice.choice([{}, {}, {"c0": dice.randint(2, 12)}]),
        }
        for i in range(2)
    ]
    jobs = [a_job(dice, i, pools, regions, size) for i in range(dice.randint(3, 6))]
    return {
        "version": 1,
        "objective": objective,
        "regions": regions,
        "rtt_ms": [[abs(a - b) * 40 + 1 for b in range(len(regions))] for a in range(len(regions))],
        "egress_usd_per_gb": [[0 if a == b else 0.1 for b in regions] for a in regions],
        **dice.choice([{}, {"bandwidth_gbps": bandwidth(dice, len(regions))}]),
        "clusters": clusters,
        "pools": pools,
        "tenants": tenants,
        "jobs": within_reach(jobs, pools),
    }


def a_tight_document(seed: int) -> Document:
    """The same with little of what seldom runs out: cpus and memory, or room at a later hour."""
    document, dice = a_document(seed), random.Random(seed)
    if dice.random() < 0.5:
        for item in itertools.chain(*(pool.get("nodes", [pool]) for pool in document["pools"])):
            item["free_cpus"] = dice.choice([4, 9.5, 20])
            item["free_memory_gib"] = dice.choice([10, 25.1, 60])
        for job in document["jobs"]:
            if not {"cpus_per_accelerator", "cpus_per_replica"} & job.keys():
                job["cpus_per_replica"] = dice.choice([1, 2.2, 4])
                job["memory_gib_per_replica"] = dice.choice([2, 7.7])
    else:
        for pool in document["pools"]:
            pool["prices"] = [{"from_h": 1, "to_h": 40, PRICE: pool[PRICE] / 4}]
            pool.pop("nodes", None)
            pool["free_nodes"] = {str(dice.randint(1, 4)): 1}
            more = free_now(pool) + dice.choice([0, 0, 1, 3])
            pool["later"] = [{"start_h": 1, "free_accelerators": more}]
        for job in document["jobs"]:
            if "current_pool" not in job:
                job["defer_h"] = dice.choice([0.5, 1, 4])
    document["jobs"] = within_reach(document["jobs"], document["pools"])
    return document


def bandwidth(dice: random.Random, regions: int) -> list[list[float]]:
    return [[dice.choice([0, 0.05, 10]) for _ in range(regions)] for _ in range(regions)]


def a_pool(dice: random.Random, index: int, clusters: list[Document], size: int) -> Document:
    pool: Document = {
        "name": f"p{index}",
        "cluster": dice.choice(clusters)["name"],
        "accelerator": dice.choice(["H100", "H100", "H100", "A100"]),
        "spot": dice.random() < 0.25,
        "price_usd_per_accelerator_hour": dice.choice([0.5, 1.25, 2, 3.1]),
        "accelerators_per_node": size,
    }
    if dice.random() < 0.4:
        pool["nodes"] = [
            {
                "count": dice.randint(1, 2),
                "free_accelerators": dice.choice([size, size, size, dice.randint(0, size)]),
                **dice.choice([{}, {"free_cpus": dice.choice([12, 18, 30.5])}]),
                **dice.choice([{}, {"free_memory_gib": dice.choice([30, 64])}]),
            }
            for _ in range(dice.randint(1, 2))
        ]
    else:
        free = {str(size): dice.randint(0, 3), str(dice.randint(1, size)): dice.randint(1, 2)}
        pool["free_nodes"] = free
        if dice.random() < 0.4:
            pool["free_cpus"] = dice.choice([20, 33.3, 60])
            pool["free_memory_gib"] = dice.choice([40, 100.7])
    if dice.random() < 0.25:
        pool["queue"] = {"start_s": dice.choice([0, 300, 5400]), "max_pending": dice.randint(0, 3)}
        pool["queue"] |= dice.choice([{}, {"waiting_usd_per_accelerator_h": 1.3}])
    if dice.random() < 0.15:
        pool["maintenance"] = [{"from_h": dice.choice([0, 0.2, 4]), "to_h": dice.choice([4.5, 9])}]
    if dice.random() < 0.2:
        night = {"from_h": dice.choice([0, 1, 3]), "to_h": 5, PRICE: dice.choice([0, 0.9, 7])}
        pool["prices"] = [night, {"from_h": 6.5, "to_h": 40, PRICE: 1.7}][: dice.randint(1, 2)]
    if dice.random() < 0.25:
        hours = dice.choice([[1], [2, 5], [0.5, 3]])
        more = free_now(pool) + dice.randint(0, 6)
        pool["later"] = [{"start_h": h, "free_accelerators": more} for h in hours]
    if dice.random() < 0.3:
        pool["preemptions_per_h"] = dice.choice([0, 0.05, 0.4])
    if dice.random() < 0.4:
        pool["extras"] = {"licence": dice.randint(0, 5)}
    if dice.random() < 0.5:
        pool["accelerator_memory_gib"] = dice.choice([40, 80])
    if dice.random() < 0.4:
        pool["domain"] = "rack"
    return pool


def a_job(
    dice: random.Random, index: int, pools: list[Document], regions: list[str], size: int
) -> Document:
    job: Document = {
        "id": f"j{index}",
        "tenant": dice.choice(["t0", "t1"]),
        "count": dice.choice([1, 1, 2, 3]),
        "priority": dice.randint(0, 2),
        "replicas": dice.choice([1, 1, 1, 2, 3]),
        "accelerators_per_replica": dice.choice([s for s in (1, 2, 3, 4, 6, 8) if s <= size]),
        "accelerators": dice.choice([{"H100": 1}, {"H100": 2.5, "A100": 0.8}, {"H100": 0.9}]),
        "runtime_h": dice.choice([0.5, 3, 7.7]),
        "spot_ok": dice.random() < 0.7,
    }
    extras: list[Document] = [
        {"cpus_per_accelerator": dice.choice([2, 3.7]), "memory_gib_per_accelerator": 8},
        {"cpus_per_replica": 9, "memory_gib_per_replica": 10.1},
        {"data_region": dice.choice(regions), "input_gb": dice.choice([5, 80])},
        {"user_region": dice.choice(regions), "latency_usd_per_ms": 0.05},
        {"user_region": dice.choice(regions), "max_rtt_ms": dice.choice([1, 41, 60])},
        {"regions": dice.sample(regions, dice.choice([0, 1, len(regions), len(regions)]))},
        {"deadline_h": dice.choice([1, 3.3, 8, 20])},
        {"budget_usd": dice.choice([8, 40, 90])},
        {"max_price_usd_per_accelerator_hour": dice.choice([1, 2, 3])},
        {"image": dice.choice(["img", "other"])},
        {"value_of_time_usd_per_h": 4},
        {"value_of_time_usd_per_h": 4, "checkpoint_h": dice.choice([0.5, 2])},
        {"data_regions": dice.sample(regions, dice.randint(1, len(regions))), "input_gb": 60},
        {"max_runtime_h": dice.choice([2, 4, 12])},
        {"extras_per_replica": {"licence": dice.randint(1, 2)}},
        {"spread_max_per_cluster": dice.randint(1, 2)},
        {"apart": "group"},
        {"topology": "node"},
        {"topology": "rack"},
        {"topology": "node", "replicas": 2, "accelerators_per_replica": dice.choice([1, 2, 3, 4])},
        {"apart": dice.choice(["group", "other"])},
        {"apart_region": "group"},
        {"max_queue_s": dice.choice([0, 300])},
        {"defer_h": dice.choice([1, 4, 9])},
        {"defer_h": dice.choice([2, 6.5]), "value_of_time_usd_per_h": 0.3},
        {"accelerator_memory_gib": dice.choice([40, 64])},
        {
            "current_pool": dice.choice(pools)["name"],
            "migration_usd": dice.choice([0, 9]),
            "lost_work_usd": dice.choice([0, 0, 25]),
        },
    ]
    for extra in dice.sample(extras, dice.choice([0, 0, 1, 2])):
        if not ({"cpus_per_replica", "cpus_per_accelerator"} & job.keys() & extra.keys()):
            job.update(extra)
    if "current_pool" in job:
        job.pop("defer_h", None)
    if "data_regions" in job:
        job.pop("data_region", None)
    if "cpus_per_replica" in job:
        for name in ("cpus_per_accelerator", "memory_gib_per_accelerator"):
            job.pop(name, None)
    return job


def within_reach(jobs: list[Document], pools: list[Document]) -> list[Document]:
    """As many jobs as the brute force can take."""
    kept: list[Document] = []
    ways = 1
    for job in jobs:
        places = sum(1 + ("queue" in pool) + len(starts(job, pool)) for pool in pools)
        ways *= math.comb(job["count"] + places, places)
        if ways > 15_000:
            break
        kept.append(job)
    return kept


def starts(job: Document, pool: Document) -> list[tuple[float, int]]:
    """Hours at which the job may start in the pool later on, and what may be held there then."""
    return [
        (start_h, room)
        for start_h, room in later_of(pool)
        if start_h <= job.get("defer_h", 0) * SLACK
    ]


def later_of(pool: Document) -> list[tuple[float, int]]:
    if "later" in pool:
        return [(start["start_h"], start["free_accelerators"]) for start in pool["later"]]
    windows = pool.get("prices", [])

    def price(at_h: float) -> float:
        inside = [w[PRICE] for w in windows if w["from_h"] <= at_h < w["to_h"]]
        return float((inside or [pool[PRICE]])[0])

    edges = {w[name] for w in windows for name in ("from_h", "to_h")}
    hours = {h for h in edges if price(h) < price(h - 1e-6)}
    hours |= {w["to_h"] for w in pool.get("maintenance", [])}
    return [(h, free_now(pool)) for h in sorted(hours) if h > 0]


def free_now(pool: Document) -> int:
    free = pool.get("nodes") or [
        {"free_accelerators": int(n), "count": c} for n, c in pool["free_nodes"].items()
    ]
    return sum(node["free_accelerators"] * node.get("count", 1) for node in free)


# Brute force ------------------------------------------------------------------------------------


class Force:
    def __init__(self, document: Document) -> None:
        self.document = document
        self.clusters = {c["name"]: c for c in document["clusters"]}
        self.pools = document["pools"]
        self.jobs = document["jobs"]
        everywhere = range(len(self.pools))
        self.places: list[tuple[int, bool, float]] = [(p, False, 0) for p in everywhere]
        self.places += [(p, True, 0) for p in everywhere if "queue" in self.pools[p]]
        self.later = [later_of(pool) for pool in self.pools]
        self.places += [(p, False, h) for p in everywhere for h, _ in self.later[p]]
        self.tenants = {t["name"]: t for t in document["tenants"]}
        self.nodes = [self.node_list(pool) for pool in self.pools]
        self.whole = cache(self.least_whole)

    @staticmethod
    def node_list(pool: Document) -> list[tuple[int, float, float]]:
        if "nodes" in pool:
            return [
                (
                    group["free_accelerators"],
                    group.get("free_cpus", math.inf) * SLACK,
                    group.get("free_memory_gib", math.inf) * SLACK,
                )
                for group in pool["nodes"]
                for _ in range(group.get("count", 1))
            ]
        return [
            (int(free), math.inf, math.inf)
            for free, count in pool["free_nodes"].items()
            for _ in range(count)
        ]

    def source(self, job: Document, pool: Document) -> tuple[float, float]:
        """USD and hours of bringing the input, from where it is cheapest, then soonest."""
        places = job.get("data_regions", [job["data_region"]] if "data_region" in job else [])
        ways: list[tuple[float, float]] = []
        for region in places:
            gbps = 0.0
            if "bandwidth_gbps" in self.document:
                gbps = self.between("bandwidth_gbps", region, pool)
            usd = self.between("egress_usd_per_gb", region, pool) * job.get("input_gb", 0)
            ways.append((usd, job.get("input_gb", 0) * 8 / gbps / 3600 if gbps else 0.0))
        return min(ways, default=(0.0, 0.0))

    @staticmethod
    def price(pool: Document, begin_h: float, hours: float) -> float:
        """The average price over some hours, added up piece by piece."""
        windows = pool.get("prices", [])
        edges = [w[name] for w in windows for name in ("from_h", "to_h")]
        cuts = sorted({begin_h, begin_h + hours, *edges})
        total = 0.0
        for left, right in itertools.pairwise(cuts):
            if begin_h <= left and right <= begin_h + hours:
                inside = [w[PRICE] for w in windows if w["from_h"] <= left < w["to_h"]]
                total += (right - left) * (inside or [pool[PRICE]])[0]
        return total / hours

    @staticmethod
    def in_maintenance(job: Document, pool: Document, times: tuple[float, float, bool]) -> bool:
        start_h, hours, queued = times
        begin_h, end_h = (start_h if queued else 0), start_h + job.get("max_runtime_h", hours)
        return any(
            end_h > w["from_h"] * SLACK and begin_h * SLACK < w["to_h"]
            for w in pool.get("maintenance", [])
        )

    def between(self, table: str, start: str | None, pool: Document) -> float:
        if start is None:
            return 0
        regions = self.document["regions"]
        end = self.clusters[pool["cluster"]]["region"]
        return self.document[table][regions.index(start)][regions.index(end)]

    def copy_cost(
        self, job: Document, pool: Document, *, queued: bool, later_h: float = 0
    ) -> float | None:
        """USD of one copy in a pool, its queue, or there later; None where it may not go."""
        cluster = self.clusters[pool["cluster"]]
        waits = queued or later_h > 0
        stays = job.get("current_pool") == pool["name"] and not waits
        if waits and self.replica(job)[0] > pool["accelerators_per_node"]:
            return None
        if later_h > job.get("defer_h", 0) * SLACK:
            return None
        if queued and pool["queue"]["start_s"] > job.get("max_queue_s", math.inf):
            return None
        if pool["accelerator"] not in job["accelerators"] or (pool["spot"] and not job["spot_ok"]):
            return None
        if cluster["region"] not in job.get("regions", self.document["regions"]):
            return None
        rtt = self.between("rtt_ms", job.get("user_region"), pool)
        if rtt > job.get("max_rtt_ms", math.inf) * SLACK:
            return None
        hours = job["runtime_h"] / job["accelerators"][pool["accelerator"]]
        cold = cluster["cold_start_s"]
        cold_s = 0 if stays else cold.get(job.get("image"), cold.get("*", 0))
        delay_s = 0 if stays else cluster["start_delay_s"]
        start_s = delay_s + (pool["queue"]["start_s"] if queued else cold_s)
        if later_h:
            start_s = delay_s + later_h * 3600
        egress, transfer_h = (0.0, 0.0) if stays else self.source(job, pool)
        start_h = start_s / 3600 + transfer_h
        if job.get("accelerator_memory_gib", 0) > pool.get("accelerator_memory_gib", 0) * SLACK:
            return None
        if job.get("topology") == "rack" and job["replicas"] > 1 and "domain" not in pool:
            return None
        if self.in_maintenance(job, pool, (start_h, hours, waits)):
            return None
        hourly = self.price(pool, start_h, hours)
        gang = job["replicas"] * job["accelerators_per_replica"]
        price = gang * hourly
        if hours + start_h > job.get("deadline_h", math.inf) * SLACK:
            return None
        cap = job.get("max_price_usd_per_accelerator_hour", math.inf)
        if hourly > cap * SLACK:
            return None
        if price * hours + egress > job.get("budget_usd", math.inf) * SLACK:
            return None
        cost = price * (hours + cold_s / 3600) + egress
        cost += job.get("latency_usd_per_ms", 0) * rtt
        waiting = gang * pool["queue"].get("waiting_usd_per_accelerator_h", 0) if queued else 0
        cost += (job.get("value_of_time_usd_per_h", 0) or waiting) * start_h
        lost_h = min(job.get("checkpoint_h", hours), hours) / 2
        lost_usd = lost_h * (price + job.get("value_of_time_usd_per_h", 0))
        cost += pool.get("preemptions_per_h", 0) * hours * lost_usd
        if "current_pool" in job and not stays:
            cost += job["migration_usd"] + job["lost_work_usd"]
        if not queued:
            self.ends_h[job["id"], pool["name"], later_h] = start_h + hours
        return cost

    def replica(self, job: Document) -> tuple[int, float, float]:
        times = 1 if self.replicas(job) == job["replicas"] else job["replicas"]
        size, cpus, memory_gib = self.each(job)
        return size * times, cpus * times, memory_gib * times

    @staticmethod
    def replicas(job: Document) -> int:
        """Replicas that are placed one by one: one where all of them share a node."""
        return 1 if job.get("topology") == "node" else job["replicas"]

    @staticmethod
    def each(job: Document) -> tuple[int, float, float]:
        size = job["accelerators_per_replica"]
        return (
            size,
            job.get("cpus_per_replica", size * job.get("cpus_per_accelerator", 0)),
            job.get("memory_gib_per_replica", size * job.get("memory_gib_per_accelerator", 0)),
        )

    def least_whole(self, pool_index: int, replicas: tuple[tuple[int, float, float], ...]) -> float:
        """Fewest whole nodes given to smaller replicas, infinity where they do not fit."""
        size = self.pools[pool_index]["accelerators_per_node"]
        nodes = list(self.nodes[pool_index])
        whole = [node[0] == size for node in nodes]
        used = [False] * len(nodes)
        best = math.inf

        def place(index: int, taken: int) -> None:
            nonlocal best
            if taken >= best:
                return
            if index == len(replicas):
                best = taken
                return
            need = replicas[index]
            tried = set()
            for i, node in enumerate(nodes):
                state = (node, whole[i], used[i])
                if state in tried or any(n > r for n, r in zip(need, node, strict=True)):
                    continue
                tried.add(state)
                opens = whole[i] and not used[i] and need[0] < size
                before = used[i]
                nodes[i] = (node[0] - need[0], node[1] - need[1], node[2] - need[2])
                used[i] = before or need[0] < size
                place(index + 1, taken + opens)
                nodes[i], used[i] = node, before

        place(0, 0)
        return best

    def best(self) -> tuple[tuple[float, ...], float]:
        """(placed weight per priority from the highest, objective) of the best plan."""
        self.seats: list[list[tuple[int, float, float]]] = [[] for _ in self.pools]
        self.found: tuple[tuple[float, ...], float] = ((-1.0,), -math.inf)
        self.ends_h: dict[tuple[str, str, float], float] = {}
        self.costs = [
            [
                self.copy_cost(job, self.pools[p], queued=queued, later_h=later_h)
                for p, queued, later_h in self.places
            ]
            for job in self.jobs
        ]
        self.levels = sorted({job["priority"] for job in self.jobs}, reverse=True)
        self.try_job(0, 0.0, {}, {})
        return self.found

    def try_job(
        self, index: int, cost: float, placed: dict[int, int], used: dict[Any, int]
    ) -> None:
        if index == len(self.jobs):
            self.judge(cost, placed)
            return
        job = self.jobs[index]
        gang = job["replicas"] * job["accelerators_per_replica"]
        open_places = [i for i, c in enumerate(self.costs[index]) if c is not None]
        for spread in itertools.product(range(job["count"] + 1), repeat=len(open_places)):
            copies = sum(spread)
            if copies > job["count"]:
                continue
            now = dict(used)
            tenant = self.tenants[job["tenant"]]
            now[job["tenant"]] = now.get(job["tenant"], 0) + copies * gang
            if now[job["tenant"]] > tenant.get("quota_accelerators", math.inf):
                continue
            more = cost
            fine = True
            free = dict.fromkeys(range(len(self.pools)), 0)
            for i, n in zip(open_places, spread, strict=True):
                p, queued, later_h = self.places[i]
                more += n * (self.costs[index][i] or 0.0)
                key = (job["tenant"], self.pools[p]["cluster"])
                now[key] = now.get(key, 0) + n * gang
                fine &= now[key] <= tenant["cluster_quota"].get(key[1], math.inf)
                cluster = ("cluster", self.pools[p]["cluster"])
                if "spread_max_per_cluster" in job:
                    own = (*cluster, job["id"])
                    now[own] = now.get(own, 0) + n
                    fine &= now[own] <= job["spread_max_per_cluster"]
                if "apart" in job:
                    group = (*cluster, "apart", job["apart"])
                    now[group] = now.get(group, 0) + n
                    fine &= now[group] <= 1
                if "apart_region" in job:
                    region = self.clusters[self.pools[p]["cluster"]]["region"]
                    group = ("region", region, "apart", job["apart_region"])
                    now[group] = now.get(group, 0) + n
                    fine &= now[group] <= 1
                licences = job.get("extras_per_replica", {}).get("licence", 0) * job["replicas"]
                if n and licences:
                    has = self.pools[p].get("extras", {}).get("licence", 0)
                    now["extras", p] = now.get(("extras", p), 0)
                    now["extras", p] += 0 if queued or later_h else n * licences
                    fine &= has > 0 and now["extras", p] <= has
                for at_h, room in self.later[p] if n and not queued else []:
                    end_h = self.ends_h[job["id"], self.pools[p]["name"], later_h]
                    if later_h <= at_h * SLACK and end_h > at_h * SLACK:
                        now["later", p, at_h] = now.get(("later", p, at_h), 0) + n * gang
                        fine &= now["later", p, at_h] <= room
                if queued:
                    now["queue", p] = now.get(("queue", p), 0) + n
                    fine &= now["queue", p] <= self.pools[p]["queue"]["max_pending"]
                elif not later_h:
                    free[p] += n
            if "current_pool" in job:
                more += job["lost_work_usd"] * (job["count"] - copies)
            if not fine:
                continue
            seats = [list(seat) for seat in self.seats]
            for p, n in free.items():
                self.seats[p] += [self.replica(job)] * (n * self.replicas(job))
            if all(self.pool_fits(p) for p, n in free.items() if n):
                levels = dict(placed)
                levels[job["priority"]] = levels.get(job["priority"], 0) + copies * gang
                self.try_job(index + 1, more, levels, now)
            self.seats = seats

    def pool_fits(self, p: int) -> bool:
        pool, seats = self.pools[p], self.seats[p]
        if sum(s[1] for s in seats) > pool.get("free_cpus", math.inf) * SLACK:
            return False
        if sum(s[2] for s in seats) > pool.get("free_memory_gib", math.inf) * SLACK:
            return False
        return self.whole(p, tuple(sorted(seats, reverse=True))) < math.inf

    def judge(self, cost: float, placed: dict[int, int]) -> None:
        objective = self.document["objective"]
        for p, seats in enumerate(self.seats):
            whole = self.whole(p, tuple(sorted(seats, reverse=True)))
            cost += whole * objective["fragmentation_usd_per_node"]
        if objective["mode"] == "scalar":
            values = objective["value_usd_per_accelerator"]
            worth = sum(values[str(level)] * count for level, count in placed.items())
            found: tuple[tuple[float, ...], float] = ((), worth - cost)
        else:
            weights = objective.get("weight_per_accelerator", {})
            tiers = tuple(weights.get(str(x), 1) * placed.get(x, 0) for x in self.levels)
            found = (tiers, -cost)
        if found > self.found or self.found[0] == (-1.0,):
            self.found = found


# The test ---------------------------------------------------------------------------------------


def seated(document: Document, plan: Plan) -> None:
    """Every replica is on a concrete node that holds it."""
    force = Force(document)
    jobs = {job["id"]: job for job in document["jobs"]}
    for p, pool in enumerate(force.pools):
        nodes = force.nodes[p]
        if "free_nodes" in pool:
            nodes = sorted(nodes, reverse=True)
        on_nodes: dict[str, int] = {}
        for fill in (fill for fill in plan.fills if fill.pool == pool["name"]):
            for node in range(fill.first_node, fill.first_node + fill.nodes):
                for name, n in fill.contents:
                    assert n % (jobs[name]["replicas"] // force.replicas(jobs[name])) == 0
                needs = [force.each(jobs[name]) for name, n in fill.contents for _ in range(n)]
                for figure in range(3):
                    assert sum(need[figure] for need in needs) <= nodes[node][figure] + 1e-6
            for name, n in fill.contents:
                on_nodes[name] = on_nodes.get(name, 0) + n * fill.nodes
        given = {
            item.job: item.count * jobs[item.job]["replicas"]
            for item in plan.assignments
            if item.pool == pool["name"] and not item.waits
        }
        assert on_nodes == given


@pytest.mark.parametrize("draw", [a_document, a_tight_document], ids=["any", "tight"])
@pytest.mark.parametrize("batch", range(PROBLEMS // BATCH))
def test_objective_equals_brute_force(batch: int, draw: Callable[[int], Document]) -> None:
    for seed in range(batch * BATCH, (batch + 1) * BATCH):
        document = draw(seed)
        problem = parse_problem(json.dumps(document))
        plan = decide(problem)
        assert verify(problem, plan) == (), f"seed {seed}"
        assert plan.status is PlanStatus.OPTIMAL, f"seed {seed}: {plan.status} {plan.notes}"
        seated(document, plan)
        tiers, objective = Force(document).best()
        if tiers:
            weights = document["objective"].get("weight_per_accelerator", {})
            reached = tuple(
                weights.get(str(x), 1) * plan.placed[x] for x in sorted(plan.placed)[::-1]
            )
            assert reached == tiers, f"seed {seed}"
        assert plan.objective_usd == pytest.approx(objective, rel=1e-6, abs=1e-4), f"seed {seed}"


# Changes whose effect is known --------------------------------------------------------------------


def rank(document: Document) -> tuple[tuple[float, ...], float]:
    """(placed weight per priority from the highest, objective) of the decided plan."""
    plan = decide(parse_problem(json.dumps(document)))
    assert plan.status is PlanStatus.OPTIMAL
    if document["objective"]["mode"] == "scalar":
        return (), plan.objective_usd
    weights = document["objective"].get("weight_per_accelerator", {})
    levels = sorted(plan.placed, reverse=True)
    return tuple(weights.get(str(x), 1) * plan.placed[x] for x in levels), plan.objective_usd


def same(left: tuple[Any, float], right: tuple[Any, float], factor: float = 1.0) -> bool:
    return left[0] == right[0] and left[1] * factor == pytest.approx(right[1], rel=1e-6, abs=1e-3)


SEEDS = range(1000, 1040)


@pytest.mark.parametrize("seed", SEEDS)
def test_order_and_names_do_not_matter(seed: int) -> None:
    document = a_document(seed)
    other = json.loads(json.dumps(document))
    for name in ("jobs", "pools", "tenants", "clusters"):
        other[name].reverse()
    for index, job in enumerate(other["jobs"]):
        job["id"] = f"renamed-{index}"
    assert same(rank(document), rank(other))


@pytest.mark.parametrize("seed", SEEDS)
def test_money_times_three_is_the_objective_times_three(seed: int) -> None:
    document = a_document(seed)
    other = json.loads(json.dumps(document))

    def triple(node: Any, *, money: bool = False) -> Any:
        if isinstance(node, dict):
            return {k: triple(v, money=money or "usd" in k) for k, v in node.items()}
        if isinstance(node, list):
            return [triple(item, money=money) for item in node]
        return node * 3 if money else node

    assert same(rank(document), rank(triple(other)), 3.0)


@pytest.mark.parametrize("seed", SEEDS)
def test_more_room_or_wider_limits_never_hurt(seed: int) -> None:
    document = a_document(seed)
    before = rank(document)
    for pool in document["pools"]:
        roomier = json.loads(json.dumps(document))
        twin = next(p for p in roomier["pools"] if p["name"] == pool["name"])
        roomier["pools"].append({**twin, "name": "more"})
        cheaper = json.loads(json.dumps(document))
        twin = next(p for p in cheaper["pools"] if p["name"] == pool["name"])
        twin["price_usd_per_accelerator_hour"] /= 2
        for better in (roomier, cheaper):
            after = rank(better)
            assert after >= before or same(before, after)
    for job in document["jobs"]:
        for name in ("max_rtt_ms", "deadline_h", "budget_usd", "regions"):
            job.pop(name, None)
    after = rank(document)
    assert after >= before or same(before, after)
