"""Hours of the week in which jobs may start, also where clocks change."""

from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from broker.control.policy_hours import (
    InvalidHours,
    hours_text,
    opening_text,
    opens_at_ms,
    read_hours,
)

BERLIN = ZoneInfo("Europe/Berlin")


def opening(text: str, now: str) -> str:
    """When it is open next, on the clock in Berlin; `now` where it is open."""
    now_ms = round(datetime.fromisoformat(now).replace(tzinfo=BERLIN).timestamp() * 1000)
    at_ms = opens_at_ms(read_hours(text), now_ms)
    if at_ms == now_ms:
        return "now"
    return f"{datetime.fromtimestamp(at_ms / 1000, BERLIN):%a %d %H:%M}"


NIGHTS = "Mon-Fri 22:00-06:00 Europe/Berlin"


@pytest.mark.parametrize(
    ("text", "now", "expected"),
    [
        (NIGHTS, "2026-11-30 13:00", "Mon 30 22:00"),
        (NIGHTS, "2026-11-30 23:00", "now"),
        (NIGHTS, "2026-12-01 05:59", "now"),
        (NIGHTS, "2026-12-01 06:00", "Tue 01 22:00"),
        (NIGHTS, "2026-12-05 05:00", "now"),
        (NIGHTS, "2026-12-05 07:00", "Mon 07 22:00"),
        ("22:00-06:00 UTC", "2026-11-30 13:00", "Mon 30 23:00"),
        ("Sat-Sun 00:00-23:59 Europe/Berlin", "2026-11-30 13:00", "Sat 05 00:00"),
        ("Fri-Mon 08:00-09:00 Europe/Berlin", "2026-12-01 08:30", "Fri 04 08:00"),
        ("Wed 08:00-09:00 Europe/Berlin", "2026-12-02 09:00", "Wed 09 08:00"),
        ("02:30-03:30 Europe/Berlin", "2026-03-28 12:00", "Sun 29 03:30"),
    ],
)
def test_when_it_opens(text: str, now: str, expected: str) -> None:
    assert opening(text, now) == expected


def test_it_is_told_as_it_was_written() -> None:
    for text in (NIGHTS, "22:00-06:00 UTC", "Wed 08:00-09:00 Europe/Berlin"):
        assert hours_text(read_hours(text)) == text
    at_ms = opens_at_ms(read_hours(NIGHTS), 1_796_040_000_000)
    assert opening_text(read_hours(NIGHTS), at_ms) == "Mon 22:00 Europe/Berlin"


@pytest.mark.parametrize(
    "text", ["", "22-06 UTC", "22:00-22:00 UTC", "25:00-06:00 UTC", "Foo 22:00-06:00 UTC",
             "22:00-06:00", "22:00-06:00 ../etc/passwd", "22:00-06:60 UTC"],
)  # fmt: skip
def test_what_is_no_window_is_refused(text: str) -> None:
    with pytest.raises(InvalidHours):
        read_hours(text)
