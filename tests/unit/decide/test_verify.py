"""The verifier refuses a plan tampered with in any way."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import pytest

from broker.decide.decision import decide
from broker.decide.problem_file import parse_problem
from broker.decide.verify import ViolationKind, verify
from broker.model.plan import Assignment, NodeFill, Plan, PlanStatus, Unplaced
from broker.model.problem import Problem
from federation.refusals import Refusal, RefusalCode
from tests.unit.decide.problems import a_job, a_pool, a_problem, scalar

ANY = Refusal(RefusalCode.NOT_CHOSEN, "p0")


RUNNING = {"current_pool": "p1", "lost_work_usd": 1}


def the_problem() -> Problem:
    document = a_problem(
        objective=scalar(50, fragmentation_usd_per_node=5),
        clusters=[{"name": "c0", "region": "east"}, {"name": "c1", "region": "west"}],
        pools=[
            a_pool("p0", free_nodes={"8": 3, "4": 1}, free_cpus=60, free_memory_gib=600),
            a_pool("p1", cluster="c1", spot=True),
            a_pool("p2", nodes=[{"count": 2, "free_accelerators": 8, "free_cpus": 16}]),
        ],
        tenants=[{"name": "t0", "quota_accelerators": 30, "cluster_quota": {"c0": 29}}],
        jobs=[
            a_job("big", replicas=2, accelerators_per_replica=8, cpus_per_accelerator=1),
            a_job("small", count=3, accelerators_per_replica=2, cpus_per_accelerator=2),
            a_job(
                "bound", regions=["west"], spot_ok=True, count=2, lost_work_usd=1, current_pool="p1"
            ),
            a_job("never", accelerators={"B200": 1}),
        ],
    )
    return parse_problem(json.dumps(document))


@pytest.fixture(scope="module")
def decided() -> tuple[Problem, Plan]:
    problem = the_problem()
    plan = decide(problem)
    assert plan.status is PlanStatus.OPTIMAL and plan.assignments and plan.unplaced
    return problem, plan


def test_the_plan_itself_passes(decided: tuple[Problem, Plan]) -> None:
    assert verify(*decided) == ()


def assigned(plan: Plan, *items: Assignment) -> Plan:
    return replace(plan, assignments=(*plan.assignments, *items))


def first_fill(plan: Plan, **changes: object) -> Plan:
    fill = replace(plan.fills[0], **changes)  # type: ignore[arg-type]
    return replace(plan, fills=(fill, *plan.fills[1:]))


def first_count(plan: Plan, more: int) -> Plan:
    first = plan.assignments[0]
    changed = replace(first, count=first.count + more)
    return replace(plan, assignments=(changed, *plan.assignments[1:]))


Tamper = Callable[[Plan], Plan]
TAMPERED: dict[str, tuple[Tamper, ViolationKind]] = {
    "unknown job": (lambda p: assigned(p, Assignment("x", "p0", 1)), ViolationKind.REFERENCE),
    "unknown pool": (lambda p: assigned(p, Assignment("big", "x", 1)), ViolationKind.REFERENCE),
    "assigned twice": (lambda p: assigned(p, p.assignments[0]), ViolationKind.REFERENCE),
    "unknown fill": (lambda p: first_fill(p, pool="x"), ViolationKind.REFERENCE),
    "too many copies": (lambda p: first_count(p, 5), ViolationKind.COUNT),
    "no copies": (lambda p: first_count(p, -p.assignments[0].count), ViolationKind.COUNT),
    "unplaced hidden": (lambda p: replace(p, unplaced=()), ViolationKind.COUNT),
    "unplaced doubled": (lambda p: replace(p, unplaced=p.unplaced * 2), ViolationKind.COUNT),
    "unplaced invented": (
        lambda p: replace(p, unplaced=(*p.unplaced, Unplaced("big", 1, ANY))),
        ViolationKind.COUNT,
    ),
    "wrong model": (
        lambda p: replace(assigned(p, Assignment("never", "p0", 1)), unplaced=()),
        ViolationKind.INFEASIBLE,
    ),
    "replica moved off its node": (lambda p: first_fill(p, contents=()), ViolationKind.PACKING),
    "node filled twice over": (
        lambda p: first_fill(p, contents=tuple((n, c + 9) for n, c in p.fills[0].contents)),
        ViolationKind.PACKING,
    ),
    "nodes that do not exist": (lambda p: first_fill(p, first_node=99), ViolationKind.PACKING),
    "overlapping nodes": (
        lambda p: replace(p, fills=(p.fills[0], *p.fills)),
        ViolationKind.PACKING,
    ),
    "negative replicas": (
        lambda p: first_fill(p, contents=((p.fills[0].contents[0][0], -1),)),
        ViolationKind.PACKING,
    ),
    "whole nodes understated": (
        lambda p: replace(p, whole_nodes={"p0": 7}),
        ViolationKind.FRAGMENTATION,
    ),
    "cost too low": (lambda p: replace(p, cost_usd=p.cost_usd - 2), ViolationKind.MONEY),
    "objective too high": (
        lambda p: replace(p, objective_usd=p.objective_usd + 2),
        ViolationKind.MONEY,
    ),
    "placed overstated": (
        lambda p: replace(p, placed={0: p.placed[0] + 1}),
        ViolationKind.MONEY,
    ),
    "bound under the objective": (
        lambda p: replace(p, bound_usd=p.objective_usd - 10),
        ViolationKind.BOUND,
    ),
    "optimal far from the bound": (
        lambda p: replace(p, bound_usd=p.objective_usd + 10),
        ViolationKind.BOUND,
    ),
    "optimal without a bound": (lambda p: replace(p, bound_usd=None), ViolationKind.BOUND),
}


@pytest.mark.parametrize("name", TAMPERED)
def test_a_tampered_plan_is_refused(decided: tuple[Problem, Plan], name: str) -> None:
    problem, plan = decided
    tamper, kind = TAMPERED[name]
    found = {violation.kind for violation in verify(problem, tamper(plan))}
    assert kind in found


def moved(problem: Problem, plan: Plan, job: str, pool: str) -> Plan:
    """The plan with a job's only assignment in another pool, on its first nodes."""
    count = next(item.count for item in plan.assignments if item.job == job)
    rest = tuple(item for item in plan.assignments if item.job != job)
    keep = tuple(
        replace(fill, contents=tuple(pair for pair in fill.contents if pair[0] != job))
        for fill in plan.fills
    )
    fills = tuple(fill for fill in keep if fill.contents)
    fills += (NodeFill(pool, 0, 1, ((job, count),)),)
    return replace(plan, assignments=(*rest, Assignment(job, pool, count)), fills=fills)


def test_region_spot_deadline_and_budget_are_checked(decided: tuple[Problem, Plan]) -> None:
    problem, plan = decided
    tampered = moved(problem, plan, "bound", "p0")
    found = {violation.kind for violation in verify(problem, tampered)}
    assert ViolationKind.INFEASIBLE in found
    for change in ({"spot_ok": False}, {"deadline_h": 0.5}, {"budget_usd": 0.1}):
        jobs = tuple(
            replace(job, **change) if job.id == "bound" else job  # type: ignore[arg-type]
            for job in problem.jobs
        )
        found = {violation.kind for violation in verify(replace(problem, jobs=jobs), plan)}
        assert ViolationKind.INFEASIBLE in found


def test_totals_and_quotas_are_checked(decided: tuple[Problem, Plan]) -> None:
    problem, plan = decided
    pools = tuple(replace(pool, free_cpus=0.5) for pool in problem.pools)
    tight = replace(problem, pools=pools)
    assert ViolationKind.CAPACITY in {v.kind for v in verify(tight, plan)}
    for change in ({"quota_accelerators": 1}, {"cluster_quota": {"c0": 1}}):
        tenants = (replace(problem.tenants[0], **change),)  # type: ignore[arg-type]
        found = {v.kind for v in verify(replace(problem, tenants=tenants), plan)}
        assert ViolationKind.QUOTA in found


def test_more_whole_nodes_than_needed_are_refused() -> None:
    document = a_problem(
        objective={"mode": "place_first", "fragmentation_usd_per_node": 10},
        jobs=[a_job(count=2, accelerators_per_replica=4)],
    )
    problem = parse_problem(json.dumps(document))
    plan = decide(problem)
    assert plan.whole_nodes == {"p0": 1}
    spread = replace(
        plan,
        fills=(NodeFill("p0", 0, 2, (("j0", 1),)),),
        whole_nodes={"p0": 2},
        cost_usd=plan.cost_usd + 10,
        objective_usd=plan.objective_usd - 10,
        bound_usd=plan.objective_usd - 10,
    )
    assert {v.kind for v in verify(problem, spread)} == {ViolationKind.FRAGMENTATION}


def test_more_whole_nodes_are_refused_for_sizes_that_do_not_divide() -> None:
    document = a_problem(
        objective={"mode": "place_first", "fragmentation_usd_per_node": 10},
        pools=[a_pool(free_nodes={"8": 3})],
        jobs=[a_job("a", accelerators_per_replica=3), a_job("b", accelerators_per_replica=5)],
    )
    problem = parse_problem(json.dumps(document))
    plan = decide(problem)
    assert plan.whole_nodes == {"p0": 1}
    spread = replace(
        plan,
        fills=(NodeFill("p0", 0, 1, (("a", 1),)), NodeFill("p0", 1, 1, (("b", 1),))),
        whole_nodes={"p0": 2},
        cost_usd=plan.cost_usd + 10,
        objective_usd=plan.objective_usd - 10,
        bound_usd=plan.objective_usd - 10,
    )
    assert {v.kind for v in verify(problem, spread)} == {ViolationKind.FRAGMENTATION}
