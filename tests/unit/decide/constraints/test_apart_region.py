"""Jobs that must not share a region."""

from __future__ import annotations

from dataclasses import replace

from broker.decide.decision import decide
from broker.decide.explain import candidates, explain_unplaced
from broker.decide.remaining import without_its_places
from broker.decide.verify import verify
from broker.model.plan import Assignment
from federation.refusals import RefusalCode
from tests.unit.decide.constraints.judging import (
    change_for,
    options_of,
    problem_of,
    reason_for,
    two_clusters,
    violations_of,
)
from tests.unit.decide.problems import a_job, a_pool


def test_a_region_takes_one_copy_of_a_group() -> None:
    problem = problem_of(
        clusters=[*two_clusters(), {"name": "c2", "region": "west"}],
        pools=[a_pool(), a_pool("p1"), a_pool("p2", cluster="c1"), a_pool("p3", cluster="c2")],
        jobs=[
            a_job(count=2, apart_region="db"),
            a_job("j1", apart_region="db"),
            a_job("j2", apart_region="web"),
        ],
    )
    assert {pool for _, pool in options_of(problem)} == {"p0", "p1", "p2", "p3"}
    assert reason_for(problem) is None
    assert "2 copies of db in east, at most 1" in violations_of(problem, copies=2)
    plan = decide(problem)
    assert verify(problem, plan) == ()
    assert sum(plan.placed.values()) == 3
    (waiting,) = plan.unplaced
    assert waiting.refusal.code is RefusalCode.REGION_TAKEN
    told = explain_unplaced(problem, plan, waiting.job)
    assert told.advice is not None and told.advice.text.startswith("take the job out of db")
    job = next(job for job in problem.jobs if job.id == waiting.job)
    closed = without_its_places(problem, plan, job)
    assert change_for(replace(problem, jobs=(closed,))) == "take the job out of db"
    table = candidates(problem, job, plan)
    assert all(item.chosen or not item.feasible for item in table)


def test_two_jobs_of_a_group_forced_into_one_cluster_are_refused() -> None:
    problem = problem_of(jobs=[a_job(apart_region="db"), a_job("j1", apart_region="db")])
    plan = decide(problem)
    both = (Assignment("j0", "p0", 1), Assignment("j1", "p0", 1))
    wrong = verify(problem, replace(plan, assignments=both, unplaced=()))
    assert "j1 in p0: 2 copies of db in east, at most 1" in {violation.text for violation in wrong}
