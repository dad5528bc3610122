"""Queues of sites at the broker: offered, accounted for, left for a gain."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from broker.decide.admission.leaving import Margin, Waits, departures
from broker.decide.decision import decide
from broker.lifecycle import events as ev
from broker.lifecycle.machine import step
from broker.model.fleet import Capacity, NodeGroup, PoolCapacity
from broker.model.jobs import Attempt, AttemptPhase, Desired, Job, Outcome, OutcomeKind, Terms
from broker.model.plan import Part
from broker.sense.accounting import free_pools
from broker.sense.site_queues import joined_queue, left_s
from broker.state.codec import decode_attempt, encode_attempt
from federation.local_queue import LocalQueue
from tests.unit.decide.constraints.judging import problem_of, two_clusters
from tests.unit.decide.problems import a_job as problem_job
from tests.unit.decide.problems import a_pool
from tests.unit.lifecycle.builders import a_job, an_attempt

GIB = 1 << 30
STOP = {"unless_started": True, "moves_to": "b/h100"}


def in_queue(**changes: Any) -> tuple[Job, Attempt]:
    """A job whose attempt waits in its site's queue."""
    job = a_job()
    attempt = an_attempt(job, queued=True, placed_ms=1000, **changes)
    placed = step(job, ev.AttemptPlaced(attempt), Terms(), 1000).job
    return placed, placed.attempts[0]


def withdrawn(job: Job, attempt: Attempt) -> Job:
    event = ev.StopDecided(attempt.uid, OutcomeKind.WITHDRAWN, "left for b/h100", **STOP)
    return step(job, event, Terms(), 2000).job


def test_a_record_keeps_that_it_waits_and_where_it_goes() -> None:
    _, attempt = in_queue(stop_unless_started=True, moves_to="b/h100")
    attempt = replace(attempt, parts=(Part("h100", "r1", 1), Part("h200", "", 2)))
    assert decode_attempt("k", encode_attempt(attempt)) == attempt


def test_taken_back_it_returns_to_the_queue_and_may_come_again() -> None:
    job, attempt = in_queue()
    leaving = withdrawn(job, attempt)
    (told,) = leaving.attempts
    assert (told.desired, told.stop_unless_started) == (Desired.STOP, True) and told.lagging
    outcome = Outcome(OutcomeKind.CANCELLED)
    gone = step(leaving, ev.Ended(attempt.uid, 5, 3000, outcome), Terms(), 3000).job
    assert gone.reason_code == "withdrawn" and gone.avoid == () and not gone.counting_attempts
    assert gone.attempts[0].outcome is not None
    assert gone.attempts[0].outcome.kind is OutcomeKind.WITHDRAWN


def test_what_began_before_the_stop_reached_it_stays() -> None:
    job, attempt = in_queue()
    leaving = withdrawn(job, attempt)
    runs = step(leaving, ev.Started(attempt.uid, 5, 2500, 10, "17"), Terms(), 2600).job
    (kept,) = runs.attempts
    assert kept.phase is AttemptPhase.RUNNING and kept.desired is Desired.RUN
    assert (kept.stop_why, kept.moves_to, kept.stop_unless_started) == (None, "", False)
    again = step(runs, ev.StopDecided(attempt.uid, OutcomeKind.WITHDRAWN, "", True), Terms(), 9)
    assert again.ignored


def test_a_cancel_is_for_what_has_begun_too() -> None:
    job, attempt = in_queue()
    both = step(withdrawn(job, attempt), ev.CancelAsked("ann"), Terms(), 2100).job
    (told,) = both.attempts
    assert told.stop_why is OutcomeKind.CANCELLED and not told.stop_unless_started
    late = step(both, ev.Started(attempt.uid, 5, 2500, 10, "17"), Terms(), 2600).job
    assert late.attempts[0].desired is Desired.STOP


@pytest.mark.parametrize(
    ("changes", "free"),
    [
        ({}, 8),  # it waits: nothing is taken
        ({"started_ms": 5, "phase": AttemptPhase.RUNNING, "event_seq": 21}, 7),
        ({"started_ms": 5, "phase": AttemptPhase.RUNNING, "event_seq": 20}, 8),
        ({"phase": AttemptPhase.ENDED, "event_seq": 21, "reserved_ms": 1}, 8),  # never began
        ({"phase": AttemptPhase.ENDED, "event_seq": 21, "started_ms": 5}, 9),
    ],
)
def test_who_waits_takes_nothing_until_it_starts(changes: dict[str, Any], free: int) -> None:
    node = NodeGroup(2, "H100", 8, 4, 64_000, 32_000, 64 * GIB, 32 * GIB)
    capacity = Capacity(1, 1, 1, 10, 20, (PoolCapacity("cpu", (node,)),))
    attempt = an_attempt(a_job(), queued=True, dispatch_seq=9, placed_seq=9, **changes)
    (now,) = free_pools(capacity, [attempt])
    assert sum(g.count * g.free for g in now.groups) == free


def test_a_queue_of_which_nobody_knows_how_long_it_takes_is_none() -> None:
    assert joined_queue(None, 4, 2.0) is None
    assert joined_queue(LocalQueue(), 4, 2.0) is None
    assert joined_queue(LocalQueue(start_p50_ms=0), 4, 2.0) is None
    found = joined_queue(LocalQueue(start_p50_ms=90_000), 4, 2.0)
    assert found is not None and (found.start_s, found.max_pending) == (90, 4)
    assert found.waiting_usd_per_accelerator_h == 2.0
    free = joined_queue(LocalQueue(start_p50_ms=90_000, pending_max=1), -1, 0.0)
    assert free is not None and free.max_pending == 0 and free.waiting_usd_per_accelerator_h > 0


def test_what_is_left_of_a_wait_shrinks_and_a_wait_that_slides_is_not_believed() -> None:
    """Guards lesson 52: local estimates slide for days."""
    _, attempt = in_queue(expected_start_delay_ms=600_000, expected_start_p90_ms=900_000)
    said = LocalQueue(start_p50_ms=700_000)
    assert left_s(attempt, said, 1_000) == 600
    assert left_s(attempt, said, 401_000) == 200
    assert left_s(attempt, said, 701_000) == 200  # nine of ten have begun by then
    assert left_s(attempt, said, 1_001_000) == 700  # nobody knows: as one that joins now
    assert left_s(attempt, LocalQueue(start_p50_ms=60_000), 401_000) == 60


@pytest.mark.parametrize(
    ("left", "dearer", "leaves"),
    [(1800, 1.05, True), (1800, 1.0, True), (59, 1.0, False), (1800, 1.5, False)],
)
def test_a_queue_is_left_for_a_gain_above_the_margin_and_no_other(
    left: float, dearer: float, leaves: bool
) -> None:
    problem = problem_of(
        clusters=two_clusters(),
        pools=[
            a_pool(
                free_nodes={"8": 0},
                queue={"start_s": left, "max_pending": 2, "waiting_usd_per_accelerator_h": 1},
            ),
            a_pool("p1", cluster="c1", price_usd_per_accelerator_hour=dearer),
        ],
        jobs=[problem_job(max_queue_s=0)],
    )
    waits = {"j0": Waits("j0-1", problem.jobs[0], "p0", left)}
    found = departures(problem, decide(problem), waits, Margin())
    assert bool(found) is leaves
    if found:
        assert found[0].to == "p1" and "saves" in found[0].text
