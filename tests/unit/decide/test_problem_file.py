"""Bad problems are refused with the path and the remedy; good ones keep every figure."""

from __future__ import annotations

import json
from typing import Any

import pytest

from broker.decide.problem_file import ProblemError, parse_problem
from broker.model.problem import Mode, NodeGroup
from tests.unit.decide.problems import Document, a_job, a_pool, a_problem, scalar


def parsed(document: Any) -> Any:
    return parse_problem(json.dumps(document))


def refused(document: Any) -> ProblemError:
    with pytest.raises(ProblemError) as caught:
        parsed(document)
    return caught.value


def test_defaults_are_those_of_the_format() -> None:
    problem = parsed(a_problem())
    job, pool = problem.jobs[0], problem.pools[0]
    assert problem.objective.mode is Mode.PLACE_FIRST
    assert (job.count, job.replicas, job.accelerators_per_replica, job.priority) == (1, 1, 1, 0)
    assert job.regions is None and job.deadline_h is None and not job.spot_ok
    assert pool.nodes == (NodeGroup(2, 8),) and pool.free_cpus is None and not pool.per_node
    assert problem.rtt_ms == () and problem.tenants == ()


def test_free_nodes_are_ordered_from_the_freest() -> None:
    problem = parsed(a_problem(pools=[a_pool(free_nodes={"1": 2, "8": 0, "4": 1, "0": 3})]))
    assert [(g.free_accelerators, g.count) for g in problem.pools[0].nodes] == [
        (4, 1),
        (1, 2),
        (0, 3),
    ]


def test_nodes_keep_their_order_and_own_limits() -> None:
    nodes = [{"free_accelerators": 2, "free_cpus": 4}, {"count": 3, "free_accelerators": 8}]
    pool = parsed(a_problem(pools=[a_pool(nodes=nodes)])).pools[0]
    assert pool.nodes == (NodeGroup(1, 2, 4.0), NodeGroup(3, 8)) and pool.per_node


def test_null_is_absent_where_the_default_is_none() -> None:
    assert parsed(a_problem(jobs=[a_job(deadline_h=None, image=None)])).jobs[0].image is None
    assert refused(a_problem(jobs=[a_job(count=None)])).path == "jobs[0].count"


def with_job(**changes: Any) -> Document:
    return a_problem(jobs=[a_job(**changes)])


def with_pool(**changes: Any) -> Document:
    return a_problem(pools=[a_pool(**changes)])


TENANT = {"name": "t0"}
BAD: list[tuple[Document, str, str]] = [
    ([], "$", "must be an object"),  # type: ignore[list-item]
    (a_problem(version=2), "version", "version 1"),
    (a_problem(version=True), "version", "version 1"),
    (a_problem(tenant=[]), "tenant", 'did you mean "tenants"?'),
    (a_problem(objective={"mode": "place-first"}), "objective.mode", "place_first"),
    (a_problem(objective={}), "objective.mode", "missing"),
    (a_problem(now="yesterday"), "now", "2026-11-30T12:00:00Z"),
    (a_problem(regions=["east", "east"]), "regions[1]", "twice"),
    (a_problem(rtt_ms=[[0, 1]]), "rtt_ms", "one row per region (2)"),
    (a_problem(rtt_ms=[[0, 1], [1]]), "rtt_ms[1]", "one figure per region (2)"),
    (a_problem(clusters=[{"name": "c0", "region": "eas"}]), "clusters[0].region", '"east"'),
    (with_pool(cluster="c1"), "pools[0].cluster", "known: c0"),
    (with_pool(acelerator="x"), "pools[0].acelerator", 'did you mean "accelerator"?'),
    (with_pool(free_nodes={"9": 1}), 'pools[0].free_nodes["9"]', "8 accelerators"),
    (with_pool(free_nodes={"08": 1}), 'pools[0].free_nodes["08"]', 'write this key as "8"'),
    (with_pool(free_nodes={"-1": 1}), 'pools[0].free_nodes["-1"]', "integer"),
    (with_pool(free_nodes={"8": -1}), 'pools[0].free_nodes["8"]', "negative"),
    (with_pool(free_nodes=None), "pools[0]", '"free_nodes" and "nodes"'),
    (with_pool(nodes=[{"free_accelerators": 9}]), "pools[0].nodes[0].free_accelerators", "8"),
    (with_pool(nodes=[{"free_accelerators": 1, "count": 0}]), "pools[0].nodes[0].count", "1"),
    (with_pool(nodes=[], free_cpus=3), "pools[0].free_cpus", "per node"),
    (a_problem(pools=[{**a_pool(), "nodes": []}]), "pools[0].free_nodes", "nodes"),
    (
        with_pool(price_usd_per_accelerator_hour=-1),
        "pools[0].price_usd_per_accelerator_hour",
        "neg",
    ),
    (a_problem(pools=[a_pool(), a_pool()]), "pools[1].name", "twice"),
    (a_problem(jobs=[a_job(), a_job()]), "jobs[1].id", "twice"),
    (a_problem(tenants=[TENANT, TENANT]), "tenants[1].name", "twice"),
    (a_problem(tenants=[]), "jobs[0].tenant", "'t0'"),
    (
        a_problem(tenants=[{"name": "t0", "cluster_quota": {"c9": 1}}]),
        'tenants[0].cluster_quota["c9"]',
        "no cluster",
    ),
    (
        a_problem(tenants=[{"name": "t0", "quota_accelerators": 1.5}]),
        "tenants[0].quota_accelerators",
        "integer",
    ),
    (with_job(count=0), "jobs[0].count", "at least 1"),
    (with_job(count=1.5), "jobs[0].count", "integer"),
    (with_job(count="3"), "jobs[0].count", "number"),
    (with_job(count=2**53 + 2), "jobs[0].count", "2^53"),
    (with_job(replicas=2**52, accelerators_per_replica=8), "jobs[0].replicas", "2^53"),
    (with_job(priority=-1), "jobs[0].priority", "negative"),
    (with_job(runtime_h=0), "jobs[0].runtime_h", "greater than 0"),
    (with_job(accelerators={"H100": 0}), 'jobs[0].accelerators["H100"]', "greater than 0"),
    (with_job(accelerators=["H100"]), "jobs[0].accelerators", "object"),
    (with_job(regions=["west", "north"]), "jobs[0].regions[1]", "no region"),
    (with_job(user_region="north"), "jobs[0].user_region", "no region"),
    (with_job(current_pool="p9"), "jobs[0].current_pool", "known: p0"),
    (with_job(max_rtt_ms=5), "jobs[0].max_rtt_ms", '"user_region"'),
    (with_job(latency_usd_per_ms=5), "jobs[0].latency_usd_per_ms", '"user_region"'),
    (with_job(input_gb=5), "jobs[0].input_gb", '"data_region"'),
    (with_job(spot_ok=1), "jobs[0].spot_ok", "true or false"),
    (with_job(queue={}), "jobs[0].queue", "unknown key"),
    (
        with_job(cpus_per_accelerator=1, cpus_per_replica=1),
        "jobs[0].cpus_per_replica",
        "either",
    ),
    (a_problem(objective={"mode": "scalar"}), "jobs[0].priority", "no entry"),
    (a_problem(objective=scalar(), jobs=[a_job(priority=7)]), "jobs[0].priority", '"7"'),
    (
        a_problem(objective={"mode": "place_first", "weight_per_accelerator": {"1": 1}}),
        "jobs[0].priority",
        "weight_per_accelerator",
    ),
]


@pytest.mark.parametrize(("document", "path", "reason"), BAD, ids=[bad[1] for bad in BAD])
def test_bad_problem_is_refused_with_its_path(document: Any, path: str, reason: str) -> None:
    error = refused(document)
    assert error.path == path
    assert reason in error.reason


@pytest.mark.parametrize("word", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_numbers_that_are_not_finite_are_refused(word: str) -> None:
    text = json.dumps(with_job(runtime_h=12345)).replace("12345", word)
    with pytest.raises(ProblemError) as caught:
        parse_problem(text)
    assert caught.value.path == "jobs[0].runtime_h"


def test_repeated_key_is_refused_with_its_path() -> None:
    text = json.dumps(a_problem()).replace('"runtime_h": 1', '"runtime_h": 1, "runtime_h": 2')
    with pytest.raises(ProblemError) as caught:
        parse_problem(text)
    assert caught.value.path == "jobs[0].runtime_h" and "twice" in caught.value.reason


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b"\xff\xfe\x00", "not UTF-8"),
        (b"[" * 100_000, "nested too deeply"),
        (b"1" * 10_000, "digits"),
        (b"x" * 1_000_000, "not JSON"),
    ],
)
def test_nonsense_is_refused(data: bytes, reason: str) -> None:
    with pytest.raises(ProblemError) as caught:
        parse_problem(data)
    assert caught.value.path == "$" and reason in caught.value.reason


def test_tenants_may_be_left_out_altogether() -> None:
    document = a_problem()
    assert "tenants" not in document
    assert parsed(document).jobs[0].tenant == "t0"
