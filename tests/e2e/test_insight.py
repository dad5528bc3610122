"""What people see of decisions, on a federation that runs: stored, decided again, measured."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.e2e.local_federation import Laptop, until
from tests.etcd_server import require_binary


@pytest.fixture(scope="module")
def laptop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Laptop]:
    """A federation of two regions that is up."""
    require_binary()
    laptop = Laptop(tmp_path_factory.mktemp("laptop") / "up")
    laptop.ok("up", "--detach", "--regions", "eu-west,us-east")
    yield laptop
    laptop.clean_up()


def test_a_decision_is_stored_decided_again_and_measured(laptop: Laptop) -> None:
    job = laptop.submit("--", "true")
    assert laptop.run("wait", job).code == 0
    listed = until(
        lambda: laptop.ok("replay", "--list", "--json").json["cycles"], 20, "a stored decision"
    )
    saved = laptop.root.parent / "cycle.json.gz"
    told = laptop.ok("replay", listed[-1]["cycle"], "--save", str(saved), "--json").json
    assert told["same"] is True and told["recorded"]["answer"]["assignments"][0]["job"] == job
    plan = laptop.ok("plan", "--problem", str(saved), "--json").json
    assert plan["assignments"] == told["recorded"]["answer"]["assignments"]

    policy = laptop.root.parent / "west.yaml"
    policy.write_text("name: west\nrequire: {regions: [nowhere]}\n")
    for words in (("--problem", str(saved)), ("--cycle", listed[-1]["cycle"])):
        tried = laptop.ok("policy", "test", str(policy), *words, "--json").json
        assert tried["governed"] == 1 and tried["moves"][0]["after"]["places"] == []

    def measured() -> bool:
        days = laptop.ok("decide", "stats", "--json").json["days"]
        return any((day["gain"] or {}).get("measured") for day in days)

    until(measured, 30, "a measured decision")
    assert "gained over the greedy floor" in laptop.ok("decide", "stats").out


def test_a_lost_region_is_asked_about_before_it_is_lost(laptop: Laptop) -> None:
    job = laptop.submit("--region", "us-east", "--max-runtime", "10m", "--", "sleep", "600")
    until(lambda: laptop.job(job)["phase"] == "running", 30, "it runs")
    told = laptop.ok("whatif", "--lose", "us-east", "--json").json
    (move,) = told["moves"]
    assert move["job"].startswith(job) and move["before"]["places"][0]["cluster"] == "us-east"
    assert move["after"]["places"] == [] and "what if: lost" in move["after"]["waits"]
    assert told["running"] == {"stay": 0, "displaced": 1}
    shown = laptop.ok("whatif", "--lose", "us-east").out
    assert "WHAT IF" in shown and "1 running attempt starts anew" in shown
    assert laptop.job(job)["phase"] == "running", "nothing was done"
    laptop.ok("cancel", job)


def test_a_deadline_as_people_write_it(laptop: Laptop) -> None:
    words = ("submit", "--dry-run", "--deadline", "tomorrow 23:59", "--max-runtime", "20m")
    told = laptop.ok(*words, "--", "sleep", "1").out
    assert "The deadline is" in told and "(by max_runtime)" in told and "CHOSEN" in told
    bad = laptop.run("submit", "--deadline", "someday", "--", "true")
    assert bad.code == 2 and "write 'Fri 18:00'" in bad.err
