"""The memory of a pool as a whole."""

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
    job = a_job(accelerators_per_replica=4, replicas=2, memory_gib_per_accelerator=3)
    problem = problem_of(pools=[a_pool(free_memory_gib=limit)], jobs=[job])
    assert (options_of(problem) == {("j0", "p0")}) is allowed
    assert ("GiB of memory used of" not in violations_of(problem)) is allowed
    if not allowed:
        reason = reason_for(problem)
        assert reason is not None and reason.code is RefusalCode.NO_MEMORY
        assert "needs 24 GiB, has 23.5 GiB; 0.5 more GiB" in reason.text
        assert change_for(problem) == "0.5 more GiB of memory free in p0"
