"""Residency."""

from __future__ import annotations

from tests.unit.decide.constraints.judging import (
    change_for,
    options_of,
    problem_of,
    reason_for,
    two_clusters,
    violations_of,
)
from tests.unit.decide.problems import a_job, a_pool

WORLD = {"clusters": two_clusters(), "pools": [a_pool(), a_pool("p1", cluster="c1")]}


def test_a_job_stays_in_its_regions() -> None:
    jobs = [a_job(regions=["west"]), a_job("free"), a_job("both", regions=["east", "west"])]
    problem = problem_of(**WORLD, jobs=jobs)
    everywhere = {(job, pool) for job in ("free", "both") for pool in ("p0", "p1")}
    assert options_of(problem) == everywhere | {("j0", "p1")}
    assert "region" in violations_of(problem, "p0")
    assert "region" not in violations_of(problem, "p1")
    reason = reason_for(problem)
    assert reason is not None and reason.text.endswith("needs west, has east; allow east")
    assert change_for(problem) == "allow east"


def test_an_empty_list_allows_nowhere() -> None:
    problem = problem_of(**WORLD, jobs=[a_job(regions=[])])
    assert options_of(problem) == set()
    reason = reason_for(problem)
    assert reason is not None and "no region at all" in reason.text
