"""The planning problem under policies: every limit closes what it must, and says whose it is."""

from __future__ import annotations

from typing import Any

import pytest

from broker.control.build_problem import Waiting, World, build
from broker.control.policies import govern
from broker.control.policy_text import read_policy
from broker.decide.decision import decide
from broker.model.fleet import (
    Capacity,
    ClusterIdentity,
    ClusterState,
    ClusterView,
    Fleet,
    NodeGroup,
    PoolCapacity,
    PoolPrice,
    RoundTrip,
)
from broker.model.jobs import Job
from broker.model.plan import Plan
from broker.model.policies import Policies, PolicyVersion
from broker.model.problem import Problem
from federation.ids import Cluster, JobId, Region, Tenant
from federation.jobs import parse_job_spec

NOW_MS = 1_800_000_000_000
GIB = 1 << 30


def cluster(name: str, region: str, price_usd: float, **more: Any) -> ClusterView:
    """Eight CPU slots at a price; `trips` in ms by region, `start_ms`, `isolation`, `kind`."""
    group = NodeGroup(1, "CPU", 8, 8, 8_000, 8_000, 64 * GIB, 64 * GIB)
    price = round(price_usd * 1e6)
    return ClusterView(
        ClusterIdentity(
            Cluster(name), Region(region), ClusterState.JOINED,
            isolation=more.get("isolation", "per-user"),
        ),
        Capacity(NOW_MS, NOW_MS, 1, 0, 0, (PoolCapacity("cpu", (group,)),),
                 start_p50_ms=more.get("start_ms", 0)),
        {"cpu": PoolPrice("cpu", more.get("kind", "owned"), price, price, NOW_MS, "test")},
        tuple(
            RoundTrip(Region(to), "h:1", round(ms * 1000), NOW_MS)
            for to, ms in more.get("trips", {}).items()
        ),
        connected_since_ms=NOW_MS,
        reported=True,
    )  # fmt: skip


CHEAP_US = cluster("us", "us-east", 0.05, trips={"asia": 180}, start_ms=90_000)
DEAR_EU = cluster("eu", "eu-west", 0.09, trips={"asia": 120}, isolation="sandboxed")
SPOT_EU = cluster("spot", "eu-north", 0.01, kind="spot", isolation="shared-uid")


def problem(source: str, *views: ClusterView, **spec: Any) -> Problem:
    parsed = parse_job_spec(
        {"run": "true", "tenant": "default", "max_runtime": "1h",
         "placement": {"policy": "p", **spec.pop("placement", {})}, **spec}
    )  # fmt: skip
    version = PolicyVersion(read_policy(source), 3)
    ruling = govern(parsed, Policies({version.policy.name: version}))
    job = Job(
        JobId("j0000000000000001"), Tenant("default"), "a", "ada", 100, "", NOW_MS, NOW_MS
    )
    fleet = Fleet({v.identity.name: v for v in views or (CHEAP_US, DEAR_EU, SPOT_EU)})
    return build(World(fleet, {}, {}, NOW_MS), [Waiting.under(ruling, job, 1)])


def chosen(plan: Plan) -> str:
    return plan.assignments[0].pool if plan.assignments else plan.unplaced[0].refusal.code.value


@pytest.mark.parametrize(
    ("source", "where"),
    [
        ("name: p", "us/cpu"),
        ("{name: p, require: {regions: [eu-west, eu-north]}}", "eu/cpu"),
        ("{name: p, require: {regions: [eu-west, eu-north]}, spot: yes}", "spot/cpu"),
        ("{name: p, require: {regions: [eu-west, eu-north], isolation: per-user}, spot: yes}",
         "eu/cpu"),
        ("{name: p, require: {isolation: sandboxed}}", "eu/cpu"),
        ("{name: p, require: {max_start_delay: 1m}}", "eu/cpu"),
        ("{name: p, require: {max_rtt: {to: asia, ms: 150}}, spot: yes}", "eu/cpu"),
        ("{name: p, require: {max_price_usd_per_accelerator_hour: 0.02}, spot: yes}", "spot/cpu"),
        ("{name: p, require: {max_price_usd_per_accelerator_hour: 0.02}}", "price_cap"),
        ("{name: p, weights: {value_of_time_usd_per_hour: 2}}", "eu/cpu"),
        ("{name: p, weights: {value_of_time_usd_per_hour: 1}}", "us/cpu"),
    ],
)  # fmt: skip
def test_a_policy_decides_where_a_job_goes(source: str, where: str) -> None:
    assert chosen(decide(problem(source))) == where


def test_distance_costs_what_the_policy_says_and_unknown_is_not_near() -> None:
    # 60 ms nearer is worth more than the 0.04 USD it costs.
    source = "{name: p, weights: {latency_usd_per_ms: 0.001}}"
    built = problem(source, placement={"user_region": "asia"})
    assert built.jobs[0].latency_usd_per_ms == 0.001
    assert chosen(decide(built)) == "eu/cpu"
    rows = dict(zip(built.regions, built.rtt_ms[built.regions.index("asia")], strict=True))
    assert rows == {"asia": 0, "eu-west": 120, "us-east": 180, "eu-north": 180}
    light = problem("{name: p, weights: {latency_usd_per_ms: 0.0001}}",
                    placement={"user_region": "asia"})  # fmt: skip
    assert chosen(decide(light)) == "us/cpu"


def test_without_users_distance_costs_nothing() -> None:
    assert problem("{name: p, weights: {latency_usd_per_ms: 1}}").jobs[0].latency_usd_per_ms == 0


def test_a_second_round_trip_is_a_limit_of_its_own() -> None:
    source = "{name: p, require: {max_rtt: {to: asia, ms: 150}}}"
    built = problem(source, placement={"max_rtt": {"to": "eu-west", "ms": 500}})
    refused = built.jobs[0].excluded
    assert refused["us"].code.value in ("round_trip_too_long", "round_trip_unknown")
    assert "policy p@3" in built.jobs[0].excluded["spot"].text
    assert "eu" not in refused


def test_refusals_name_the_policy() -> None:
    built = problem("{name: p, require: {regions: [eu-west], isolation: sandboxed}}")
    assert "policy p@3" in built.jobs[0].excluded["us"].text
    isolated = problem("{name: p, require: {isolation: sandboxed}}").jobs[0].excluded
    assert "policy p@3" in isolated["us"].text and "eu" not in isolated


def test_a_contradiction_that_came_later_closes_everything_and_names_both_sides() -> None:
    source = "{name: p, require: {regions: [eu-west]}}"
    built = problem(source, placement={"regions": ["us-east"]})
    plan = decide(built)
    assert plan.unplaced[0].refusal.code == "policy_denied"
    assert "the job allows us-east, policy p@3 allows eu-west" in plan.unplaced[0].refusal.text


def test_a_target_where_no_cluster_stands_is_no_fault() -> None:
    built = problem("{name: p, require: {max_rtt: {to: mars, ms: 10}}}")
    assert chosen(decide(built)) == "round_trip_unknown"
