"""Levels, the past, and whose turn it is."""

from __future__ import annotations

import pytest

from broker.decide.admission.admit import Admission, Rank, Standing, admit
from broker.decide.admission.shares import Past, Shares, dominant
from broker.model.admission import AdmissionRules
from broker.model.problem import NodeGroup
from tests.unit.decide.admission.scenes import pool, running, scene, wish

RULES = AdmissionRules()
DAY_MS = 86_400_000


def turns(found: Admission) -> dict[int, int]:
    """Copies of each wish that have their turn."""
    return {
        entry.wish: entry.copies for entry in found.entries if entry.rank is not Rank.BEYOND
    }


def test_the_dominant_resource_is_the_one_held_most_of() -> None:
    totals = {"H100": 100.0, "cpus": 1000.0, "memory_gib": 0.0}
    assert dominant({"H100": 10, "cpus": 300, "memory_gib": 5}, totals) == 0.3
    assert dominant({"A100": 10}, totals) == 0.0  # nobody offers it now


def test_the_past_counts_half_after_a_half_life() -> None:
    past = Past().after({}, DAY_MS, 3600).after({"a": 1.0}, 2 * DAY_MS, 3600)
    later = past.after({}, 2 * DAY_MS + 3_600_000, 3600)
    assert later.average["a"] == pytest.approx(past.average["a"] / 2)


def test_the_past_is_an_average_of_the_time_seen() -> None:
    """A young federation knows as well who had what as an old one."""
    past = Past().after({}, 1, 7 * 86_400).after({"a": 0.75, "b": 0.25}, 60_001, 7 * 86_400)
    assert past.of("a") == pytest.approx(0.75)
    assert past.of("b") == pytest.approx(0.25)
    assert past.of("nobody") == 0.0


def test_a_clock_that_goes_back_changes_nothing() -> None:
    past = Past(1000, 0.5, {"a": 0.25})
    assert past.after({"a": 1.0}, 400, 60) == past


def test_free_places_go_by_weight() -> None:
    found = admit(
        scene([wish("a", 100), wish("b", 100)], weights={"a": 1.0, "b": 3.0}), Standing(), RULES
    )
    assert turns(found) == {0: 4, 1: 12}


def test_what_runs_counts() -> None:
    found = admit(
        scene([wish("a", 100), wish("b", 100)], [pool(free=8)], running=[running("j1-1", "a", 8)]),
        Standing(),
        RULES,
    )
    assert turns(found) == {1: 8}


def test_what_was_had_counts() -> None:
    past = Past(1, 1.0, {"a": 0.5})
    found = admit(scene([wish("a", 100), wish("b", 100)]), Standing(past), RULES)
    assert turns(found) == {0: 4, 1: 12}


def test_cpus_may_be_what_counts() -> None:
    """Few cards and many cpus are as much of the federation as many cards."""
    nodes = (NodeGroup(2, 8, 64.0, 512.0),)
    wide = wish("wide", 100, cpus_per_replica=16.0, accelerators_per_replica=1)
    found = admit(
        scene([wide, wish("slim", 100)], [pool(nodes=nodes, when_empty=nodes)]), Standing(), RULES
    )
    wide_turns, slim_turns = turns(found)[0], turns(found)[1]
    assert wide_turns * 2 == pytest.approx(slim_turns, abs=1)


def test_copies_beyond_the_share_come_after_and_are_not_left_out() -> None:
    found = admit(scene([wish("a", 100), wish("b", 2)]), Standing(), RULES)
    assert sum(entry.copies for entry in found.entries) == 102
    assert turns(found) == {0: 14, 1: 2}  # what b does not want is a's


def test_a_higher_priority_goes_first_whoever_asks() -> None:
    found = admit(
        scene(
            [wish("a", 100), wish("b", 10, priority=9), wish("a", 100, priority=9)],
            running=[],
            weights={"a": 1.0, "b": 1.0},
        ),
        Standing(),
        RULES,
    )
    assert found.granted == (0, 8, 8)


def test_alone_at_a_priority_nothing_is_split() -> None:
    found = admit(scene([wish("a", 100), wish("a", 3, size=8)]), Standing(), RULES)
    assert [(e.rank, e.copies) for e in found.entries] == [(Rank.TURN, 100), (Rank.TURN, 3)]


def test_a_gang_that_fits_nowhere_now_takes_no_turn() -> None:
    gang = wish("b", size=8, replicas=2)
    found = admit(scene([wish("a", 100), gang], [pool(free=12)]), Standing(), RULES)
    assert turns(found) == {0: 12}


def test_who_waited_long_goes_before_others_in_their_turn() -> None:
    found = admit(scene([wish("a", 4), wish("b", 4, waited_s=3600)]), Standing(), RULES)
    assert [e.rank for e in found.entries] == [Rank.TURN, Rank.AGED]


def test_one_with_its_share_is_at_one() -> None:
    held = {"a": {"H100": 4.0}, "b": {"H100": 12.0}}
    shares = Shares({"H100": 16.0}, {"a": 1.0, "b": 3.0}, held=held)
    assert shares.ratios() == pytest.approx({"a": 1.0, "b": 1.0})
