"""The price cap of a job."""

from __future__ import annotations

from tests.unit.decide.constraints.judging import (
    change_for,
    options_of,
    problem_of,
    reason_for,
    violations_of,
)
from tests.unit.decide.problems import a_job, a_pool


def test_a_dearer_pool_is_no_option() -> None:
    problem = problem_of(
        pools=[a_pool(price_usd_per_accelerator_hour=2.35), a_pool("p1")],
        jobs=[a_job(max_price_usd_per_accelerator_hour=2.1)],
    )
    assert options_of(problem) == {("j0", "p1")}
    assert "price cap" in violations_of(problem)
    assert "price cap" not in violations_of(problem, "p1")
    reason = reason_for(problem)
    assert reason is not None and "2.35 USD; price cap 2.1 -> 2.35" in reason.text
    assert change_for(problem) == "price cap 2.1 -> 2.35"
