"""Fields of settings that name hours of the week, by the wall clock of a place."""

from __future__ import annotations

import re
from typing import Annotated
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import BeforeValidator

from regional_agent.session.hours import DAY_MINUTES

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
EVERY_DAY = frozenset(range(7))
_CLOCK = re.compile(r"([01]?\d|2[0-4]):([0-5]\d)")


def _minute(value: object) -> int:
    # YAML reads 08:30 without quotes as a number to the base of 60.
    text = f"{value // 60}:{value % 60:02}" if isinstance(value, int) else str(value)
    match = _CLOCK.fullmatch(text)
    minute = int(match[1]) * 60 + int(match[2]) if match else DAY_MINUTES + 1
    if minute > DAY_MINUTES:
        raise ValueError(f"{value!r} is not a time of day from 00:00 to 24:00")
    return minute


def _days(value: object) -> frozenset[int]:
    """`mon-fri`, `sat`, or a list of such."""
    parts = value if isinstance(value, list | tuple) else str(value).split(",")
    found: set[int] = set()
    for part in parts:
        first, _, last = str(part).strip().lower().partition("-")
        if first not in DAYS or (last or first) not in DAYS:
            raise ValueError(f"{part!r} is no day; days are {', '.join(DAYS)}, or mon-fri")
        begin, end = DAYS.index(first), DAYS.index(last or first)
        found |= {(begin + i) % 7 for i in range((end - begin) % 7 + 1)}
    return frozenset(found)


def zone_name(value: object) -> str:
    """A time zone by its name. Raises ValueError."""
    try:
        ZoneInfo(str(value))
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise ValueError(
            f"{value!r} is not in this machine's time zone database; such as Europe/Berlin"
        ) from error
    return str(value)


def some_time(from_minute: int | None, until_minute: int | None) -> None:
    """Raises ValueError for hours of no time."""
    if from_minute == until_minute:
        raise ValueError("from and to are the same; a whole day is from 00:00 to 24:00")


Days = Annotated[frozenset[int], BeforeValidator(_days)]
Clock = Annotated[int, BeforeValidator(_minute)]
