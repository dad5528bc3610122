"""Accelerators that a job runs on."""

from __future__ import annotations

from federation.refusals import RefusalCode
from tests.unit.decide.constraints.judging import (
    change_for,
    options_of,
    problem_of,
    reason_for,
    violations_of,
)
from tests.unit.decide.problems import a_job, a_pool


def test_a_job_goes_only_where_its_models_are() -> None:
    problem = problem_of(
        pools=[a_pool(), a_pool("p1", accelerator="A100"), a_pool("p2", accelerator="h100")],
        jobs=[a_job(accelerators={"H100": 1, "B200": 2})],
    )
    assert options_of(problem) == {("j0", "p0")}
    assert "model" in violations_of(problem, "p1")
    reason = reason_for(problem, "p1")
    assert reason is not None and reason.code is RefusalCode.WRONG_ACCELERATOR
    assert "needs B200 or H100, has A100" in reason.text
    assert change_for(problem, "p1") == "allow accelerator A100"
