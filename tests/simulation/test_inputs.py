"""Scenario files, fleets and traces: read strictly, and what they come to; the command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from broker.cli.commands.simulate import simulate
from broker.cli.exits import Exit, Failure
from broker.simulator.run import prepare, run
from broker.simulator.scenario import Scenario, ScenarioError, read_scenario, scenario_from
from broker.simulator.workload import demand
from tests.simulation.federations import FAR, NEAR, job

TRACE = """submit_s,duration_s,num_gpu,cluster,vc
0,100,8,near,7f
50,100,4,near,7f
60,30,16,far,ab
"""


def body(**changes: Any) -> dict[str, Any]:
    usual = {
        "fleet": {
            "clusters": [{"name": "near", "region": "eu"}, {"name": "far", "region": "us"}],
            "pools": [NEAR, FAR],
        },
        "workload": {"jobs": [job("a", 1, 10)]},
    }
    return usual | changes


def written(directory: Path, **changes: Any) -> Path:
    file = directory / "scenario.yaml"
    file.write_text(json.dumps(body(**changes)))
    return file


def traced(directory: Path, **workload: Any) -> Scenario:
    (directory / "trace.csv").write_text(TRACE)
    return scenario_from(body(workload={"trace": "trace.csv", **workload}))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"sed": 1}, "sed"),
        ({"faults": [{"at": 1, "kind": "meteor", "target": "near"}]}, "'meteor' is none of"),
        ({"faults": [{"at": 1, "kind": "cut", "target": "nowhere"}]}, "no cluster or region"),
        ({"faults": [{"at": "commit:3", "kind": "cut", "target": "near"}]}, "broker_crash alone"),
        ({"faults": [{"at": 1, "kind": "broker_crash", "target": "near"}]}, "no broker 'near'"),
        ({"faults": [{"at": "soon", "kind": "store_down"}]}, "faults.0.at"),
        ({"expect": ["all is well"]}, "is not like"),
        ({"workload": {}}, "neither jobs nor a trace"),
        ({"workload": {"jobs": [job("a", 1, 1), job("a", 2, 1)]}}, "a name is used twice"),
    ],
)
def test_what_is_wrong_is_named(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ScenarioError, match=words):
        scenario_from(body(**changes))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"policies": ["cheapest"]}, "'cheapest' is none of default, home"),
        ({"policy_files": ["none.yaml"]}, "policy_files"),
        ({"workload": {"trace": "none.csv"}}, "workload.trace"),
    ],
)
def test_what_is_missing_is_named(tmp_path: Path, changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ScenarioError, match=words):
        prepare(scenario_from(body(**changes)), tmp_path)


def test_a_job_the_api_refuses_ends_the_run(tmp_path: Path) -> None:
    wrong = {**job("a", 1, 10), "spec": {"resources": {"acelerators": "H100:1"}}}
    with pytest.raises(ScenarioError, match="acelerators"):
        run(prepare(scenario_from(body(workload={"jobs": [wrong]})), tmp_path))


def test_a_window_of_a_trace_at_twice_the_load(tmp_path: Path) -> None:
    rows = prepare(traced(tmp_path, from_s=40, to_s=100, load=2), tmp_path).rows
    assert [row.submit_s for row in rows] == [5, 10]
    assert [row.tenant for row in rows] == ["t-7f", "ab"]


def test_demand_is_what_would_run_at_once(tmp_path: Path) -> None:
    rows = prepare(traced(tmp_path), tmp_path).rows
    assert demand(rows, 99) == {"near": 12, "far": 16}
    assert demand(rows, 30)["near"] == 4


def test_capacity_by_percentile_and_by_number(tmp_path: Path) -> None:
    by_share = traced(tmp_path).model_dump() | {}
    by_share["fleet"]["capacity"] = "p99"
    sites = prepare(Scenario.model_validate(by_share), tmp_path).fleet.sites
    assert {site.name: site.accelerators for site in sites} == {"near": 16, "far": 16}
    by_number = body(fleet={**body()["fleet"], "capacity": {"near/h100": 64}})
    sites = prepare(scenario_from(by_number), tmp_path).fleet.sites
    assert sites[0].accelerators == 64
    with pytest.raises(ScenarioError, match="no pool"):
        wrong = body(fleet={**body()["fleet"], "capacity": {"near/none": 64}})
        prepare(scenario_from(wrong), tmp_path)


def test_home_and_federated_runs_of_a_trace(tmp_path: Path) -> None:
    prepared = prepare(traced(tmp_path), tmp_path)
    home = run(prepared, policy="home")
    assert not home.violations
    assert {story.split()[1] for story in home.story.values()} == {
        "near:succeeded",
        "far:succeeded",
    }
    assert run(prepared).metrics["usd"] <= home.metrics["usd"]


def test_a_routing_policy_governs_its_run(tmp_path: Path) -> None:
    (tmp_path / "us.yaml").write_text("name: us-only\nrequire: {regions: [us]}\n")
    scenario = scenario_from(
        body(policies=["default", "us-only"], policy_files=["us.yaml"])
    )
    prepared = prepare(scenario, tmp_path)
    assert run(prepared).story == {"a": "succeeded near:succeeded"}
    assert run(prepared, policy="us-only").story == {"a": "succeeded far:succeeded"}


def test_a_fleet_from_a_planning_problem(tmp_path: Path) -> None:
    problem = {
        "version": 1,
        "objective": {"mode": "place_first"},
        "regions": ["r0", "r1"],
        "rtt_ms": [[0, 40], [40, 0]],
        "clusters": [{"name": "c0", "region": "r0"}, {"name": "c1", "region": "r1"}],
        "pools": [
            {"name": "c0-H100", "cluster": "c0", "accelerator": "H100",
             "price_usd_per_accelerator_hour": 2, "accelerators_per_node": 8,
             "free_nodes": {"8": 1, "4": 2}},
        ],
        "jobs": [],
    }  # fmt: skip
    (tmp_path / "p.json").write_text(json.dumps(problem))
    prepared = prepare(scenario_from(body(fleet={"problem": "p.json"})), tmp_path)
    assert [site.name for site in prepared.fleet.sites] == ["c0"]
    assert prepared.fleet.sites[0].accelerators == 16
    assert prepared.fleet.rtt_ms("r0", "r1") == 40
    assert run(prepared).metrics["succeeded"] == 1


# The command ------------------------------------------------------------------------------------


def test_json_answers_are_the_same_twice(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = written(tmp_path, expect=["succeeded == 1"])
    assert simulate(str(file), as_json=True) == Exit.OK
    first = capsys.readouterr().out
    assert simulate(str(file), as_json=True) == Exit.OK
    assert capsys.readouterr().out == first
    answer = json.loads(first)
    assert answer["version"] == 1
    assert answer["policies"]["default"]["succeeded"] == 1


def test_an_unmet_expectation_is_exit_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = written(tmp_path, expect=["succeeded == 2", "no_such_metric < 1"])
    transcript = tmp_path / "out.txt"
    assert simulate(str(file), seed=5, transcript=str(transcript)) == Exit.JOB_FAILED
    told = capsys.readouterr()
    assert "unmet: succeeded == 2: 1" in told.err
    assert "no such metric" in told.err
    assert "succeeded" in told.out
    assert "starts" in transcript.read_text()


def test_a_file_that_is_no_scenario_is_exit_2(tmp_path: Path) -> None:
    for text in ("[", "fleet: 3"):
        (tmp_path / "bad.yaml").write_text(text)
        with pytest.raises(Failure) as failed:
            simulate(str(tmp_path / "bad.yaml"))
        assert failed.value.code == Exit.BAD_INPUT
    with pytest.raises(ScenarioError):
        read_scenario(tmp_path / "none.yaml")
