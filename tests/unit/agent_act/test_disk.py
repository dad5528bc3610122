"""New attempts are made safe together, and none of them is one before it is."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from federation.runs import Runs
from regional_agent.act.keeper.disk import THREADS, Disk
from regional_agent.act.keeper.held import Held, pick_up, take_on
from regional_agent.act.keeper.layout import attempts_dir
from regional_agent.act.keeper.orders import Order


def order(uid: str) -> Order:
    return Order(
        uid, "job", "t", (), "echo hello", (), "", 0, 0, 0, 5, 1, Runs(((0, 0),)), 1, ()
    )  # fmt: skip


@pytest.fixture
def state(tmp_path: Path) -> Path:
    attempts_dir(tmp_path).mkdir()
    return tmp_path


def begun(state: Path, disk: Disk, *uids: str) -> list[Held]:
    helds = [take_on(state, order(uid), 1) for uid in uids]
    for held in helds:
        disk.take_in(held)
    return helds


def test_an_order_is_no_attempt_before_all_of_it_is_safe(state: Path) -> None:
    disk = Disk(state)
    begun(state, disk, "a-1", "b-1")
    assert pick_up(state, "a-1", 2) is None
    assert disk.keep_names()
    for uid in ("a-1", "b-1"):
        found = pick_up(state, uid, 2)
        assert found is not None and not found.damaged
        assert found.place.script.read_text() == "echo hello"
    assert not disk.keep_names()


def test_what_a_disk_refused_is_written_anew(state: Path) -> None:
    """After a failed sync the kernel may have dropped what it had."""
    disk = Disk(state)
    (held,) = begun(state, disk, "a-1")
    held.place.script.unlink()
    with pytest.raises(OSError, match="No such file"):
        disk.keep_names()
    assert pick_up(state, "a-1", 2) is None
    assert disk.keep_names()
    assert held.place.script.read_text() == "echo hello"


def test_half_named_is_named_by_the_next_try(state: Path) -> None:
    disk = Disk(state)
    first, second = begun(state, disk, "a-1", "b-1")
    os.rename(second.place.root, state / "away")
    with pytest.raises(OSError, match="No such file"):
        disk.keep_names()
    os.rename(state / "away", second.place.root)
    assert disk.keep_names()
    assert pick_up(state, first.uid, 2) and pick_up(state, second.uid, 2)


def test_one_forgotten_at_once_is_not_waited_for(state: Path) -> None:
    disk = Disk(state)
    held, _ = begun(state, disk, "a-1", "b-1")
    os.rename(held.place.root, state / "trash")
    disk.forgotten("a-1")
    assert disk.keep_names()


def test_a_batch_waits_for_the_disk_together() -> None:
    """As many at once as there are threads: each of these returns only when all have begun."""
    together = threading.Barrier(THREADS)
    Disk(Path()).each(lambda: (together.wait(5), None)[1] for _ in range(THREADS))


def test_everything_is_tried_before_a_fault_is_told() -> None:
    done: list[int] = []

    def work(number: int) -> None:
        if number == 1:
            raise OSError("no")
        done.append(number)

    with pytest.raises(OSError, match="no"):
        Disk(Path()).each(lambda n=n: work(n) for n in range(6))
    assert sorted(done) == [0, 2, 3, 4, 5]
