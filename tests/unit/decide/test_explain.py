"""Explanations: the candidate table, the reason per cluster, the change that really starts it."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from broker.decide.decision import decide
from broker.decide.explain import Explanation, Standing, candidates, explain_unplaced
from broker.decide.problem_file import parse_problem
from broker.decide.remaining import left_over
from broker.model.problem import NodeGroup, Problem
from federation.refusals import Refusal, RefusalCode
from tests.unit.decide.problems import a_job, a_pool, a_problem, scalar

CLUSTERS = [{"name": "c0", "region": "east"}, {"name": "c1", "region": "west"}]
RTT = [[1, 58], [58, 1]]


def explained(**changes: Any) -> Explanation:
    problem = parse_problem(json.dumps(a_problem(**changes)))
    return explain_unplaced(problem, decide(problem), problem.jobs[-1].id)


def advice_of(explanation: Explanation) -> str:
    assert explanation.advice is not None
    return " and ".join(change.text for change in explanation.advice.changes)


FULL = a_job("full", priority=1, replicas=2, accelerators_per_replica=8)


@pytest.mark.parametrize(
    ("job", "standing", "advice"),
    [
        ({"accelerators": {"B200": 1}}, Standing.NEVER_FITS, "allow accelerator H100"),
        ({"regions": ["west"]}, Standing.POLICY, "allow east"),
        ({"regions": []}, Standing.POLICY, "allow east"),
        ({"deadline_h": 0.5}, Standing.TIME, "deadline_h 0.5 -> 1"),
        ({"budget_usd": 0.25}, Standing.PRICE, "budget_usd 0.25 -> 1"),
        ({"max_price_usd_per_accelerator_hour": 0.25}, Standing.PRICE, "price cap 0.25 -> 1"),
        (
            {"user_region": "west", "max_rtt_ms": 40},
            Standing.POLICY,
            "max_rtt_ms 40 -> 58",
        ),
        (
            {"accelerators_per_replica": 16},
            Standing.NEVER_FITS,
            "replicas x accelerators 1 x 16 -> 2 x 8",
        ),
        (
            {"replicas": 5, "accelerators_per_replica": 8},
            Standing.NEVER_FITS,
            "3 more free places of 8 H100 on one node",
        ),
    ],
)
def test_one_reason_and_its_remedy(job: dict[str, Any], standing: Standing, advice: str) -> None:
    explanation = explained(jobs=[a_job(**job)], rtt_ms=RTT)
    assert explanation.waiting == 1
    assert [reason.standing for reason in explanation.reasons] == [standing]
    assert advice_of(explanation) == advice


def test_full_nodes_fit_when_empty() -> None:
    explanation = explained(jobs=[FULL, a_job(accelerators_per_replica=4)])
    assert explanation.reasons[0].standing is Standing.FITS_WHEN_EMPTY
    assert explanation.reasons[0].refusals[0].code is RefusalCode.NO_CAPACITY
    assert advice_of(explanation) == "1 more free place of 4 H100 on one node"


def test_quota_per_tenant_and_cluster() -> None:
    tenants = [{"name": "t0", "quota_accelerators": 3, "cluster_quota": {"c0": 1}}]
    explanation = explained(tenants=tenants, jobs=[a_job(accelerators_per_replica=4)])
    assert explanation.reasons[0].standing is Standing.QUOTA
    assert advice_of(explanation) == "1 more of quota for t0 and 3 more of quota for t0 in c0"


def test_each_cluster_has_its_own_reason() -> None:
    pools = [a_pool(), a_pool("p1", cluster="c1", accelerator="A100"), a_pool("p2", spot=True)]
    job = a_job(replicas=1, accelerators_per_replica=8)
    explanation = explained(clusters=CLUSTERS, pools=pools, jobs=[FULL, job])
    standings = {reason.cluster: reason.standing for reason in explanation.reasons}
    assert standings == {"c0": Standing.FITS_WHEN_EMPTY, "c1": Standing.NEVER_FITS}
    assert advice_of(explanation) == "allow spot"


def test_value_below_cost_says_the_value_that_is_enough() -> None:
    explanation = explained(objective=scalar(2), jobs=[a_job(runtime_h=3)])
    assert explanation.reasons[0].standing is Standing.PRICE
    assert "value_usd_per_accelerator of priority 0 2 -> 3.0" in advice_of(explanation)


def test_the_advice_is_true_once_followed() -> None:
    document = a_problem(
        clusters=CLUSTERS,
        rtt_ms=RTT,
        pools=[a_pool(cluster="c1")],
        jobs=[a_job(user_region="east", max_rtt_ms=40, budget_usd=0.5)],
    )
    problem = parse_problem(json.dumps(document))
    explanation = explain_unplaced(problem, decide(problem), "j0")
    assert explanation.advice is not None
    for change in explanation.advice.changes:
        document["jobs"][0][change.what] = float(change.after)
    assert decide(parse_problem(json.dumps(document))).placed == {0: 1}


def production(**pool: Any) -> Problem:
    problem = parse_problem(json.dumps(a_problem()))
    return replace(problem, pools=(replace(problem.pools[0], **pool),))


def test_reasons_given_by_the_caller_are_told() -> None:
    silent = Refusal(RefusalCode.CLUSTER_UNREACHABLE, "c0", available="silent for 90 s")
    for problem in (
        production(unusable=silent),
        replace(
            production(), jobs=tuple(replace(j, excluded={"c0": silent}) for j in production().jobs)
        ),
    ):
        plan = decide(problem)
        assert plan.unplaced[0].refusal == silent
        explanation = explain_unplaced(problem, plan, "j0")
        assert explanation.reasons[0].standing is Standing.UNREACHABLE
        assert advice_of(explanation) == "cluster unreachable of c0 ends"


NEVER = Refusal(RefusalCode.CLUSTER_UNREACHABLE, "c1", available="has never reported")


def with_unheard(**job: Any) -> Problem:
    """One cluster without what is asked for, and one that was never heard of."""
    jobs = [a_job(accelerators={"B200": 1}, **job)]
    document = a_problem(clusters=CLUSTERS, rtt_ms=RTT, jobs=jobs)
    problem = parse_problem(json.dumps(document))
    first, second = problem.clusters
    return replace(problem, clusters=(first, replace(second, unknown=NEVER)))


def test_a_cluster_never_heard_of_is_the_reason_where_no_other_could_do() -> None:
    problem = with_unheard()
    plan = decide(problem)
    assert plan.unplaced[0].refusal == NEVER
    told = explain_unplaced(problem, plan, "j0").reasons
    assert [(r.cluster, r.standing, r.refusals[0].code) for r in told] == [
        ("c0", Standing.NEVER_FITS, RefusalCode.WRONG_ACCELERATOR),
        ("c1", Standing.UNREACHABLE, RefusalCode.CLUSTER_UNREACHABLE),
    ]


def test_what_rules_a_cluster_out_anyway_is_told_before_that_it_was_never_heard_of() -> None:
    problem = with_unheard(regions=["east"])
    plan = decide(problem)
    assert plan.unplaced[0].refusal.code is RefusalCode.WRONG_ACCELERATOR
    reason = explain_unplaced(problem, plan, "j0").reasons[1]
    assert (reason.cluster, reason.standing) == ("c1", Standing.POLICY)
    assert [refusal.code for refusal in reason.refusals] == [
        RefusalCode.REGION_NOT_ALLOWED, RefusalCode.CLUSTER_UNREACHABLE,
    ]  # fmt: skip


def test_a_known_empty_pool_tells_never_from_not_now() -> None:
    busy = (NodeGroup(2, 0),)
    for when_empty, standing in (
        ((NodeGroup(2, 8),), Standing.FITS_WHEN_EMPTY),
        ((), Standing.NEVER_FITS),
    ):
        problem = production(nodes=busy, when_empty=when_empty)
        explanation = explain_unplaced(problem, decide(problem), "j0")
        assert explanation.reasons[0].standing is standing


def test_the_candidate_table_shows_every_term_and_the_choice() -> None:
    document = a_problem(
        clusters=[{**CLUSTERS[0], "cold_start_s": {"*": 1800}}, CLUSTERS[1]],
        rtt_ms=RTT,
        egress_usd_per_gb=[[0, 0.1], [0.1, 0]],
        pools=[a_pool(), a_pool("p1", cluster="c1"), a_pool("p2", spot=True)],
        jobs=[a_job(user_region="east", latency_usd_per_ms=0.5, data_region="east", input_gb=20)],
    )
    problem = parse_problem(json.dumps(document))
    table = candidates(problem, problem.jobs[0], decide(problem))
    assert [(row.pool, row.chosen, row.feasible) for row in table] == [
        ("p0", 1, True),
        ("p1", 0, True),
        ("p2", 0, False),
    ]
    near, far = table[0].terms, table[1].terms
    assert near is not None and far is not None
    assert (near.compute_usd, near.cold_start_usd, near.egress_usd, near.latency_usd) == (
        1,
        0.5,
        0,
        0.5,
    )
    assert (far.egress_usd, far.latency_usd, far.total_usd) == (2, 29, 32)
    assert "CHOSEN" in table[0].text and "spot not allowed" in table[2].text


def test_what_a_plan_leaves() -> None:
    document = a_problem(
        pools=[a_pool(nodes=[{"count": 3, "free_accelerators": 8, "free_cpus": 10}])],
        tenants=[{"name": "t0", "quota_accelerators": 20, "cluster_quota": {"c0": 19}}],
        jobs=[a_job(count=2, accelerators_per_replica=5, cpus_per_replica=4)],
    )
    problem = parse_problem(json.dumps(document))
    left = left_over(problem, decide(problem))
    assert left.jobs == ()
    assert left.pools[0].nodes == (NodeGroup(2, 3, 6.0), NodeGroup(1, 8, 10.0))
    assert left.tenants[0].quota_accelerators == 10 and left.tenants[0].cluster_quota == {"c0": 9}
