"""Times as people write them, on the clock on their wall: `Fri 18:00`, `tomorrow 9:00`. Pure."""

from __future__ import annotations

import re
from datetime import date, datetime, time, timedelta

from broker.cli.formatting import Now
from federation.units import InvalidQuantity, parse_duration_s, parse_rfc3339_ms

EXAMPLES = "write 'Fri 18:00', 'tomorrow 9:00', '18:00', '2026-12-01 18:00' or 6h"
_DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_CLOCK = re.compile(r"(\d{1,2}):(\d{2})")
_DATE = re.compile(r"(\d{4})-(\d{2})-(\d{2})")


class NoSuchTime(ValueError):
    """A text that names no time to come; the message says what would."""


def read_time_ms(text: str, now: Now) -> int:
    """The moment meant, UTC epoch ms, later than now.

    A weekday is the next one (today, while its time is still to come); a time alone is the next
    one; a day alone is its end. Where clocks go back the first of two equal times is meant; a time
    that clocks skip counts as if they had not been put forward. Raises `NoSuchTime`.
    """
    words = text.strip().lower().removeprefix("in ").replace(",", " ").split()
    exact = _exact_ms(text.strip(), now)
    if exact is not None:
        return _to_come(exact, text, now)
    day_word, clock_word = _split(words, text)
    today = now.local(now.ms).date()
    hour, minute = _clock(clock_word, text)
    if day_word is None:
        at_ms = _at(today, hour, minute, now)
        if at_ms <= now.ms:
            at_ms = _at(today + timedelta(days=1), hour, minute, now)
        return at_ms
    weekday = _weekday(day_word)
    if weekday is not None:
        ahead = (weekday - today.weekday()) % 7
        at_ms = _at(today + timedelta(days=ahead), hour, minute, now)
        return at_ms if at_ms > now.ms else _at(today + timedelta(days=7), hour, minute, now)
    return _to_come(_at(_day(day_word, today, text), hour, minute, now), text, now)


def _exact_ms(text: str, now: Now) -> int | None:
    try:
        return parse_rfc3339_ms(text)
    except (InvalidQuantity, ValueError):
        pass
    try:
        return now.ms + parse_duration_s(text.removeprefix("in ").strip()) * 1000
    except (InvalidQuantity, ValueError):
        return None


def _to_come(at_ms: int, text: str, now: Now) -> int:
    if at_ms <= now.ms:
        raise NoSuchTime(f"{text!r} is past")
    return at_ms


def _split(words: list[str], text: str) -> tuple[str | None, str | None]:
    """(day, time of day), either None."""
    clocks = [word for word in words if ":" in word]
    days = [word for word in words if ":" not in word and word != "at"]
    if len(clocks) > 1 or len(days) > 1 or not words:
        raise NoSuchTime(f"{text!r} is no time; {EXAMPLES}")
    return (days[0] if days else None), (clocks[0] if clocks else None)


def _clock(word: str | None, text: str) -> tuple[int, int]:
    if word is None:
        return 24, 0
    match = _CLOCK.fullmatch(word)
    if match is None or int(match[1]) > 23 or int(match[2]) > 59:
        raise NoSuchTime(f"{word!r} in {text!r} is no time of day; {EXAMPLES}")
    return int(match[1]), int(match[2])


def _weekday(word: str) -> int | None:
    found = [n for n, name in enumerate(_DAYS) if len(word) >= 3 and name.startswith(word)]
    return found[0] if found else None


def _day(word: str, today: date, text: str) -> date:
    if word in ("today", "tomorrow"):
        return today + timedelta(days=word == "tomorrow")
    match = _DATE.fullmatch(word)
    try:
        if match is None:
            raise ValueError
        return date(int(match[1]), int(match[2]), int(match[3]))
    except ValueError:
        raise NoSuchTime(f"{word!r} in {text!r} is no day; {EXAMPLES}") from None


def _at(day: date, hour: int, minute: int, now: Now) -> int:
    """That time of that day on the wall; hour 24 is its end."""
    if hour == 24:
        day, hour = day + timedelta(days=1), 0
    local = datetime.combine(day, time(hour, minute), tzinfo=now.zone)  # None: this machine's zone
    return round(local.timestamp() * 1000)
