"""Reclaim and preemption: who goes, for whom, how many, and who never does."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from broker.decide.admission.admit import Standing, admit
from broker.decide.admission.making_room import OUTRANKED, RECLAIMED, Stops, make_room
from broker.decide.admission.quotas import Quota
from broker.decide.admission.running import Running
from broker.decide.admission.wishes import Wish
from broker.model.admission import AdmissionRules, Preempt
from tests.unit.decide.admission.scenes import pool, running, scene, wish

NEVER = AdmissionRules()
LOWER = replace(NEVER, preempt=Preempt.LOWER_PRIORITY)
COHORT = [Quota("lender", 8, "lab"), Quota("borrower", 8, "lab")]
FULL = [pool(free=0)]
HOUR_MS = 3_600_000


def stopped(
    wishes: list[Wish], held: list[Running], rules: AdmissionRules = NEVER, **rest: Any
) -> Stops:
    """What is stopped when the decision could place nothing."""
    rest = {"pools": FULL, "quotas": COHORT, "now_ms": HOUR_MS} | rest
    seen = scene(wishes, running=held, **rest)
    left = {index: each.job.count for index, each in enumerate(wishes)}
    return make_room(seen, admit(seen, Standing(), rules), left, rules)


def uids(found: Stops) -> list[str]:
    return [stop.attempt.uid for stop in found.stops]


def lent(*sizes: int, **rest: Any) -> list[Running]:
    return [running(f"b{n}-1", "borrower", size, **rest) for n, size in enumerate(sizes)]


def test_a_lender_gets_its_quota_back() -> None:
    found = stopped([wish("lender", 1, 4)], lent(4, 4, 4, 4))
    assert len(found.stops) == 1
    assert found.stops[0].why == RECLAIMED
    assert (found.accelerators, found.in_use) == (4, 16)


def test_the_least_lost_work_goes_first() -> None:
    began = zip(lent(4, 4, 4, 4), (5, 3000, 90, 7), strict=True)
    held = [replace(attempt, started_ms=at) for attempt, at in began]
    assert uids(stopped([wish("lender", 1, 4)], held)) == ["b1-1"]


def test_what_was_kept_by_a_checkpoint_is_not_lost() -> None:
    old, young = lent(8, 8)
    held = [replace(old, kept_s=60), replace(young, started_ms=HOUR_MS - 120_000)]
    assert uids(stopped([wish("lender", 1, 8)], held)) == ["b0-1"]


def test_a_long_grace_counts_as_work_lost() -> None:
    quick, slow = lent(8, 8)
    held = [replace(quick, grace_s=600), slow]
    assert uids(stopped([wish("lender", 1, 8)], held)) == ["b1-1"]


def test_nobody_loses_more_than_it_borrowed() -> None:
    """Of sixteen held with a quota of eight, eight were borrowed."""
    found = stopped([wish("lender", 4, 4)], lent(4, 4, 4, 4))
    assert len(found.stops) == 2
    assert not stopped([wish("lender", 1, 8, replicas=2)], lent(8, 8)).stops


def test_no_victim_is_more_than_needed() -> None:
    held = [*lent(1, 1, 8), *(running(f"c{n}-1", "borrower", 1) for n in range(6))]
    found = stopped([wish("lender", 1, 8)], held)
    assert uids(found) == ["b2-1"]


def test_a_tenant_beyond_its_own_quota_takes_nothing_back() -> None:
    held = [*lent(4, 4), running("l-1", "lender", 8)]
    assert not stopped([wish("lender", 1, 4)], held).stops


def test_outside_the_cohort_nobody_is_stopped() -> None:
    held = [running(f"x{n}-1", "stranger", 8) for n in range(2)]
    assert not stopped([wish("lender", 1, 4)], held).stops


def test_nobody_is_stopped_for_what_fits() -> None:
    assert not stopped([wish("lender", 1, 4)], lent(8), pools=[pool(free=8)]).stops


def test_a_quota_alone_may_be_missing() -> None:
    """There is room, but the cohort has lent all it has: the place is not free to be taken."""
    found = stopped([wish("lender", 1, 4)], lent(4, 4, 4, 4), pools=[pool(free=16, total=32)])
    assert len(found.stops) == 1


def test_what_is_on_its_way_out_is_not_asked_for_again() -> None:
    held = lent(8, 8)
    held[0] = replace(held[0], stopping=True)
    assert not stopped([wish("lender", 1, 8)], held).stops


def test_a_higher_priority_takes_only_where_the_rules_say_so() -> None:
    held = [running(f"x{n}-1", "stranger", 8) for n in range(2)]
    urgent = [wish("a", 1, 8, priority=9)]
    assert not stopped(urgent, held).stops
    found = stopped(urgent, held, LOWER)
    assert [stop.why for stop in found.stops] == [OUTRANKED]


def test_equal_priority_takes_nothing() -> None:
    held = [running("x-1", "stranger", 8, priority=9)]
    assert not stopped([wish("a", 1, 8, priority=9)], held, LOWER).stops


def test_preemption_does_not_cascade() -> None:
    """What was stopped for others stops nobody itself."""
    held = [running(f"x{n}-1", "stranger", 8) for n in range(2)]
    again = [wish("a", 1, 8, priority=9, was_stopped=True)]
    assert not stopped(again, held, LOWER).stops
    back = [wish("lender", 1, 4, was_stopped=True)]
    assert not stopped(back, lent(4, 4, 4, 4)).stops


def test_a_gang_that_fits_nowhere_ever_stops_nobody() -> None:
    held = [running(f"x{n}-1", "stranger", 8) for n in range(2)]
    assert not stopped([wish("a", 1, 8, replicas=3, priority=9)], held, LOWER).stops


def test_several_copies_each_get_their_own_room() -> None:
    held = [running(f"x{n}-1", "stranger", 4) for n in range(4)]
    found = stopped([wish("a", 3, 4, priority=9)], held, LOWER)
    assert len(found.stops) == 3


def test_small_ones_make_room_for_a_large_one_on_one_node() -> None:
    """Only what is known to lie on one node together makes a whole node."""
    held = [running(f"x{n}-1", "stranger", 2, nodes=(f"n{n % 2}",)) for n in range(8)]
    found = stopped([wish("a", 1, 8, priority=9)], held, LOWER)
    assert len(found.stops) == 4
    assert len({stop.attempt.nodes for stop in found.stops}) == 1
    unknown = [replace(attempt, nodes=()) for attempt in held]
    assert not stopped([wish("a", 1, 8, priority=9)], unknown, LOWER).stops
