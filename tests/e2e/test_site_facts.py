"""What sites and operators state, and what jobs ask for, decides over the command line: extras,
racks, nodes, data, prices by the hour, spot risk, maintenance. Each answer says why."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
import yaml

from federation.units import parse_rfc3339_ms
from tests.e2e.local_federation import Laptop, until
from tests.etcd_server import require_binary

NOW = "2026-01-31"
NIGHT_AND_DAY = [{"usd_per_accelerator_hour": 0.001}]


def a_pool(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "cpus": 8, "memory": "64GiB", "accelerators_per_node": 8, **more}


def a_price(pool: str, usd: float, kind: str = "owned", **more: Any) -> dict[str, Any]:
    said = {"pool": pool, "kind": kind, "usd_per_accelerator_hour": usd, "as_of": NOW}
    return said | {"source": "test"} | more


EAST = {
    "inventory": [a_pool("cpu", extras={"matlab": 2}, domain="rack-1")],
    "prices": [a_price("cpu", 0.05, hours=NIGHT_AND_DAY)],
}
WEST = {
    "inventory": [
        a_pool("cpu", nodes=3, cpus=4, accelerators_per_node=4, racks={"west-1": 1, "west-2": 2}),
        a_pool("spot", accelerators_per_node=8),
    ],
    "prices": [
        a_price("cpu", 0.02),
        a_price("spot", 0.018, "spot", preemptions_per_hour=0.5),
    ],
}
BROKER = {
    "links": [
        {"from": start, "to": end, "egress_usd_per_gb": 0.0001, "gbps": 8, "source": "test",
         "as_of": "2026-01-31T00:00:00Z"}
        for start, end in (("eu-west", "us-east"), ("asia", "us-east"), ("asia", "eu-west"),
                           ("africa", "us-east"), ("africa", "eu-west"))
    ]
}  # fmt: skip
SENT_BYTES, APART_S = 64 * 2**10, 0.02
"""What the replica in Asia sends at once, and how long it waits then: 3.3 MB a second at most."""


class SlowReplica(BaseHTTPRequestHandler):
    """A file of which parts can be had, slowly."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        size_bytes = int(self.headers["Range"].rpartition("-")[2]) + 1
        self.send_response(206)
        self.send_header("Content-Length", str(size_bytes))
        self.end_headers()
        for _ in range(size_bytes // SENT_BYTES):
            self.wfile.write(bytes(SENT_BYTES))
            time.sleep(APART_S)

    def log_message(self, *_: Any) -> None:
        pass


def told(laptop: Laptop, **more: dict[str, Any]) -> None:
    """Write settings over those there are, and let everything but etcd start anew."""
    files = {name: laptop.home.agent_settings(name) for name in ("us-east", "eu-west")}
    files["broker"] = laptop.home.broker_settings
    for name, change in more.items():
        file = files[name.replace("_", "-")]
        file.write_text(yaml.safe_dump(yaml.safe_load(file.read_text()) | change))
    for name, process in laptop.record.processes.items():
        if name != "etcd":
            os.kill(process.pid, signal.SIGKILL)


@pytest.fixture(scope="module")
def laptop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Laptop]:
    """A federation of two regions whose sites state more than a laptop's own."""
    require_binary()
    laptop = Laptop(tmp_path_factory.mktemp("laptop") / "up")
    replica = ThreadingHTTPServer(("127.0.0.1", 0), SlowReplica)
    threading.Thread(target=replica.serve_forever, daemon=True).start()
    source = {"region": "asia", "url": f"http://127.0.0.1:{replica.server_port}/part-0"}
    laptop.ok("up", "--detach", "--regions", "us-east,eu-west")
    told(laptop, us_east=EAST | {"data_sources": [source]}, eu_west=WEST, broker=BROKER)

    def stated() -> bool:
        pools = {c["name"]: c["pools"] for c in laptop.clusters().values() if c["connected"]}
        extras = [pool["extras"] for pool in pools.get("us-east", ())]
        return extras == [[{"name": "matlab", "total": 2, "free": 2}]] and any(
            pool["pool"] == "spot" and pool["price_kind"] for pool in pools.get("eu-west", ())
        )

    until(stated, 60, "both sites have told what they have")
    yield laptop
    laptop.clean_up()
    replica.shutdown()
    replica.server_close()


class Asked:
    """A job file, asked about or submitted."""

    def __init__(self, laptop: Laptop, **job: Any) -> None:
        self._laptop = laptop
        job = {"run": "sleep 600", "max_runtime": "1h", **job}
        self._file = laptop.root.parent / "job.yaml"
        self._file.write_text(yaml.safe_dump(job))

    def table(self) -> dict[str, Any]:
        """The candidate table by place, without submitting anything."""
        answer = self._laptop.ok("submit", "--dry-run", "--json", str(self._file)).json
        return {f"{row['cluster']}/{row['pool']}": row for row in answer["candidates"]}

    def chosen(self) -> list[str]:
        return [place for place, row in self.table().items() if row["chosen"]]

    def submit(self) -> str:
        return self._laptop.submit(str(self._file))


def why_not(table: dict[str, Any], place: str) -> tuple[str, str]:
    found = table[place]["why_not"]
    return found["code"], found["text"]


def test_a_price_of_the_hour_is_what_decides_and_is_shown(laptop: Laptop) -> None:
    assert Asked(laptop).chosen() == ["us-east/cpu"]
    prices = {(p["cluster"], p["pool"]): p for p in laptop.ok("prices", "--json").json["prices"]}
    assert prices["us-east", "cpu"]["marginal_usd"] == 0.001
    assert prices["eu-west", "spot"]["preemptions_per_hour"] == 0.5


def test_spot_is_taken_where_checkpoints_bound_what_a_preemption_costs(laptop: Laptop) -> None:
    west = {"clusters": ["eu-west"], "spot": True}
    assert Asked(laptop, placement=west).chosen() == ["eu-west/cpu"]
    kept = {"path": "/shared/ckpt", "interval": "5m"}
    asked = Asked(laptop, placement=west, checkpoint=kept, run='echo "at $TRADEWIND_CHECKPOINT"')
    table = asked.table()
    assert table["eu-west/spot"]["chosen"]
    assert 0 < table["eu-west/spot"]["terms"]["preemption_usd"] < 0.01
    job = asked.submit()
    assert laptop.run("wait", job).code == 0
    assert laptop.ok("logs", job).out == "at /shared/ckpt\n"


def governed(laptop: Laptop, policy: str) -> None:
    """Put a policy in force."""
    file = laptop.root.parent / "policy.yaml"
    file.write_text(policy)
    laptop.ok("policy", "apply", str(file))


def test_no_more_than_its_share_of_a_policy_goes_to_spot(laptop: Laptop) -> None:
    governed(laptop, "{name: half, spot: true, spot_share: 50%}")
    place = {"clusters": ["eu-west"], "spot": True, "policy": "half"}
    kept = {"path": "/shared/ckpt", "interval": "5m"}
    big = {"cpus": 2}  # and long: it saves more than the node is worth that it would break
    asked = Asked(laptop, placement=place, checkpoint=kept, resources=big, max_runtime="24h")
    jobs = [asked.submit() for _ in range(4)]

    def pools() -> list[str]:
        found = [laptop.job(job)["attempts"] for job in jobs]
        return sorted(attempts[-1]["pool"] for attempts in found if attempts)

    until(lambda: len(pools()) == 4, 40, "all are placed")
    assert pools() == ["cpu", "cpu", "spot", "spot"]
    laptop.ok("cancel", *jobs)


def test_a_policy_lets_a_job_wait_for_a_cheaper_hour_and_no_longer(laptop: Laptop) -> None:
    """No hour is that cheap: it starts when the policy's patience is over."""
    governed(
        laptop,
        "{name: patient, defer: {max_price_usd_per_accelerator_hour: 0.0005, up_to: 20s}}",
    )
    job = Asked(laptop, placement={"policy": "patient"}, run="true").submit()
    until(lambda: "wait until" in laptop.ok("explain", job).out, 15, "it says until when")
    assert laptop.run("wait", job).code == 0
    found = laptop.job(job)
    times = (found["attempts"][0]["placed_at"], found["created_at"])
    placed_ms, created_ms = (parse_rfc3339_ms(at) for at in times)
    assert 20_000 <= placed_ms - created_ms < 40_000


def test_extras_are_counted_over_the_jobs_that_hold_them(laptop: Laptop) -> None:
    licensed = Asked(laptop, resources={"extras": {"matlab": 2}})
    assert licensed.chosen() == ["us-east/cpu"]
    first = licensed.submit()
    until(lambda: laptop.job(first)["phase"] == "running", 30, "the first runs")
    second = licensed.submit()
    told = laptop.ok("explain", "--json", second).json["waiting"]
    reasons = {each["cluster"]: each["code"] for each in told}
    assert reasons == {"us-east": "no_extras", "eu-west": "no_extras"}
    assert "0 of 2 matlab" in laptop.ok("clusters", "show", "us-east").out
    laptop.ok("cancel", first)
    until(lambda: laptop.job(second)["phase"] == "running", 30, "the licence is handed on")
    laptop.ok("cancel", second)


def test_a_gang_shares_a_node_or_a_rack_where_it_says_so(laptop: Laptop) -> None:
    def gang(topology: str, replicas: int = 2, **place: Any) -> Asked:
        resources = {"replicas": replicas, "cpus": 3, "topology": topology}
        return Asked(laptop, resources=resources, placement={"clusters": ["eu-west"], **place})

    assert gang("cluster").chosen() == ["eu-west/cpu"]
    assert why_not(gang("node").table(), "eu-west/cpu")[0] in ("topology", "gang_too_large",
                                                               "replica_too_large")  # fmt: skip
    table = gang("rack", spot=True).table()
    assert table["eu-west/cpu"]["chosen"], "two of its nodes are in one rack"
    code, text = why_not(table, "eu-west/spot")
    assert code == "no_rack" and "nobody said that they share one" in text
    code, text = why_not(gang("rack", 3).table(), "eu-west/cpu")
    assert code == "rack_too_small" and "3 x 3 in one rack" in text
    resources = {"replicas": 2, "cpus": 3, "topology": "node"}
    job = Asked(laptop, resources=resources, run="sleep 1").submit()
    assert laptop.run("wait", job).code == 0
    assert laptop.job(job)["attempts"][0]["cluster"] == "us-east"


def test_a_gang_pays_for_a_rack_what_it_says(laptop: Laptop) -> None:
    prices = {"rack": 0.5, "cluster": 2}
    resources = {"replicas": 2, "cpus": 3, "topology_usd": prices}
    asked = Asked(
        laptop, resources=resources, placement={"clusters": ["eu-west"]}, run="echo $TRADEWIND_POOL"
    )
    row = asked.table()["eu-west/cpu"]
    assert row["chosen"] and row["terms"]["topology_usd"] == 0.5
    job = asked.submit()
    assert laptop.run("wait", job).code == 0


def test_a_gang_runs_over_two_pools_of_a_site_where_it_says_so(laptop: Laptop) -> None:
    def gang(**more: Any) -> Asked:
        resources = {"replicas": 5, "cpus": 3, **more}
        place = {"clusters": ["eu-west"], "spot": True}
        return Asked(laptop, resources=resources, placement=place, run="echo in $TRADEWIND_POOL")

    code, text = why_not(gang().table(), "eu-west/cpu")
    assert code in ("pool_too_small", "gang_too_large"), text
    asked = gang(several_pools=True)
    assert set(asked.chosen()) == {"eu-west/cpu", "eu-west/spot"}
    job = asked.submit()
    assert laptop.run("wait", job).code == 0
    (attempt,) = laptop.job(job)["attempts"]
    assert {node.split("/")[0] for node in attempt["nodes"]} == {"cpu", "spot"}


def test_data_stays_goes_or_is_refused_as_its_way_is_stated(laptop: Laptop) -> None:
    laptop.ok("datasets", "set", "faces", "--size", "10GB", "--region", "eu-west")
    assert "8 Gbit/s" in laptop.ok("datasets", "links").out
    near = Asked(laptop, inputs=[{"dataset": "faces"}])
    table = near.table()
    assert table["us-east/cpu"]["chosen"], "the way costs a tenth of a cent"
    assert table["us-east/cpu"]["egress_usd"] == pytest.approx(0.001)
    assert table["us-east/cpu"]["transfer_s"] == pytest.approx(10.0)
    laptop.ok("datasets", "set", "faces", "--size", "10TB", "--region", "eu-west")
    assert near.chosen() == ["eu-west/cpu"]
    laptop.ok("datasets", "set", "faces", "--size", "10GB", "--region", "us-east")
    code, text = why_not(near.table(), "eu-west/cpu")
    assert code == "data_missing" and "no link from there is stated" in text
    words = ("--size", "10GB", "--region", "eu-west", "--residency", "eu-west")
    laptop.ok("datasets", "set", "faces", *words)
    assert why_not(near.table(), "us-east/cpu")[0] == "data_residency"
    assert "faces" in laptop.ok("datasets").out
    laptop.ok("datasets", "remove", "faces")
    refused = laptop.run("submit", str(laptop.root.parent / "job.yaml"))
    assert refused.code == 2 and "no such dataset" in refused.err


def test_a_way_that_was_measured_to_be_slow_is_not_taken(laptop: Laptop) -> None:
    """Both ways are stated alike; a site measured one of them."""

    def measured() -> list[dict[str, Any]]:
        rates = laptop.ok("latency", "--json").json["data_rates"]
        return [rate for rate in rates if rate["gbps"]]

    (rate,) = until(measured, 60, "the site has read its share")
    assert (rate["from_region"], rate["cluster"]) == ("asia", "us-east")
    assert 0 < rate["gbps"] < 8 * SENT_BYTES / APART_S / 1e9 and not rate["at_least"]
    assert "asia" in laptop.ok("latency").out and "measured" in laptop.ok("datasets", "links").out
    for name in ("asia", "africa"):
        laptop.ok("datasets", "set", f"of-{name}", "--size", "40GB", "--region", name)
    # 40 GB take 40 s as stated, and hours as measured.
    fast = Asked(laptop, inputs=[{"dataset": "of-africa"}], deadline="3h").table()
    assert fast["us-east/cpu"]["chosen"]
    assert fast["us-east/cpu"]["transfer_ways"][0]["known_by"] == "stated"
    asked = Asked(laptop, inputs=[{"dataset": "of-asia"}], deadline="3h", run="true")
    table = asked.table()
    assert table["eu-west/cpu"]["chosen"]
    assert why_not(table, "us-east/cpu")[0] == "deadline_too_soon"
    (way,) = table["us-east/cpu"]["transfer_ways"]
    assert (way["from_region"], way["known_by"]) == ("asia", "measured") and way["as_of_at"]
    job = asked.submit()
    assert laptop.run("wait", job).code == 0
    assert laptop.job(job)["attempts"][0]["cluster"] == "eu-west"
    receipt = laptop.ok("explain", "--json", job).json["candidates"]
    by = {row["cluster"]: row["transfer_ways"][0]["known_by"] for row in receipt}
    assert by == {"us-east": "measured", "eu-west": "stated"}
    assert "Inputs come from asia (8 Gbit/s, stated" in laptop.ok("explain", job).out


def test_tasks_spread_over_regions(laptop: Laptop) -> None:
    job = Asked(laptop, array="0-2", placement={"spread": "region"}).submit()

    def places() -> list[str]:
        live = [a for a in laptop.job(job)["attempts"] if a["phase"] == "running"]
        return sorted(attempt["cluster"] for attempt in live)

    until(lambda: places() == ["eu-west", "us-east"], 40, "a task in each region")
    laptop.ok("cancel", job)


@pytest.mark.parametrize(
    "changes", [{"array": "0-2"}, {"resources": {"replicas": 2, "cpus": 1}}], ids=["array", "gang"]
)
def test_hosts_keep_nothing_apart_by_nodes_and_say_so(
    laptop: Laptop, changes: dict[str, Any]
) -> None:
    """All pools of a host are that host."""
    table = Asked(laptop, placement={"spread": "node"}, **changes).table()
    assert not any(row["chosen"] for row in table.values())
    code, text = why_not(table, "us-east/cpu")
    assert code == "unsupported" and "scheduler process, which does not" in text
    assert "leave out placement.spread" in text


def test_a_job_does_not_start_before_maintenance_that_it_would_run_into(laptop: Laptop) -> None:
    rules = laptop.home.agent("us-east") / "site.yaml"
    soon = datetime.now(UTC) + timedelta(minutes=40)
    begin, end = (at.isoformat() for at in (soon, soon + timedelta(hours=3)))
    window = {"reason": "new power", "start": begin, "end": end}
    rules.write_text(yaml.safe_dump({"blackouts": [window]}))

    def windows() -> Any:
        return laptop.clusters()["us-east"]["site_rules"]["windows"]

    until(windows, 60, "the site has told its window")
    assert Asked(laptop, max_runtime="30m").chosen() == ["us-east/cpu"]
    table = Asked(laptop, max_runtime="1h").table()
    code, text = why_not(table, "us-east/cpu")
    assert code == "maintenance" and "new power" in text and table["eu-west/cpu"]["chosen"]
    rules.unlink()
