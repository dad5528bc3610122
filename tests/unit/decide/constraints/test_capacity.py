"""Places on nodes."""

from __future__ import annotations

import pytest

from federation.refusals import RefusalCode
from tests.unit.decide.constraints.judging import (
    change_for,
    options_of,
    problem_of,
    reason_for,
    violations_of,
)
from tests.unit.decide.problems import a_job, a_pool


@pytest.mark.parametrize(("replicas", "fits"), [(3, True), (4, False)])
def test_accelerators_of_different_nodes_are_not_added_up(replicas: int, *, fits: bool) -> None:
    pools = [a_pool(free_nodes={"6": 3})]
    problem = problem_of(pools=pools, jobs=[a_job(accelerators_per_replica=4, replicas=replicas)])
    assert (options_of(problem) == {("j0", "p0")}) is fits
    assert ("cannot be filled" not in violations_of(problem)) is fits
    if not fits:
        reason = reason_for(problem)
        assert reason is not None and reason.code is RefusalCode.NO_CAPACITY
        assert "needs 4 x 4 free, has 3 x 4; 1 more place of 4 accelerators" in reason.text
        assert change_for(problem) == "1 more free place of 4 H100 on one node"


def test_cpus_and_memory_of_a_node_bind_too() -> None:
    node = {"count": 2, "free_accelerators": 8, "free_cpus": 10, "free_memory_gib": 64}
    for job in (a_job(cpus_per_replica=11), a_job(memory_gib_per_replica=65)):
        problem = problem_of(pools=[a_pool(nodes=[node])], jobs=[job])
        assert options_of(problem) == set()
        assert "given too much" in violations_of(problem)
