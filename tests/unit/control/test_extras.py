"""`resources.extras`: things that sites count, from their report into the decision and back."""

from __future__ import annotations

from dataclasses import replace

import pytest

from broker.control.build_problem import Waiting, World, build
from broker.decide.decision import decide
from broker.decide.explain import explain_unplaced
from broker.model.fleet import Capacity, ClusterView, Fleet
from broker.model.jobs import Attempt
from broker.model.plan import Plan
from broker.model.policies import Ruling
from broker.model.problem import Problem
from broker.sense.accounting import free_pools
from broker.sense.reports import ReportRefused, capacity_from
from broker.state.codec import decode_attempt, encode_attempt
from federation.jobs import parse_job_spec
from federation.refusals import RefusalCode
from federation.wire import records as pb
from regional_agent.sense.reports import SiteState, capacity_report
from regional_agent.session.ledger import Ledger, Pool, Request
from regional_agent.translate import capacity_to_wire
from tests.unit.control.test_policy_problem import DEAR_EU, NOW_MS
from tests.unit.lifecycle.builders import JOB, a_job, an_attempt

GIB = 1 << 30
POOL = Pool("cpu", "CPU", 1, 8, 8_000, 64 * GIB, extras=(("matlab", 3),))


def reported(ledger: Ledger) -> Capacity:
    report = capacity_report(1, ledger, SiteState(NOW_MS, 4, 7))
    return capacity_from(capacity_to_wire(report).capacity, NOW_MS)


def a_site(ledger: Ledger) -> ClusterView:
    return replace(DEAR_EU, capacity=reported(ledger))


def decided(site: ClusterView, *attempts: Attempt, matlab: int = 2) -> tuple[Problem, Plan]:
    spec = parse_job_spec(
        {"run": "x", "tenant": "default", "resources": {"extras": {"matlab": matlab}}}
    )
    world = World(Fleet({site.identity.name: site}), {"eu": attempts}, {}, NOW_MS)
    problem = build(world, [Waiting.under(Ruling(spec), a_job(created_ms=NOW_MS), 1)])
    return problem, decide(problem)


def test_no_more_is_placed_than_is_free_and_the_reason_says_what_lacks() -> None:
    assert decided(a_site(Ledger((POOL,))))[1].assignments
    held = Ledger((POOL,)).reserve("a-1", Request("cpu", 1, extras=(("matlab", 2),)))
    assert isinstance(held, tuple)
    problem, plan = decided(a_site(held[0]))
    (reason,) = explain_unplaced(problem, plan, JOB).reasons
    assert reason.refusals[0].code is RefusalCode.NO_EXTRAS
    assert "needs 2 matlab, has 1; 1 more matlab" in reason.refusals[0].text
    assert decided(DEAR_EU)[1].assignments == (), "a site that states none has none"


def test_lesson_18_what_was_placed_since_the_report_is_not_promised_again() -> None:
    """Decisions of a peer in a row against one report overcommit a cluster."""
    site = a_site(Ledger((POOL,)))
    placed = an_attempt(
        a_job(), cluster="eu", pool="cpu", dispatch_seq=5, placed_seq=5,
        extras_per_replica=(("matlab", 2),),
    )  # fmt: skip
    assert decided(site, placed)[1].assignments == ()
    assert decided(site, placed, matlab=1)[1].assignments
    assert site.capacity is not None
    (pool,) = free_pools(site.capacity, [placed])
    assert pool.extras == {"matlab": (3, 1)}


def test_an_attempt_keeps_what_it_holds_in_its_record() -> None:
    held = an_attempt(a_job(), extras_per_replica=(("fpga", 1), ("matlab", 2)))
    assert decode_attempt("k", encode_attempt(held)).extras_per_replica == held.extras_per_replica


@pytest.mark.parametrize(("total", "free"), [(1, 2), (10**10, 1)])
def test_extras_that_cannot_be_are_refused(total: int, free: int) -> None:
    report = pb.CapacityReport()
    report.pools.add(pool="p", extras=[pb.Extra(name="x", total=total, free=free)])
    with pytest.raises(ReportRefused, match="'x' free of"):
        capacity_from(report, NOW_MS)
