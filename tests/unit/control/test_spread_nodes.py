"""`placement.spread: node`: tasks of an array, or members of a gang, each on a node of its own.

Which nodes a site's scheduler takes only the site knows. So the broker sends such tasks only where
the scheduler keeps them apart, never more at once than there are nodes with room, and none to a
cluster where some of the array already run.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.control.admission_rules import unsupported
from broker.control.array_parts import one_part_on_own_nodes
from broker.control.build_problem import Waiting, World, build
from broker.control.change_words import advice_words
from broker.control.waitlist import alike
from broker.decide.decision import decide
from broker.decide.explain import explain_unplaced
from broker.decide.verify import verify
from broker.model.fleet import APART, ClusterView, Fleet
from broker.model.jobs import Job
from broker.model.plan import Plan
from broker.model.policies import Ruling
from broker.model.problem import Problem
from federation.ids import JobId
from federation.jobs import JobSpec, parse_job_spec
from federation.refusals import RefusalCode
from tests.unit.control.test_one_node import a_site
from tests.unit.control.test_policy_problem import NOW_MS
from tests.unit.lifecycle.builders import JOB, a_job, an_attempt, runs


def a_spec(spread: str | None = "node", **changes: Any) -> JobSpec:
    placement = {"spread": spread} if spread else {}
    return parse_job_spec({"run": "x", "tenant": "default", "placement": placement, **changes})


def tasks(spread: str | None = "node", cpus: int = 1) -> JobSpec:
    return a_spec(spread, array="0-9", resources={"cpus": cpus})


def members(count: int, spread: str | None = "node") -> JobSpec:
    return a_spec(spread, resources={"replicas": count})


def apart(site: ClusterView, *what: str) -> ClusterView:
    can = tuple(APART[each] for each in what)
    return replace(site, identity=replace(site.identity, capabilities=can))


def decided(spec: JobSpec, *sites: ClusterView, job: Job | None = None) -> tuple[Problem, Plan]:
    world = World(Fleet({site.identity.name: site for site in sites}), {}, {}, NOW_MS)
    job = job or a_job(created_ms=NOW_MS, **({"tasks": runs(0, 9)} if spec.array else {}))
    problem = build(world, [Waiting.under(Ruling(spec), job, 10 if spec.array else 1)])
    plan = decide(problem)
    assert verify(problem, plan) == ()
    return problem, plan


def running_in(*clusters: str) -> Job:
    job = a_job(tasks=runs(0, 9), created_ms=NOW_MS)
    live = [
        an_attempt(job, n, cluster=cluster, pool="cpu", tasks=runs(n, n), width=1)
        for n, cluster in enumerate(clusters, 1)
    ]
    return replace(job, attempts=tuple(live))


def copies(plan: Plan) -> dict[str, int]:
    found = Counter[str]()
    for item in plan.assignments:
        found[item.pool.split("/")[0]] += item.count
    return dict(found)


def refused(problem: Problem, plan: Plan) -> dict[str, Any]:
    reasons = explain_unplaced(problem, plan, JOB).reasons
    return {str(reason.cluster): reason.refusals[0] for reason in reasons}


def test_a_node_gets_one_task() -> None:
    site = apart(a_site("kube", 4, 4, 4), "tasks")
    assert copies(decided(tasks(None), site)[1]) == {"kube": 10}
    problem, plan = decided(tasks(), site)
    assert copies(plan) == {"kube": 3}
    assert all(count == 1 for fill in plan.fills for _, count in fill.contents)
    assert refused(problem, plan)["kube"].code is RefusalCode.NODES_TAKEN


def test_where_tasks_of_it_run_none_joins_them_since_nobody_knows_their_nodes() -> None:
    sites = [apart(a_site(name, 4, 4), "tasks") for name in ("a", "b")]
    problem, plan = decided(tasks(), *sites, job=running_in("a"))
    assert copies(plan) == {"b": 2}
    refusal = refused(problem, plan)["a"]
    assert refusal.code is RefusalCode.SPREAD_LIMIT
    assert "which nodes are left only the site knows" in refusal.text
    assert "leave out placement.spread" in refusal.text


@pytest.mark.parametrize(
    ("spec", "what"), [(tasks(), "tasks"), (members(2), "members")], ids=["array", "gang"]
)
def test_a_site_that_does_not_see_to_it_is_closed_and_says_so(spec: JobSpec, what: str) -> None:
    other = ({*APART} - {what}).pop()
    for site in (a_site("hpc", 4, 4), apart(a_site("hpc", 4, 4), other)):
        problem, plan = decided(spec, site)
        assert plan.assignments == ()
        refusal = refused(problem, plan)["hpc"]
        assert refusal.code is RefusalCode.UNSUPPORTED
        assert f"keeps the {what} of a job on nodes of their own" in refusal.text
        assert "leave out placement.spread" in refusal.text
    assert decided(spec, apart(a_site("hpc", 4, 4), what))[1].assignments


def test_a_gang_wants_as_many_nodes_as_it_has_members() -> None:
    site = apart(a_site("kube", 4, 4), "members")
    assert decided(members(2), site)[1].assignments
    assert decided(members(3, None), site)[1].assignments
    refusal = refused(*decided(members(3), site))["kube"]
    assert refusal.code is RefusalCode.GANG_TOO_LARGE
    assert refusal.text.endswith(
        "needs 3 x 1 CPU slots on nodes of their own, has 2 x 1 when empty"
    )
    problem, plan = decided(members(2), apart(a_site("kube", 4, 0), "members"))
    assert plan.assignments == ()
    assert refused(problem, plan)["kube"].code is RefusalCode.NODES_TAKEN
    advice = explain_unplaced(problem, plan, JOB).advice
    assert advice and advice_words(advice, problem.jobs[0]) == "leave out placement.spread"


def test_a_job_with_nothing_to_keep_apart_goes_anywhere() -> None:
    one_node = a_spec(resources={"replicas": 2, "topology": "node"})
    assert a_spec().apart_on_nodes == one_node.apart_on_nodes == ""
    assert decided(a_spec(), a_site("hpc", 4))[1].assignments
    assert unsupported(a_spec()) == unsupported(tasks()) == unsupported(members(2)) == []


def test_gangs_alike_are_not_one_entry_whose_gangs_share_no_node() -> None:
    def key(name: str, spec: JobSpec) -> object:
        return alike(a_job(id=JobId(name * 17)), Ruling(spec))

    assert key("a", members(2)) != key("b", members(2))
    assert key("a", members(2, None)) == key("b", members(2, None))


def test_of_an_array_in_two_parts_only_the_one_whose_turn_it_is_goes() -> None:
    """Each part would be given one copy on each node."""
    site = apart(a_site("kube", 4, 4, 4), "tasks")
    problem, _ = decided(tasks(), site)
    (job,) = problem.jobs
    waiting = Waiting.under(Ruling(tasks()), a_job(tasks=runs(0, 9)), 5)
    parts = {"beyond": replace(waiting, part=1), "turn": waiting}
    jobs = [replace(job, id=name, count=5, priority=n) for n, name in enumerate(parts)]
    both = decide(replace(problem, jobs=tuple(jobs)))
    assert copies(both) == {"kube": 6}, "three nodes"
    jobs = one_part_on_own_nodes(jobs, parts, ["kube"])
    plan = decide(replace(problem, jobs=tuple(jobs)))
    assert {item.job for item in plan.assignments} == {"turn"} and copies(plan) == {"kube": 3}
    plain = [replace(each, one_per_node=False) for each in jobs]
    assert one_part_on_own_nodes(plain, parts, ["kube"]) == plain


SITES = st.lists(
    st.tuples(st.lists(st.integers(0, 4), min_size=1, max_size=4), st.booleans(), st.booleans()),
    min_size=1,
    max_size=3,
)


@given(SITES, st.integers(1, 4))
def test_as_many_go_as_one_by_one_could_be_seated(
    sites: list[tuple[list[int], bool, bool]], cpus: int
) -> None:
    """Against seating them by hand: node by node, where the site sees to it and none runs."""
    views, held, expected = [], [], {}
    for n, (free, able, runs_there) in enumerate(sites):
        name = f"s{n}"
        site = a_site(name, *free)
        views.append(apart(site, "tasks") if able else site)
        held += [name] if runs_there else []
        seats = sum(slots >= cpus for slots in free)
        if able and not runs_there and seats:
            expected[name] = seats
    plan = decided(tasks(cpus=cpus), *views, job=running_in(*held))[1]
    if sum(expected.values()) <= 10:
        assert copies(plan) == expected
    else:
        assert sum(copies(plan).values()) == 10
        assert all(count <= expected[name] for name, count in copies(plan).items())
