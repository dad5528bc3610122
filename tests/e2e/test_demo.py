"""`tradewind demo`: the whole story, and everything it promises to show."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from broker.local.demo.workload import ARRAY_TASKS, IMPOSSIBLE, SHOWN, URGENT, workload
from broker.local.inventory import SITES
from broker.local.layout import Home
from broker.local.processes import find
from tests.e2e.local_federation import Laptop, until
from tests.etcd_server import require_binary

WITHIN_S = 170.0


def demo(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run it with a temporary directory of the test's own."""
    require_binary()
    return subprocess.run(
        [sys.executable, "-m", "broker", "demo", *words],
        env=environment(folder), capture_output=True, text=True, timeout=WITHIN_S,
        stdin=subprocess.DEVNULL, check=False,
    )  # fmt: skip


def environment(folder: Path) -> dict[str, str]:
    """Of the command."""
    return {"PATH": os.environ["PATH"], "HOME": str(folder), "TMPDIR": str(folder)}


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[dict[str, Any], str, Path]]:
    """The facts as JSON, what was said on stderr, and where it had its files."""
    # Not below pytest's own directories: the path of a Unix socket has room for 107 bytes.
    with tempfile.TemporaryDirectory(prefix="tw-") as folder:
        done = demo(Path(folder), "--json")
        assert done.returncode == 0, done.stderr
        yield json.loads(done.stdout), done.stderr, Path(folder)


def test_everything_ran_once_and_what_cannot_fit_waits(told: Any) -> None:
    facts, _, _ = told
    planned = {job.name: job for job in workload("", "")}
    by_name = {job["name"]: job for job in facts["jobs"]}
    assert by_name.keys() == planned.keys()
    for name, job in by_name.items():
        if name != IMPOSSIBLE:
            assert job["outcome"]["kind"] == "succeeded", name
    assert by_name[IMPOSSIBLE]["phase"] == "queued"
    assert by_name["sweep"]["array"]["succeeded"] == ARRAY_TASKS
    assert by_name["residents"]["clusters"] == ["eu-west"]
    once = facts["once"]
    assert once["holds"] and once["starts"] == once["expected"] == sum(
        job.starts for job in planned.values()
    )


def test_the_urgent_one_went_before_what_waited(told: Any) -> None:
    facts, _, _ = told
    started = {job["name"]: job["started_at"] for job in facts["jobs"]}
    late = max(started["tune-1"], started["tune-2"])
    assert started[URGENT] < late


def test_the_dead_region_was_unknown_and_then_adopted(told: Any) -> None:
    facts, _, _ = told
    dead = facts["dead_region"]
    assert dead["unknown_jobs"] and dead["adopted_attempts"]
    assert any("silent since" in note for note in dead["notes"])
    uids = {a["uid"]: a for job in facts["jobs"] for a in job["attempts"]}
    for uid in dead["adopted_attempts"]:
        assert uids[uid]["outcome"]["kind"] == "succeeded", "the same attempt went on to its end"


def test_three_regions_with_inventories_of_their_own(told: Any) -> None:
    facts, _, _ = told
    clusters = {c["name"]: c for c in facts["clusters"]}
    assert clusters.keys() == SITES.keys()
    for cluster in clusters.values():
        assert cluster["connected"] and cluster["certificate_expires_at"]
        assert all(pool["simulated"] for pool in cluster["pools"])
    models = [{p["accelerator"] for p in c["pools"]} - {"CPU"} for c in clusters.values()]
    assert len({frozenset(each) for each in models}) == 3


def test_prices_have_day_and_source_and_round_trips_were_measured(told: Any) -> None:
    facts, _, _ = told
    assert all(price["source"] and price["as_of_at"] for price in facts["prices"])
    trips = [t for t in facts["latency"]["round_trips"] if t["from"] != t["to"]]
    assert len(trips) == 6 and all(trip["source"] == "measured" for trip in trips)


def test_use_and_delays_are_those_of_the_work(told: Any) -> None:
    facts, _, _ = told
    use = {(row["cluster"], row["pool"]): row["utilisation"] for row in facts["utilisation"]}
    assert 0 < use["us-east", "h100"] <= 1 and len(use) == 6
    for row in facts["delays"]:
        assert row["attempts"] > 0 and row["new_session_ms"] > 0
        assert 0 < row["decision_to_start_p50_ms"] < 30_000


def test_what_was_paid_stands_beside_two_simpler_rules(told: Any) -> None:
    facts, _, _ = told
    found = facts["comparison"]
    for rule in ("tradewind", "cheapest_price_first", "home_region_only"):
        assert found[rule]["paid_usd"] > 0, rule
    assert found["home_region_only"]["never"] == ["render"], "home has no card it can use"
    booked = sum(job["cost_usd"] for job in facts["jobs"])
    assert found["tradewind"]["paid_usd"] == pytest.approx(booked, rel=0.05)


def test_the_receipt_and_the_way_out(told: Any) -> None:
    facts, _, _ = told
    receipt = facts["receipt"]
    assert receipt["name"] == SHOWN and receipt["chosen"] and len(receipt["candidates"]) == 6
    impossible = facts["impossible"]
    assert impossible["smallest_change"]["verified"] is True
    assert "2 x 8" in impossible["smallest_change"]["text"]


def test_progress_is_on_stderr_and_nothing_is_left(told: Any) -> None:
    _, said, folder = told
    assert "kill -9 of the agent of us-east" in said
    assert "everything is stopped and removed" in said
    assert not list(folder.glob("tradewind-demo-*"))


def test_kept_it_stays_up_until_it_is_taken_down(tmp_path: Path) -> None:
    done = demo(tmp_path, "--keep")
    (root,) = tmp_path.glob("tradewind-demo-*")
    laptop = Laptop(root)
    try:
        assert done.returncode == 0, done.stderr
        assert f"TRADEWIND_HOME={root} tradewind down" in done.stdout
        assert laptop.record.url in done.stdout
        assert laptop.record.supervisor is not None and laptop.record.supervisor.alive
        for title in ("Nothing ran twice", "The receipt of", "Why too-big waits", "Next"):
            assert f"== {title}" in done.stdout
        assert len(laptop.ok("jobs", "--json").json["jobs"]) == len(workload("", ""))
    finally:
        laptop.ok("down")
    assert not laptop.processes.all


def test_interrupted_it_leaves_nothing(tmp_path: Path) -> None:
    require_binary()
    process = subprocess.Popen(
        # Whoever runs the tests in the background has it ignore interrupts; the demo must not.
        ["env", "--default-signal=INT", sys.executable, "-m", "broker", "demo"],
        env=environment(tmp_path), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stderr is not None
    until(lambda: "submitted" in process.stderr.readline(), 60, "it is under way")
    (root,) = tmp_path.glob("tradewind-demo-*")
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode != 0
    assert not root.exists() and not find(root, Home(root).agents).all
