"""`resources.topology`: a gang on one node, at sites that see to it, or in one rack."""

from __future__ import annotations

from dataclasses import replace

from broker.control.admission_rules import unsupported
from broker.control.build_problem import Waiting, World, build
from broker.control.problem_pools import GIB
from broker.decide.decision import decide
from broker.decide.explain import explain_unplaced
from broker.model.fleet import ONE_NODE, SINGLE_GANGS, ClusterView, Fleet, NodeGroup, PoolCapacity
from broker.model.plan import Plan
from broker.model.policies import Ruling
from broker.model.problem import Problem
from federation.ids import Cluster
from federation.jobs import JobSpec, parse_job_spec
from federation.refusals import RefusalCode
from tests.unit.control.test_policy_problem import DEAR_EU, NOW_MS
from tests.unit.lifecycle.builders import JOB, a_job


def a_gang(topology: str) -> JobSpec:
    resources = {"replicas": 4, "topology": topology}
    return parse_job_spec({"run": "x", "tenant": "default", "resources": resources})


def a_site(name: str, *free_by_node: int, able: bool = True) -> ClusterView:
    nodes = tuple(
        NodeGroup(1, "CPU", 4, n, 4_000, n * 1_000, 16 * GIB, 16 * GIB) for n in free_by_node
    )
    can = (ONE_NODE,) if able else ()
    identity = replace(DEAR_EU.identity, name=Cluster(name), capabilities=can, scheduler="slurm")
    assert DEAR_EU.capacity is not None
    capacity = replace(DEAR_EU.capacity, pools=(PoolCapacity("cpu", nodes),))
    return replace(DEAR_EU, identity=identity, capacity=capacity)


def decided(spec: JobSpec, *sites: ClusterView) -> tuple[Problem, Plan]:
    world = World(Fleet({site.identity.name: site for site in sites}), {}, {}, NOW_MS)
    job = a_job(created_ms=NOW_MS)
    problem = build(world, [Waiting.under(Ruling(spec), job, 1)])
    return problem, decide(problem)


def test_room_on_two_nodes_is_no_room_for_a_gang_on_one() -> None:
    split, whole = a_site("split", 2, 2), a_site("whole", 3, 4)
    assert decided(a_gang("cluster"), split)[1].assignments
    problem, plan = decided(a_gang("node"), split)
    assert plan.assignments == ()
    assert explain_unplaced(problem, plan, JOB).reasons[0].refusals
    (place,) = decided(a_gang("node"), split, whole)[1].assignments
    assert place.pool == "whole/cpu"


def test_a_site_that_does_not_see_to_it_is_closed_and_says_so() -> None:
    problem, plan = decided(a_gang("node"), a_site("ray", 4, able=False))
    (reason,) = explain_unplaced(problem, plan, JOB).reasons
    assert reason.refusals[0].code is RefusalCode.UNSUPPORTED
    assert "a site that keeps a gang on one node" in reason.refusals[0].text
    assert decided(a_gang("cluster"), a_site("ray", 4, able=False))[1].assignments


def test_a_rack_is_a_pool_that_somebody_says_is_in_one() -> None:
    site = a_site("far", 4, 4)
    problem, plan = decided(a_gang("rack"), site)
    (reason,) = explain_unplaced(problem, plan, JOB).reasons
    assert reason.refusals[0].code is RefusalCode.NO_RACK
    for domains, fits in ((("r1", "r1"), True), (("r1", "r2"), False), (("r1", ""), False)):
        assert site.capacity is not None
        nodes = tuple(
            replace(group, domain=domain)
            for group, domain in zip(site.capacity.pools[0].groups, domains, strict=True)
        )
        capacity = replace(site.capacity, pools=(PoolCapacity("cpu", nodes),))
        plan = decided(a_gang("rack"), replace(site, capacity=capacity))[1]
        assert bool(plan.assignments) is fits, domains
    assert unsupported(a_gang("rack")) == unsupported(a_gang("node")) == []


def test_an_array_of_gangs_goes_past_a_site_that_runs_gangs_one_by_one() -> None:
    """Refused before it is placed, not by the site after it was."""
    tasks = a_gang("cluster").model_copy(update={"array": parse_job_spec(
        {"run": "x", "tenant": "default", "array": "0-1"}).array})  # fmt: skip
    alone = a_site("kube", 4)
    alone = replace(alone, identity=replace(alone.identity, capabilities=(SINGLE_GANGS,)))
    problem, plan = decided(tasks, alone)
    assert plan.assignments == ()
    (reason,) = explain_unplaced(problem, plan, JOB).reasons
    assert reason.refusals[0].code is RefusalCode.UNSUPPORTED
    assert "a site that runs arrays of gangs" in reason.refusals[0].text
    assert decided(a_gang("cluster"), alone)[1].assignments, "a gang alone goes there"
