"""Hours by the wall clock of a place: what summer time does to them is defined and tested."""

from datetime import UTC, datetime
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest

from regional_agent.session.hours import Hours

BERLIN = ZoneInfo("Europe/Berlin")
ALL = frozenset(range(7))
HOUR_MS = 3_600_000


def ms(text: str) -> int:
    return round(datetime.fromisoformat(text).astimezone(UTC).timestamp() * 1000)


def minutes(clock: str) -> int:
    hour, _, minute = clock.partition(":")
    return int(hour) * 60 + int(minute)


def hours(begin: str, end: str, days=ALL, zone=BERLIN) -> Hours:
    return Hours(frozenset(days), minutes(begin), minutes(end), zone)


def length_h(spans) -> float:
    return sum(end - begin for begin, end in spans) / HOUR_MS


def test_hours_over_midnight_belong_to_the_day_they_begin_on():
    night = hours("22:00", "06:00", {4})  # Friday
    assert night.holds(ms("2026-01-09T23:00:00+01:00"))
    assert night.holds(ms("2026-01-10T05:59:00+01:00"))
    assert not night.holds(ms("2026-01-10T06:00:00+01:00"))
    assert not night.holds(ms("2026-01-09T05:00:00+01:00"))
    assert not night.holds(ms("2026-01-10T23:00:00+01:00"))


@pytest.mark.parametrize(
    "begin, end, day, expected_h",
    [
        ("02:00", "03:00", "2026-03-29", 0),  # the clock skips this hour
        ("01:30", "03:30", "2026-03-29", 1),  # and this is an hour shorter
        ("02:00", "03:00", "2026-10-25", 2),  # the clock shows this hour twice
        ("00:00", "24:00", "2026-03-29", 23),
        ("00:00", "24:00", "2026-10-25", 25),
        ("08:00", "18:00", "2026-06-01", 10),
    ],
)
def test_lesson_40_skipped_hours_have_no_time_and_repeated_ones_twice(
    begin, end, day, expected_h
):
    start = ms(f"{day}T00:00:00+00:00") - 2 * HOUR_MS
    local_day = datetime.fromisoformat(day).weekday()
    spans = hours(begin, end, {local_day}).spans(start, start + 30 * HOUR_MS)
    assert length_h(spans) == expected_h


ZONES = ["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "UTC"]


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize("begin, end", [("02:15", "02:45"), ("23:30", "03:30"), ("00:00", "24:00")])
def test_spans_are_exactly_the_minutes_that_hold(zone, begin, end):
    of = hours(begin, end, {0, 5, 6}, ZoneInfo(zone))
    for month in (3, 4, 10, 11):
        start = ms(f"2026-{month:02}-01T00:07:00+00:00")
        until = start + 10 * 24 * HOUR_MS
        spans = of.spans(start, until)
        assert all(a[1] < b[0] for a, b in pairwise(spans))
        inside = {
            minute for a, b in spans for minute in range(-(-a // 60_000), -(-b // 60_000))
        }
        holds = {
            at // 60_000 for at in range(start, until, 60_000) if of.holds(at)
        }
        assert inside == holds
