"""Cold starts as a person sees them: fetched once, expected as they turn out, prepared ahead."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.local_federation import Laptop, until
from tests.etcd_server import require_binary

BYTES = 20_000_000
REGION = "eu-west"
SLOTS = 16


@pytest.fixture(scope="module")
def laptop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Laptop]:
    """A federation of one region that is up."""
    require_binary()
    laptop = Laptop(tmp_path_factory.mktemp("laptop") / "up")
    laptop.ok("up", "--detach", "--regions", REGION)
    yield laptop
    laptop.clean_up()


def job_file(laptop: Laptop, name: str) -> Path:
    """A job that needs a file of 20 MB that nobody has seen before."""
    there = laptop.root.parent / name
    there.mkdir(exist_ok=True)
    (there / "data").write_bytes(os.urandom(BYTES))
    path = there / "job.yaml"
    path.write_text(
        f"name: {name}\nfiles: {{data: {there / 'data'}}}\nrun: wc -c < data\n"
        "expected_runtime: 1m\n"
    )
    return path


def attempt(laptop: Laptop, job: str) -> Any:
    """Its one attempt, once it has ended well."""
    assert laptop.run("wait", job).code == 0
    (only,) = laptop.job(job)["attempts"]
    return only


def cached(laptop: Laptop) -> int:
    """Bytes the cluster says it has in its cache."""
    return int(laptop.clusters()[REGION]["cache"]["bytes"])


def test_a_file_is_fetched_once_and_the_next_start_is_expected_without_it(laptop: Laptop) -> None:
    path = job_file(laptop, "twice")
    first = attempt(laptop, laptop.submit(str(path)))
    assert first["measured_start"]["fetched_bytes"] == BYTES
    until(lambda: cached(laptop) >= BYTES, 20, "the cache is told of")
    # Enough starts to expect the next one by.
    for _ in range(4):
        attempt(laptop, laptop.submit(str(path)))
    job = laptop.submit(str(path))
    again = attempt(laptop, job)
    measured = again["measured_start"]
    assert (measured["fetched_bytes"], measured["cached_bytes"]) == (0, BYTES)
    assert again["expected_start_delay_s"] > 0
    # A shared machine: the same order of size, both ways.
    ratio = measured["took_ms"] / (again["expected_start_delay_s"] * 1000)
    assert 0.1 < ratio < 10, again
    assert again["expected_start_delay_s"] < first["measured_start"]["took_ms"] / 1000 + 1
    told = laptop.ok("explain", job).out
    assert "start expected in" in told and "19.1MiB cached" in told
    assert "start expected in" in laptop.ok("show", job).out


def test_a_job_that_waits_for_room_finds_its_file_there(laptop: Laptop) -> None:
    gate = laptop.root.parent / "gate"
    wait = f"until [ -e {gate} ]; do sleep 0.1; done"
    filler = laptop.submit("--array", f"0-{SLOTS - 1}", "--", "sh", "-c", wait)
    until(lambda: laptop.job(filler)["array"]["running"] == SLOTS, 30, "the cluster is full")
    before = cached(laptop)
    job = laptop.submit(str(job_file(laptop, "waits")))
    until(lambda: cached(laptop) >= before + BYTES, 30, "its file is there before it starts")
    explained = laptop.ok("explain", "--json", job).json
    assert explained["phase"] == "queued" and explained["prepared_in"] == REGION
    assert "being brought to eu-west" in laptop.ok("explain", job).out
    assert laptop.job(job)["attempts"] == []
    gate.touch()
    start = attempt(laptop, job)["measured_start"]
    assert (start["fetched_bytes"], start["cached_bytes"]) == (0, BYTES)


def test_what_was_learned_outlives_the_broker(laptop: Laptop) -> None:
    path = job_file(laptop, "later")
    before = laptop.ok("submit", "--dry-run", "--json", str(path)).json["candidates"][0]
    os.kill(laptop.record.processes["broker"].pid, 9)

    def known() -> Any:
        answer = laptop.run("submit", "--dry-run", "--json", str(path))
        if answer.code != 0:
            time.sleep(0.5)
            return None
        rows = json.loads(answer.out)["candidates"]
        return rows and rows[0]["starts_measured"] and rows[0]

    after = until(known, 60, "the broker is back and knows")
    assert after["starts_measured"] >= before["starts_measured"] >= 6
    assert after["start_delay_s"] == pytest.approx(before["start_delay_s"], rel=0.5, abs=0.2)
