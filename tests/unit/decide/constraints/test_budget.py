"""The budget of a copy: run time and egress, not the cold start."""

from __future__ import annotations

import pytest

from tests.unit.decide.constraints.judging import (
    change_for,
    options_of,
    problem_of,
    reason_for,
    violations_of,
)
from tests.unit.decide.problems import a_job


@pytest.mark.parametrize(("budget_usd", "allowed"), [(12.5, True), (12.4, False)])
def test_run_time_and_egress_count(budget_usd: float, *, allowed: bool) -> None:
    problem = problem_of(
        clusters=[{"name": "c0", "region": "east", "cold_start_s": {"*": 3600}}],
        egress_usd_per_gb=[[0, 0], [0.05, 0]],
        jobs=[
            a_job(
                accelerators_per_replica=4,
                runtime_h=3,
                budget_usd=budget_usd,
                data_region="west",
                input_gb=10,
            )
        ],
    )
    assert (options_of(problem) == {("j0", "p0")}) is allowed
    assert ("budget" not in violations_of(problem)) is allowed
    if not allowed:
        reason = reason_for(problem)
        assert reason is not None and "needs at most 12.4 USD, has 12.5 USD" in reason.text
        assert change_for(problem) == "budget_usd 12.4 -> 12.5"
