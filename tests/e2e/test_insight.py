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

    def measured() -> bool:
        days = laptop.ok("decide", "stats", "--json").json["days"]
        return any((day["gain"] or {}).get("measured") for day in days)

    until(measured, 30, "a measured decision")
    assert "gained over the greedy floor" in laptop.ok("decide", "stats").out
