"""`resources.topology`: a gang on one node, at sites that see to it, or in one rack."""

from __future__ import annotations

from dataclasses import replace

from broker.control.admission_rules import unsupported
from broker.control.build_problem import Waiting, World, build
from broker.control.problem_pools import GIB
from broker.decide.decision import decide
from broker.decide.explain import explain_unplaced
from broker.model.fleet import (
    ONE_NODE,
    PARTS,
    SINGLE_GANGS,
    ClusterView,
    Fleet,
    NodeGroup,
    PoolCapacity,
)
from broker.model.plan import Part, Plan
from broker.model.policies import Ruling
from broker.model.problem import Problem
from broker.sense.accounting import free_pools
from federation.ids import Cluster
from federation.jobs import JobSpec, parse_job_spec
from federation.refusals import RefusalCode
from tests.unit.control.test_policy_problem import DEAR_EU, NOW_MS
from tests.unit.lifecycle.builders import JOB, a_job, an_attempt


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


def with_racks(site: ClusterView, *racks: str) -> ClusterView:
    """A site that knows the racks of its nodes and puts replicas where it is told."""
    assert site.capacity is not None
    nodes = tuple(
        replace(group, domain=rack)
        for group, rack in zip(site.capacity.pools[0].groups, racks, strict=True)
    )
    capacity = replace(site.capacity, pools=(PoolCapacity("cpu", nodes),))
    identity = replace(site.identity, capabilities=(*site.identity.capabilities, PARTS))
    return replace(site, capacity=capacity, identity=identity)


def test_a_gang_goes_to_a_rack_of_a_pool_at_a_site_that_can_be_told_which() -> None:
    site = with_racks(a_site("far", 2, 2, 2), "r1", "r2", "r2")
    (found,) = decided(a_gang("rack"), site)[1].assignments
    assert found.parts == (Part("far/cpu", "r2", 4),)
    assert decided(a_gang("cluster"), site)[1].assignments[0].parts == ()
    told = replace(site, identity=replace(site.identity, capabilities=()))
    assert decided(a_gang("rack"), told)[1].assignments == ()


def test_what_is_in_a_rack_is_taken_there_and_given_back_there() -> None:
    site = with_racks(a_site("far", 4, 4), "r1", "r2")
    assert site.capacity is not None
    parts = (Part("cpu", "r2", 3),)
    held = an_attempt(a_job(), cluster="far", pool="cpu", parts=parts, replicas=3, placed_seq=99)
    held = replace(held, accelerators_per_replica=1, cpus_milli_per_replica=1_000)
    assert held.in_one_pool
    (pool,) = free_pools(site.capacity, [held])
    assert {(g.domain, g.free) for g in pool.groups} == {("r1", 4), ("r2", 1)}


def test_a_site_whose_scheduler_keeps_a_gang_in_one_pool_is_closed_and_says_so() -> None:
    resources = {"replicas": 4, "several_pools": True}
    spec = parse_job_spec({"run": "x", "tenant": "default", "resources": resources})
    problem, plan = decided(spec, a_site("hpc", 4))
    (reason,) = explain_unplaced(problem, plan, JOB).reasons
    assert reason.refusals[0].code is RefusalCode.UNSUPPORTED
    assert "scheduler slurm, which does not; leave out several_pools" in reason.refusals[0].text
    assert decided(spec, with_racks(a_site("host", 4), ""))[1].assignments
