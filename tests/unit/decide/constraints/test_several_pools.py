"""Gangs over several pools of one cluster."""

from __future__ import annotations

from dataclasses import replace

from broker.decide.decision import decide
from broker.decide.explain import candidates, explain_unplaced
from broker.decide.verify import verify
from broker.model.plan import Assignment, Part
from federation.refusals import RefusalCode
from tests.unit.decide.constraints.judging import (
    change_for,
    options_of,
    problem_of,
    reason_for,
    violations_of,
)
from tests.unit.decide.problems import a_job, a_pool


def test_a_gang_lies_over_pools_of_a_cluster_only_where_it_says_so() -> None:
    gang = a_job(replicas=4, accelerators_per_replica=8)
    pools = [a_pool(), a_pool("p1", price_usd_per_accelerator_hour=2.0)]
    problem = problem_of(pools=pools, jobs=[gang])
    assert options_of(problem) == set()
    reason = reason_for(problem)
    assert reason is not None and reason.code is RefusalCode.POOL_TOO_SMALL
    assert "2 of them, and 2 in other pools of c0" in reason.text
    assert change_for(problem) == "several_pools false -> true"
    told = explain_unplaced(problem, decide(problem), "j0")
    assert told.advice is not None and "several_pools false -> true" in told.advice.text
    split = replace(problem, jobs=(replace(problem.jobs[0], several_pools=True),))
    plan = decide(split)
    assert verify(split, plan) == ()
    parts = (Part("p0", "", 2), Part("p1", "", 2))
    assert plan.assignments == (Assignment("j0", "p0", 1, parts=parts),)
    assert plan.cost_usd == 2 * 8 * 1.0 + 2 * 8 * 2.0
    wrong = {violation.text for violation in verify(problem, plan)}
    assert "j0 in p0: it lies in 2 pools" in wrong
    assert violations_of(split, copies=1)
    rows = {row.pool: row for row in candidates(split, split.jobs[0], plan)}
    assert rows["p0"].chosen == 1 and rows["p0"].terms is not None


def test_all_of_a_gang_or_nothing() -> None:
    gang = a_job(replicas=5, accelerators_per_replica=8, several_pools=True)
    apart = a_pool("p2", cluster="c1")
    other = a_pool("p3", accelerator="A100")
    problem = problem_of(
        clusters=[{"name": "c0", "region": "east"}, {"name": "c1", "region": "west"}],
        pools=[a_pool(), a_pool("p1"), apart, other],
        jobs=[{**gang, "accelerators": {"H100": 1, "A100": 1}}],
    )
    plan = decide(problem)
    assert verify(problem, plan) == () and plan.assignments == () and plan.fills == ()
    assert plan.unplaced[0].count == 1
