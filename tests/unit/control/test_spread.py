"""`placement.spread: cluster`, `region`: no two tasks of an array in one at the same time."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from broker.control.build_problem import Waiting, World, build
from broker.decide.decision import decide
from broker.decide.explain import explain_unplaced
from broker.model.fleet import Fleet
from broker.model.policies import Ruling
from federation.ids import Cluster
from federation.jobs import JobSpec, parse_job_spec
from federation.refusals import RefusalCode
from tests.unit.control.test_policy_problem import DEAR_EU, NOW_MS
from tests.unit.lifecycle.builders import JOB, a_job, an_attempt, runs


def a_spec(**placement: Any) -> JobSpec:
    return parse_job_spec(
        {
            "run": "x",
            "tenant": "default",
            "array": "0-9",
            "max_runtime": "1h",
            "placement": placement,
        }
    )


def a_fleet() -> Fleet:
    views = [
        replace(DEAR_EU, identity=replace(DEAR_EU.identity, name=Cluster(name)))
        for name in ("a", "b", "c")
    ]
    return Fleet({view.identity.name: view for view in views})


def test_each_cluster_gets_one_task_until_that_has_ended() -> None:
    for spread, placed in (({}, 10), ({"spread": "cluster"}, 3)):
        spec, job = a_spec(**spread), a_job(tasks=runs(0, 9), created_ms=NOW_MS)
        problem = build(World(a_fleet(), {}, {}, NOW_MS), [Waiting.under(Ruling(spec), job, 10)])
        plan = decide(problem)
        assert sum(item.count for item in plan.assignments) == placed
    assert {item.pool.split("/")[0] for item in plan.assignments} == {"a", "b", "c"}

    running = an_attempt(job, cluster="a", pool="cpu", tasks=runs(0, 0), width=1)
    held = replace(job, attempts=(running,))
    problem = build(World(a_fleet(), {}, {}, NOW_MS), [Waiting.under(Ruling(spec), held, 9)])
    plan = decide(problem)
    assert {item.pool.split("/")[0] for item in plan.assignments} == {"b", "c"}
    told = explain_unplaced(problem, plan, JOB)
    reasons = {reason.cluster: reason.refusals[0] for reason in told.reasons}
    assert reasons["a"].code is RefusalCode.SPREAD_LIMIT
    assert "leave out placement.spread" in reasons["a"].text
    assert reasons["b"].code is RefusalCode.KEPT_APART


def test_each_region_gets_one_task_until_that_has_ended() -> None:
    far = replace(DEAR_EU, identity=replace(DEAR_EU.identity, name="d", region="us-east"))
    views = {**a_fleet().clusters, "d": far}
    spec, job = a_spec(spread="region"), a_job(tasks=runs(0, 9), created_ms=NOW_MS)
    world = World(Fleet(views), {}, {}, NOW_MS)
    plan = decide(build(world, [Waiting.under(Ruling(spec), job, 10)]))
    assert sum(item.count for item in plan.assignments) == 2
    assert "d" in {item.pool.split("/")[0] for item in plan.assignments}

    running = an_attempt(job, cluster="a", region="eu-west", pool="cpu", tasks=runs(0, 0), width=1)
    held = replace(job, attempts=(running,))
    problem = build(world, [Waiting.under(Ruling(spec), held, 9)])
    plan = decide(problem)
    assert [(item.pool, item.count) for item in plan.assignments] == [("d/cpu", 1)]
    told = explain_unplaced(problem, plan, JOB)
    reasons = {reason.cluster: reason.refusals[0] for reason in told.reasons}
    assert {reasons[name].code for name in "abc"} == {RefusalCode.SPREAD_LIMIT}
    assert "one of its tasks in eu-west" in reasons["b"].text
    assert reasons["d"].code is RefusalCode.REGION_TAKEN
