"""What policies prefer has its effect: order of places, cheaper hours, spread, spot, tiers."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from broker.control.build_problem import Waiting, World, build
from broker.control.policies import govern, mutated
from broker.control.policy_text import InvalidPolicy, read_policy
from broker.control.spot_share import Governed, governed_by, with_spot_shares
from broker.decide.decision import decide
from broker.model.fleet import ClusterView, Fleet
from broker.model.jobs import Attempt, AttemptPhase, Job, JobPhase
from broker.model.plan import Plan
from broker.model.policies import Policies, PolicyVersion
from federation.ids import AttemptUid, Cluster, JobId, Tenant
from federation.jobs import parse_job_spec
from federation.runs import Runs
from tests.unit.control.federation import Federation, Site, until
from tests.unit.control.test_policies_at_work import apply, cluster_of, submit
from tests.unit.control.test_policy_problem import NOW_MS, chosen, cluster

US = cluster("us", "us-east", 0.05)
EU = cluster("eu", "eu-west", 0.09)
SPOT = cluster("spot", "eu-north", 0.01, kind="spot")
ORDER = "{name: p, failover: {order: [eu-west, us], after: 10m}}"
CHEAP = "{name: p, defer: {max_price_usd_per_accelerator_hour: 0.04, up_to: 6h}}"


def silent(view: ClusterView) -> ClusterView:
    return replace(view, connected_since_ms=0, reported=False, capacity=None)


def waiting(source: str, age_s: int = 0, name: str = "1", **spec: Any) -> Waiting:
    placement = {"policy": "p", **spec.pop("placement", {})}
    parsed = parse_job_spec(
        {"run": "true", "tenant": "default", "max_runtime": "1h", "placement": placement, **spec}
    )
    version = PolicyVersion(read_policy(source), 3)
    ruling = govern(parsed, Policies({"p": version}))
    created_ms = NOW_MS - age_s * 1000
    job = Job(
        JobId(f"j{name:0>16}"), Tenant("default"), "a", "ada", 100, "", created_ms, created_ms,
        tasks=parsed.array.tasks if parsed.array else Runs(),
    )  # fmt: skip
    return Waiting.under(ruling, job, parsed.array.tasks.count if parsed.array else 1)


def decided(some: Sequence[Waiting], *views: ClusterView) -> Plan:
    fleet = Fleet({view.identity.name: view for view in views})
    return decide(build(World(fleet, {}, {}, NOW_MS), some))


@pytest.mark.parametrize(
    ("age_s", "views", "where"),
    [
        (0, (US, EU), "eu/cpu"),
        (599, (US, EU, SPOT), "eu/cpu"),
        (600, (US, EU), "us/cpu"),
        (0, (US, silent(EU)), "us/cpu"),
        (0, (silent(US), silent(EU), cluster("asia", "asia", 0.2)), "asia/cpu"),
    ],
)
def test_places_are_taken_in_their_order_the_next_in_time_or_when_none_before_answers(
    age_s: int, views: tuple[ClusterView, ...], where: str
) -> None:
    assert chosen(decided([waiting(ORDER, age_s)], *views)) == where


def test_a_place_that_is_not_named_comes_last() -> None:
    asia = cluster("asia", "asia", 0.001)
    assert chosen(decided([waiting(ORDER, 1199)], US, EU, asia)) == "us/cpu"
    assert chosen(decided([waiting(ORDER, 1200)], US, EU, asia)) == "asia/cpu"


def test_who_waits_for_a_preferred_place_is_told_until_when() -> None:
    full = replace(EU, capacity=None, prices={})
    job = build(
        World(Fleet({v.identity.name: v for v in (US, EU)}), {}, {}, NOW_MS), [waiting(ORDER)]
    ).jobs[0]
    refusal = job.excluded["us"]
    assert "eu-west is preferred until" in refusal.text and "policy p@3" in refusal.text
    assert refusal.advice == "wait until 2027-01-15T08:10:00Z"
    assert "us" not in build(
        World(Fleet({v.identity.name: v for v in (US, full)}), {}, {}, NOW_MS), [waiting(ORDER)]
    ).jobs[0].excluded


@pytest.mark.parametrize(
    ("age_s", "spec", "views", "where"),
    [
        (0, {}, (US, EU), "policy_denied"),
        (6 * 3600, {}, (US, EU), "us/cpu"),
        (0, {"deadline": "2027-01-15T09:00:00Z"}, (US, EU), "us/cpu"),
        (0, {}, (US, cluster("cheap", "eu-west", 0.03)), "cheap/cpu"),
        (0, {}, (US, SPOT), "policy_denied"),
        (0, {"placement": {"spot": True}}, (US, SPOT), "spot/cpu"),
    ],
)
def test_a_start_waits_for_a_cheaper_hour_within_bounds(
    age_s: int, spec: dict[str, Any], views: tuple[ClusterView, ...], where: str
) -> None:
    assert chosen(decided([waiting(CHEAP, age_s, **spec)], *views)) == where


def test_tasks_of_an_array_spread_over_clusters() -> None:
    array = waiting("{name: p, spread: 25%}", array="0-7")
    plan = decided([array], US, EU, cluster("asia", "asia", 0.2))
    assert Counter({item.pool: item.count for item in plan.assignments}) == {
        "us/cpu": 2, "eu/cpu": 2, "asia/cpu": 2,
    }  # fmt: skip
    attempt = Attempt(
        AttemptUid("j-1"), array.job.id, Tenant("default"), Cluster("us"), "us-east", "cpu", 1, 1,
        b"", NOW_MS, phase=AttemptPhase.RUNNING, width=1,
    )  # fmt: skip
    runs = replace(array, job=replace(array.job, attempts=(attempt,)), copies=7)
    plan = decided([runs], US, EU)
    assert {item.pool: item.count for item in plan.assignments} == {"us/cpu": 1, "eu/cpu": 1}
    full = replace(runs, job=replace(runs.job, attempts=(replace(attempt, width=2),)))
    plan = decided([full], US, EU)
    assert {item.pool: item.count for item in plan.assignments} == {"eu/cpu": 2}
    assert plan.unplaced[0].refusal.code.value == "spread_limit"


SHARE = "{name: p, spot: yes, spot_share: 50%}"


@pytest.mark.parametrize(
    ("held", "on_spot", "expected"),
    [(0, 0, {"spot/cpu": 4, "us/cpu": 4}), (8, 0, {"spot/cpu": 8}),
     (0, 4, {"spot/cpu": 2, "us/cpu": 6}), (0, 8, {"us/cpu": 8})],
)  # fmt: skip
def test_no_more_than_its_share_goes_to_spot(
    held: int, on_spot: int, expected: dict[str, int]
) -> None:
    running = [
        governed_by(("p@2",), held, spot=False), governed_by(("p@3", "q@1"), on_spot, spot=True),
        Governed(("q",), 100, spot=True),
    ]  # fmt: skip
    parts = with_spot_shares([waiting(SHARE, array="0-7")], running)
    plan = decided(parts, US, SPOT)
    found: Counter[str] = Counter()
    for item in plan.assignments:
        found[item.pool] += item.count
    assert found == expected


def test_a_class_gives_its_oldest_members_to_spot() -> None:
    one = replace(waiting(SHARE), members=tuple(JobId(f"j{n}") for n in range(4)), copies=4)
    spot, rest = with_spot_shares([one], [])
    assert (spot.members, spot.spec.placement.spot) == (("j0", "j1"), True)
    assert (rest.members, rest.spec.placement.spot) == (("j2", "j3"), False)
    assert spot.key != rest.key
    (alone,) = with_spot_shares([replace(waiting(SHARE), copies=1)], [])
    assert alone.spec.placement.spot is False and alone.key == alone.job.id, "half of one is none"


def test_a_tier_is_written_whatever_the_job_says() -> None:
    policies = Policies({"p": PolicyVersion(read_policy("{name: p, tier: 20, match: {}}"), 1)})
    said = parse_job_spec({"run": "true", "tenant": "default", "priority": 900})
    assert mutated(said, policies).priority == 20
    there = parse_job_spec({"run": "true", "tenant": "default", "priority": 20})
    assert mutated(there, policies) is there


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("name: p\nspread: 3", "line 2, column 9: spread: not a share from 0% to 100%"),
        ("name: p\nspot_share: 120%", "line 2, column 13: spot_share: not a share"),
        ("name: p\ntier: 1001", "line 2, column 7: tier: outside 0 to 1000"),
        ("name: p\nfailover: {order: [a]}", "line 2, column 11: failover: needs both order and"),
        ("name: p\nfailover: {order: [a], after: soon}", "line 2, column 31: failover.after:"),
        ("name: p\ndefer: {up_to: 6h}", "line 2, column 8: defer: needs both max_price_usd"),
        ("name: p\ndefer: {until: 6h}", "line 2, column 9: defer.until: unknown key `until`"),
    ],
)
def test_faults_are_told_where_they_stand(text: str, fault: str) -> None:
    with pytest.raises(InvalidPolicy) as caught:
        read_policy(text)
    assert str(caught.value.faults[0]).startswith(fault)


# In a running broker ------------------------------------------------------------------------------


@pytest.fixture
async def fed(tmp_path: Path) -> AsyncIterator[Federation]:
    made = await Federation.make(
        tmp_path, Site("us-east", 8, price_usd=0.05, hold=True),
        Site("eu-west", 8, price_usd=0.09, hold=True),
    )  # fmt: skip
    await made.start()
    yield made
    await made.kill()
    await made.sites.close()


async def test_in_a_broker_order_spread_and_tier_hold(fed: Federation) -> None:
    await apply(fed, "{name: first, failover: {order: [eu-west], after: 1h}, tier: 7}")
    await apply(fed, "{name: wide, spread: 5%}")
    (job,) = await submit(fed, placement={"policy": "first"})
    await until(lambda: cluster_of(fed, job) != "")
    assert cluster_of(fed, job) == "eu-west", "and not where it is cheaper"
    assert fed.plane is not None
    projection = fed.plane.services.projection
    found = projection.job(job)
    assert found is not None and found.priority == 7
    (array,) = await submit(fed, array="0-39", placement={"policy": "wide"})

    def over() -> bool:
        found = projection.job(array)
        assert found is not None
        held: Counter[str] = Counter()
        for attempt in found.live_attempts:
            held[attempt.cluster] += attempt.copies
        assert all(tasks <= 2 for tasks in held.values()), held
        return found.phase is JobPhase.ENDED

    await until(over)
    for site in fed.sites.sites.values():
        assert any(uid.startswith(array) for uid in site.starts), site.name
