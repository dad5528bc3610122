"""Turns in vain are counted, and cost a while of turns; never what is free all the same."""

from __future__ import annotations

from broker.decide.admission.admit import Rank, Standing, admit
from broker.decide.admission.vain import FIRST_MS, MOST_MS, TURNS_MAX, Vain
from broker.model.admission import AdmissionRules
from tests.unit.decide.admission.scenes import pool, scene, wish


def missed(times: int, now_ms: int = 0) -> Vain:
    found = Vain()
    for _ in range(times):
        found = found.after({"j": False}, now_ms)
    return found


def test_a_few_turns_in_vain_are_nothing() -> None:
    assert not missed(TURNS_MAX - 1).is_set_back("j", 0)
    assert missed(TURNS_MAX).is_set_back("j", FIRST_MS - 1)
    assert not missed(TURNS_MAX).is_set_back("j", FIRST_MS)


def test_each_further_one_costs_twice_as_long_up_to_a_limit() -> None:
    assert missed(TURNS_MAX + 1).is_set_back("j", 2 * FIRST_MS - 1)
    assert not missed(TURNS_MAX + 30).is_set_back("j", MOST_MS)


def test_a_turn_that_is_used_clears_the_past() -> None:
    assert not missed(9).after({"j": True}, 1).missed


def test_one_without_a_turn_is_forgotten_in_time() -> None:
    assert missed(TURNS_MAX).after({}, FIRST_MS - 1).missed
    assert not missed(TURNS_MAX).after({}, FIRST_MS).missed


def test_lesson_27_who_is_set_back_takes_no_turn_from_others() -> None:
    doomed = wish("b", 8, set_back=True)
    found = admit(scene([wish("a", 100), doomed], [pool(free=8)]), Standing(), AdmissionRules())
    turns = {e.wish: e.copies for e in found.entries if e.rank is Rank.TURN}
    assert turns == {0: 8}
    assert (1, Rank.BEYOND, 8) in {(e.wish, e.rank, e.copies) for e in found.entries}
