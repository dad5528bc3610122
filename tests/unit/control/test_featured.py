"""`resources.features`: the words sites have for their nodes, from their report into the
decision."""

from __future__ import annotations

from dataclasses import replace

import pytest

from broker.control.build_problem import Waiting, World, build
from broker.decide.decision import decide
from broker.decide.explain import explain_unplaced
from broker.model.fleet import ClusterView, Fleet
from broker.model.plan import Plan
from broker.model.policies import Ruling
from broker.model.problem import Problem
from broker.sense.reports import ReportRefused, capacity_from
from federation.jobs import class_key, parse_job_spec
from federation.refusals import RefusalCode
from federation.wire import records as pb
from regional_agent.sense.reports import SiteState, capacity_report
from regional_agent.session.ledger import Ledger, Pool, Request
from regional_agent.translate import capacity_to_wire
from tests.unit.control.test_policy_problem import DEAR_EU, NOW_MS
from tests.unit.lifecycle.builders import JOB, a_job

GIB = 1 << 30
IB, GENOA = frozenset({"ib", "icelake"}), frozenset({"genoa"})
POOL = Pool("cpu", "CPU", 3, 8, 8_000, 64 * GIB, features=(IB, GENOA, GENOA))


def a_site(ledger: Ledger) -> ClusterView:
    report = capacity_report(1, ledger, SiteState(NOW_MS, 4, 7))
    return replace(DEAR_EU, capacity=capacity_from(capacity_to_wire(report).capacity, NOW_MS))


def decided(site: ClusterView, *features: str, replicas: int = 1) -> tuple[Problem, Plan]:
    resources = {"features": list(features), "replicas": replicas, "cpus": 8, "memory": "1GiB"}
    spec = parse_job_spec({"run": "x", "tenant": "default", "resources": resources})
    world = World(Fleet({site.identity.name: site}), {}, {}, NOW_MS)
    problem = build(world, [Waiting.under(Ruling(spec), a_job(created_ms=NOW_MS), 5)])
    return problem, decide(problem)


def copies(site: ClusterView, *features: str, replicas: int = 1) -> int:
    return sum(i.count for i in decided(site, *features, replicas=replicas)[1].assignments)


def test_no_more_is_placed_than_nodes_with_the_features_hold() -> None:
    site = a_site(Ledger((POOL,)))
    assert copies(site) == 3
    assert copies(site, "ib") == 1
    assert copies(site, "ib", "icelake") == 1
    assert copies(site, "genoa|skylake") == 2
    assert copies(site, "icelake|genoa") == 3
    assert copies(site, "genoa", replicas=2) == 1
    assert copies(site, "ib", replicas=2) == 0


def test_where_no_node_has_them_the_reason_names_what_there_is() -> None:
    problem, plan = decided(a_site(Ledger((POOL,))), "ib", "genoa")
    (reason,) = explain_unplaced(problem, plan, JOB).reasons
    assert reason.refusals[0].code is RefusalCode.MISSING_FEATURES
    assert reason.refusals[0].text == (
        "eu: missing features: needs nodes with ib and genoa, has nodes with genoa, ib, icelake, "
        "and none with all of it; leave out resources.features"
    )
    problem, plan = decided(DEAR_EU, "ib")
    (reason,) = explain_unplaced(problem, plan, JOB).reasons
    assert "has nodes of which no feature is told" in reason.refusals[0].text


def test_where_they_are_taken_the_reason_is_that_they_are_not_free() -> None:
    request = Request("cpu", 1, 8, features=("ib",))
    held = Ledger((POOL,)).reserve("a-1", request)
    assert isinstance(held, tuple)
    problem, plan = decided(a_site(held[0]), "ib")
    (reason,) = explain_unplaced(problem, plan, JOB).reasons
    assert reason.refusals[0].code is RefusalCode.NO_EXTRAS
    assert "places of 8 on nodes with ib, has 0" in reason.refusals[0].text


def test_a_site_reserves_only_nodes_that_have_them() -> None:
    ledger = Ledger((POOL,))
    for uid, features, node in (("a-1", ("ib",), 0), ("b-1", ("genoa",), 1), ("c-1", (), 2)):
        made = ledger.reserve(uid, Request("cpu", 1, 8, features=features))
        assert isinstance(made, tuple)
        ledger = made[0]
        assert [place.node for place in made[1].places] == [node]
    assert ledger.release("a-1").reserve("d-1", Request("cpu", 1, 8, features=("ib", "genoa")))
    refused = ledger.release("a-1").reserve("e-1", Request("cpu", 1, 8, features=("genoa",)))
    assert not isinstance(refused, tuple)
    assert refused.code is RefusalCode.CAPACITY_TAKEN
    assert "on nodes with genoa" in refused.text


def test_features_decide_what_class_a_job_is_of_whatever_their_order() -> None:
    def key(*features: str) -> str:
        spec = {"run": "x", "tenant": "t", "resources": {"features": list(features)}}
        return class_key(parse_job_spec(spec), 3600)

    assert key("a", "b") == key("b", "a") != key("a")


@pytest.mark.parametrize("features", [["x y"], ["a"] * 65])
def test_features_that_cannot_be_are_refused(features: list[str]) -> None:
    report = pb.CapacityReport()
    group = pb.NodeGroup(count=1, accelerator="H100", total=8, free=8, features=features)
    report.pools.add(pool="p", groups=[group])
    with pytest.raises(ReportRefused, match="feature"):
        capacity_from(report, NOW_MS)
