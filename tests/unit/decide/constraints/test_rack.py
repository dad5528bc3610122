"""Gangs in one rack."""

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


def test_a_gang_goes_to_a_pool_that_is_known_to_be_one_rack() -> None:
    problem = problem_of(
        pools=[a_pool(), a_pool("p1", domain="rack1")],
        jobs=[
            a_job(topology="rack", replicas=2),
            a_job("single", topology="rack"),
            a_job("anywhere", replicas=2),
        ],
    )
    everywhere = {(job, pool) for job in ("single", "anywhere") for pool in ("p0", "p1")}
    assert options_of(problem) == {("j0", "p1"), *everywhere}
    assert "rack" in violations_of(problem, "p0")
    assert "rack" not in violations_of(problem, "p1")
    reason = reason_for(problem)
    assert reason is not None and reason.code is RefusalCode.NO_RACK
    assert "all replicas in one rack" in reason.text
    assert change_for(problem) == "topology rack -> cluster"
