"""The broker is killed around each of its commits and each of its sends, one run per point, until
a point is no more reached: nothing is lost, nothing runs twice, every job ends as it would have."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from broker.simulator.run import Result, prepare, run
from broker.simulator.scenario import scenario_from

BACK_S = 1
POINTS_MAX = 200

LIFE: dict[str, Any] = {
    "fleet": {
        "clusters": [{"name": "a", "region": "eu"}, {"name": "b", "region": "us"}],
        "pools": [
            {"name": "h", "cluster": "a", "accelerator": "H100", "accelerators_per_node": 8,
             "free_nodes": {8: 1}, "price_usd_per_accelerator_hour": 2},
            {"name": "c", "cluster": "b", "accelerator": "CPU", "accelerators_per_node": 16,
             "free_nodes": {16: 1}, "price_usd_per_accelerator_hour": 0.1},
        ],
    },
    "workload": {
        "jobs": [
            {"name": "gang", "at": 1, "duration": 4,
             "spec": {"resources": {"accelerators": "H100:4", "replicas": 2}}},
            {"name": "array", "at": 1.2, "duration": 2, "spec": {"array": "0-5%3"}},
            {"name": "again", "at": 1.4, "duration": 1, "exit": 2,
             "spec": {"retry": {"attempts": 2, "on": ["failed"]}}},
            {"name": "waits", "at": 1.6, "duration": 2,
             "spec": {"resources": {"accelerators": "H100:8"}}},
            {"name": "held", "at": 1.8, "duration": 1, "hold": 1.801, "release": 5},
        ]
    },
    "settle": "10m",
}  # fmt: skip
ENDS = {"gang": "succeeded", "array": "succeeded", "again": "failed", "waits": "succeeded",
        "held": "succeeded"}  # fmt: skip
TASKS_AND_RETRIES = 3 + 6 + 2


def life(point: str | None, cancel_s: float | None = None) -> Result:
    jobs = [dict(job) for job in LIFE["workload"]["jobs"]]
    if cancel_s is not None:
        for job in jobs:
            job["cancel"] = cancel_s
    faults = [{"at": point, "kind": "broker_crash", "for": BACK_S}] if point else []
    body = {**LIFE, "workload": {"jobs": jobs}, "faults": faults}
    return run(prepare(scenario_from(body), Path.cwd()))


def killed(result: Result) -> bool:
    return any(line.endswith("is killed") for line in result.transcript)


def test_a_life_without_a_crash() -> None:
    result = life(None)
    assert not result.violations
    assert {name: story.split()[0] for name, story in result.story.items()} == ENDS
    assert result.metrics["starts"] == TASKS_AND_RETRIES


@pytest.mark.parametrize("kind", ["commit", "committed", "send", "sent"])
def test_a_crash_at_every_step(kind: str) -> None:
    reached = 0
    for number in range(1, POINTS_MAX):
        result = life(f"{kind}:{number}")
        if not killed(result):
            break
        reached = number
        at = f"{kind}:{number}"
        assert not result.violations, at
        ends = {name: story.split()[0] for name, story in result.story.items()}
        assert ends == ENDS, at
        assert result.metrics["starts"] == TASKS_AND_RETRIES, at
    assert reached >= 5, f"only {reached} {kind} points in a whole life"


@pytest.mark.parametrize("kind", ["committed", "sent"])
def test_a_crash_at_every_step_while_all_is_cancelled(kind: str) -> None:
    for number in range(1, POINTS_MAX):
        result = life(f"{kind}:{number}", cancel_s=2.5)
        if not killed(result):
            break
        assert not result.violations, f"{kind}:{number}"
        assert result.metrics["unfinished"] == 0, f"{kind}:{number}"


SILENT: dict[str, Any] = {
    **copy.deepcopy(LIFE),
    "workload": {
        "jobs": [
            {"name": name, "at": 1 + n / 5, "duration": duration,
             "spec": {"resources": {"accelerators": "H100:1"}, "preempt_grace": "1s",
                      "on_disconnect": {"replace": True, "lost_after": "60s", "reconcile": rule}}}
            for n, (name, duration, rule) in enumerate(
                [("unheard", 20, "keep_original"), ("again", 20, "keep_replacement"),
                 ("fenced", 150, "longest_running")]
            )
        ]
    },
}  # fmt: skip
SILENT["fleet"]["pools"].append(
    {"name": "h", "cluster": "b", "accelerator": "H100", "accelerators_per_node": 8,
     "free_nodes": {8: 1}, "price_usd_per_accelerator_hour": 20}
)  # fmt: skip


@pytest.mark.parametrize("kind", ["committed", "sent"])
def test_a_crash_at_every_step_of_replacing_and_of_coming_back(kind: str) -> None:
    reached = 0
    for number in range(1, POINTS_MAX):
        at = f"{kind}:{number}"
        faults = [
            {"at": 10, "kind": "partition", "for": 80, "target": "a"},
            {"at": at, "kind": "broker_crash", "for": BACK_S},
        ]
        result = run(prepare(scenario_from({**SILENT, "faults": faults}), Path.cwd()))
        if not killed(result):
            break
        reached = number
        assert not result.violations, at
        assert result.metrics["succeeded"] == 3, at
        assert result.metrics["starts"] <= 6, at
    assert reached >= 3, f"only {reached} {kind} points in a whole life"
