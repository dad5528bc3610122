"""The cpus of a pool as a whole."""

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


@pytest.mark.parametrize(("limit", "allowed"), [(24, True), (23.5, False)])
def test_all_replicas_of_a_gang_count(limit: float, *, allowed: bool) -> None:
    job = a_job(accelerators_per_replica=4, replicas=2, cpus_per_accelerator=3)
    problem = problem_of(pools=[a_pool(free_cpus=limit)], jobs=[job])
    assert (options_of(problem) == {("j0", "p0")}) is allowed
    assert ("cpus used of" not in violations_of(problem)) is allowed
    if not allowed:
        reason = reason_for(problem)
        assert reason is not None and reason.code is RefusalCode.NO_CPUS
        assert "needs 24 cpus, has 23.5 cpus; 0.5 more cpus" in reason.text
        assert change_for(problem) == "0.5 more cpus free in p0"
