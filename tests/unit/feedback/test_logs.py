from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.feedback.logs import StreamMark, completed, plan_append, stream_order, stream_state
from broker.feedback.ports import LogGap

CAP = 50


@given(st.lists(st.tuples(st.integers(0, 80), st.integers(0, 40)), max_size=30))
def test_any_order_of_appends_stores_a_prefix_of_the_stream(
    sends: list[tuple[int, int]],
) -> None:
    source = bytes(range(200))
    stored, cut = b"", False
    for offset, size in sends:
        data = source[offset : offset + size]
        try:
            plan = plan_append(len(stored), offset, len(data), CAP)
        except LogGap as gap:
            assert gap.expected_offset == len(stored) < offset
            continue
        stored += data[plan.skip : plan.skip + plan.take]
        cut = cut or plan.truncated
        assert stored == source[: len(stored)]
        assert len(stored) <= CAP
        assert not plan.truncated or (len(stored) == CAP and offset + size > CAP)
    assert not cut or len(stored) == CAP


@pytest.mark.parametrize(
    ("length", "total", "cut", "truncated", "complete"),
    [
        (10, None, False, False, False),
        (10, 20, False, False, False),
        (20, 20, False, False, True),
        (CAP, None, False, False, False),
        (CAP, CAP, False, False, True),
        (CAP, CAP + 1, False, True, True),
        (CAP, None, True, True, True),
    ],
)
def test_when_a_stream_is_complete(
    length: int, total: int | None, cut: bool, truncated: bool, complete: bool
) -> None:
    state = stream_state("output", length, StreamMark(total, cut), CAP)
    assert (state.truncated, state.complete) == (truncated, complete)


def test_a_total_only_grows() -> None:
    mark = completed(StreamMark(None, cut=True), 5, 9)
    assert mark == StreamMark(9, cut=True)
    assert completed(mark, 5, 3) == mark
    assert completed(mark, 12, 3).total_bytes == 12


def test_tasks_sort_as_numbers() -> None:
    names = ["task-10", "task-2", "output"]
    assert sorted(names, key=stream_order) == ["output", "task-2", "task-10"]
