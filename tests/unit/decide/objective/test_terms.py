"""Terms of the cost that depend on the hours of a run, on where its data is, and on how often it is
thrown out. Every figure is worked out by hand."""

from __future__ import annotations

import json

import pytest

from broker.decide.decision import decide
from broker.decide.explain import candidates
from broker.decide.objective import CostTerms
from broker.decide.problem_file import parse_problem
from broker.decide.strict_json import ProblemError
from broker.decide.verify import verify
from tests.unit.decide.problems import Document, a_job, a_pool, a_problem

NIGHT = {"from_h": 2, "to_h": 10, "price_usd_per_accelerator_hour": 0.25}


def terms_of(document: Document) -> CostTerms:
    """Of the first job in the first pool; the decided plan costs the same."""
    problem = parse_problem(json.dumps(document))
    plan = decide(problem)
    assert verify(problem, plan) == ()
    (found,) = [item for item in candidates(problem, problem.jobs[0]) if item.pool == "p0"]
    assert found.terms is not None
    assert plan.cost_usd == pytest.approx(found.terms.total_usd)
    return found.terms


@pytest.mark.parametrize(
    ("runtime_h", "delay_h", "usd"),
    [(2, 0, 2.0), (4, 0, 2.5), (4, 2, 1.0), (12, 0, 6.0), (1, 20, 1.0)],
)
def test_each_hour_is_paid_at_its_own_price(runtime_h: float, delay_h: float, usd: float) -> None:
    document = a_problem(
        clusters=[{"name": "c0", "region": "east", "start_delay_s": delay_h * 3600}],
        pools=[a_pool(prices=[NIGHT])],
        jobs=[a_job(runtime_h=runtime_h)],
    )
    assert terms_of(document).compute_usd == pytest.approx(usd)


def test_the_price_cap_is_for_the_average_of_the_run() -> None:
    for cap, fits in ((0.63, True), (0.62, False)):
        job = a_job(runtime_h=4, max_price_usd_per_accelerator_hour=cap)
        problem = parse_problem(json.dumps(a_problem(pools=[a_pool(prices=[NIGHT])], jobs=[job])))
        assert bool(decide(problem).assignments) is fits


def test_input_comes_from_where_it_is_cheapest_and_takes_its_time() -> None:
    document = a_problem(
        regions=["east", "west", "sea"],
        egress_usd_per_gb=[[0, 0, 0], [0.02, 0, 0], [0.05, 0, 0]],
        bandwidth_gbps=[[0, 0, 0], [2, 0, 0], [100, 0, 0]],
        jobs=[
            a_job(data_regions=["sea", "west"], input_gb=900, value_of_time_usd_per_h=6)
        ],
    )
    terms = terms_of(document)
    assert terms.egress_usd == pytest.approx(18.0)
    assert terms.start_delay_usd == pytest.approx(6.0)  # 900 GB at 2 Gbit/s: an hour
    assert terms.compute_usd == pytest.approx(1.0)
    document["jobs"][0]["deadline_h"] = 1.99
    assert decide(parse_problem(json.dumps(document))).assignments == ()


def test_work_lost_to_preemption_is_charged_up_to_the_last_checkpoint() -> None:
    pools = [a_pool(preemptions_per_h=0.1, price_usd_per_accelerator_hour=3)]
    job = a_job(runtime_h=10, value_of_time_usd_per_h=1)
    whole = terms_of(a_problem(pools=pools, jobs=[job]))
    assert whole.preemption_usd == pytest.approx(0.1 * 10 * 5 * (3 + 1))
    saved = terms_of(a_problem(pools=pools, jobs=[{**job, "checkpoint_h": 0.5}]))
    assert saved.preemption_usd == pytest.approx(0.1 * 10 * 0.25 * (3 + 1))


def test_a_safer_pool_is_chosen_where_the_risk_costs_more_than_the_discount() -> None:
    risky = a_pool(spot=True, preemptions_per_h=0.2)
    pools = [risky, a_pool("p1", price_usd_per_accelerator_hour=1.5)]
    for checkpoint_h, pool in ((None, "p1"), (0.5, "p0")):
        job = a_job(runtime_h=8, spot_ok=True, checkpoint_h=checkpoint_h)
        document = a_problem(pools=pools, jobs=[job])
        (found,) = decide(parse_problem(json.dumps(document))).assignments
        assert found.pool == pool


@pytest.mark.parametrize(
    ("pool", "path"),
    [
        ({"maintenance": [{"from_h": 2, "to_h": 2}]}, r"pools\[0\].maintenance\[0\].to_h"),
        ({"prices": [NIGHT, {**NIGHT, "from_h": 9}]}, r"pools\[0\].prices\[1\].from_h"),
    ],
)
def test_windows_are_in_order(pool: Document, path: str) -> None:
    with pytest.raises(ProblemError, match=path):
        parse_problem(json.dumps(a_problem(pools=[a_pool(**pool)])))


def test_one_form_of_where_the_data_is() -> None:
    for job, path in (
        ({"data_region": "east", "data_regions": ["west"]}, "data_regions: give either"),
        ({"input_gb": 1}, "input_gb: needs the key"),
        ({"data_regions": ["mars"], "input_gb": 1}, r"data_regions\[0\]: no region"),
    ):
        with pytest.raises(ProblemError, match=path):
            parse_problem(json.dumps(a_problem(jobs=[a_job(**job)])))
