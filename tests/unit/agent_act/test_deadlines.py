"""Contact on record for the nodes, and what did not survive the silence before it."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from federation.runs import Runs
from federation.system import SystemClock
from regional_agent.act.keeper.layout import AttemptDir
from regional_agent.act.schedulers.batch.attempt import Attempt, create, restore
from regional_agent.act.schedulers.batch.deadlines import Deadlines
from regional_agent.act.schedulers.batch.parts import Part
from regional_agent.act.schedulers.port import LaunchOrder, Outcome, OutcomeKind
from regional_agent.contact import since_boot_s

AFTER_S = 100
TASKS = Runs(((0, 3),))


def attempt(state: Path, contact_s: float = float("-inf"), after_s: int = AFTER_S) -> Attempt:
    """A slice that waits, of which task 0 has begun."""
    order = LaunchOrder("j1-1", "j1", "lab", argv=("true",), tasks=TASKS, width=1,
                        fence_after_s=after_s, grace_s=7, contact_s=contact_s)  # fmt: skip
    made = create(AttemptDir(state, order.uid), order, 1)
    made.parts = [Part(0, TASKS, False, 1, 0, "17", 1)]
    (made.place.root / "claims" / "0").write_text("run 17\n")
    made.scan()
    return made


def deadlines(state: Path) -> tuple[Deadlines, list[Attempt]]:
    told: list[Attempt] = []
    return Deadlines(state, SystemClock(), told.append), told


def on_record_s(state: Path) -> float:
    """How long ago there was contact, as a node finds it."""
    return time.time() - (state / "contact").stat().st_mtime


async def test_a_new_attempt_comes_with_the_contact_it_was_ordered_in(tmp_path: Path) -> None:
    kept, told = deadlines(tmp_path)
    made = attempt(tmp_path, since_boot_s() - 40)
    await kept.look([made], made.order.contact_s)
    assert made.cancel is None and not told
    assert on_record_s(tmp_path) == pytest.approx(40, abs=5)


async def test_contact_that_is_older_than_what_is_known_is_no_news(tmp_path: Path) -> None:
    kept, _ = deadlines(tmp_path)
    made = attempt(tmp_path, since_boot_s() - 10)
    await kept.look([made], made.order.contact_s)
    await kept.look([made], since_boot_s() - 60)
    assert on_record_s(tmp_path) == pytest.approx(10, abs=5)


async def test_what_is_overdue_is_barred_before_contact_is_on_record(tmp_path: Path) -> None:
    """Also by an agent that has just started: what it knows of contact is the file."""
    made = attempt(tmp_path)
    path = tmp_path / "contact"
    path.touch()
    os.utime(path, (time.time() - AFTER_S - 5, time.time() - AFTER_S - 5))
    kept, told = deadlines(tmp_path)
    await kept.look([made], since_boot_s())
    assert told == [made] and made.fenced and made.cancel is not None and made.cancel[0] == 7
    claims = made.place.root / "claims"
    assert [(claims / str(task)).read_text().split()[0] for task in TASKS] == [
        "run", "dropped", "dropped", "dropped",
    ]  # fmt: skip
    assert (made.place.root / "fenced").stat().st_mtime_ns <= path.stat().st_ctime_ns
    assert on_record_s(tmp_path) < 5
    again = restore(made.place)
    assert again is not None and again.fenced and again.called_off.kind is OutcomeKind.FENCED


async def test_what_a_script_found_overdue_is_over_for_all_of_it(tmp_path: Path) -> None:
    made = attempt(tmp_path, since_boot_s())
    (made.place.root / "fenced").touch()
    kept, told = deadlines(tmp_path)
    await kept.look([made], since_boot_s())
    assert told == [made] and made.gravest() == Outcome(OutcomeKind.FENCED)


async def test_without_deadlines_nothing_is_written(tmp_path: Path) -> None:
    kept, told = deadlines(tmp_path)
    await kept.look([attempt(tmp_path, after_s=0)], since_boot_s())
    assert not told and not (tmp_path / "contact").exists()
