"""`tradewind bench decide` measures decisions beside simpler schedulers."""

from __future__ import annotations

import json
from dataclasses import asdict, replace

import pytest

from broker.cli.bench.comparing import cost_for_as_much, is_better, least_cost
from broker.cli.bench.decide_tables import by_size, every_decision
from broker.cli.bench.instances import Size, an_instance, changed
from broker.cli.bench.measuring import Measured, Task, measure, task_from_json, task_to_json
from broker.cli.commands import bench_decide
from broker.cli.exits import Failure
from broker.decide.baselines import Baseline, decide_simply
from broker.decide.case import build_case
from broker.decide.decision import Budget, decide
from broker.decide.problem_file import problem_from_json
from broker.model.plan import PlanStatus
from broker.model.problem import Mode

SMALL = Task(Size(8, 120, 30), 1, "scalar", (0.5,), 0.2)


def test_every_way_stands_in_a_row() -> None:
    rows = measure(SMALL)
    assert [row.how for row in rows] == [
        "fifo cheapest first",
        "big gangs first",
        "first cluster that admits",
        "cold, budget 0.5 s",
    ]
    best = max(row.objective_usd for row in rows)
    assert rows[-1].objective_usd == best and rows[-1].status == "optimal"
    assert rows[0].cost_share == 0.0 == rows[0].placed_share
    assert all(row.cpu_s >= 0 and row.peak_mib > 0 for row in rows)


def test_larger_ones_are_decided_again_warm() -> None:
    rows = measure(Task(Size(40, 900, 160), 2, "place_first", (0.6,), 0.2))
    warm: Measured = rows[-1]
    assert warm.how == "warm, budget 0.2 s"
    assert warm.moved is not None and warm.moved <= 0.02


def test_no_baseline_is_better_in_either_mode() -> None:
    for mode in ("scalar", "place_first"):
        for seed in range(1, 6):
            for row in measure(Task(Size(30, 500, 120, 1.5), seed, mode, (0.3,), 0.15)):
                assert not row.beaten_by, f"{mode} seed {seed}: {row}"


def test_a_plan_that_is_worse_is_found_out() -> None:
    problem = problem_from_json(an_instance(Size(20, 300, 60), 1))
    good, simple = decide(problem), decide_simply(problem, Baseline.FIRST_CLUSTER)
    assert is_better(problem, good, simple) and not is_better(problem, simple, good)
    assert not is_better(problem, good, good)
    first = replace(problem, objective=replace(problem.objective, mode=Mode.PLACE_FIRST))
    more = replace(simple, placed={**good.placed, 3: good.placed[3] + 1})
    assert is_better(first, more, good)


def test_letting_go_of_what_is_placed_more_never_costs() -> None:
    problem = problem_from_json(an_instance(Size(40, 900, 160), 2))
    good, simple = decide(problem, Budget(1.0)), decide_simply(problem, Baseline.FIFO)
    for_as_much = cost_for_as_much(problem, good, simple)
    assert for_as_much is not None and 0 < for_as_much <= good.cost_usd
    assert cost_for_as_much(problem, good, good) == pytest.approx(good.cost_usd)
    assert cost_for_as_much(problem, simple, good) is None


def test_no_plan_costs_less_than_the_least_cost() -> None:
    for seed in (1, 2):
        problem = problem_from_json(an_instance(Size(10, 200, 50), seed))
        plan = decide(problem)
        least = least_cost(build_case(problem), plan)
        assert plan.status is PlanStatus.OPTIMAL
        assert least is not None and 0 < least <= plan.cost_usd + 1e-6


def test_each_size_and_load_has_one_line() -> None:
    rows = [{"problem": f"10,200,50 load 1 seed {s}", **asdict(r)}
            for s in (1, 2) for r in measure(replace(SMALL, seed=s))]  # fmt: skip
    table = by_size(rows, frozenset(b.value for b in Baseline))
    assert len(table.rows) == 1 and table.rows[0][3] == "0, 2 of 2 proved"
    assert len(every_decision(rows).rows) == 8


def test_a_task_survives_the_pipe() -> None:
    assert task_from_json(task_to_json(SMALL)) == SMALL


def test_instances_are_problems_and_depend_on_the_seed_alone() -> None:
    for mode in ("scalar", "place_first"):
        first = an_instance(Size(12, 150, 40, 2.0), 4, mode)
        assert first == an_instance(Size(12, 150, 40, 2.0), 4, mode)
        problem = problem_from_json(json.loads(json.dumps(first)))
        assert sum(job.count for job in problem.jobs) == 150 and len(problem.jobs) == 40
        later = changed(first, 0.1, 1)
        problem_from_json(later)
        assert sum(a != b for a, b in zip(first["jobs"], later["jobs"], strict=True)) == 4
    assert an_instance(Size(12, 150, 40), 5) != an_instance(Size(12, 150, 40), 4)


@pytest.mark.parametrize("size", ["10,200", "a,b,c", "10,20,30", "0,1,1"])
def test_bad_sizes_are_named(size: str) -> None:
    with pytest.raises(Failure, match="--size"):
        bench_decide.decide(size=[size])
