from __future__ import annotations

import pytest

from broker.feedback.entries import MAX_TEXT_CHARS, JobFilter, cleaned, cleaned_filter
from tests.unit.feedback.builders import a_cycle, a_job, an_attempt


def test_a_plain_entry_stays_as_it_is() -> None:
    assert cleaned(a_job()) == a_job()
    assert cleaned(an_attempt()) == an_attempt()


def test_only_free_text_is_cut() -> None:
    runs = ",".join(str(number) for number in range(0, 20_000, 2))
    entry = cleaned(an_attempt(tasks=runs, text="é" * (MAX_TEXT_CHARS + 1)))
    assert entry.tasks == runs
    assert len(entry.text) == MAX_TEXT_CHARS
    assert cleaned(an_attempt(text="x" * MAX_TEXT_CHARS)).text == "x" * MAX_TEXT_CHARS


def test_labels_are_sorted_with_one_value_a_key() -> None:
    entry = cleaned(a_job(labels=(("b", "1"), ("a", "2"), ("b", "3"))))
    assert entry.labels == (("a", "2"), ("b", "3"))


def test_characters_beyond_the_basic_plane_are_not_surrogates() -> None:
    assert cleaned(a_job(reason="ok 🚀")).reason == "ok 🚀"


@pytest.mark.parametrize("value", [2**63, -(2**63), 10**40])
def test_an_integer_beyond_64_bits_names_its_field(value: int) -> None:
    with pytest.raises(ValueError, match="priority does not fit 64 bits"):
        cleaned(a_job(priority=value))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_a_number_that_is_not_finite_names_its_field(value: float) -> None:
    with pytest.raises(ValueError, match="wall_s is not finite"):
        cleaned(a_cycle(wall_s=value))


@pytest.mark.parametrize("limit", [0, -1, 1001])
def test_a_page_has_bounds(limit: int) -> None:
    with pytest.raises(ValueError, match="limit must be 1..1000"):
        cleaned_filter(JobFilter(limit=limit))


def test_a_filter_may_be_open_at_either_end() -> None:
    query = JobFilter(created_from_ms=0, created_to_ms=None, limit=1000)
    assert cleaned_filter(query) == query
