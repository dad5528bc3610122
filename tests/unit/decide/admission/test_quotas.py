"""Quotas, borrowing, and what is kept for a lender that wants its own."""

from __future__ import annotations

from broker.decide.admission.quotas import NO_LIMIT, Allowances, Quota

LENDER, BORROWER = Quota("lender", 8, "lab"), Quota("borrower", 8, "lab", 4)


def test_without_quota_there_is_no_limit() -> None:
    assert Allowances.of([Quota("a")], {}, {}).room("a") == NO_LIMIT
    assert Allowances.of([Quota("a")], {}, {}).limits() == {}


def test_what_is_held_is_off_the_quota() -> None:
    found = Allowances.of([Quota("a", 8)], {"a": 5}, {})
    assert found.room("a") == found.limits()["a"] == 3


def test_more_held_than_allowed_leaves_nothing() -> None:
    assert Allowances.of([Quota("a", 8)], {"a": 11}, {}).room("a") == 0


def test_a_cohort_lends_up_to_the_limit() -> None:
    found = Allowances.of([LENDER, BORROWER], {}, {})
    assert found.room("borrower") == 12
    found.take("borrower", 10)
    assert (found.limits(), found.room("borrower")) == ({"lender": 6, "borrower": 10}, 2)


def test_what_the_lender_wants_is_not_lent() -> None:
    found = Allowances.of([LENDER, BORROWER], {}, {"lender": 7})
    assert found.room("borrower") == 9
    assert found.room("lender") == 16  # without a limit: all that the other leaves


def test_what_was_lent_before_counts() -> None:
    found = Allowances.of([LENDER, BORROWER], {"borrower": 10}, {})
    assert found.room("borrower") == 2
    assert Allowances.of([LENDER, BORROWER], {"borrower": 12}, {}).room("borrower") == 0


def test_a_lender_gets_its_own_back_once_borrowers_have_left() -> None:
    """The cohort as a whole is never exceeded, also while it waits."""
    found = Allowances.of([LENDER, BORROWER], {"borrower": 12}, {"lender": 8})
    assert found.room("lender") == 4
    assert Allowances.of([LENDER, BORROWER], {"borrower": 8}, {"lender": 8}).room("lender") == 8


def test_a_cohort_never_lends_more_than_it_has() -> None:
    quotas = [LENDER, Quota("x", 0, "lab"), Quota("y", 0, "lab")]
    found = Allowances.of(quotas, {}, {})
    found.take("x", found.room("x"))
    assert found.room("y") == 0


def test_another_cohort_lends_nothing() -> None:
    found = Allowances.of([LENDER, Quota("x", 0, "other")], {}, {})
    assert found.room("x") == 0
