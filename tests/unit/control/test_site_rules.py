"""The broker plans by the rules a site reports, and cannot override them."""

from dataclasses import replace

import pytest

from broker.control.site_rules import site_refusal
from broker.model.fleet import Capacity, ClusterIdentity, ClusterState, ClusterView, LocalLoad
from broker.sense.fleet import unusable
from broker.sense.reports import ReportRefused, capacity_from
from federation.jobs import parse_job_spec
from federation.local_queue import LocalQueue
from federation.site_limits import NO_LIMITS, ClosedWindow, NameRule, SiteLimits
from federation.wire import records as pb
from regional_agent.sense.reports import CapacityReport, PoolCapacity, SiteState
from regional_agent.translate import capacity_to_wire

NOW_MS = 1_000_000_000
HOUR_MS = 3_600_000
SPEC = parse_job_spec({"run": "true", "max_runtime": "2h"})


def view(**capacity) -> ClusterView:
    identity = ClusterIdentity("eu", "eu-west", ClusterState.JOINED)
    known = replace(Capacity(NOW_MS, NOW_MS, 1, 1, 1, ()), **capacity)
    return ClusterView(identity, known, connected_since_ms=1, reported=True)


@pytest.mark.parametrize(
    "capacity, code",
    [
        ({}, None),
        ({"limits": SiteLimits(tenants=NameRule(allow=("bio",)))}, "tenant_not_allowed"),
        ({"limits": SiteLimits(banned=frozenset({"lab"}))}, "banned"),
        ({"limits": SiteLimits(users=NameRule(allow=("bob",)))}, None),
        ({"limits": SiteLimits(max_walltime_s=3_600)}, "runtime_too_long"),
        ({"windows": (ClosedWindow(NOW_MS - HOUR_MS, NOW_MS + HOUR_MS),)}, "blackout"),
        ({"windows": (ClosedWindow(NOW_MS + HOUR_MS, NOW_MS + 2 * HOUR_MS),)}, None),
        ({"windows": (ClosedWindow(1, NOW_MS),)}, None),
    ],
)
def test_a_job_the_site_would_refuse_is_not_sent_there(capacity, code):
    refusal = site_refusal("lab", SPEC, view(**capacity), NOW_MS)
    assert (refusal.code if refusal else None) == code


@pytest.mark.parametrize(
    "state, code", [("open", None), ("paused", "paused"), ("draining", "draining"),
                    ("blackout", "blackout")],
)  # fmt: skip
def test_a_site_closed_by_its_people_takes_nothing_and_says_why(state, code):
    refusal = unusable(view(state=state, state_reason="cooling"), NOW_MS)
    assert (refusal.code if refusal else None) == code
    assert refusal is None or "cooling" in refusal.text


def test_rules_come_over_the_wire_as_they_were_reported():
    limits = SiteLimits(
        tenants=NameRule(("a*",), ("ab",)),
        users=NameRule(deny=("eve",)),
        max_pending=3,
        max_walltime_s=60,
        guest_permille=0,
        banned=frozenset({"x"}),
    )
    windows = (ClosedWindow(5, 9, "power"),)
    site = SiteState(1, 1, 1, state="blackout", state_reason="power", limits=limits,
                     windows=windows, others_running=3, others_waiting=4)  # fmt: skip
    queues = (LocalQueue(7, 9, 60_000, 90_000, 3), LocalQueue(1), None)
    pools = tuple(PoolCapacity(f"p{n}", (), False, (), q) for n, q in enumerate(queues))
    wire = capacity_to_wire(CapacityReport(1, site, pools, 5)).capacity
    read = capacity_from(pb.CapacityReport.FromString(wire.SerializeToString()), 1)
    assert tuple(pool.queue for pool in read.pools) == queues
    assert (read.limits, read.windows, read.state_reason) == (limits, windows, "power")
    assert read.local_load == LocalLoad(3, 4, 5)


def test_an_older_agent_reports_no_rules():
    assert capacity_from(pb.CapacityReport(state="open"), 1).limits is NO_LIMITS
    with pytest.raises(ReportRefused, match="ends before it begins"):
        capacity_from(pb.CapacityReport(windows=[pb.ClosedWindow(from_ms=9, until_ms=9)]), 1)


def test_a_wait_that_cannot_be_is_refused_with_its_field():
    queue = pb.LocalQueue(start_p50_ms=-1)
    with pytest.raises(ReportRefused, match=r"pool h: queue.start_p50_ms -1"):
        capacity_from(pb.CapacityReport(pools=[pb.PoolCapacity(pool="h", queue=queue)]), 1)
