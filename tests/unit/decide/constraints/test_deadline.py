"""The deadline: run time at the speed of the model, cold start, and what passes before."""

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

CLUSTER = {"name": "c0", "region": "east", "cold_start_s": {"*": 900}, "start_delay_s": 2700}


@pytest.mark.parametrize(("deadline_h", "allowed"), [(3, True), (2.999, False)])
def test_both_delays_and_the_speed_count(deadline_h: float, *, allowed: bool) -> None:
    job = a_job(accelerators={"H100": 2}, runtime_h=4, deadline_h=deadline_h)
    problem = problem_of(clusters=[CLUSTER], jobs=[job])
    assert (options_of(problem) == {("j0", "p0")}) is allowed
    assert ("deadline" not in violations_of(problem)) is allowed
    if not allowed:
        reason = reason_for(problem)
        assert reason is not None
        assert "needs an end within 2h59m56s, has an end in 3h" in reason.text
        assert change_for(problem) == "deadline_h 2.999 -> 3"


def test_a_copy_that_runs_there_needs_no_start() -> None:
    job = a_job(runtime_h=3, deadline_h=3, current_pool="p0")
    assert options_of(problem_of(clusters=[CLUSTER], jobs=[job])) == {("j0", "p0")}
