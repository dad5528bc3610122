"""What the collector sees of a real Grid Engine cell of two hosts."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator

import pytest

from regional_agent.gridengine.client import GridEngineClient, GridEngineSilent
from regional_agent.gridengine.site import GridEngineSite
from regional_agent.sense.gridengine import GridEngineLook, GridEngineSense
from tests.schedulers.gridengine_cluster import SLOTS, GridEngine
from tests.schedulers.slurm_cluster import until

POOL = "main-q-l40s"
SLEEP = ("qsub", "-terse", "-b", "y", "-j", "y", "-o", "/dev/null", "-wd", "/tmp")


@pytest.fixture(autouse=True)
def nothing_left(cell: GridEngine) -> Iterator[None]:
    yield
    cell.run("qdel", "-f", "-u", "root", ok=False)
    until(lambda: not cell.run("qstat", "-u", "*"), "an empty queue")


def site(cell: GridEngine) -> GridEngineSite:
    return GridEngineSite(cell.env, accelerator="L40S", prefix=cell.inside, owner="root")


def look(cell: GridEngine, *ours: str) -> GridEngineLook:
    return asyncio.run(GridEngineSense(site(cell), GridEngineClient(site(cell))).look(ours))


def submit(cell: GridEngine, *words: str) -> str:
    return cell.run(*SLEEP, *words, "/bin/sleep", "300")


def running(cell: GridEngine) -> int:
    return cell.run("qstat", "-u", "*", "-s", "r").count(" r ")


def test_an_empty_site(cell: GridEngine) -> None:
    found = look(cell)
    (pool,) = found.seen.pools
    assert (pool.name, pool.nodes, pool.accelerators_per_node) == (POOL, 2, 8)
    assert pool.cpus_milli == SLOTS * 1000 and pool.memory_bytes > 2**30
    assert all(n.takes_jobs and not n.accelerators_used for n in found.seen.nodes[POOL])
    assert found.seen.queues[POOL].start_p50_ms == 0
    assert found.seen.max_array == 75_000 and found.seen.cards_bounds == ()
    assert [e.name for e in found.sources[POOL].environments] == ["smp", "mpi", "two"]


def test_jobs_of_others_are_local_load_and_those_that_wait_are_in_front(cell: GridEngine) -> None:
    submit(cell, "-l", "gpu=5")
    until(lambda: running(cell) == 1, "it runs")
    submit(cell, "-l", "gpu=9")
    submit(cell, "-h", "-l", "gpu=1")
    found = look(cell)
    used = sorted(node.accelerators_used for node in found.seen.nodes[POOL])
    assert used == [0, 5]
    queue = found.seen.queues[POOL]
    assert (queue.waiting, queue.waiting_accelerators, queue.start_p50_ms) == (1, 9, None)
    assert (found.seen.others_running, found.seen.others_waiting) == (1, 2)


def test_ours_are_where_they_run(cell: GridEngine) -> None:
    submit(cell, "-N", "tradewind.j0123456789abcdef-1.0", "-pe", "mpi", str(SLOTS + 6))
    until(lambda: running(cell) == 1, "it runs")
    seen = look(cell, "j0123456789abcdef-1").seen
    (sits,) = seen.running["j0123456789abcdef-1"]
    assert len(sits) == SLOTS + 6 and {index for _, index in sits} == {0, 1}
    assert len(set(sits[:6])) == 1  # its script's host comes first
    assert (seen.others_running, seen.others_waiting) == (0, 0)


def test_lesson_25_hosts_that_are_disabled_or_gone_take_nothing_new(cell: GridEngine) -> None:
    hosts = sorted(cell.hosts)
    for how, state in (("-d", False), ("-e", True)):
        cell.run("qmod", how, f"main.q@{hosts[1]}")
        takes = [node.takes_jobs for node in look(cell).seen.nodes[POOL]]
        assert takes == [True, state]


@contextlib.contextmanager
def quotas(cell: GridEngine, *limits: str) -> Iterator[None]:
    """A set of rules, as long as it lasts."""
    rules = cell.scratch / "quota"
    lines = "".join(f" limit {limit}\n" for limit in limits)
    rules.write_text(f"{{\n name few\n description NONE\n enabled TRUE\n{lines}}}\n")
    cell.run("qconf", "-Arqs", str(rules))
    try:
        yield
    finally:
        cell.run("qconf", "-drqs", "few")


def test_a_quota_on_cards_bounds_what_we_may_hold(cell: GridEngine) -> None:
    with quotas(cell, "users {*} to gpu=3"):
        assert look(cell).seen.cards_bounds == ((frozenset({POOL}), 3),)


def test_what_others_use_of_a_quota_is_not_left_for_us(cell: GridEngine) -> None:
    with quotas(cell, "users * queues main.q to gpu=6"):
        submit(cell, "-l", "gpu=2")
        submit(cell, "-N", "tradewind.j0123456789abcdef-1.0", "-l", "gpu=1")
        until(lambda: running(cell) == 2, "both run")
        until(
            lambda: look(cell, "j0123456789abcdef-1").seen.cards_bounds
            == ((frozenset({POOL}), 4),),
            "of six two are used by others",
        )


def test_a_list_of_users_in_a_quota_is_read(cell: GridEngine) -> None:
    cell.run("qconf", "-au", "root", "team")
    try:
        with quotas(cell, "users @team to gpu=2", "users * to gpu=5"):
            assert look(cell).seen.cards_bounds == ((frozenset({POOL}), 2),)
            cell.run("qconf", "-du", "root", "team")
            cell.run("qconf", "-au", "nobody", "team")
            assert look(cell).seen.cards_bounds == ((frozenset({POOL}), 5),)
    finally:
        cell.run("qconf", "-du", "nobody", "team", ok=False)
        cell.run("qconf", "-dul", "team", ok=False)


def test_slots_of_an_advance_reservation_are_as_good_as_used(cell: GridEngine) -> None:
    said = cell.run("qrsub", "-d", "600", "-pe", "mpi", "10", "-q", "main.q")
    number = next(word for word in said.split() if word.isdigit())
    try:
        until(
            lambda: sum(n.cpus_used_milli for n in look(cell).seen.nodes[POOL]) == 10_000,
            "the reservation is seen",
        )
    finally:
        cell.run("qrdel", number)


def test_a_master_that_does_not_answer_is_silence(cell: GridEngine) -> None:
    nowhere = GridEngineSite({**cell.env, "SGE_ROOT": str(cell.scratch / "nothing")},
                             prefix=cell.inside)  # fmt: skip
    with pytest.raises(GridEngineSilent):
        asyncio.run(GridEngineSense(nowhere, GridEngineClient(nowhere)).look(()))
