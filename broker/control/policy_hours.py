"""Hours of the week in which the jobs of a policy may start: `Mon-Fri 22:00-06:00 Europe/Berlin`.

Counted on the clock on the wall there: a window over a change of clocks is an hour longer or
shorter; where it opens in an hour that clocks skip, it opens an hour later on the wall.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, time, timedelta
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from broker.model.policies import Hours

DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
EXAMPLE = "write for example Mon-Fri 22:00-06:00 Europe/Berlin"
_TEXT = re.compile(
    r"(?:(?P<first>[A-Z][a-z]{2})(?:-(?P<last>[A-Z][a-z]{2}))? )?"
    r"(?P<from>\d\d:\d\d)-(?P<until>\d\d:\d\d) (?P<zone>[A-Za-z0-9_+\-/]{1,64})"
)


def hours_text(hours: Hours) -> str:
    """The window as people write it."""
    first, last = DAYS[hours.days[0]], DAYS[hours.days[-1]]
    days = "" if len(hours.days) == 7 else f"{first} " if first == last else f"{first}-{last} "
    clock = [f"{m // 60:02d}:{m % 60:02d}" for m in (hours.from_minute, hours.until_minute)]
    return f"{days}{clock[0]}-{clock[1]} {hours.zone}"


class InvalidHours(ValueError):
    """A text that is no window of the week."""


def read_hours(text: str) -> Hours:
    """The window in a text. Raises InvalidHours."""
    match = _TEXT.fullmatch(" ".join(text.split()))
    if match is None:
        raise InvalidHours("not hours of the week")
    first, last = match["first"] or "Mon", match["last"] or match["first"] or "Sun"
    if first not in DAYS or last not in DAYS:
        raise InvalidHours(f"days are {', '.join(DAYS)}")
    try:
        ZoneInfo(match["zone"])
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise InvalidHours(f"no time zone {match['zone']}") from None
    start, end = _minutes(match["from"]), _minutes(match["until"])
    if start == end:
        raise InvalidHours("a window of nothing, or of everything")
    count = (DAYS.index(last) - DAYS.index(first)) % 7 + 1
    days = tuple((DAYS.index(first) + n) % 7 for n in range(count))
    return Hours(days, start, end, match["zone"])


def opens_at_ms(hours: Hours, now_ms: int) -> int:
    """When the window is open next (UTC ms): now, where it is open."""
    zone = ZoneInfo(hours.zone)
    today = datetime.fromtimestamp(now_ms / 1000, zone).date()
    spans = [_span(hours, today + timedelta(days=n), zone) for n in range(-1, 9)]
    for opens, closes in (span for span in spans if span is not None):
        if closes > now_ms:
            return max(opens, now_ms)
    raise AssertionError("some day of every week is named")


def opening_text(hours: Hours, at_ms: int) -> str:
    """That moment on the wall there: `Mon 22:00 Europe/Berlin`."""
    then = datetime.fromtimestamp(at_ms / 1000, ZoneInfo(hours.zone))
    return f"{DAYS[then.weekday()]} {then:%H:%M} {hours.zone}"


def _span(hours: Hours, day: date, zone: ZoneInfo) -> tuple[int, int] | None:
    if day.weekday() not in hours.days:
        return None
    last = day if hours.until_minute > hours.from_minute else day + timedelta(days=1)
    return _ms(day, hours.from_minute, zone), _ms(last, hours.until_minute, zone)


def _ms(day: date, minute: int, zone: ZoneInfo) -> int:
    local = datetime.combine(day, time(minute // 60, minute % 60), tzinfo=zone)
    return round(local.astimezone(UTC).timestamp() * 1000)


def _minutes(text: str) -> int:
    hour, minute = int(text[:2]), int(text[3:])
    if hour > 23 or minute > 59:
        raise InvalidHours(f"{text} is no time of day")
    return hour * 60 + minute
