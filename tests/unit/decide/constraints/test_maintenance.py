"""Maintenance windows against what a copy may run at most."""

from __future__ import annotations

import pytest

from tests.unit.decide.constraints.judging import (
    change_for,
    options_of,
    problem_of,
    reason_for,
    violations_of,
)
from tests.unit.decide.problems import Document, a_job, a_pool

FROM_12_TO_14 = [{"from_h": 12, "to_h": 14}]


@pytest.mark.parametrize(
    ("job", "allowed"),
    [
        ({"runtime_h": 11.9}, True),
        ({"runtime_h": 12.1}, False),
        ({"runtime_h": 1, "max_runtime_h": 48}, False),
        ({"runtime_h": 24, "accelerators": {"H100": 2}}, False),
        ({"runtime_h": 20, "accelerators": {"H100": 2}}, True),
    ],
)
def test_what_a_copy_may_run_at_most_ends_before_the_window(
    job: Document, *, allowed: bool
) -> None:
    """The cold start of six minutes counts; so does the limit, not only what is expected."""
    problem = problem_of(
        clusters=[{"name": "c0", "region": "east", "cold_start_s": {"*": 360}}],
        pools=[a_pool(maintenance=FROM_12_TO_14)],
        jobs=[a_job(**job)],
    )
    assert (options_of(problem) == {("j0", "p0")}) is allowed
    assert ("maintenance" not in violations_of(problem)) is allowed


def test_a_shorter_limit_is_advised_where_it_leaves_time_for_the_run() -> None:
    pool = a_pool(maintenance=FROM_12_TO_14)
    problem = problem_of(pools=[pool], jobs=[a_job(runtime_h=3, max_runtime_h=48)])
    reason = reason_for(problem)
    assert reason is not None
    assert reason.text.endswith(
        "needs until 2d from now, has maintenance from 12h to 14h; max_runtime_h 12"
    )
    assert change_for(problem) == "max_runtime_h 48 -> 12"
    too_long = problem_of(pools=[pool], jobs=[a_job(runtime_h=13)])
    assert change_for(too_long) == "wait 14h until the maintenance of p0 is over"


def test_a_copy_may_wait_in_the_queue_until_it_is_over() -> None:
    now = [{"from_h": 0, "to_h": 2}]
    for start_s, places in ((7200, {("j0", "queue of p0")}), (7100, set())):
        pool = a_pool(maintenance=now, queue={"start_s": start_s, "max_pending": 1})
        assert options_of(problem_of(pools=[pool])) == places
