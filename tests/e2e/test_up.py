"""`tradewind up`: kept, found again, restarted, put to sleep, taken down without a trace."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.e2e.local_federation import Laptop, until
from tests.etcd_server import require_binary

REGIONS = ("us-east", "eu-west")
# 127.0.0.1 as the kernel writes it, and as an IPv6 socket sees it.
LOOPBACK = {"0100007F", "0000000000000000FFFF00000100007F"}
SLEEP_S = 20.0
LONG_SLEEP_S = 120.0
LONG = os.environ.get("TRADEWIND_LONG_TESTS") == "1"


@pytest.fixture(scope="module")
def laptop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Laptop]:
    """A federation of two regions that is up, in the background."""
    require_binary()
    laptop = Laptop(tmp_path_factory.mktemp("laptop") / "up")
    laptop.ok("up", "--detach", "--regions", ",".join(REGIONS))
    yield laptop
    laptop.clean_up()


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[Laptop]:
    """A machine where nothing runs yet."""
    require_binary()
    laptop = Laptop(tmp_path / "up")
    yield laptop
    laptop.clean_up()


def test_what_was_typed_runs_and_its_output_comes_back(laptop: Laptop) -> None:
    job = laptop.submit("--", "python3", "-c", "print(6 * 7)")
    assert laptop.run("wait", job).code == 0
    assert laptop.ok("logs", job).out == "42\n"
    assert laptop.job(job)["attempts"][0]["cluster"] in REGIONS


def test_a_second_up_finds_the_running_one(laptop: Laptop) -> None:
    before = laptop.all_pids()
    again = laptop.ok("up")
    assert "up at https://127.0.0.1:" in again.out and "tradewind submit" in again.out
    assert laptop.all_pids() == before


def test_nobody_else_can_read_what_is_secret(laptop: Laptop) -> None:
    shared = [
        str(path.relative_to(laptop.root))
        for path in laptop.root.rglob("*")
        if path.is_file()
        and path.stat().st_mode & 0o077
        and ("key" in path.name or "token" in path.name or path.suffix in (".json", ".key"))
    ]
    assert laptop.root.stat().st_mode & 0o077 == 0
    assert not [name for name in shared if "blobs" not in name and "attempts" not in name], shared


def test_everything_listens_on_loopback_alone(laptop: Laptop) -> None:
    listening = []
    for process in laptop.processes.services:
        inodes = _sockets_of(process.pid)
        for table in ("tcp", "tcp6"):
            for line in Path(f"/proc/{process.pid}/net/{table}").read_text().splitlines()[1:]:
                fields = line.split()
                if fields[3] == "0A" and fields[9] in inodes:
                    listening.append(fields[1].partition(":")[0])
    assert len(listening) >= 4 + len(REGIONS)
    assert set(listening) <= LOOPBACK, "127.0.0.1 and nothing else"


def _sockets_of(pid: int) -> set[str]:
    found = set()
    for each in Path(f"/proc/{pid}/fd").iterdir():
        target = os.readlink(each)
        if target.startswith("socket:["):
            found.add(target[8:-1])
    return found


@pytest.mark.parametrize("name", ["broker", "etcd", "us-east"])
def test_what_dies_is_started_again_and_work_goes_on(laptop: Laptop, name: str) -> None:
    starts = laptop.root.parent / f"starts-{name}"
    job = laptop.submit("--", "sh", "-c", f"echo once >> {starts}; sleep 6; echo done")
    until(starts.exists, 20, "the job runs")
    old = laptop.record.processes[name]
    os.kill(old.pid, signal.SIGKILL)
    until(lambda: laptop.record.processes.get(name, old) != old, 20, f"{name} is back")
    assert laptop.run("wait", job).code == 0
    assert starts.read_text() == "once\n"
    until(lambda: all(c["connected"] for c in laptop.clusters().values()), 30, "all connected")


def _sleep_and_wake(laptop: Laptop, sleep_s: float) -> None:
    starts = laptop.root.parent / f"starts-sleep-{sleep_s:g}"
    job = laptop.submit("--", "sh", "-c", f"echo once >> {starts}; sleep 3; echo done")
    until(starts.exists, 20, "the job runs")
    before = laptop.all_pids()
    assert laptop.signal_all(signal.SIGSTOP) == before
    time.sleep(sleep_s)
    laptop.signal_all(signal.SIGCONT)
    assert laptop.run("wait", job).code == 0
    assert starts.read_text() == "once\n"
    until(lambda: all(c["connected"] for c in laptop.clusters().values()), 30, "all connected")
    services = {p.pid for p in laptop.processes.services}
    assert services <= before, "nothing had to be started again"
    after = laptop.submit("--", "true")
    assert laptop.run("wait", after).code == 0


@pytest.mark.slow
def test_it_survives_that_the_machine_sleeps(laptop: Laptop) -> None:
    """Every process stopped for several leader terms, then continued."""
    _sleep_and_wake(laptop, SLEEP_S)


@pytest.mark.slow
@pytest.mark.skipif(not LONG, reason="two minutes of sleep; run with TRADEWIND_LONG_TESTS=1")
def test_it_survives_two_minutes_of_sleep(laptop: Laptop) -> None:
    _sleep_and_wake(laptop, LONG_SLEEP_S)


def test_a_supervisor_that_was_killed_is_replaced_without_a_restart(laptop: Laptop) -> None:
    services = {p.pid for p in laptop.processes.services}
    supervisor = laptop.record.supervisor
    assert supervisor is not None
    os.kill(supervisor.pid, signal.SIGKILL)
    until(lambda: not supervisor.alive, 5, "the supervisor is dead")
    laptop.ok("up", "--detach", "--regions", ",".join(REGIONS))
    kept = {p.pid for p in laptop.record.processes.values()}
    assert kept <= services, "taken over, not started anew"
    assert laptop.record.supervisor != supervisor


def test_down_leaves_nothing_and_up_remembers(laptop: Laptop) -> None:
    done = laptop.submit("--", "true")
    assert laptop.run("wait", done).code == 0
    marker = laptop.root.parent / "deaf"
    deaf = f"trap '' TERM; echo on > {marker}; sleep 300 & sleep 300"
    running = laptop.submit("--", "sh", "-c", deaf)
    until(marker.exists, 20, "the job runs")
    pids = laptop.all_pids()
    stopped = laptop.ok("down", "--json").json
    assert stopped["stopped"] and stopped["jobs"] >= 2 and stopped["keepers"] == 2
    assert not laptop.processes.all
    assert not [pid for pid in pids if _lives(pid)]
    nothing = laptop.run("jobs")
    assert nothing.code != 0 and "run: tradewind up" in nothing.err
    assert "nothing runs" in laptop.ok("down").out

    laptop.ok("up", "--detach", "--regions", ",".join(REGIONS))
    assert laptop.job(done)["outcome"]["kind"] == "succeeded"
    lost = until(lambda: laptop.job(running)["outcome"], 30, "its end is known")
    assert lost["kind"] == "lost", "ended by us, not by itself"


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_in_the_foreground_ctrl_c_stops_everything(fresh: Laptop) -> None:
    words = [sys.executable, "-m", "broker", "up", "--regions", "eu-west"]
    process = subprocess.Popen(
        words, env=fresh.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    until(fresh.home.client.exists, 60, "it is up")
    until(lambda: fresh.clusters().get("eu-west", {}).get("connected"), 30, "connected")
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 0, err
    assert "Ctrl-C stops it" in out and "1 connected" in err and "stopping" in err
    assert not fresh.processes.all and not fresh.home.record.exists()


def test_interrupted_while_it_starts_it_leaves_nothing(fresh: Laptop) -> None:
    words = [sys.executable, "-m", "broker", "up", "--regions", "eu-west"]
    process = subprocess.Popen(
        words, env=fresh.environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    until(fresh.home.record.exists, 60, "it has begun")
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=30)
    assert not fresh.processes.all


def test_a_region_nobody_knows_is_refused_in_one_line(fresh: Laptop) -> None:
    answer = fresh.run("up", "--regions", "mars")
    assert answer.code == 2
    assert "no region 'mars' here; there are us-east, eu-west, ap-southeast" in answer.err


def test_a_taken_port_is_named(fresh: Laptop) -> None:
    import json
    import socket

    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        fresh.root.mkdir(mode=0o700)
        ports = {"etcd": port, "etcd_peer": 1, "api": 2, "session": 3, "responders": {"eu-west": 4}}
        fresh.home.setup.write_text(json.dumps(ports))
        answer = fresh.run("up", "--regions", "eu-west")
    assert answer.code != 0 and f"port {port} of 127.0.0.1" in answer.err
    assert not fresh.processes.all


def test_settings_written_are_settings_read(laptop: Laptop) -> None:
    written = yaml.safe_load(laptop.home.broker_settings.read_text())
    assert written["api_listen"].startswith("127.0.0.1:")
    latency = laptop.ok("latency", "--json").json
    sources = {trip["source"] for trip in latency["round_trips"] if trip["from"] != trip["to"]}
    assert sources <= {"measured", "typed"} and sources
