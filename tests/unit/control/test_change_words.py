"""Changes that would start a job read as people say them, each tried by deciding again."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from broker.control.candidate_table import waiting_rows
from broker.control.change_words import advice_words, reason_words
from broker.decide.decision import Budget, decide
from broker.decide.explain import explain_unplaced
from broker.decide.problem_file import problem_from_json
from broker.model.problem import Problem
from federation.refusals import Refusal, RefusalCode
from tests.unit.decide.problems import a_job, a_pool, a_problem

RTT = [[1, 58], [58, 1]]


def words(problem: Problem) -> str:
    told = explain_unplaced(problem, decide(problem, Budget(cpu_s=1)), problem.jobs[-1].id)
    assert told.advice is not None
    assert told.reasons[0].advice == told.advice, "of the one cluster that there is"
    return advice_words(told.advice, problem.jobs[-1])


@pytest.mark.parametrize(
    ("job", "expected"),
    [
        ({"regions": ["west"]}, "allow east"),
        ({"user_region": "west", "max_rtt_ms": 40}, "max_rtt 40 -> 58 ms"),
        ({"max_price_usd_per_accelerator_hour": 2.1}, "price cap 2.10 -> 2.35"),
        ({"budget_usd": 1.5}, "budget 1.50 -> 2.35 USD"),
        ({"deadline_h": 0.5}, "deadline in 30m -> 1h"),
        ({"accelerators": {"B200": 1}}, "allow accelerator H100"),
        ({"count": 2, "apart": "j0"}, "leave out placement.spread"),
        ({"count": 2, "apart_region": "j0"}, "leave out placement.spread"),
        ({"topology": "rack", "replicas": 2}, "topology rack -> cluster"),
        ({"accelerators_per_replica": 16}, "replicas x accelerators 1 x 16 -> 2 x 8"),
    ],
)
def test_limits_of_the_job(job: dict[str, Any], expected: str) -> None:
    pools = [a_pool(price_usd_per_accelerator_hour=2.35)]
    assert words(problem_from_json(a_problem(jobs=[a_job(**job)], pools=pools, rtt_ms=RTT))) == (
        expected
    )


def test_quotas_spot_and_room() -> None:
    four = a_job(accelerators_per_replica=4)
    tenants = [{"name": "t0", "quota_accelerators": 2}]
    assert words(problem_from_json(a_problem(jobs=[four], tenants=tenants))) == (
        "2 more H100 of quota for t0"
    )
    in_one = [{"name": "t0", "cluster_quota": {"c0": 3}}]
    assert words(problem_from_json(a_problem(jobs=[four], tenants=in_one))) == (
        "1 more H100 of quota for t0 in c0"
    )
    assert words(problem_from_json(a_problem(jobs=[four], pools=[a_pool(spot=True)]))) == (
        "allow spot"
    )
    full = problem_from_json(a_problem(jobs=[four], pools=[a_pool(free_nodes={"2": 1})]))
    assert words(full) == "1 more free place of 4 H100 on one node"


@pytest.mark.parametrize(
    ("refusal", "expected"),
    [
        (
            Refusal(RefusalCode.BLACKOUT, "c0", available="closed", advice="wait until 22:00"),
            "wait until 22:00",
        ),
        (
            Refusal(RefusalCode.CLUSTER_NOT_ALLOWED, "c0", advice="add c0 to placement.clusters"),
            "add c0 to placement.clusters",
        ),
        (Refusal(RefusalCode.PAUSED, "c0"), "paused of c0 ends"),
    ],
)
def test_reasons_of_sites_and_policies(refusal: Refusal, expected: str) -> None:
    problem = problem_from_json(a_problem())
    job = replace(problem.jobs[0], excluded={"c0": refusal})
    assert words(replace(problem, jobs=(job,))) == expected


def test_each_cluster_has_its_own_change() -> None:
    problem = problem_from_json(
        a_problem(
            clusters=[{"name": "c0", "region": "east"}, {"name": "c1", "region": "west"}],
            pools=[a_pool("p0"), a_pool("p1", cluster="c1", price_usd_per_accelerator_hour=9)],
            jobs=[a_job(regions=["west"], max_price_usd_per_accelerator_hour=3)],
        )
    )
    told = explain_unplaced(problem, decide(problem, Budget(cpu_s=1)), "j0")
    by_cluster = {
        reason.cluster: advice_words(reason.advice, problem.jobs[0])
        for reason in told.reasons
        if reason.advice
    }
    assert by_cluster == {"c0": "allow east", "c1": "price cap 3.00 -> 9.00"}


@pytest.mark.parametrize("asked, there", [("H100", "CPU"), ("CPU", "H100")])
def test_a_program_for_accelerators_is_not_sent_to_plain_slots_nor_the_other_way_round(
    asked: str, there: str
) -> None:
    job, pool = a_job(accelerators={asked: 1}), a_pool(accelerator=there)
    problem = problem_from_json(a_problem(jobs=[job], pools=[pool]))
    told = explain_unplaced(problem, decide(problem, Budget(cpu_s=1)), "j0")
    assert told.advice is None and told.reasons[0].advice is None


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ("p0: too far; max_rtt_ms 58.2", "p0: too far; max_rtt 58.2 ms"),
        ("p0: deadline too soon; deadline_h 1.001", "p0: deadline too soon; deadline in 1h4s"),
        ("p0: maintenance; max_runtime_h 1.9999", "p0: maintenance; max_runtime 1h59m59s"),
        ("p0: cheaper later; defer_h 12", "p0: cheaper later; defer 12h"),
        ("p0: no capacity; 1 more place", "p0: no capacity; 1 more place"),
        ("p0: odd; deadline_h inf and max_rtt_ms", "p0: odd; deadline_h inf and max_rtt_ms"),
    ],
)
def test_a_reason_advises_in_the_words_of_a_job_file(told: str, said: str) -> None:
    assert reason_words(told) == said


@pytest.mark.parametrize("job", [{"deadline_h": 0.5}, {"user_region": "west", "max_rtt_ms": 40}])
def test_no_reason_that_a_user_is_told_counts_in_a_problems_units(job: dict[str, Any]) -> None:
    problem = problem_from_json(a_problem(jobs=[a_job(**job)], pools=[a_pool()], rtt_ms=RTT))
    plan = decide(problem, Budget(cpu_s=1))
    told = [row["text"] for row in waiting_rows(explain_unplaced(problem, plan, "j0"))]
    assert told and not any(re.search(r"_h\b|_ms\b|\d h\b", text) for text in told)
