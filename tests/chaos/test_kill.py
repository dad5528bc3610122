"""Kill -9 of every part while jobs are in every phase: all end, each ran exactly once."""

from __future__ import annotations

import os
import signal
import time
import urllib.error
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chaos.federation import RealFederation, until

pytestmark = [pytest.mark.etcd, pytest.mark.slow, pytest.mark.timeout(280)]


@pytest.fixture
def federation(tmp_path: Path) -> Iterator[RealFederation]:
    made = RealFederation(tmp_path)
    try:
        made.start("us-east", "eu-west", slots=12)
        yield made
    finally:
        made.stop()


def started_once(federation: RealFederation, expected: int) -> None:
    lines = federation.marks()
    starts = {k: n for k, n in lines.items() if k.startswith("start ")}
    twice = {k: n for k, n in lines.items() if n != 1}
    assert not twice, f"ran more than once: {twice}"
    assert len(starts) == expected


def workload(federation: RealFederation) -> list[str]:
    """100 jobs and an array of 1,000."""
    jobs = [federation.marking(0.1 + (i % 7) * 0.1) for i in range(100)]
    ids = federation.submit(jobs, "singles")
    array = federation.marking(0.01) | {"array": "0-999"}
    return [*ids, *federation.submit([array], "array")]


def assert_all_succeeded(ended: dict[str, object]) -> None:
    bad = {
        job: answer
        for job, answer in ended.items()
        if _kind(answer) != "succeeded"
    }
    assert not bad, bad


def _kind(answer: object) -> str:
    assert isinstance(answer, dict)
    job = answer.get("job", answer)
    return str(job["outcome"]["kind"])


def test_kill_9_of_the_broker(federation: RealFederation) -> None:
    jobs = workload(federation)
    for _ in range(2):
        marks = sum(federation.marks().values())
        until(lambda m=marks: sum(federation.marks().values()) > m + 60, 60, "progress")
        federation.kill("broker")
        time.sleep(0.5)
        federation.start_broker()
    assert_all_succeeded(federation.wait(jobs, 150))
    started_once(federation, 1100)


def test_kill_9_of_an_agent_leaves_its_jobs_running(federation: RealFederation) -> None:
    jobs = workload(federation)
    until(lambda: sum(federation.marks().values()) > 100, 60, "work is under way")
    for cluster in ("us-east", "eu-west"):
        federation.kill(cluster)
        time.sleep(1.0)
        federation.start_agent(cluster)
        time.sleep(0.5)
    assert_all_succeeded(federation.wait(jobs, 150))
    started_once(federation, 1100)


def test_kill_9_of_etcd(federation: RealFederation) -> None:
    jobs = workload(federation)
    until(lambda: sum(federation.marks().values()) > 100, 60, "work is under way")
    federation.kill("etcd")
    time.sleep(2.0)
    federation.start_etcd()
    assert_all_succeeded(federation.wait(jobs, 150))
    started_once(federation, 1100)


def test_kill_9_of_agent_and_keeper_together(federation: RealFederation) -> None:
    """What nobody saw end is lost, and tried again only where the policy says so."""
    # First tries end when there is nobody to see it: not before, however busy the machine is.
    gate = federation.directory / "gate"
    wait = f"while [ ! -e {gate} ]; do sleep 0.1; done"
    job = federation.marking(0.2, f'case "$TRADEWIND_ATTEMPT" in *-1) {wait};; esac')
    plain = job | {"retry": {"attempts": 1}}
    again = job | {"retry": {"attempts": 2, "on": ["lost"]}}
    placed = {"placement": {"clusters": ["us-east"]}}
    jobs = federation.submit([plain | placed] * 3 + [again | placed] * 3, "mixed")
    until(lambda: sum(federation.marks().values()) >= 6, 60, "all six run")
    keepers = federation.keeper_pids("us-east")
    assert keepers
    federation.kill("us-east")
    for pid in keepers:
        os.kill(pid, signal.SIGKILL)
    gate.touch()
    until(lambda: sum(federation.marks().values()) >= 12, 60, "all six have ended unseen")
    federation.start_agent("us-east")
    ended = federation.wait(jobs, 150)
    assert [_kind(ended[job]) for job in jobs] == ["lost"] * 3 + ["succeeded"] * 3
    starts = {k: n for k, n in federation.marks().items() if k.startswith("start ")}
    assert [starts[f"start {job}/0"] for job in jobs] == [1, 1, 1, 2, 2, 2]


def test_one_idempotency_key_makes_one_job_across_a_crash(federation: RealFederation) -> None:
    spec = federation.marking(0.1)
    body = {"jobs": [spec]}
    first = federation.patiently("POST", "/v1/jobs/batch", body, "same")
    federation.kill("broker")
    federation.start_broker()
    second = federation.patiently("POST", "/v1/jobs/batch", body, "same")
    assert first["ids"] == second["ids"]
    with pytest.raises(urllib.error.HTTPError) as refused:
        federation.call(
            "POST", "/v1/jobs/batch", {"jobs": [spec, spec]}, {"Idempotency-Key": "same"}
        )
    assert refused.value.code == 422
    federation.wait(first["ids"], 60)
    started_once(federation, 1)
