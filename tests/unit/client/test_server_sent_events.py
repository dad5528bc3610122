from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.client.server_sent_events import EventDecoder, ServerSentEvent

TEXT = (
    b": hello\r\n\r\nevent: log\r\nid: 7.1\r\ndata: one\r\ndata: two\r\n\r\n"
    b"data:x\n\nevent: end\rdata: {}\r\rretry: 5\n\n"
)
EVENTS = [
    ServerSentEvent("log", "one\ntwo", "7.1"),
    ServerSentEvent("message", "x", "7.1"),
    ServerSentEvent("end", "{}", "7.1"),
]


@given(st.lists(st.integers(0, len(TEXT)), max_size=12))
def test_events_are_the_same_however_the_bytes_are_cut(cuts: list[int]) -> None:
    decoder, found = EventDecoder(), []
    edges = [0, *sorted(cuts), len(TEXT)]
    for start, end in zip(edges, edges[1:], strict=False):
        found += decoder.feed(TEXT[start:end])
    assert found == EVENTS


@given(st.lists(st.binary(max_size=50)))
def test_any_bytes_are_survived(chunks: list[bytes]) -> None:
    decoder = EventDecoder()
    for chunk in chunks:
        decoder.feed(chunk)


def test_an_event_without_end_is_given_up() -> None:
    decoder = EventDecoder()
    with pytest.raises(ValueError, match="8 MiB"):
        for _ in range(10):
            decoder.feed(b"x" * (1 << 20))
