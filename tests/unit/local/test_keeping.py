"""Keeping a process running, choosing etcd, choosing ports."""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.local.etcd_binary import EtcdBinary, NoEtcd, find_etcd
from broker.local.keeping import (
    FIRST_PAUSE_S,
    LONGEST_PAUSE_S,
    STEADY_S,
    Kept,
    Service,
    environment,
    tail,
)
from broker.local.layout import Home
from broker.local.ports import PortTaken, check_free, choose
from broker.local.processes import MARK


def service(folder: Path, program: str) -> Service:
    argv = (sys.executable, "-S", "-c", program)
    return Service("it", argv, environment(folder, {"PATH": os.environ["PATH"]}), folder / "it.log")


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[Kept]:
    kept = Kept(service(tmp_path, "import time; print('here', flush=True); time.sleep(60)"))
    yield kept
    if kept.process is not None:
        kept.process.send(signal.SIGKILL)


def ended(kept: Kept) -> None:
    deadline = time.monotonic() + 5
    while kept.alive:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_it_is_started_again_after_a_pause_that_grows(kept: Kept) -> None:
    now_s, pause_s = 100.0, FIRST_PAUSE_S
    kept.start(now_s)
    for _ in range(3):
        assert kept.process is not None
        kept.process.send(signal.SIGKILL)
        ended(kept)
        assert f"killed by SIGKILL); starting it again in {pause_s:g} s" in kept.look(now_s)
        assert kept.look(now_s + pause_s - 0.01) == "" and not kept.alive
        now_s += pause_s
        assert kept.look(now_s) == "it started again" and kept.alive
        pause_s *= 2
    assert kept.starts == 4 and pause_s < LONGEST_PAUSE_S


def test_one_that_lived_long_is_forgiven(kept: Kept) -> None:
    kept.start(0.0)
    for begun_s in (0.0, 1000.0):
        assert kept.process is not None
        kept.process.send(signal.SIGKILL)
        ended(kept)
        assert f"in {FIRST_PAUSE_S:g} s" in kept.look(begun_s + STEADY_S)
        kept.look(1000.0)


def test_one_that_is_not_wanted_stays_away(kept: Kept) -> None:
    kept.start(0.0)
    kept.wanted = False
    assert kept.process is not None
    kept.process.send(signal.SIGKILL)
    ended(kept)
    assert kept.look(1.0) == kept.look(1e6) == "" and kept.starts == 1


def test_one_that_another_started_is_kept_too(kept: Kept) -> None:
    kept.start(0.0)
    process = kept.process
    assert process is not None
    second = Kept(kept.service)
    second.adopt(process, 5.0)
    assert second.alive and second.look(6.0) == "" and second.starts == 0
    process.send(signal.SIGKILL)
    ended(kept)
    ended(second)
    assert "nobody saw how" in second.look(7.0)


def test_what_cannot_be_started_is_said_and_tried_again(tmp_path: Path) -> None:
    missing = Kept(Service("gone", ("/nonexistent",), {}, tmp_path / "log"))
    with pytest.raises(OSError):
        missing.start(0.0)
    missing.look(0.0)
    assert "gone cannot be started" in missing.look(10.0)
    assert missing.look(10.1) == ""


def test_its_output_is_in_a_log_of_its_own(kept: Kept) -> None:
    kept.start(0.0)
    deadline = time.monotonic() + 5
    while tail(kept.service.log) != "here":
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert kept.service.log.stat().st_mode & 0o777 == 0o600
    assert tail(kept.service.log.with_name("none")) == ""


def test_services_get_little_of_the_users_environment(tmp_path: Path) -> None:
    given = environment(
        tmp_path,
        {"PATH": "/bin", "AWS_SECRET_ACCESS_KEY": "x", "TRADEWIND_BROKER_NAME": "y", "TZ": "UTC"},
    )
    assert set(given) == {"PATH", "TZ", MARK, "PYTHONUNBUFFERED"}
    assert given["PATH"].startswith("/bin:") and given[MARK] == str(tmp_path)


# etcd ---------------------------------------------------------------------------------------------


def test_a_wrapper_script_is_no_etcd(tmp_path: Path) -> None:
    wrapper = tmp_path / "etcd"
    wrapper.write_text("#!/bin/sh\necho etcd Version: 3.4.9\n")
    wrapper.chmod(0o755)
    try:
        found = find_etcd([str(tmp_path)])
    except NoEtcd as error:
        assert "apt-get install etcd-server" in str(error)
    else:
        assert found.origin == "wheel" and found.path != wrapper


@pytest.mark.parametrize(
    ("version", "warned"),
    [((3, 4, 23), False), ((3, 5, 1), True), ((3, 5, 3), False), ((3, 6, 0), False)],
)
def test_an_etcd_that_may_lose_data_is_warned_of(
    version: tuple[int, int, int], warned: bool
) -> None:
    warning = EtcdBinary(Path("/x"), "wheel", version).warning
    assert bool(warning) is warned
    assert not warned or "may lose data after a crash" in warning


# Ports --------------------------------------------------------------------------------------------


def test_ports_are_chosen_once_and_grow_with_the_regions(tmp_path: Path) -> None:
    home = Home(tmp_path)
    first = choose(home, ("a",))
    assert choose(home, ("a",)) == first
    both = choose(home, ("a", "b"))
    assert (both.etcd, both.api, both.responders["a"]) == (
        first.etcd, first.api, first.responders["a"],
    )  # fmt: skip
    numbers = {both.etcd, both.etcd_peer, both.api, both.session, *both.responders.values()}
    assert len(numbers) == 6
    assert choose(home, ("a",)) == both, "one that is away keeps its port"


def test_a_damaged_file_of_ports_is_made_anew(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.setup.write_text('{"etcd": "x"}')
    assert choose(home, ()).etcd > 0


def test_a_port_that_is_taken_is_named(tmp_path: Path) -> None:
    ports = choose(Home(tmp_path), ())
    check_free(ports)
    with (
        socket.create_server(("127.0.0.1", ports.api)),
        pytest.raises(PortTaken, match=f"port {ports.api} of 127.0.0.1"),
    ):
        check_free(ports)
