"""Free figures: deducted once, given back once, and only what was ever taken."""

from __future__ import annotations

from typing import Any

import pytest

from broker.model.fleet import Capacity, NodeGroup, PoolCapacity
from broker.model.jobs import Attempt, AttemptPhase, Outcome, OutcomeKind
from broker.sense.accounting import free_pools
from tests.unit.lifecycle.builders import a_job, an_attempt

GIB = 1 << 30


def free(attempts: list[Attempt], *, dispatch: int = 10, event: int = 20) -> int:
    """Free cards after a report of two nodes of 8, 4 free each, that reflects so much."""
    node = NodeGroup(2, "H100", 8, 4, 64_000, 32_000, 64 * GIB, 32 * GIB)
    pool = PoolCapacity("cpu", (node,))
    capacity = Capacity(1, 1, 1, dispatch, event, (pool,))
    (now,) = free_pools(capacity, attempts)
    assert all(0 <= g.free <= g.total for g in now.groups)
    assert sum(g.count for g in now.groups) == 2
    return sum(g.count * g.free for g in now.groups)


def at(seq: int, **changes: Any) -> Attempt:
    values = {"dispatch_seq": seq, "placed_seq": seq, "reserved_ms": 1, **changes}
    return an_attempt(a_job(), **values)


def over(seq: int, event_seq: int, **changes: Any) -> Attempt:
    return at(
        seq,
        phase=AttemptPhase.ENDED,
        outcome=Outcome(OutcomeKind.SUCCEEDED),
        event_seq=event_seq,
        **changes,
    )


@pytest.mark.parametrize(
    ("attempt", "expected"),
    [
        (at(10), 8),  # in the report
        (at(11), 7),  # placed after it
        (at(11, width=3), 5),
        (over(10, 20), 8),  # taken and given back within the report
        (over(10, 21), 9),  # taken within, ended after
        (over(11, 21), 8),  # placed and ended after it
        (over(10, 21, reserved_ms=0), 8),  # refused: never taken
        (over(10, 21, reserved_ms=0, started_ms=5), 9),  # its acceptance was told by its start
        (at(11, dispatch_seq=12, placed_seq=9), 8),  # a slice that grew keeps its first number
        (at(11, pool="elsewhere"), 8),
        (at(11, accelerators_per_replica=5), 0),  # fits nowhere: promise nothing
    ],
)
def test_one_attempt_against_one_report(attempt: Attempt, expected: int) -> None:
    assert free([attempt]) == expected


def test_nothing_is_given_back_beyond_what_a_node_has() -> None:
    assert free([over(10, 21, width=100)]) == 16


def test_cpus_and_memory_bind_as_well() -> None:
    assert free([at(11, cpus_milli_per_replica=20_000)]) == 7
    assert free([at(11, cpus_milli_per_replica=20_000, width=3)]) == 0
    assert free([at(11, memory_bytes_per_replica=33 * GIB)]) == 0


def waiting(seq: int, **changes: Any) -> Attempt:
    return at(seq, queued=True, reserved_ms=0, **changes)


def test_what_came_free_since_goes_to_who_waits_at_the_site_before_others() -> None:
    """The site gives it to them by itself: promised to others as well it would be refused."""
    ends = [over(n, 20 + n) for n in (1, 2, 3)]
    assert free(ends) == 11
    assert free([*ends, waiting(4), waiting(11)]) == 9
    assert free([*ends, *(waiting(n) for n in range(4, 11))]) == 8
    assert free([waiting(4)]) == 8, "what the report says is free they have been offered"
    begun = at(4, queued=True, started_ms=9, phase=AttemptPhase.RUNNING, event_seq=25)
    assert free([*ends, begun, waiting(5), waiting(6), waiting(7)]) == 8
    assert free([over(1, 21), waiting(4, accelerators_per_replica=8)]) == 9, "too large for it"
