"""Quotas of tenants over all clusters."""

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


@pytest.mark.parametrize(("quota", "allowed"), [(12, True), (11, False), (0, False)])
def test_the_accelerators_of_all_replicas_count(quota: int, *, allowed: bool) -> None:
    problem = problem_of(
        clusters=two_clusters(),
        pools=[a_pool(), a_pool("p1", cluster="c1")],
        tenants=[{"name": "t0", "quota_accelerators": quota}, {"name": "t1"}],
        jobs=[
            a_job(replicas=2, accelerators_per_replica=6),
            a_job("other", tenant="t1", replicas=2, accelerators_per_replica=6),
        ],
    )
    assert {("other", "p0"), ("other", "p1")} <= options_of(problem)
    assert (("j0", "p1") in options_of(problem)) is allowed
    assert (f"t0: 12 accelerators of {quota}" not in violations_of(problem)) is allowed
    if not allowed:
        reason = reason_for(problem)
        assert reason is not None and f"{12 - quota} more of quota" in reason.text
        assert change_for(problem) == f"{12 - quota} more of quota for t0"
