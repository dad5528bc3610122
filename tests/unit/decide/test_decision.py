"""What `decide` promises: optimal where it says so, the floor whatever the solver does, the same
plan for the same problem."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

import pytest

from broker.decide import cpsat
from broker.decide.answer import plan_to_json
from broker.decide.decision import Budget, decide
from broker.decide.model import Model
from broker.decide.problem_file import parse_problem
from broker.decide.solver import Answer, Effort, SolverStatus
from broker.decide.verify import verify
from broker.model.plan import Plan, PlanStatus
from broker.model.problem import Problem
from federation.refusals import RefusalCode
from tests.unit.decide.problems import a_job, a_pool, a_problem, data_dir, scalar


def problem_of(**changes: Any) -> Problem:
    return parse_problem(json.dumps(a_problem(**changes)))


def decided(**changes: Any) -> Plan:
    problem = problem_of(**changes)
    plan = decide(problem)
    assert verify(problem, plan) == ()
    return plan


def where(plan: Plan) -> dict[tuple[str, str], int]:
    return {(item.job, item.pool): item.count for item in plan.assignments}


# What it is for ---------------------------------------------------------------------------------


def test_a_thirty_day_job_in_an_empty_fleet_is_placed() -> None:
    plan = decided(jobs=[a_job(runtime_h=720, replicas=2, accelerators_per_replica=8)])
    assert where(plan) == {("j0", "p0"): 1}
    assert plan.cost_usd == pytest.approx(16 * 720)
    assert plan.status is PlanStatus.OPTIMAL and plan.gap == 0


def test_nothing_to_do_is_optimal() -> None:
    for changes in ({"jobs": []}, {"pools": []}, {"pools": [], "clusters": [], "jobs": []}):
        plan = decided(**changes)
        assert plan.status is PlanStatus.OPTIMAL
        assert plan.objective_usd == 0 == plan.gap


def test_a_higher_tier_comes_before_any_number_of_lower_ones() -> None:
    jobs = [
        a_job("low", count=16),
        a_job("high", priority=3, replicas=2, accelerators_per_replica=8, runtime_h=1000),
    ]
    assert where(decided(jobs=jobs)) == {("high", "p0"): 1}


def test_cost_decides_after_placing() -> None:
    pools = [a_pool("dear", price_usd_per_accelerator_hour=3), a_pool("cheap", spot=True)]
    assert where(decided(pools=pools, jobs=[a_job(spot_ok=True)])) == {("j0", "cheap"): 1}
    assert where(decided(pools=pools)) == {("j0", "dear"): 1}


def test_scalar_leaves_what_is_not_worth_it() -> None:
    plan = decided(objective=scalar(2), jobs=[a_job(runtime_h=3), a_job("j1", runtime_h=1)])
    assert where(plan) == {("j1", "p0"): 1}
    assert plan.unplaced[0].refusal.code is RefusalCode.VALUE_BELOW_COST


def test_a_tier_that_weighs_nothing_is_not_paid_for() -> None:
    objective = {"mode": "place_first", "weight_per_accelerator": {"0": 0}}
    assert where(decided(objective=objective)) == {}


def test_running_copies_stay_where_moving_costs_more() -> None:
    pools = [a_pool("here", price_usd_per_accelerator_hour=2), a_pool("there")]
    stay = a_job(current_pool="here", migration_usd=3)
    assert where(decided(pools=pools, jobs=[stay])) == {("j0", "here"): 1}
    move = a_job(current_pool="here", migration_usd=0.5)
    assert where(decided(pools=pools, jobs=[move])) == {("j0", "there"): 1}
    loses = a_job(current_pool="here", migration_usd=0.5, lost_work_usd=2)
    assert where(decided(pools=pools, jobs=[loses])) == {("j0", "here"): 1}


def test_a_running_copy_that_is_stopped_costs_its_lost_work() -> None:
    jobs = [
        a_job("runs", accelerators_per_replica=8, current_pool="p0", lost_work_usd=7),
        a_job("urgent", priority=1, accelerators_per_replica=8, runtime_h=2),
    ]
    plan = decided(pools=[a_pool(free_nodes={"8": 1})], jobs=jobs)
    assert where(plan) == {("urgent", "p0"): 1}
    assert plan.cost_usd == pytest.approx(16 + 7)


def test_start_delay_counts_against_deadline_and_time() -> None:
    clusters = [{"name": "c0", "region": "east", "start_delay_s": 3600}]
    late = a_job(deadline_h=1.9)
    assert where(decided(clusters=clusters, jobs=[late])) == {}
    plan = decided(clusters=clusters, jobs=[a_job(deadline_h=2, value_of_time_usd_per_h=5)])
    assert plan.cost_usd == pytest.approx(1 + 5)


def test_small_jobs_share_nodes_that_are_open_already() -> None:
    pools = [a_pool("new"), a_pool("part", free_nodes={"3": 1}, price_usd_per_accelerator_hour=2)]
    objective = {"mode": "place_first", "fragmentation_usd_per_node": 10}
    plan = decided(objective=objective, pools=pools, jobs=[a_job(count=3)])
    assert where(plan) == {("j0", "part"): 3} and plan.whole_nodes == {}


def test_jobs_alike_are_served_oldest_first() -> None:
    jobs = [a_job(f"j{i}", count=3, accelerators_per_replica=4) for i in range(3)]
    assert where(decided(jobs=jobs)) == {("j0", "p0"): 3, ("j1", "p0"): 1}


# Sizes that do not divide, nodes of their own -----------------------------------------------------


def test_nodes_with_own_limits_are_filled_to_the_optimum() -> None:
    nodes = [{"count": 2, "free_accelerators": 8, "free_cpus": 10}, {"free_accelerators": 4}]
    jobs = [
        a_job("hungry", count=3, accelerators_per_replica=2, cpus_per_replica=7),
        a_job("light", count=8, accelerators_per_replica=2, cpus_per_replica=1),
    ]
    plan = decided(pools=[a_pool(nodes=nodes)], jobs=jobs)
    assert plan.placed == {0: 20} and plan.status is PlanStatus.OPTIMAL


@pytest.mark.parametrize("nodes", [60, 500])
def test_more_kinds_than_patterns_can_count(nodes: int) -> None:
    """Too many fillings to list: counted node by node while small, rounded up above."""
    sizes = [1, 2, 3, 5, 7, 9, 11, 13]
    jobs = [a_job(f"j{size}", count=3, accelerators_per_replica=size) for size in sizes]
    pool = a_pool(accelerators_per_node=64, free_nodes={"64": 1, "9": nodes - 1})
    plan = decided(pools=[pool], jobs=jobs)
    # Only the one whole node takes sizes over 9: three of 13 and two of 11 at best.
    assert plan.placed == {0: 3 * (1 + 2 + 3 + 5 + 7 + 9) + 3 * 13 + 2 * 11}
    assert plan.status is PlanStatus.OPTIMAL or nodes == 500
    assert plan.bound_usd is not None


def test_odd_sizes_in_a_large_pool_are_exact() -> None:
    jobs = [a_job("three", count=400, accelerators_per_replica=3)]
    jobs.append(a_job("two", count=200, accelerators_per_replica=2))
    plan = decided(pools=[a_pool(free_nodes={"8": 200})], jobs=jobs)
    assert plan.placed == {0: 1600} and plan.status is PlanStatus.OPTIMAL


# Solvers that fail ------------------------------------------------------------------------------


def unknown(
    model: Model, objective: Mapping[int, int], hint: Mapping[int, int], effort: Effort
) -> Answer:
    return Answer(SolverStatus.UNKNOWN)


def dead(
    model: Model, objective: Mapping[int, int], hint: Mapping[int, int], effort: Effort
) -> Answer:
    return Answer(SolverStatus.FAILED, note="the solver failed: out of memory")


def liar(
    model: Model, objective: Mapping[int, int], hint: Mapping[int, int], effort: Effort
) -> Answer:
    """Claims that everything is placed everywhere."""
    return Answer(SolverStatus.OPTIMAL, values=tuple(model.upper), bound=0)


@pytest.mark.parametrize("solve", [unknown, dead, liar])
def test_the_floor_stands_whatever_the_solver_does(solve: Any) -> None:
    problem = problem_of(
        objective={"mode": "place_first", "fragmentation_usd_per_node": 1},
        jobs=[a_job(f"j{n}", count=3, accelerators_per_replica=n) for n in (1, 3, 8)],
    )
    plan = decide(problem, solve=solve)
    assert verify(problem, plan) == ()
    assert plan.status is PlanStatus.FLOOR or solve is not dead
    assert sum(plan.placed.values()) >= 8
    if solve is dead:
        assert plan.notes == ("the solver failed: out of memory",)
    if solve is unknown:
        assert plan.notes == (
            "the solver found nothing in the time it had; the floor is in force",
        )


def test_no_budget_leaves_the_floor() -> None:
    problem = problem_of(jobs=[a_job(count=20), a_job("b", accelerators_per_replica=8)])
    plan = decide(problem, Budget(cpu_s=0))
    assert verify(problem, plan) == ()
    assert plan.placed == {0: 16}


# Extremes ---------------------------------------------------------------------------------------

HUGE = 2**53


@pytest.mark.parametrize(
    "changes",
    [
        {"jobs": [a_job(count=HUGE)]},
        {"pools": [a_pool(free_nodes={"8": HUGE})], "jobs": [a_job(count=HUGE)]},
        {"pools": [a_pool(price_usd_per_accelerator_hour=HUGE)], "jobs": [a_job(runtime_h=HUGE)]},
        {"pools": [a_pool(accelerators_per_node=HUGE, free_nodes={str(HUGE): HUGE})]},
        {
            "pools": [a_pool(accelerators_per_node=HUGE, free_nodes={str(HUGE): 3})],
            "jobs": [a_job(count=HUGE, accelerators_per_replica=n) for n in (3,)]
            + [a_job("b", count=HUGE, accelerators_per_replica=2)],
        },
        {"jobs": [a_job(replicas=HUGE)]},
        {"jobs": [a_job(runtime_h=1e-300)], "pools": [a_pool(price_usd_per_accelerator_hour=1e-9)]},
        {"jobs": [a_job(accelerators={"H100": 1e-300})]},
        {"pools": [a_pool(free_nodes={"0": 5, "8": 0})]},
        {"pools": [a_pool(free_cpus=0, free_memory_gib=0)], "jobs": [a_job(cpus_per_replica=1)]},
    ],
)
@pytest.mark.parametrize("mode", ["scalar", "place_first"])
def test_extreme_figures_get_a_verified_plan(mode: str, changes: dict[str, Any]) -> None:
    objective = scalar(HUGE) if mode == "scalar" else {"mode": mode}
    decided(objective={**objective, "fragmentation_usd_per_node": 1e-3}, **changes)


def test_many_pools_of_one_node() -> None:
    pools = [a_pool(f"p{i}", free_nodes={"8": 1}) for i in range(3000)]
    jobs = [a_job(count=30, accelerators_per_replica=8)]
    assert decided(pools=pools, jobs=jobs).placed == {0: 240}


# The same again, and the example files ----------------------------------------------------------


def test_the_same_problem_gets_the_same_plan() -> None:
    jobs = [
        a_job(f"j{i}", count=i % 3 + 1, accelerators_per_replica=i % 5 + 1, priority=i % 2)
        for i in range(12)
    ]
    pools = [a_pool(f"p{i}", price_usd_per_accelerator_hour=1 + i / 7) for i in range(4)]
    assert decided(jobs=jobs, pools=pools) == decided(jobs=jobs, pools=pools)


def test_only_a_solve_loads_the_solver_library() -> None:
    code = (
        "import sys, broker.decide.decision, broker.decide.problem_file, broker.decide.verify;"
        "import broker.decide.greedy, broker.decide.explain, broker.decide.cpsat;"
        "sys.exit(any(name.split('.')[0] == 'ortools' for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


EXAMPLES = {
    "c10_j200_k50_load1.0_seed1": 3_909_610.02,
    "c10_j200_k50_load2.0_seed1": 2_166_906.22,
    "c50_j2000_k300_load1.0_seed1": None,
    "c100_j10000_k1000_load1.0_seed1": None,
    "c200_j20000_k3000_load1.0_seed1": None,
}
BIG_GANGS_FIRST = {
    "c50_j2000_k300_load1.0_seed1": 36_530_529.82,
    "c100_j10000_k1000_load1.0_seed1": 446_416_452.93,
    "c200_j20000_k3000_load1.0_seed1": 735_816_666.69,
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_example_files_give_plans_that_verify(name: str) -> None:
    folder = data_dir()
    if folder is None:
        pytest.skip("no example problems: set TRADEWIND_DATA")
    problem = parse_problem(gzip.decompress((folder / "problems" / f"{name}.json.gz").read_bytes()))
    plan = decide(problem, Budget(cpu_s=2))
    assert verify(problem, plan) == ()
    best = EXAMPLES[name]
    if best is not None:
        assert plan.status is PlanStatus.OPTIMAL and plan.gap == 0
        assert plan.objective_usd == pytest.approx(best, rel=1e-6)
    else:
        assert plan.objective_usd >= BIG_GANGS_FIRST[name] * (1 - 1e-6)


def test_the_solver_reports_what_it_cannot_take() -> None:
    model = Model()
    column = model.column(2**61)
    answer = cpsat.solve(model, {column: 5}, {}, Effort(1.0))
    assert answer.status is SolverStatus.FAILED and "too large" in answer.note


def test_a_pool_charged_by_its_own_packing_shows_it() -> None:
    """Where replicas are rounded up fewer whole nodes cannot be ruled out: the nodes are told."""
    sizes = [1, 2, 3, 5, 7, 9, 11, 13, 17, 19]
    problem = problem_of(
        objective={"mode": "place_first", "fragmentation_usd_per_node": 1},
        pools=[a_pool(accelerators_per_node=64, free_nodes={"64": 90})],
        jobs=[a_job(f"j{size}", count=9, accelerators_per_replica=size) for size in sizes],
    )
    plan = decide(problem, Budget(cpu_s=1))
    assert verify(problem, plan) == ()
    answer = plan_to_json(problem, plan, 0.0)
    least = -(-9 * sum(sizes) // 64)
    if plan.whole_nodes["p0"] > least:
        assert plan.charged_as_packed == ("p0",)
        assert sum(entry["replicas"] for entry in answer["packing"]) == 9 * len(sizes)
    else:
        assert plan.charged_as_packed == () and "packing" not in answer
