"""Hours of a week by the wall clock of a place, with its summer time.

An instant belongs to the hours if the wall clock shows one of them at that instant. So an hour
the clock skips in spring has none, and one it repeats in autumn counts both times.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, tzinfo
from itertools import pairwise

DAY_MINUTES = 24 * 60
_DAY_MS = 86_400_000
_STEP_MS = 60_000


@dataclass(frozen=True, slots=True)
class Hours:
    """From `from_minute` until `until_minute` of the day, on `days` (Monday = 0).

    Where the end is not after the beginning it lies on the next day; `days` name the day on
    which the hours begin.
    """

    days: frozenset[int]
    from_minute: int
    until_minute: int
    zone: tzinfo

    def holds(self, at_ms: int) -> bool:
        """Whether an instant (UTC ms) lies within."""
        local = datetime.fromtimestamp(at_ms / 1000, self.zone)
        minute, day = local.hour * 60 + local.minute, local.weekday()
        if self.from_minute < self.until_minute:
            return day in self.days and self.from_minute <= minute < self.until_minute
        if minute >= self.from_minute:
            return day in self.days
        return minute < self.until_minute and (day - 1) % 7 in self.days

    def spans(self, from_ms: int, until_ms: int) -> list[tuple[int, int]]:
        """All stretches (UTC ms) that lie within, cut to the time asked for."""
        within = (e for e in self._edges(from_ms, until_ms) if from_ms < e < until_ms)
        found: list[tuple[int, int]] = []
        for begin, end in pairwise(sorted({from_ms, until_ms, *within})):
            if not self.holds(begin):
                continue
            if found and found[-1][1] == begin:
                begin = found.pop()[0]
            found.append((begin, end))
        return found

    def _edges(self, from_ms: int, until_ms: int) -> Iterator[int]:
        """Every instant at which `holds` may change."""
        day = _date(from_ms) - timedelta(days=1)
        while day <= _date(until_ms) + timedelta(days=1):
            midnight = datetime(day.year, day.month, day.day, tzinfo=self.zone)
            for minute in (self.from_minute, self.until_minute):
                wall = midnight + timedelta(minutes=minute)
                for fold in (0, 1):
                    yield _ms(wall.replace(fold=fold))
            yield from self._clock_changes(day)
            day += timedelta(days=1)

    def _clock_changes(self, day: date) -> Iterator[int]:
        """When the clock is put forward or back within 24 hours from midnight UTC."""
        low = _ms(datetime(day.year, day.month, day.day, tzinfo=UTC))
        high = low + _DAY_MS
        if self._offset(low) == self._offset(high):
            return
        while high - low > _STEP_MS:
            middle = (low + high) // 2 // _STEP_MS * _STEP_MS
            if self._offset(middle) == self._offset(low):
                low = middle
            else:
                high = middle
        yield high

    def _offset(self, at_ms: int) -> timedelta | None:
        return datetime.fromtimestamp(at_ms / 1000, self.zone).utcoffset()


def _date(at_ms: int) -> date:
    return datetime.fromtimestamp(at_ms / 1000, UTC).date()


def _ms(at: datetime) -> int:
    return round(at.timestamp() * 1000)
