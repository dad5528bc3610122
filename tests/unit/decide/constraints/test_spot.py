"""Spot pools."""

from __future__ import annotations

from tests.unit.decide.constraints.judging import (
    change_for,
    options_of,
    problem_of,
    reason_for,
    violations_of,
)
from tests.unit.decide.problems import a_job, a_pool


def test_spot_is_for_jobs_that_allow_it() -> None:
    pools = [a_pool(spot=True), a_pool("p1")]
    problem = problem_of(pools=pools)
    assert options_of(problem) == {("j0", "p1")}
    assert "spot" in violations_of(problem, "p0")
    reason = reason_for(problem)
    assert reason is not None and reason.text.endswith("needs on-demand, has spot; allow spot")
    assert change_for(problem) == "allow spot"
    allowed = problem_of(pools=pools, jobs=[a_job(spot_ok=True)])
    assert options_of(allowed) == {("j0", "p0"), ("j0", "p1")}
    assert "spot" not in violations_of(allowed, "p0")
