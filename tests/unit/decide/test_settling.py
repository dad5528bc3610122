"""Copies move to cheaper places that have room left after all."""

from __future__ import annotations

import json

import numpy as np

from broker.decide.case import Case, build_case
from broker.decide.finish import Candidate, demands, make_candidate
from broker.decide.floors import floor_ways, walked
from broker.decide.greedy import Floor
from broker.decide.problem_file import parse_problem
from broker.decide.settling import Near, settled
from tests.properties.test_decide_brute_force import a_document
from tests.unit.decide.problems import a_job, a_pool, a_problem, scalar


def a_candidate(case: Case, counts: np.ndarray) -> Candidate:
    found = make_candidate(case, counts, {}, None)
    assert found is not None
    return found


def two_pools(**objective: float) -> Case:
    """Two copies of one card and of four, at 1 USD in one pool and 3 USD in the other, dearer
    one."""
    pools = [a_pool(), a_pool("p1", price_usd_per_accelerator_hour=3.0)]
    jobs = [a_job(count=2), a_job("j1", count=2, accelerators_per_replica=4)]
    document = a_problem(pools=pools, jobs=jobs, objective=scalar(**objective))
    return build_case(parse_problem(json.dumps(document)))


def gain_of(case: Case) -> np.ndarray:
    return case.reward_usd[case.options.class_index] - case.options.cost_usd


def test_what_stands_at_a_dear_place_moves_to_a_cheap_one_with_room():
    case = two_pools()
    plan = a_candidate(case, np.array([0, 2, 1, 1]))
    assert settled(case, plan, gain_of(case)).tolist() == [2, 0, 2, 0]
    assert plan.counts.tolist() == [0, 2, 1, 1]


def test_no_more_moves_than_may_of_a_plan_to_stay_near():
    case = two_pools()
    plan = a_candidate(case, np.array([0, 2, 1, 1]))
    kept = np.array([0, 2, 1, 0])
    for most, left in ((0, [0, 2, 2, 0]), (1, [0, 2, 2, 0]), (2, [2, 0, 2, 0])):
        counts = settled(case, plan, gain_of(case), Near(kept, most))
        assert counts.tolist() == left, f"at most {most}"


def test_what_went_before_counts_among_those_that_may_move():
    case = two_pools()
    plan = a_candidate(case, np.array([0, 2, 1, 0]))
    kept = np.array([0, 2, 1, 1])
    assert settled(case, plan, gain_of(case), Near(kept, 2)).tolist() == [0, 2, 1, 0]


def test_of_a_plan_to_stay_near_what_saves_little_stays():
    for usd, left in ((1.05, [0, 2]), (1.5, [2, 0])):
        pools = [a_pool(), a_pool("p1", price_usd_per_accelerator_hour=usd)]
        document = a_problem(pools=pools, jobs=[a_job(count=2)], objective=scalar())
        case = build_case(parse_problem(json.dumps(document)))
        plan = a_candidate(case, np.array([0, 2]))
        near = Near(np.array([0, 2]), 2)
        assert settled(case, plan, gain_of(case), near).tolist() == left
        assert settled(case, plan, gain_of(case)).tolist() == [2, 0]


def test_a_node_opened_for_it_costs_more_than_a_move_saves():
    case = two_pools(fragmentation_usd_per_node=20.0)
    plan = a_candidate(case, np.array([0, 2, 0, 1]))
    counts = settled(case, plan, gain_of(case))
    assert counts.tolist() == [0, 2, 0, 1]


def test_nothing_that_is_settled_is_worse_or_does_not_fit():
    moved = 0
    for seed in range(200):
        case = build_case(parse_problem(json.dumps(a_document(seed))))
        for way in floor_ways(case):
            floor = walked(case, way)
            plan = make_candidate(case, floor.counts, floor.packings(), None)
            assert plan is not None
            counts = settled(case, plan, gain_of(case))
            found = make_candidate(case, counts, plan.packings, None)
            assert found is not None, f"seed {seed}"
            assert found.rank >= plan.rank, f"seed {seed}"
            again = Floor(case)
            assert again.load(counts, plan.packings, demands(case, counts))
            assert again.is_within(), f"seed {seed}"
            moved += found.rank > plan.rank
    assert moved > 10
