"""A problem that is written reads back the same, so that its plan is the same too."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from typing import Any

import pytest

from broker.cli.bench.instances import Size, an_instance
from broker.decide.decision import Budget, decide
from broker.decide.problem_file import (
    CLUSTER_KEYS,
    JOB_KEYS,
    OBJECTIVE_KEYS,
    POOL_KEYS,
    PROBLEM_KEYS,
    TENANT_KEYS,
    ProblemError,
    parse_problem,
    problem_from_json,
)
from broker.decide.problem_json import problem_to_json
from broker.model import problem as pm
from broker.model.plan import Assignment
from broker.model.prices import PoolPrice, Prices, TenantPrice
from broker.model.warm import Warm
from federation.refusals import Refusal, RefusalCode
from tests.unit.decide.problems import a_job, a_pool, a_problem

CLOSED = {"c0": Refusal(RefusalCode.REGION_NOT_ALLOWED, "c0", "eu", "us", "allow us")}


def again(problem: pm.Problem) -> pm.Problem:
    return parse_problem(json.dumps(problem_to_json(problem), allow_nan=False))


def live() -> pm.Problem:
    """What the running broker builds: node by node, with places that are closed."""
    group = pm.NodeGroup(2, 8, 64.0, 512.5)
    pool = pm.Pool(
        "c0/a", "c0", "H100", 2.5, 8, (group, pm.NodeGroup(1, 0, 0.1, 0.3)),
        per_node=True, when_empty=(pm.NodeGroup(3, 8, 64.0, 512.5),),
    )  # fmt: skip
    shut = replace(pool, name="c0/b", unusable=Refusal(RefusalCode.PAUSED, "c0", available="since"))
    jobs = tuple(
        pm.Job(f"j{n}", "ada", {"H100": 1.0}, 1 / 3, cpus_per_replica=1 / 7, excluded=closed)
        for n, closed in enumerate((CLOSED, dict(CLOSED), {}))
    )
    prices = Prices({"c0/a": PoolPrice(1.5)}, {"ada": TenantPrice(0.5)}, {0: 8.0})
    return pm.Problem(
        ("east",),
        (
            pm.Cluster("c0", "east", {"*": 1.5}, start_delay_s=0.25),
            pm.Cluster("c1", "east", unknown=Refusal(RefusalCode.CAPACITY_UNKNOWN, "c1")),
        ),
        (pool, shut), jobs,
        pm.Objective(weight_per_accelerator={0: 1.0}, fragmentation_usd_per_node=0.05),
        tenants=(pm.Tenant("ada", 2.0, 7, {"c0": 3}),), rtt_ms=((1.5,),),
        now="2026-01-01T00:00:00Z",
        warm=Warm((Assignment("j0", "c0/a", 1),), prices),
    )  # fmt: skip


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("mode", ["place_first", "scalar"])
def test_a_made_up_problem_reads_back_the_same(seed: int, mode: str) -> None:
    problem = problem_from_json(an_instance(Size(10, 200, 50, 1.0), seed, mode))
    assert again(problem) == problem


def test_a_problem_of_the_running_broker_reads_back_the_same() -> None:
    problem = live()
    assert again(problem) == problem
    written = problem_to_json(problem)
    assert len(written["exclusions"]) == 1, "jobs under the same rules share them"
    first, second = again(problem).jobs[:2]
    assert first.excluded is second.excluded


def test_where_the_replicas_of_gangs_lie_reads_back_the_same() -> None:
    job = a_job(replicas=2, topology="rack", topology_usd={"rack": 3.0}, several_pools=True)
    nodes = [{"free_accelerators": 8, "domain": "r1"}, {"free_accelerators": 8, "domain": "r2"}]
    problem = problem_from_json(a_problem(jobs=[job], pools=[a_pool(nodes=nodes)]))
    plan = decide(problem)
    assert plan.assignments[0].level is not None and plan.assignments[0].parts
    problem = replace(problem, warm=Warm(plan.assignments))
    assert again(problem) == problem


def test_the_plan_of_what_was_read_back_is_the_same() -> None:
    problem = live()
    assert decide(again(problem), Budget(cpu_s=1)) == decide(problem, Budget(cpu_s=1))


def test_every_field_of_a_problem_has_its_key() -> None:
    """A field without a key would be lost on the way to a file, and a replay would differ."""
    for kind, keys in (
        (pm.Problem, PROBLEM_KEYS), (pm.Objective, OBJECTIVE_KEYS), (pm.Cluster, CLUSTER_KEYS),
        (pm.Pool, POOL_KEYS), (pm.Tenant, TENANT_KEYS), (pm.Job, JOB_KEYS),
    ):  # fmt: skip
        ours = {"per_node", "queue_of", "starts_h", "part_of", "around"}  # those of deciding
        ours |= {"together", "members", "form_of", "level_usd", "among", "scope"}
        lost = {field.name for field in fields(kind)} - keys.keys() - ours
        assert not lost, f"{kind.__name__}: {lost}"


@pytest.mark.parametrize(
    ("changes", "path"),
    [
        ({"jobs": [a_job(excluded="9")]}, "jobs[0].excluded"),
        ({"exclusions": {"0": {"c9": {"code": "paused"}}}}, 'exclusions["0"]["c9"]'),
        ({"exclusions": {"0": {"c0": {"code": "pausd"}}}}, "exclusions.0.c0.code"),
        ({"pools": [a_pool(unusable={"subject": "x"})]}, "pools[0].unusable.code"),
        ({"recorded": 3}, "recorded"),
        ({"jobs": [a_job(topology_usd={"rak": 1})]}, "jobs[0].topology_usd.rak"),
    ],
)
def test_bad_reasons_are_told_with_their_path(changes: dict[str, Any], path: str) -> None:
    with pytest.raises(ProblemError) as told:
        problem_from_json(a_problem(**changes))
    assert told.value.path.replace('["', ".").replace('"]', "") == path.replace(
        '["', "."
    ).replace('"]', "")
