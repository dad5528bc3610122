"""A policy tried on a saved problem: `policy test --problem` and `whatif --problem --policy`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from broker.cli.dispatch import run
from broker.control.policy_on_problem import under_policy
from broker.control.policy_text import read_policy
from broker.decide.problem_file import problem_from_json
from tests.unit.decide.problems import a_job, a_pool, a_problem

PROBLEM = a_problem(
    regions=["east", "west"],
    rtt_ms=[[0, 40], [40, 0]],
    clusters=[
        {"name": "c0", "region": "east", "start_delay_s": 90}, {"name": "c1", "region": "west"},
    ],
    pools=[
        a_pool("c0/p"), a_pool("c1/p", cluster="c1", price_usd_per_accelerator_hour=3.0),
        a_pool("c1/s", cluster="c1", price_usd_per_accelerator_hour=0.5, spot=True),
    ],
    tenants=[{"name": "t0"}, {"name": "t1"}],
    jobs=[a_job("a", count=2), a_job("b", tenant="t1", count=2)],
)  # fmt: skip


def places(policy: str, **change: Any) -> dict[str, Any]:
    """Where each job goes under a policy."""
    from broker.decide.decision import decide

    tried = under_policy(problem_from_json({**PROBLEM, **change}), read_policy(policy))
    plan, found = decide(tried.problem), dict[str, Any]()
    for item in plan.assignments:
        found.setdefault(item.job, {})[item.pool] = item.count
    return found


@pytest.mark.parametrize(
    ("policy", "where"),
    [
        ("{name: p}", {"a": {"c0/p": 2}, "b": {"c0/p": 2}}),
        ("{name: p, require: {regions: [west]}, match: {tenants: [t1]}}",
         {"a": {"c0/p": 2}, "b": {"c1/p": 2}}),
        ("{name: p, require: {regions: [mars]}}", {}),
        ("{name: p, spot: yes}", {"a": {"c1/s": 2}, "b": {"c1/s": 2}}),
        ("{name: p, spot: yes, spot_share: 50%}", {"a": {"c1/s": 2}, "b": {"c0/p": 2}}),
        ("{name: p, spread: 50%}", {"a": {"c0/p": 1, "c1/p": 1}, "b": {"c0/p": 1, "c1/p": 1}}),
        ("{name: p, require: {max_start_delay: 1m}}", {"a": {"c1/p": 2}, "b": {"c1/p": 2}}),
        ("{name: p, require: {max_rtt: {to: west, ms: 20}}}", {"a": {"c1/p": 2}, "b": {"c1/p": 2}}),
        ("{name: p, require: {max_price_usd_per_accelerator_hour: 0.1}}", {}),
        ("{name: p, defer: {max_price_usd_per_accelerator_hour: 0.1, up_to: 1h}}", {}),
        ("{name: p, require: {where: 'cluster.region == \"west\"'}}",
         {"a": {"c1/p": 2}, "b": {"c1/p": 2}}),
        ("{name: p, failover: {order: [west], after: 1h}}", {"a": {"c1/p": 2}, "b": {"c1/p": 2}}),
        ("{name: p, match: {when: 'job.tenant == \"t1\"'}, weights: "
         "{value_of_time_usd_per_hour: 200}}", {"a": {"c0/p": 2}, "b": {"c1/p": 2}}),
    ],
)  # fmt: skip
def test_each_part_of_a_policy_has_its_effect_on_a_problem(
    policy: str, where: dict[str, Any]
) -> None:
    assert places(policy) == where


def test_what_a_problem_does_not_say_is_said_and_not_guessed() -> None:
    policy = """
name: p
match: {labels: {data: personal}, when: 'job.labels.team == "x"'}
require: {isolation: sandboxed, where: 'cluster.scheduler == "slurm"', hours: "22:00-06:00 UTC"}
tier: 200
"""
    tried = under_policy(problem_from_json(PROBLEM), read_policy(policy))
    assert tried.governed == {"a", "b"}
    told = [note.partition(":")[0] for note in tried.notes]
    assert told == ["match", "isolation", "hours", "tier", "when", "where"]


def test_on_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "saved.json").write_text(json.dumps(PROBLEM))
    (tmp_path / "west.yaml").write_text(
        "name: west\nmatch: {tenants: [t1]}\nrequire: {regions: [west]}\n"
    )
    assert run(["policy", "test", "west.yaml", "--problem", "saved.json"]) == 0
    out = capsys.readouterr().out
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert lines[0] == "west.yaml governs 1 of 2 entries."
    assert "WITHOUT IT WITH IT" in lines and "cost $4.00 $8.00" in lines
    assert "1 job goes elsewhere or comes in or out, for $4.00 more." in lines
    assert run(["policy", "test", "west.yaml", "--problem", "saved.json", "--json"]) == 0
    tested = json.loads(capsys.readouterr().out)
    assert tested["governed"] == 1
    assert run(["whatif", "--problem", "saved.json", "--policy", "west.yaml", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == tested


def test_faults_stand_at_their_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "saved.json").write_text(json.dumps(PROBLEM))
    (tmp_path / "bad.yaml").write_text("name: west\nrequire:\n  regons: [west]\n")
    for words in (["policy", "test", "bad.yaml"], ["whatif", "--policy", "bad.yaml"]):
        assert run([*words, "--problem", "saved.json"]) == 2
        assert ":3:3: require.regons: unknown key `regons`" in capsys.readouterr().err
