"""Times as people write them, on their own clock, also where clocks change."""

from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from broker.cli.formatting import Now
from broker.cli.human_time import NoSuchTime, read_time_ms

BERLIN = ZoneInfo("Europe/Berlin")


def at(text: str, *, now: str = "2026-11-30 13:00", zone: ZoneInfo = BERLIN) -> str:
    """The moment meant on a Monday in Berlin, on that clock."""
    ms = round(datetime.fromisoformat(now).replace(tzinfo=zone).timestamp() * 1000)
    found = read_time_ms(text, Now(ms, zone))
    return datetime.fromtimestamp(found / 1000, zone).strftime("%Y-%m-%d %H:%M")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Fri 18:00", "2026-12-04 18:00"),
        ("friday, 18:00", "2026-12-04 18:00"),
        ("fri at 9:05", "2026-12-04 09:05"),
        ("Mon 14:00", "2026-11-30 14:00"),
        ("Mon 12:00", "2026-12-07 12:00"),
        ("18:00", "2026-11-30 18:00"),
        ("12:59", "2026-12-01 12:59"),
        ("tomorrow 9:00", "2026-12-01 09:00"),
        ("tomorrow", "2026-12-02 00:00"),
        ("today", "2026-12-01 00:00"),
        ("Sunday", "2026-12-07 00:00"),
        ("2026-12-24 08:30", "2026-12-24 08:30"),
        ("2026-12-24", "2026-12-25 00:00"),
        ("2026-12-24T08:30:00Z", "2026-12-24 09:30"),
        ("6h", "2026-11-30 19:00"),
        ("in 2h30m", "2026-11-30 15:30"),
    ],
)
def test_what_people_write(text: str, expected: str) -> None:
    assert at(text) == expected


@pytest.mark.parametrize(
    "text",
    ["", "soon", "Fr 18:00", "25:00", "18:60", "2026-13-01", "2026-11-29 10:00", "Fri Sat 1:00",
     "1:00 2:00", "today 12:00", "2020-01-01T00:00:00Z", "18", "\u0661\u0668:00x"],
)  # fmt: skip
def test_what_is_no_time_to_come_says_what_would_be(text: str) -> None:
    with pytest.raises(NoSuchTime, match="is past|write 'Fri 18:00'"):
        at(text)


def test_the_first_of_two_equal_times_is_meant_where_clocks_go_back() -> None:
    now = Now(round(datetime(2026, 10, 24, 12, tzinfo=BERLIN).timestamp() * 1000), BERLIN)
    first = read_time_ms("tomorrow 2:30", now)
    assert first == round(datetime(2026, 10, 25, 0, 30, tzinfo=ZoneInfo("UTC")).timestamp() * 1000)


def test_a_time_that_clocks_skip_is_an_hour_later_on_the_wall() -> None:
    assert at("tomorrow 2:30", now="2026-03-28 12:00") == "2026-03-29 03:30"
