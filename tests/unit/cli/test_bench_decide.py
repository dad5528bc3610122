"""`tradewind bench decide` measures decisions beside simpler schedulers."""

from __future__ import annotations

import json

import pytest

from broker.cli.bench.instances import Size, an_instance, changed
from broker.cli.bench.measuring import Measured, Task, measure, task_from_json, task_to_json
from broker.cli.commands import bench_decide
from broker.cli.exits import Failure
from broker.decide.problem_file import problem_from_json

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
