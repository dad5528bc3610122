"""Gangs in one rack of a pool, where they must be or pay for it."""

from __future__ import annotations

from dataclasses import replace

from broker.decide.decision import decide
from broker.decide.explain import candidates, explain_unplaced
from broker.decide.verify import verify
from broker.model.plan import Assignment, Part
from broker.model.topology import Topology
from federation.refusals import RefusalCode
from tests.unit.decide.constraints.judging import (
    change_for,
    options_of,
    problem_of,
    reason_for,
    violations_of,
)
from tests.unit.decide.problems import a_job, a_pool


def two_racks(*free: int) -> dict[str, object]:
    """A pool with a node in each of two racks, and one in no rack that is known."""
    nodes = [
        {"count": count, "free_accelerators": 8} | rack
        for count, rack in zip(free, ({"domain": "r1"}, {"domain": "r2"}, {}), strict=False)
    ]
    return a_pool(nodes=nodes)


def test_a_gang_lies_in_one_rack_of_its_pool() -> None:
    gang = a_job(topology="rack", replicas=2, accelerators_per_replica=8)
    problem = problem_of(pools=[two_racks(1, 2, 5)], jobs=[gang, a_job("j1", replicas=2)])
    assert ("j0", "p0 in r2") in options_of(problem)
    assert ("j0", "p0 in no rack") not in options_of(problem)
    plan = decide(problem)
    assert verify(problem, plan) == ()
    found = next(item for item in plan.assignments if item.job == "j0")
    assert found.parts == (Part("p0", "r2", 2),)
    assert [f.first_node for f in plan.fills if f.contents[0][0] == "j0"] == [1]
    assert "not in one rack" in violations_of(problem)
    elsewhere = replace(found, parts=(Part("p0", "r1", 2),))
    others = tuple(item for item in plan.assignments if item.job != "j0")
    wrong = verify(problem, replace(plan, assignments=(elsewhere, *others)))
    assert "j0 in p0: 0 replicas in r1, not 2" in {violation.text for violation in wrong}


def test_a_gang_that_no_rack_holds_waits_and_is_told_why() -> None:
    gang = a_job(topology="rack", replicas=3, accelerators_per_replica=8)
    problem = problem_of(pools=[two_racks(2, 2)], jobs=[gang])
    reason = reason_for(problem)
    assert reason is not None and reason.code is RefusalCode.RACK_TOO_SMALL
    assert reason.subject == "p0" and "3 x 8 in one rack" in reason.text
    assert change_for(problem) == "topology rack -> cluster"
    plan = decide(problem)
    assert plan.unplaced[0].refusal.code is RefusalCode.RACK_TOO_SMALL
    told = explain_unplaced(problem, plan, "j0")
    assert told.advice is not None and told.advice.text.startswith("topology rack -> cluster")
    loose = replace(problem, jobs=(replace(problem.jobs[0], topology=Topology.CLUSTER),))
    assert decide(loose).assignments == (Assignment("j0", "p0", 1),)


def test_the_best_level_that_is_worth_its_price() -> None:
    gang = a_job(
        replicas=2, accelerators_per_replica=8, topology_usd={"rack": 1.0, "cluster": 5.0}
    )
    near = a_pool("near", nodes=[{"count": 2, "free_accelerators": 8, "domain": "r9"}])
    for dearer, level, topology_usd in ((1.1, Topology.RACK, 1.0), (1.5, Topology.CLUSTER, 5.0)):
        pools = [two_racks(1, 1), {**near, "price_usd_per_accelerator_hour": dearer}]
        problem = problem_of(pools=pools, jobs=[gang])
        plan = decide(problem)
        assert verify(problem, plan) == ()
        (found,) = plan.assignments
        assert found.level is level
        chosen = next(row for row in candidates(problem, problem.jobs[0], plan) if row.chosen)
        assert chosen.terms is not None and chosen.terms.topology_usd == topology_usd
        assert chosen.terms.total_usd == plan.cost_usd
