"""Replicas and gangs that are too large for a pool, even empty."""

from __future__ import annotations

from dataclasses import replace

import pytest

from broker.model.problem import NodeGroup
from federation.refusals import RefusalCode
from tests.unit.decide.constraints.judging import (
    change_for,
    options_of,
    problem_of,
    reason_for,
    violations_of,
    with_pool,
)
from tests.unit.decide.problems import a_job


def test_a_replica_larger_than_a_node_goes_nowhere() -> None:
    problem = problem_of(jobs=[a_job(accelerators_per_replica=16)])
    assert options_of(problem) == set()
    assert "16 accelerators on a node of 8" in violations_of(problem)
    reason = reason_for(problem)
    assert reason is not None and reason.code is RefusalCode.REPLICA_TOO_LARGE
    assert change_for(problem) == "replicas x accelerators 1 x 16 -> 2 x 8"


def test_a_gang_larger_than_the_empty_pool_is_told_so() -> None:
    problem = problem_of(jobs=[a_job(accelerators_per_replica=8, replicas=5)])
    problem = with_pool(problem, when_empty=(NodeGroup(2, 8),))
    assert options_of(problem) == set()
    reason = reason_for(problem)
    assert reason is not None and reason.code is RefusalCode.GANG_TOO_LARGE
    assert "needs 5 x 8 accelerators, has 2 x 8 when empty" in reason.text
    assert change_for(problem) == "replicas 5 -> 2"


def test_replicas_of_every_size_a_node_has_do_fit() -> None:
    jobs = [a_job(f"j{size}", accelerators_per_replica=size) for size in range(1, 9)]
    assert len(options_of(problem_of(jobs=jobs))) == 8


def test_cpu_slots_are_called_so_and_fewer_are_advised() -> None:
    job = a_job(accelerators={"CPU": 1.0}, accelerators_per_replica=40, cpus_per_replica=40)
    problem = problem_of(jobs=[job])
    pool = replace(problem.pools[0], accelerator="CPU", accelerators_per_node=16)
    problem = replace(problem, pools=(replace(pool, nodes=(NodeGroup(1, 16, 16.0),)),))
    reason = reason_for(problem)
    assert reason is not None and "needs 40 CPU slots on one node, has 16" in reason.text
    assert change_for(problem) == "cpus 40 -> 16"


@pytest.mark.parametrize(
    ("asked", "change"),
    [
        ({"memory_gib_per_replica": 900.0}, "memory 900 GiB -> 31.25 GiB"),
        ({"cpus_per_replica": 40.0}, "cpus 40 -> 12"),
        (
            {"memory_gib_per_replica": 900.0, "cpus_per_replica": 40.0},
            "memory 900 GiB -> 31.25 GiB and cpus 40 -> 12",
        ),
    ],
)
def test_less_of_what_no_node_has_so_much_of_is_advised(
    asked: dict[str, float], change: str
) -> None:
    nodes = (NodeGroup(2, 8, 12.0, 31.2567), NodeGroup(2, 4, 64.0, 999.0))
    problem = problem_of(jobs=[a_job(accelerators_per_replica=8, **asked)])
    problem = with_pool(problem, when_empty=nodes, nodes=nodes)
    reason = reason_for(problem)
    assert reason is not None and reason.code is RefusalCode.REPLICA_TOO_LARGE
    assert "has nodes of at most 12 cpus and 31.26 GiB" in reason.text
    assert change_for(problem) == change
