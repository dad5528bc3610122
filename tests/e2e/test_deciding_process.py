"""The process that decides is killed, then hangs, in a running federation: jobs still get places,
operators are told, and the next decision has a new process."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.local_federation import Laptop, until
from tests.etcd_server import require_binary

FLOOR_WITHIN_S = 90.0


@pytest.fixture(scope="module")
def laptop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Laptop]:
    """A federation of two regions."""
    require_binary()
    laptop = Laptop(tmp_path_factory.mktemp("laptop") / "up")
    laptop.ok("up", "--detach", "--regions", "us-east,eu-west")
    yield laptop
    laptop.clean_up()


def deciding(laptop: Laptop) -> list[int]:
    """The deciding processes of the federation."""
    return [
        process.pid
        for process in laptop.processes.services
        if b"broker.control.decider_worker" in Path(f"/proc/{process.pid}/cmdline").read_bytes()
    ]


def ran(laptop: Laptop) -> bool:
    job = laptop.submit("--", "true")
    return laptop.run("wait", job, within_s=FLOOR_WITHIN_S).code == 0


def alarms(laptop: Laptop) -> str:
    return "\n".join(laptop.ok("status", "--json").json["notes"])


def test_a_killed_process_leaves_the_floor_and_an_alarm(laptop: Laptop) -> None:
    assert ran(laptop)
    (first,) = deciding(laptop)
    os.kill(first, signal.SIGKILL)
    until(lambda: first not in deciding(laptop), 10, "it is gone")
    assert ran(laptop)
    assert "the deciding process failed: the process ended" in alarms(laptop)
    assert "the floor is in force" in alarms(laptop)
    assert ran(laptop)
    (second,) = deciding(laptop)
    assert second != first


def test_one_that_hangs_does_too(laptop: Laptop) -> None:
    assert ran(laptop)
    (first,) = deciding(laptop)
    os.kill(first, signal.SIGSTOP)
    assert ran(laptop)
    assert "the deciding process failed: no answer within" in alarms(laptop)
    assert first not in deciding(laptop)
    assert ran(laptop)
    assert len(deciding(laptop)) == 1


def test_nothing_is_left_of_it(laptop: Laptop) -> None:
    (process,) = deciding(laptop)
    laptop.ok("down")
    assert not Path(f"/proc/{process}").exists()
