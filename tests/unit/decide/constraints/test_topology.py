"""Replicas that share a node."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from broker.decide.decision import decide
from broker.decide.problem_file import parse_problem
from broker.decide.problem_json import problem_to_json
from broker.decide.strict_json import ProblemError
from broker.decide.verify import verify
from broker.model.plan import NodeFill
from federation.refusals import RefusalCode
from tests.unit.decide.constraints.judging import (
    change_for,
    options_of,
    problem_of,
    reason_for,
    violations_of,
)
from tests.unit.decide.problems import a_job, a_pool, a_problem

PAIR = a_job(replicas=2, accelerators_per_replica=3, topology="node")


@pytest.mark.parametrize(("free", "allowed"), [({"5": 4}, False), ({"6": 1}, True)])
def test_a_gang_goes_only_where_one_node_holds_all_of_it(
    free: dict[str, int], *, allowed: bool
) -> None:
    problem = problem_of(pools=[a_pool(free_nodes=free)], jobs=[PAIR])
    assert (options_of(problem) == {("j0", "p0")}) is allowed
    assert "2 belong together" in violations_of(problem)
    if not allowed:
        reason = reason_for(problem)
        assert reason is not None and reason.code is RefusalCode.TOPOLOGY
        assert "needs 2 x 3 on one node, has them on several nodes" in reason.text
        assert change_for(problem) == "topology node -> cluster"


def test_the_plan_names_the_replicas_that_were_asked_for() -> None:
    node = {"count": 2, "free_accelerators": 8, "free_cpus": 20}
    jobs = [{**PAIR, "count": 3, "cpus_per_replica": 9}, a_job("free", count=9)]
    problem = problem_of(pools=[a_pool(nodes=[node])], jobs=jobs)
    plan = decide(problem)
    assert verify(problem, plan) == ()
    assert plan.placed == {0: 16}
    assert [(job, n) for fill in plan.fills for job, n in fill.contents] == [("j0", 2), ("free", 2)]
    split = (NodeFill("p0", 0, 2, (("j0", 1), ("free", 2))),)
    wrong = {violation.text for violation in verify(problem, replace(plan, fills=split))}
    assert "j0: 1 replicas on node 0 of p0, 2 belong together" in wrong


def test_a_copy_that_fills_a_node_breaks_into_none() -> None:
    job = a_job(replicas=2, accelerators_per_replica=4, topology="node")
    objective = {"mode": "place_first", "fragmentation_usd_per_node": 5}
    plan = decide(problem_of(objective=objective, jobs=[job]))
    assert plan.cost_usd == pytest.approx(8.0) and plan.whole_nodes == {}


def test_it_is_read_and_written_and_other_levels_are_refused() -> None:
    document = a_problem(jobs=[PAIR])
    problem = parse_problem(json.dumps(document))
    assert problem_to_json(problem)["jobs"][0]["topology"] == "node"
    assert parse_problem(json.dumps(problem_to_json(problem))) == problem
    with pytest.raises(ProblemError, match=r"jobs\[0\].topology: .* node, rack, cluster"):
        parse_problem(json.dumps(a_problem(jobs=[{**PAIR, "topology": "row"}])))
