"""Pools that take nothing."""

from __future__ import annotations

from federation.refusals import Refusal, RefusalCode
from tests.unit.decide.constraints.judging import (
    change_for,
    options_of,
    problem_of,
    reason_for,
    violations_of,
    with_pool,
)

WHY = Refusal(RefusalCode.DRAINING, "c0", advice="after the drain")


def test_a_pool_that_is_not_usable_takes_nothing_and_says_why() -> None:
    problem = problem_of()
    assert options_of(problem) == {("j0", "p0")}
    assert "usable" not in violations_of(problem)
    closed = with_pool(problem, unusable=WHY)
    assert options_of(closed) == set()
    assert "usable" in violations_of(closed)
    assert reason_for(closed) == WHY
    assert change_for(closed) == "after the drain"


def test_a_reason_with_the_code_of_another_constraint_is_lifted_as_what_it_is() -> None:
    closed = with_pool(problem_of(), unusable=Refusal(RefusalCode.NO_CAPACITY, "c0"))
    assert change_for(closed) == "no capacity of c0 ends"
