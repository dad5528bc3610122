"""What is taken over from the last decision changes nothing but the time it takes."""

from __future__ import annotations

import json
import random
from dataclasses import replace

import numpy as np
import pytest

from broker.cli.bench.instances import Size, an_instance, changed
from broker.decide.decision import Budget, decide
from broker.decide.prepared import Prepared, prepare
from broker.decide.problem_file import parse_problem, problem_from_json
from broker.model.problem import Job, NodeGroup, Problem
from broker.model.warm import Warm
from tests.properties.test_decide_brute_force import a_document


def same(one: Prepared, other: Prepared) -> bool:
    left, right = one.pairs, other.pairs
    return (
        one.classes == other.classes
        and one.rows == other.rows
        and np.array_equal(left.class_index, right.class_index)
        and np.array_equal(left.pool_index, right.pool_index)
        and np.array_equal(left.cost_usd, right.cost_usd)
        and np.array_equal(left.first, right.first)
    )


def a_cycle_later(dice: random.Random, problem: Problem, other: Problem, step: int) -> Problem:
    """Jobs come, go and change their counts, nodes fill up; a price or a delay may change."""
    names = {pool.name for pool in problem.pools}
    new = [replace(j, id=f"{j.id}s{step}", regions=None) for j in other.jobs if fitting(j, names)]
    jobs = [job for job in problem.jobs if dice.random() < 0.8] + new[: dice.randint(0, 3)]
    jobs = [replace(job, count=dice.randint(1, 4)) for job in jobs]
    dice.shuffle(jobs)
    pools = tuple(
        replace(
            pool,
            nodes=tuple(
                replace(group, count=max(0, group.count - dice.randint(0, 1)))
                for group in pool.nodes
            )
            if not pool.per_node
            else pool.nodes,
        )
        for pool in problem.pools
    )
    if dice.random() < 0.3:
        at = dice.randrange(len(pools))
        price = pools[at].price_usd_per_accelerator_hour * 1.1 + 0.01
        dearer = replace(pools[at], price_usd_per_accelerator_hour=price)
        pools = (*pools[:at], dearer, *pools[at + 1 :])
    clusters = problem.clusters
    if dice.random() < 0.3:
        at = dice.randrange(len(clusters))
        later = replace(clusters[at], start_delay_s=clusters[at].start_delay_s + 30)
        clusters = (*clusters[:at], later, *clusters[at + 1 :])
    if dice.random() < 0.3:
        # Another image comes to be known, or what one that is in use takes is learned anew.
        other = dice.choice(["img", "new", "*"])
        clusters = tuple(
            replace(c, cold_start_s={**c.cold_start_s, other: 60.0 * dice.randint(0, 3)})
            for c in clusters
        )
    return replace(problem, jobs=tuple(jobs), pools=pools, clusters=clusters)


def fitting(job: Job, pools: set[str]) -> bool:
    """Whether a job of another problem names nothing that this one does not have."""
    named = (job.user_region, *job.data_sources)
    return not any(named) and (job.current_pool is None or job.current_pool in pools)


@pytest.mark.parametrize("batch", range(4))
def test_what_is_taken_over_is_what_would_be_found(batch: int) -> None:
    for seed in range(batch * 30, batch * 30 + 30):
        dice = random.Random(seed)
        problem = parse_problem(json.dumps(a_document(seed)))
        last = prepare(problem)
        for step in range(4):
            other = parse_problem(json.dumps(a_document(seed + 500 * (step + 1))))
            problem = a_cycle_later(dice, problem, other, step)
            afresh = prepare(problem)
            last = prepare(problem, last)
            assert same(last, afresh), f"seed {seed} step {step}"
            assert decide(problem, prepared=last) == decide(problem, prepared=afresh)


@pytest.mark.parametrize("mode", ["scalar", "place_first"])
def test_a_warm_decision_is_the_same_with_and_without(mode: str) -> None:
    document = an_instance(Size(40, 1500, 250), 4, mode)
    before = problem_from_json(document)
    cold = decide(before, Budget(cpu_s=0.5))
    warm = Warm(cold.assignments, cold.prices)
    later = problem_from_json(changed(document, 0.02, 4))
    taken_over = prepare(later, prepare(before))
    assert same(taken_over, prepare(later))
    one = decide(later, Budget(cpu_s=0.3), warm=warm, prepared=taken_over)
    other = decide(later, Budget(cpu_s=0.3), warm=warm)
    assert one == other


@pytest.mark.parametrize("share", [0.02, 0.3, 0.9])
def test_other_prices_are_looked_at_where_they_changed(share: float) -> None:
    dice = random.Random(7)
    document = an_instance(Size(40, 1500, 250), 4)
    before = problem_from_json(document)
    later = problem_from_json(changed(document, 0.02, 4))
    pools = tuple(
        replace(p, price_usd_per_accelerator_hour=p.price_usd_per_accelerator_hour * 1.07)
        if dice.random() < share
        else p
        for p in later.pools
    )
    slow = replace(later.clusters[0], start_delay_s=900.0)
    later = replace(later, pools=pools, clusters=(slow, *later.clusters[1:]))
    assert same(prepare(later, prepare(before)), prepare(later))


def test_other_places_are_looked_at_anew() -> None:
    problem = problem_from_json(an_instance(Size(10, 200, 50), 1))
    last = prepare(problem)
    first = problem.clusters[0]
    slower = replace(first, start_delay_s=first.start_delay_s + 60)
    unusable = replace(problem.pools[0], nodes=(NodeGroup(1, 1),), spot=not problem.pools[0].spot)
    for other in (
        replace(problem, clusters=(slower, *problem.clusters[1:])),
        replace(problem, pools=(unusable, *problem.pools[1:])),
        replace(problem, pools=problem.pools[1:]),
        replace(problem, egress_usd_per_gb=()),
    ):
        known = {pool.name for pool in other.pools}
        jobs = tuple(
            job if job.current_pool in known else replace(job, current_pool=None)
            for job in other.jobs
        )
        other = replace(other, jobs=jobs)
        assert same(prepare(other, last), prepare(other))
