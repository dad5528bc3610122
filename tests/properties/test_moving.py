"""The moves of a look save the most that trying every way finds, and never less than asked.

The sums below are written from docs/moving.md alone.
"""

from __future__ import annotations

import itertools
import random
from dataclasses import replace

import pytest

from broker.decide.admission.moving import Mover, as_one, moving
from broker.decide.decision import decide
from broker.decide.verify import verify
from broker.model.admission import MovingRules
from broker.model.plan import PlanStatus
from broker.model.problem import Cluster, Job, NodeGroup, Pool, Problem
from tests.unit.decide.admission.scenes import running

HOUR_MS = 3_600_000
NOW_MS = 1_000 * HOUR_MS
LOOKS, BATCH = 120, 20
PLACES = ("a", "b", "c")


def a_world(dice: random.Random) -> Problem:
    """Three places of two nodes; what is free is for movers."""
    clusters = tuple(
        Cluster(n, n, {"*": dice.choice([0.0, 1800.0])}, dice.choice([0.0, 900.0])) for n in PLACES
    )
    pools = tuple(
        Pool(
            f"{n}/h", n, "H100", float(dice.choice([1, 2, 4, 7])), 4,
            (NodeGroup(1, dice.randint(0, 4)), NodeGroup(1, dice.randint(0, 4))),
        )
        for n in PLACES
    )  # fmt: skip
    egress = tuple(tuple(0.0 if a == b else 0.3 for b in PLACES) for a in PLACES)
    return Problem(PLACES, clusters, pools, (), egress_usd_per_gb=egress)


def a_mover(dice: random.Random, number: int) -> Mover:
    size = dice.choice([1, 2, 4])
    attempt = running(
        f"j{number}-1", "t", size,
        pool=f"{dice.choice(PLACES)}/h", grace_s=dice.choice([0, 30, 1800]),
        kept_s=dice.choice([0, 600, 3600]), started_ms=NOW_MS - dice.randint(0, 6) * HOUR_MS,
    )  # fmt: skip
    job = Job(
        f"j{number}", "t", {"H100": 1.0}, float(dice.randint(5, 30)),
        accelerators_per_replica=size, data_region=dice.choice(PLACES),
        input_gb=float(dice.choice([0, 10])), value_of_time_usd_per_h=float(dice.choice([0, 3])),
        deadline_h=dice.choice([None, None, 9.0, 25.0]),
    )  # fmt: skip
    return Mover(attempt, job)


def a_slice(dice: random.Random, number: int) -> Mover:
    """Some places of an array, with tasks that nobody has yet."""
    one = a_mover(dice, number)
    whole = as_one(one.job, dice.randint(1, 3))
    assert whole is not None
    return replace(one, job=whole, ahead_h=dice.choice([0.5, 3.0, 20.0]))


def left_h(mover: Mover) -> float:
    """Of a job what it has yet to run, of a slice what its array has yet to begin."""
    return mover.ahead_h or mover.job.runtime_h - (NOW_MS - mover.attempt.started_ms) / HOUR_MS


def saved_usd(problem: Problem, mover: Mover, pool: Pool) -> float | None:
    """What a move saves when all is paid; None where it may not go there."""
    attempt, job = mover.attempt, mover.job
    prices = {p.name: p.price_usd_per_accelerator_hour for p in problem.pools}
    cluster = next(c for c in problem.clusters if c.name == pool.cluster)
    g, here, there = job.gang_accelerators, prices[attempt.pool], prices[pool.name]
    ran_h = (NOW_MS - attempt.started_ms) / HOUR_MS
    rest_h, grace_h = left_h(mover), attempt.grace_s / 3600
    if rest_h <= 0:
        return None
    lost_h = min(ran_h, attempt.kept_s / 3600) if attempt.kept_s else ran_h
    if mover.ahead_h:
        lost_h = grace_h = 0.0
    cold_h = cluster.cold_start_s["*"] / 3600
    start_h = cold_h + cluster.start_delay_s / 3600
    if job.deadline_h is not None and rest_h + lost_h + start_h > job.deadline_h - grace_h + 1e-9:
        return None
    egress = job.input_gb * (0.0 if job.data_region == pool.cluster else 0.3)
    stay = g * here * rest_h
    go = g * there * (rest_h + lost_h + cold_h) + egress
    time = job.value_of_time_usd_per_h * (start_h + lost_h + grace_h)
    return stay - go - time - g * here * grace_h


def fits(places: dict[str, list[int]], pool: Pool) -> bool:
    """Whether pieces of these sizes go on the nodes of a pool, by trying every node for each."""
    sizes = places.get(pool.name, [])
    nodes = [group.free_accelerators for group in pool.nodes]
    return any(
        all(sum(s for s, at in zip(sizes, way, strict=True) if at == n) <= free
            for n, free in enumerate(nodes))
        for way in itertools.product(range(len(nodes)), repeat=len(sizes))
    )  # fmt: skip


def best_of_all(problem: Problem, movers: list[Mover], rules: MovingRules) -> float:
    """The most that moves can save beyond the least that each has to."""
    prices = {p.name: p.price_usd_per_accelerator_hour for p in problem.pools}
    best = 0.0
    for way in itertools.product((None, *problem.pools), repeat=len(movers)):
        total, places, allowed = 0.0, {}, True
        for mover, pool in zip(movers, way, strict=True):
            if pool is None:
                continue
            stay = mover.job.gang_accelerators * prices[mover.attempt.pool] * left_h(mover)
            least = max(rules.saving_min_usd, rules.saving_share * stay)
            saved = saved_usd(problem, mover, pool)
            allowed = allowed and saved is not None and saved >= least
            total += (saved or 0.0) - least
            pieces = [mover.job.accelerators_per_replica] * mover.job.replicas
            places.setdefault(pool.name, []).extend(pieces)
        if allowed and total > best and all(fits(places, pool) for pool in problem.pools):
            best = total
    return best


@pytest.mark.parametrize("batch", range(LOOKS // BATCH))
def test_the_moves_save_the_most_that_any_can(batch: int) -> None:
    moved = 0
    for seed in range(batch * BATCH, (batch + 1) * BATCH):
        dice = random.Random(seed)
        problem = a_world(dice)
        kinds = (a_mover, a_slice)
        movers = [dice.choice(kinds)(dice, n) for n in range(dice.randint(1, 4))]
        rules = MovingRules(
            most=9, saving_share=dice.choice([0.0, 0.1, 0.5]), saving_min_usd=dice.choice([0.5, 5])
        )
        best, asked = best_of_all(problem, movers, rules), moving(problem, movers, rules, NOW_MS)
        if asked is None:
            assert best == 0, seed
            continue
        plan = decide(asked.problem)
        assert plan.status is PlanStatus.OPTIMAL and verify(asked.problem, plan) == (), seed
        assert plan.objective_usd == pytest.approx(best, abs=1e-4), seed
        pools = {pool.name: pool for pool in problem.pools}
        for move in asked.moves(plan, rules):
            moved += 1
            told = saved_usd(problem, move.mover, pools[move.pool])
            assert move.saved_usd == pytest.approx(told, abs=1e-6), seed
            share_usd = rules.saving_share * move.stay_usd
            assert move.saved_usd >= max(rules.saving_min_usd, share_usd) - 1e-6
    assert moved > 3
