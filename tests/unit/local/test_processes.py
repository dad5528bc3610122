"""Which processes are a federation's, and that they end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from broker.local.layout import Home
from broker.local.processes import MARK, Process, end, find, kill, process_from, process_of
from broker.local.record import Record, read_record, write_record
from broker.local.teardown import sweep, take_down

SLEEP = "import time; time.sleep(60)"
Start = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts a Python program with a given environment; what is left of it is killed."""
    begun: list[subprocess.Popen[bytes]] = []

    def _start(program: str, *words: str, **env: str) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [sys.executable, "-c", program, *words], env=env, start_new_session=True
        )
        begun.append(process)
        return process

    yield _start
    for process in begun:
        process.kill()
        process.wait(5)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home(tmp_path)
    home.agent("us-east").mkdir(parents=True)
    return home


def until(condition: Callable[[], bool], within_s: float = 5.0) -> None:
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, "did not come true in time"
        time.sleep(0.02)


def test_a_process_is_named_by_pid_and_start(start: Start) -> None:
    child = start(SLEEP)
    process = process_of(child.pid)
    assert process is not None and process.alive
    assert process_from(process.as_json()) == process
    reused = Process(process.pid, process.ticks - 1, process.boot)
    assert not reused.alive and not reused.send(signal.SIGKILL)
    other_boot = Process(process.pid, process.ticks, "another")
    assert not other_boot.alive and not other_boot.send(signal.SIGKILL)
    assert child.poll() is None


def test_a_zombie_has_ended(start: Start) -> None:
    child = start("pass")
    until(lambda: process_of(child.pid) is None)
    assert child.returncode is None, "nobody has collected it yet"


@pytest.mark.parametrize("text", [None, 3, {}, {"pid": "1", "ticks": 2, "boot": "b"}, {"pid": -1}])
def test_a_file_that_names_no_process(text: object) -> None:
    assert process_from(text) is None


def test_services_keepers_and_jobs_are_told_apart(home: Home, start: Start) -> None:
    work = str(home.agent("us-east") / "attempts/j1-1/work")
    service = start(SLEEP, **{MARK: str(home.root)})
    keeper = start(SLEEP, "-m", "regional_agent.act.keeper", str(home.agent("us-east")))
    job = start(SLEEP, HOME=work, TRADEWIND_ATTEMPT="j1-1")
    strangers = [
        start(SLEEP, HOME="/elsewhere", TRADEWIND_ATTEMPT="j1-1"),
        start(SLEEP, **{MARK: str(home.root) + "2"}),
        start(SLEEP, str(home.root)),
    ]
    until(lambda: len(find(home.root, home.agents).all) == 3)
    found = find(home.root, home.agents)
    assert [p.pid for p in found.services] == [service.pid]
    assert [p.pid for p in found.keepers] == [keeper.pid]
    assert [p.pid for p in found.jobs] == [job.pid]
    sweep(home)
    assert not find(home.root, home.agents).all
    assert all(process.poll() is None for process in strangers)


def test_what_a_job_started_is_of_the_job_whatever_it_did_to_its_environment(
    home: Home, start: Start
) -> None:
    program = (
        "import subprocess, sys;"
        f"subprocess.Popen([sys.executable, '-c', '{SLEEP}'], env={{}}, start_new_session=True);"
        "import time; time.sleep(60)"
    )
    start(program, HOME=str(home.agent("us-east")), TRADEWIND_ATTEMPT="j1-1")
    # Its own HOME is below the agents; the child has no environment at all.
    start(program, HOME=str(home.agent("us-east") / "x"), TRADEWIND_ATTEMPT="j1-2")
    until(lambda: len(find(home.root, home.agents).jobs) == 4)
    sweep(home)
    assert not find(home.root, home.agents).all


def test_one_that_will_not_listen_is_killed(start: Start) -> None:
    deaf = start("import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(60)")
    process = process_of(deaf.pid)
    assert process is not None
    time.sleep(0.3)
    end([process], 0.2)
    assert not process.alive
    assert deaf.wait(5) == -signal.SIGKILL


def test_a_stopped_one_is_ended_too(start: Start) -> None:
    child = start(SLEEP)
    process = process_of(child.pid)
    assert process is not None
    os.kill(child.pid, signal.SIGSTOP)
    end([process], 2.0)
    assert child.wait(5) == -signal.SIGTERM
    kill([process])


def test_taking_down_ends_the_supervisor_first_and_says_what_was_there(
    home: Home, start: Start
) -> None:
    supervisor = start(SLEEP)
    start(SLEEP, **{MARK: str(home.root)})
    until(lambda: len(find(home.root, home.agents).services) == 1)
    write_record(home, Record(process_of(supervisor.pid), "https://127.0.0.1:1", {}))
    home.client.write_text("{}")
    stopped = take_down(home)
    assert stopped.supervised and stopped.services == 1
    assert supervisor.wait(5) == -signal.SIGTERM
    assert read_record(home) is None and not home.client.exists()
    assert not take_down(home), "there is nothing a second time"
