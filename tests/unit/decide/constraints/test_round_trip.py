"""The round trip to a job's users."""

from __future__ import annotations

import pytest

from tests.unit.decide.constraints.judging import (
    change_for,
    options_of,
    problem_of,
    reason_for,
    two_clusters,
    violations_of,
)
from tests.unit.decide.problems import a_job, a_pool


@pytest.mark.parametrize(("limit_ms", "allowed"), [(57.9, False), (58, True), (400, True)])
def test_the_limit_is_inclusive(limit_ms: float, *, allowed: bool) -> None:
    problem = problem_of(
        clusters=two_clusters(),
        rtt_ms=[[1, 58], [90, 2]],
        pools=[a_pool(), a_pool("p1", cluster="c1")],
        jobs=[a_job(user_region="east", max_rtt_ms=limit_ms)],
    )
    assert (("j0", "p1") in options_of(problem)) is allowed
    assert ("round trip" not in violations_of(problem, "p1")) is allowed
    if not allowed:
        reason = reason_for(problem, "p1")
        assert reason is not None and "needs at most 57.9 ms, has 58 ms" in reason.text
        assert change_for(problem, "p1") == "max_rtt_ms 57.9 -> 58"
