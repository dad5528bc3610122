"""Over the command line, on real sites: a running job goes on where it is cheaper, once there is
room; another waits for the hour at which its site becomes cheap. Each answer says why."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import yaml

from tests.e2e.local_federation import Laptop, until
from tests.etcd_server import require_binary

REGIONS = ("us-east", "eu-west", "ap-southeast")
HOUR_COMES_S = 110


def stated(usd: float, cpus: int, **more: Any) -> dict[str, Any]:
    """What a site of one node has, and what a slot costs there."""
    price = {"pool": "cpu", "kind": "owned", "usd_per_accelerator_hour": usd, "source": "test"}
    node = {"name": "cpu", "cpus": cpus, "memory": "8GiB", "accelerators_per_node": cpus}
    return {"inventory": [node], "prices": [{**price, "as_of": "2026-01-31", **more}]}


def cheap_from() -> datetime:
    """The minute at which the third site becomes cheap."""
    return (datetime.now(UTC) + timedelta(seconds=HOUR_COMES_S)).replace(second=0, microsecond=0)


class Federation:
    """Three sites: a cheap small one, a dear one, and one that will be cheap at `opens`."""

    def __init__(self, laptop: Laptop) -> None:
        self.laptop, self.opens = laptop, cheap_from()
        until_then = self.opens + timedelta(hours=3)
        hours = {"from": f"{self.opens:%H:%M}", "to": f"{until_then:%H:%M}"}
        night = [{**hours, "usd_per_accelerator_hour": 0.01}]
        settings = {
            "us-east": stated(0.01, 2), "eu-west": stated(20.0, 4),
            "ap-southeast": stated(50.0, 2, hours=night),
        }  # fmt: skip
        files = {name: (laptop.home.agent_settings(name), settings[name]) for name in REGIONS}
        broker = {"move_look_s": 2, "disturbed_share_max": 1}
        files["broker"] = laptop.home.broker_settings, broker
        for file, change in files.values():
            file.write_text(yaml.safe_dump(yaml.safe_load(file.read_text()) | change))
        for name, process in laptop.record.processes.items():
            if name != "etcd":
                os.kill(process.pid, signal.SIGKILL)
        until(self._told, 60, "all sites have told what they have")

    def _told(self) -> bool:
        known = self.laptop.clusters().values()
        sizes = {c["name"]: [pool["total"] for pool in c["pools"]] for c in known if c["connected"]}
        return sizes == {"us-east": [2], "eu-west": [4], "ap-southeast": [2]}

    def disturb_at_most(self, share: float) -> None:
        """Other settings for the broker, which is started anew with them."""
        file = self.laptop.home.broker_settings
        changed = yaml.safe_load(file.read_text()) | {"disturbed_share_max": share}
        file.write_text(yaml.safe_dump(changed))
        for name, process in self.laptop.record.processes.items():
            if name.startswith("broker"):
                os.kill(process.pid, signal.SIGKILL)
        time.sleep(1)
        until(self._told, 60, "the broker is back, and all sites with it")

    def submit(self, name: str, **job: Any) -> str:
        file = self.laptop.root.parent / f"{name}.yaml"
        file.write_text(yaml.safe_dump({"name": name, "max_runtime": "2h", **job}))
        return self.laptop.submit(str(file))

    def runs_at(self, job: str) -> str:
        """Where a job runs; empty while it does not."""
        found = self.laptop.job(job)
        live = [a for a in found["attempts"] if a["phase"] == "running"]
        return live[-1]["cluster"] if live else ""


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Federation]:
    require_binary()
    laptop = Laptop(tmp_path_factory.mktemp("laptop") / "up")
    laptop.ok("up", "--detach", "--regions", ",".join(REGIONS))
    try:
        yield Federation(laptop)
    finally:
        laptop.clean_up()


def test_a_job_waits_for_the_cheap_hour_and_another_moves_meanwhile(
    federation: Federation,
) -> None:
    laptop = federation.laptop
    late = federation.submit(
        "late", run="sleep 1", max_runtime="10m", defer="1h", deadline="2h",
        placement={"clusters": ["ap-southeast"]},
    )  # fmt: skip
    until(lambda: laptop.job(late)["reason"]["code"] == "deferred", 20, "it says that it waits")
    at = f"{federation.opens:%Y-%m-%dT%H:%M:%SZ}"
    told = laptop.ok("explain", late).out
    assert f"wait until {at}" in told and re.search(r"saves [0-9]+\.[0-9]{2} USD", told)

    wide = {"resources": {"cpus": 2}, "placement": {"clusters": ["us-east"]}}
    busy = federation.submit("busy", run="sleep 20", **wide)
    until(lambda: federation.runs_at(busy) == "us-east", 30, "the cheap site is full")
    mover = federation.submit(
        "mover", run='echo "runs as $TRADEWIND_ATTEMPT"; sleep 900', movable=True,
        expected_runtime="90m", preempt_grace="5s",
        placement={"clusters": ["us-east", "eu-west"]},
    )  # fmt: skip
    until(lambda: federation.runs_at(mover) == "eu-west", 30, "it runs at the dear site")
    until(lambda: federation.runs_at(mover) == "us-east", 60, "it has moved to the cheap one")
    first, second = laptop.job(mover)["attempts"]
    assert (first["outcome"]["kind"], second["outcome"]) == ("moved", None)
    assert first["ended_at"] <= second["placed_at"]
    told = laptop.ok("explain", mover).out
    assert f"Moved: {mover}-1 moves from eu-west/cpu to us-east/cpu: the rest costs" in told
    assert "saves" in told and "lost work" in told
    assert "moves from eu-west/cpu to us-east/cpu" in laptop.ok("show", mover).out
    logs = laptop.ok("logs", mover).out
    assert f"runs as {mover}-2" in logs
    laptop.ok("cancel", mover)

    within_s = (federation.opens - datetime.now(UTC)).total_seconds() + 60
    until(lambda: laptop.job(late)["phase"] == "ended", max(within_s, 30), "the hour has come")
    (attempt,) = laptop.job(late)["attempts"]
    assert attempt["outcome"]["kind"] == "succeeded" and attempt["placed_at"] >= at[:-1]


def proposal(laptop: Laptop) -> Any:
    """What waits for an operator; None where nothing does."""
    return laptop.ok("freeze", "status", "--json").json["proposal"]


def test_a_move_larger_than_may_be_disturbed_waits_for_an_operator(
    federation: Federation,
) -> None:
    """Refused as long as nothing may be stopped, it stays where it is; let go, both jobs move."""
    laptop = federation.laptop
    federation.disturb_at_most(0.1)
    wide = {"resources": {"cpus": 2}, "placement": {"clusters": ["us-east"]}}
    busy = federation.submit("busy-again", run="sleep 15", **wide)
    until(lambda: federation.runs_at(busy) == "us-east", 60, "the cheap site is full")
    movers = [
        federation.submit(
            f"mover-{n}",
            run="sleep 900",
            movable=True,
            expected_runtime="90m",
            preempt_grace="2s",
            placement={"clusters": ["us-east", "eu-west"]},
        )  # fmt: skip
        for n in range(2)
    ]

    def all_at(cluster: str) -> bool:
        return all(federation.runs_at(job) == cluster for job in movers)

    until(lambda: all_at("eu-west"), 60, "both run at the dear site")
    found = until(lambda: proposal(laptop), 60, "the move of both waits")
    assert (found["attempts"], found["approved"]) == (2, False)
    assert "moves from eu-west/cpu to us-east/cpu" in found["why"]
    told = laptop.ok("freeze", "status").out
    assert "2 attempts" in told and found["cycle"] in told

    laptop.ok("freeze", "on", "--why", "a demonstration")
    time.sleep(6)  # two looks of what waits, and one that finds it frozen
    assert all_at("eu-west") and "a demonstration" in laptop.ok("freeze", "status").out
    laptop.ok("freeze", "off")

    found = until(lambda: proposal(laptop), 30, "it waits again, or still")
    assert all_at("eu-west")
    laptop.ok("freeze", "approve", found["cycle"], "--why", "fine")
    until(lambda: all_at("us-east"), 60, "what was approved has moved")
    for job in movers:
        first, second = laptop.job(job)["attempts"]
        assert (first["outcome"]["kind"], second["outcome"]) == ("moved", None)
        laptop.ok("cancel", job)
    until(lambda: proposal(laptop) is None, 30, "nothing waits for approval any more")


def test_the_rest_of_an_array_goes_where_it_is_cheaper_unless_all_is_frozen(
    federation: Federation,
) -> None:
    """Two tasks at a time are all it may have, so it gets no further slice while the dear one goes
    on. Every task runs once."""
    laptop = federation.laptop
    wide = {"resources": {"cpus": 2}, "placement": {"clusters": ["us-east"]}}
    busy = federation.submit("busy-array", run="sleep 12", **wide)
    until(lambda: federation.runs_at(busy) == "us-east", 60, "the cheap site is full")
    laptop.ok("freeze", "on", "--why", "a demonstration")
    ran = laptop.root.parent / "ran"
    array = federation.submit(
        "array", run=f"echo $TRADEWIND_TASK >> {ran}; sleep 1", array="0-99%2",
        expected_runtime="30m", placement={"clusters": ["us-east", "eu-west"]},
    )  # fmt: skip
    until(lambda: federation.runs_at(array) == "eu-west", 30, "it runs at the dear site")
    until(lambda: laptop.job(busy)["phase"] == "ended", 30, "there is room at the cheap one")
    time.sleep(5)  # two looks
    assert laptop.ok("explain", array, "--json").json["moved"] == []
    laptop.ok("freeze", "off")

    (told,) = until(
        lambda: laptop.ok("explain", array, "--json").json["moved"], 20, "its slice is let go"
    )
    assert told.startswith(f"{array}-1 gets no further tasks in eu-west/cpu: the rest of the array")
    assert "USD in us-east/cpu, starting there" in told and "saves" in told
    until(lambda: federation.runs_at(array) == "us-east", 60, "the rest runs at the cheap site")
    until(lambda: laptop.job(array)["phase"] == "ended", 120, "it has ended")
    outcomes = [a["outcome"]["kind"] for a in laptop.job(array)["attempts"]]
    assert outcomes == ["succeeded", "succeeded"]
    assert sorted(map(int, ran.read_text().split())) == list(range(100))
