"""Prices by the hour and the risk of spot capacity: from a site's report into the decision."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from broker.control.build_problem import FRAGMENTATION_USD_PER_NODE, Waiting, World, build
from broker.decide.decision import decide
from broker.decide.explain import candidates
from broker.model.fleet import ClusterView, Fleet, PoolPrice, PriceStep
from broker.model.jobs import JobPhase, Outcome, OutcomeKind
from broker.model.plan import Plan
from broker.model.policies import Ruling
from broker.model.problem import Problem
from broker.sense.preemptions import STATED_H, Preemptions, rate_per_h
from broker.sense.reports import prices_from
from federation.jobs import parse_job_spec
from federation.wire import records as pb
from regional_agent.sense import reports as sense
from regional_agent.translate import prices_to_wire
from tests.unit.control.federation import Federation, Site, until
from tests.unit.control.test_control import phase, submit
from tests.unit.control.test_policy_problem import DEAR_EU, NOW_MS, SPOT_EU
from tests.unit.lifecycle.builders import a_job, an_attempt

HOUR_MS = 3_600_000


def priced(view: ClusterView, name: str, **price: Any) -> ClusterView:
    base = {"kind": "owned", "full_micro_usd": 100_000} | price
    made = PoolPrice("cpu", as_of_ms=NOW_MS, source="test", **base)
    return replace(view, identity=replace(view.identity, name=name), prices={"cpu": made})


def decided(views: list[ClusterView], seen: Any = None, **spec: Any) -> tuple[Problem, Plan]:
    asked = {"run": "x", "tenant": "default", "max_runtime": "4h", **spec}
    job = a_job(created_ms=NOW_MS)
    world = World(Fleet({v.identity.name: v for v in views}), {}, {}, NOW_MS, preempted=seen or {})
    problem = build(world, [Waiting.under(Ruling(parse_job_spec(asked)), job, 1)])
    return problem, decide(problem)


def chosen(plan: Plan) -> list[str]:
    return [item.pool for item in plan.assignments]


NIGHT = PriceStep(NOW_MS + HOUR_MS, NOW_MS + 9 * HOUR_MS, 10_000)


def test_a_price_by_the_hour_decides_over_the_hours_that_the_job_runs() -> None:
    steady = priced(DEAR_EU, "steady", marginal_micro_usd=50_000)
    hourly = priced(DEAR_EU, "hourly", marginal_micro_usd=90_000, steps=(NIGHT,))
    # A quarter of four hours at 0.09, the rest at 0.01: 0.03 on average.
    problem, plan = decided([steady, hourly])
    assert chosen(plan) == ["hourly/cpu"]
    node_usd = FRAGMENTATION_USD_PER_NODE
    assert plan.cost_usd == pytest.approx(0.09 + 3 * 0.01 + node_usd)
    assert chosen(decided([steady, hourly], max_runtime="1h")[1]) == ["steady/cpu"]
    told = {row.cluster: row for row in candidates(problem, problem.jobs[0], plan)}
    assert told["hourly"].terms is not None and told["steady"].terms is not None
    assert told["hourly"].terms.compute_usd < told["steady"].terms.compute_usd


def test_what_an_attempt_is_charged_is_what_its_hours_cost_on_average() -> None:
    price = PoolPrice("cpu", "owned", 90_000, 90_000, NOW_MS, "test", steps=(NIGHT,))
    assert price.marginal_at(NOW_MS) == 90_000
    assert price.marginal_at(NOW_MS + HOUR_MS) == 10_000
    assert price.marginal_at(NOW_MS + 9 * HOUR_MS) == 90_000
    assert price.mean_micro_usd(NOW_MS, 4 * HOUR_MS) == 30_000
    assert price.mean_micro_usd(NOW_MS, HOUR_MS) == 90_000
    assert price.change_after(NOW_MS) == (NOW_MS + HOUR_MS, 10_000)
    assert price.change_after(NOW_MS + 9 * HOUR_MS) is None


def test_spot_is_worth_its_price_only_as_far_as_checkpoints_bound_what_is_lost() -> None:
    """A spot price alone says nothing of what a preemption costs."""
    risky = priced(SPOT_EU, "spot", marginal_micro_usd=40_000, kind="spot", preemptions_per_h=0.5)
    safe = priced(DEAR_EU, "safe", marginal_micro_usd=60_000)
    spot = {"placement": {"spot": True}}
    assert chosen(decided([risky, safe], **spot)[1]) == ["safe/cpu"]
    kept = {"checkpoint": {"path": "/shared/ckpt", "interval": "15m"}, **spot}
    problem, plan = decided([risky, safe], **kept)
    assert chosen(plan) == ["spot/cpu"]
    row = next(r for r in candidates(problem, problem.jobs[0], plan) if r.cluster == "spot")
    assert row.terms is not None
    # 0.5 an hour, for four hours, an eighth of an hour lost, at 0.04 USD.
    assert row.terms.preemption_usd == pytest.approx(0.5 * 4 * 0.125 * 0.04)


def test_preemptions_that_were_seen_count_more_the_longer_was_watched() -> None:
    seen = Preemptions()
    job = a_job()
    taken = replace(
        an_attempt(job, cluster="spot", pool="cpu"),
        started_ms=NOW_MS, ended_ms=NOW_MS + 12 * HOUR_MS,
        outcome=Outcome(OutcomeKind.PREEMPTED),
    )  # fmt: skip
    for _ in range(4):
        seen.ended(taken)
    ours = replace(taken, stop_why=OutcomeKind.PREEMPTED)
    seen.ended(ours)
    seen.ended(replace(taken, started_ms=0))
    found = seen.snapshot()["spot", "cpu"]
    assert found == (4, 60.0), "the one we stopped ran, but the site did not take it"
    assert rate_per_h(0.0, (0, 1_000.0)) == 0.0
    assert rate_per_h(0.5, (0, 0.0)) == 0.5
    assert rate_per_h(0.0, found) == pytest.approx(4 / (STATED_H + 60), rel=0.05)
    assert rate_per_h(0.5, (0, 10_000.0)) < 0.002

    said_safe = priced(SPOT_EU, "spot", marginal_micro_usd=40_000, kind="spot")
    safe = priced(DEAR_EU, "safe", marginal_micro_usd=60_000)
    spot = {"placement": {"spot": True}}
    assert chosen(decided([said_safe, safe], **spot)[1]) == ["spot/cpu"]
    often = {("spot", "cpu"): (60, 96.0)}
    assert chosen(decided([said_safe, safe], often, **spot)[1]) == ["safe/cpu"]


@pytest.mark.parametrize(
    ("steps", "risk", "told"),
    [
        ([(5, 9, 1), (8, 10, 1)], 0, "one lies over another"),
        ([(5, 5, 1)], 0, "not in order"),
        ([(5, 9, 0)], 0, "out of range"),
        ([(5, 9, 2_000_000_000)], 0, "2000 USD"),
        ([(n, n + 1, 1) for n in range(500)], 0, "500 prices by the hour, at most 400"),
        ([], -1, "-1 preemptions"),
        ([], float("nan"), "preemptions"),
    ],
)
def test_prices_that_cannot_be_right_are_refused(steps: Any, risk: float, told: str) -> None:
    report = pb.PriceReport()
    report.pools.add(
        pool="p", kind="spot", marginal_micro_usd=5, as_of_ms=1, source="x", preemptions_per_h=risk,
        steps=[pb.PriceStep(from_ms=a, until_ms=b, marginal_micro_usd=c) for a, b, c in steps],
    )  # fmt: skip
    good, (why,) = prices_from(report)
    assert good == () and told in why


def test_what_an_agent_says_of_a_price_arrives_whole() -> None:
    told = sense.PoolPrice("p", "spot", 5, 7, 1, "x", 0, (sense.PriceStep(5, 9, 3),), 0.25)
    (heard,), refused = prices_from(prices_to_wire(sense.PriceReport(1, (told,))).price)
    assert refused == () and heard == PoolPrice(
        "p", "spot", 5, 7, 1, "x", 0, (PriceStep(5, 9, 3),), 0.25
    )


async def test_a_leader_learns_of_what_sites_take_back_and_decides_by_it(tmp_path: Path) -> None:
    made = await Federation.make(tmp_path, Site("us-east", 4, take_back=2))
    await made.start()
    try:
        (job,) = await submit(made)
        await until(lambda: phase(made, job) is JobPhase.ENDED)
        assert made.plane is not None
        office = made.plane.office
        assert office.starts.preemptions.snapshot()["us-east", "cpu"][0] == 2
        (again,) = await submit(made)
        await until(lambda: phase(made, again) is JobPhase.ENDED)
        assert office.last_cycle is not None
        (pool,) = office.last_cycle.problem.pools
        assert pool.preemptions_per_h == pytest.approx(2 / STATED_H, rel=0.05)
    finally:
        await made.kill()
        await made.sites.close()
