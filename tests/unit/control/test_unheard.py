"""Lesson 30, unknown shown as unknown: a cluster that never said what it has is told as such."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from broker.control.build_problem import Waiting, World, build
from broker.control.candidate_table import waiting_rows
from broker.decide.decision import decide
from broker.decide.explain import explain_unplaced
from broker.model.fleet import ClusterIdentity, ClusterState, ClusterView, Fleet
from broker.model.jobs import Job
from broker.model.policies import Ruling
from federation.ids import Cluster, JobId, Region, Tenant
from federation.jobs import parse_job_spec
from tests.unit.control.test_policy_problem import DEAR_EU, NOW_MS

JOB = JobId("j0000000000000001")
NEW = ClusterView(ClusterIdentity(Cluster("new"), Region("eu-west"), ClusterState.JOINED))


def rows(view: ClusterView, **spec: Any) -> dict[str, dict[str, Any]]:
    """What `explain` says of each cluster about a job of this spec that no known pool can run."""
    given = {"resources": {"accelerators": "B200:8"}, **spec}
    parsed = parse_job_spec({"run": "true", "tenant": "default", "max_runtime": "1h", **given})
    job = Job(JOB, Tenant("default"), "a", "ada", 100, "", NOW_MS, NOW_MS)
    fleet = Fleet({v.identity.name: v for v in (DEAR_EU, view)})
    problem = build(World(fleet, {}, {}, NOW_MS), [Waiting.under(Ruling(parsed), job, 1)])
    told = waiting_rows(explain_unplaced(problem, decide(problem), JOB))
    return {row["cluster"]: row for row in told}


@pytest.mark.parametrize(
    ("view", "code", "says"),
    [
        (NEW, "cluster_unreachable", "never reported"),
        (
            replace(NEW, identity=replace(NEW.identity, state=ClusterState.INVITED)),
            "cluster_unreachable",
            "never joined",
        ),
        (replace(NEW, silent_since_ms=NOW_MS - 90_000), "cluster_unreachable", "silent for 1m30s"),
        (replace(NEW, connected_since_ms=NOW_MS), "capacity_unknown", "not reported"),
    ],
)
def test_a_cluster_that_never_reported_has_a_row_that_says_so(
    view: ClusterView, code: str, says: str
) -> None:
    told = rows(view)
    assert told["eu"]["code"] == "wrong_accelerator"
    row = told["new"]
    assert (row["code"], row["standing"], row["pool"]) == (code, "cluster unreachable", "")
    assert says in row["text"]


def test_what_such_a_cluster_can_is_as_unknown_as_what_it_has() -> None:
    told = rows(NEW, resources={"accelerators": "B200:8", "isolation": "sandboxed"})
    assert told["new"]["code"] == "cluster_unreachable"


def test_a_cluster_the_job_does_not_allow_is_told_as_that() -> None:
    told = rows(NEW, placement={"clusters": ["eu"]})
    assert told["new"]["code"] == "cluster_not_allowed"
