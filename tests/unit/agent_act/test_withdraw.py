"""Taking back what waits in a batch system: whoever has the claim first decides, once for all."""

from __future__ import annotations

from pathlib import Path

import pytest

from federation.runs import Runs
from regional_agent.act.keeper.layout import AttemptDir
from regional_agent.act.schedulers.batch import shelf
from regional_agent.act.schedulers.batch.attempt import Attempt, create
from regional_agent.act.schedulers.batch.parts import Part
from regional_agent.act.schedulers.port import LaunchOrder

ONE = Runs.of([(0, 0)])


@pytest.fixture
def waiting(tmp_path: Path) -> Attempt:
    """A job that was handed over and has not begun."""
    order = LaunchOrder("j1-1", "j1", "lab", argv=("true",), queued=True)
    attempt = create(AttemptDir(tmp_path, order.uid), order, 1)
    attempt.parts = [Part(0, ONE, "", 1, 0, "17", 1)]
    return attempt


def claim(attempt: Attempt) -> Path:
    return attempt.place.root / "claims" / "0"


def test_what_waits_is_taken_back_and_no_script_can_begin_it(waiting: Attempt) -> None:
    assert shelf.take_back(waiting)
    with pytest.raises(FileExistsError):
        claim(waiting).open("x")


def test_what_a_script_has_begun_is_not(waiting: Attempt) -> None:
    claim(waiting).write_text("run 17 1000\n")
    assert not shelf.take_back(waiting)


def test_a_claim_whose_content_is_on_its_way_counts_as_begun(waiting: Attempt) -> None:
    claim(waiting).touch()
    assert not shelf.take_back(waiting)


def test_asked_again_after_a_crash_in_between_it_says_the_same(waiting: Attempt) -> None:
    assert shelf.take_back(waiting) and shelf.take_back(waiting)
    waiting.wrote_cancel(0, 5)
    assert shelf.take_back(waiting)


TASKS = Runs.of([(0, 3)])


@pytest.fixture
def slice_waiting(tmp_path: Path) -> Attempt:
    """Four tasks of an array that were handed over; none has begun."""
    order = LaunchOrder("j2-1", "j2", "lab", argv=("true",), tasks=TASKS, width=2, queued=True)
    attempt = create(AttemptDir(tmp_path, order.uid), order, 1)
    attempt.parts = [Part(0, TASKS, "", 2, 0, "18", 1)]
    return attempt


def test_tasks_claimed_before_a_crash_are_claimed_after_it(slice_waiting: Attempt) -> None:
    """The crash came after the claims and before anything of them was written down."""
    (part,) = slice_waiting.parts
    assert shelf.take_claims(slice_waiting, part, Runs.of([(0, 1)])).count == 2
    assert shelf.take_claims(slice_waiting, part, TASKS) == TASKS


def test_a_task_that_a_script_has_begun_is_not_claimed(slice_waiting: Attempt) -> None:
    (part,) = slice_waiting.parts
    begun = slice_waiting.place.root / "claims" / "2"
    begun.write_text("run 18 1000\n")
    assert shelf.take_claims(slice_waiting, part, TASKS) == TASKS.difference(Runs.of([(2, 2)]))
    assert begun.read_text().startswith("run")
