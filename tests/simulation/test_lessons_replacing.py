"""The lessons about lost and returning sites, for jobs that ask to be replaced.

The numbers are those of the catalogue that test_lessons.py names.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.simulation.federations import fault, job, moments, simulate

HOUR = 3600
REPLACED = {"replace": True, "lost_after": "5m"}


def replaced(rule: str = "keep_original", **rest: Any) -> dict[str, Any]:
    return {"on_disconnect": {**REPLACED, "reconcile": rule}, **rest}


@pytest.mark.parametrize(
    ("rule", "story"),
    [
        ("keep_original", "succeeded near:succeeded far:withdrawn"),
        ("keep_replacement", "succeeded near:succeeded far:succeeded"),
        ("longest_running", "succeeded near:succeeded far:withdrawn"),
    ],
)
def test_lesson_13_back_with_a_result_exactly_one_counts_by_the_declared_rule(
    rule: str, story: str
) -> None:
    """It ended unheard before its contact deadline, and another had begun when it was told."""
    result = simulate(
        [job("a", 1, 300, spec=replaced(rule))], [fault("partition", 60, 500, "near")]
    )
    assert result.story == {"a": story}


@pytest.mark.parametrize("rule", ["keep_original", "keep_replacement", "longest_running"])
def test_lesson_13_back_after_hours_what_was_replaced_runs_no_more(rule: str) -> None:
    result = simulate(
        [job("a", 1, 4 * HOUR, spec=replaced(rule))],
        [fault("partition", 600, 2 * HOUR, "near")],
        settle=6 * HOUR,
    )
    assert result.story == {"a": "succeeded near:lost far:succeeded"}
    (stopped_s,), (again_s,) = moments(result, "near ends"), moments(result, "far starts")
    assert stopped_s < again_s


def test_lesson_02_15_a_replaceable_job_survives_what_is_shorter_than_its_patience() -> None:
    """The clock starts at the disconnect, and every contact starts it anew."""
    gaps = [fault("partition", at, 280, "near") for at in (60, 400, 740, 1080)]
    result = simulate([job("a", 1, 1800, spec=replaced())], gaps)
    assert result.story == {"a": "succeeded near:succeeded"}
    assert result.metrics["starts"] == 1


def test_lesson_05_a_new_leader_counts_silence_from_its_election() -> None:
    """Near the end of the silence the leader changes: nothing is replaced the sooner for it."""
    result = simulate(
        [job("a", 1, 4 * HOUR, spec=replaced())],
        [fault("partition", 60, HOUR, "near"), fault("broker_crash", 400, 1)],
        settle=6 * HOUR,
    )
    (placed_s,) = moments(result, "-2 placed at far")
    assert placed_s > 401 + 330 * 1.1
    assert result.story == {"a": "succeeded near:lost far:succeeded"}


def test_lesson_05_an_outage_of_the_brokers_is_no_silence_of_the_sites() -> None:
    """Shorter than the job's patience: afterwards all clocks begin anew, and it runs on."""
    result = simulate(
        [job("a", 1, HOUR, spec=replaced())],
        [fault("broker_crash", 60, 240), fault("store_down", 600, 240)],
        settle=2 * HOUR,
    )
    assert result.story == {"a": "succeeded near:succeeded"}


def test_lesson_14_without_the_wish_nothing_is_ever_stopped() -> None:
    """Beside one that is replaced, on the same site, for hours."""
    result = simulate(
        [job("a", 1, 4 * HOUR), job("b", 1, 4 * HOUR, spec=replaced())],
        [fault("partition", 600, 3 * HOUR, "near")],
        settle=8 * HOUR,
    )
    assert result.story["a"] == "succeeded near:succeeded"
    assert result.story["b"] == "succeeded near:lost far:succeeded"


def test_lesson_16_a_loser_is_stopped_until_its_site_confirms_it() -> None:
    """The replacement lost, and its own site is away just then."""
    result = simulate(
        [job("a", 1, 300, spec=replaced())],
        [fault("partition", 60, 500, "near"), fault("partition", 550, 120, "far")],
    )
    (gone_s,) = moments(result, "far ends", "cancelled")
    assert gone_s > 670
    (told_s,) = moments(result, "-2 ended at far")
    assert told_s >= gone_s


def test_lesson_41_a_cancel_at_a_lost_site_ends_when_it_has_stopped_for_certain() -> None:
    result = simulate(
        [job("a", 1, 4 * HOUR, spec=replaced(), cancel=120)],
        [fault("partition", 60, HOUR, "near")],
        settle=2 * HOUR,
    )
    assert result.metrics["cancelled"] == 1
    (stopped_s,) = moments(result, "near ends")
    assert stopped_s < result.metrics["makespan_s"] < 500


ARRAY = {"array": "0-9%4", "resources": {"accelerators": "H100:1"}}


@pytest.mark.parametrize("rule", ["keep_original", "keep_replacement", "longest_running"])
def test_lesson_13_tasks_of_a_slice_go_elsewhere_once_they_run_no_more(rule: str) -> None:
    """Each task runs to its end once; the checkers see to it that no task runs in two places."""
    result = simulate(
        [job("a", 1, HOUR, spec=replaced(rule, **ARRAY))],
        [fault("partition", 600, 2 * HOUR, "near")],
        settle=8 * HOUR,
    )
    assert result.story["a"].startswith("succeeded near:lost far:succeeded")
    stopped_s = max(moments(result, "near ends"))
    assert stopped_s < min(moments(result, "far starts"))


def test_lesson_13_a_slice_that_had_ended_unheard_counts_task_by_task() -> None:
    """Of ten tasks four are told before the silence, and six end in it before its deadline. Their
    site is back while four of those run again: the other two do not begin again."""
    result = simulate(
        [job("a", 1, 100, spec=replaced(**ARRAY))], [fault("partition", 150, 400, "near")]
    )
    assert result.story == {"a": "succeeded near:succeeded far:succeeded"}
    assert result.metrics["succeeded"] == 1
    assert len(moments(result, "near starts")) == 10
    assert len(moments(result, "far starts")) == 4


def test_lesson_14_an_array_without_the_wish_waits_for_its_site() -> None:
    """In the silence the site ends what it has, and gets the rest when it is back."""
    result = simulate(
        [job("a", 1, HOUR, spec=ARRAY)],
        [fault("partition", 600, 2 * HOUR, "near")],
        settle=8 * HOUR,
    )
    assert result.story == {"a": "succeeded near:succeeded near:succeeded"}
    assert len(moments(result, "near starts")) == 10
