"""How fast data of other regions comes here: a bounded read now and then of a file that lies with
it, whose bytes are thrown away.

The site itself names the files; nobody else may make an agent fetch anything. What was read is
remembered over restarts, so that an agent which is started again and again reads no more.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from yarl import URL

from federation.environment import Clock
from regional_agent.sense.reports import DataRate
from regional_agent.session.site_policy import DataReads

FILE = "data-rates.json"
FAILED = -1
READINGS_MAX = 24
READING_AGE_MAX_MS = 86_400_000
"""A day of readings: what a way does at noon and at night."""
LEAST_S = 1.0
"""A read that lasts less says what the way does at least: a connection opens its window over many
round trips (slow start, RFC 5681), and a short read is over before that."""


class InvalidSource(ValueError):
    """A data source that is not an http(s) URL; names the rule."""


@dataclass(frozen=True, slots=True)
class Source:
    """A file that lies with the data of a region."""

    region: str
    url: str

    @property
    def address(self) -> str:
        """`host:port`: a URL may hold what only its owner may see."""
        at = URL(self.url)
        return f"[{at.host}]:{at.port}" if ":" in (at.host or "") else f"{at.host}:{at.port}"

    @property
    def key(self) -> str:
        """What it is remembered by."""
        return hashlib.sha256(f"{self.region} {self.url}".encode()).hexdigest()[:16]


def parse_source(region: str, url: str) -> Source:
    """A source. Raises InvalidSource."""
    try:
        at = URL(url)
        fine = at.scheme in ("http", "https") and bool(at.host) and bool(at.port)
    except ValueError:
        fine = False
    if not fine:
        shown = url.partition("?")[0]
        raise InvalidSource(f"data source {shown!r} is not a URL such as https://host/file")
    return Source(region, url)


@dataclass(frozen=True, slots=True)
class Arrival:
    """So many bytes had come, so many seconds after they were asked for."""

    after_s: float
    total_bytes: int


@dataclass(frozen=True, slots=True)
class Read:
    """What came of one read. `held_back`: by our own limit, not by the way. `took_s` is until the
    last byte, or until nobody waited any longer."""

    arrivals: tuple[Arrival, ...]
    took_s: float
    held_back: bool = False


@dataclass(frozen=True, slots=True)
class Reading:
    """One measurement; FAILED bytes a second where nothing came."""

    at_ms: int
    bytes_per_s: int
    at_least: bool = False


def reading_of(read: Read | None, at_ms: int) -> Reading:
    """What a read says of its way. The first quarter of what came is left out, in which a
    connection gathers speed; of a short read all counts, which is less than the way can do."""
    total_bytes = read.arrivals[-1].total_bytes if read and read.arrivals else 0
    if read is None or not total_bytes:
        return Reading(at_ms, FAILED)
    start = next(a for a in read.arrivals if a.total_bytes * 4 >= total_bytes)
    steady_s = read.took_s - start.after_s
    if steady_s >= LEAST_S and start.total_bytes < total_bytes:
        rate = (total_bytes - start.total_bytes) / steady_s
        return Reading(at_ms, max(1, int(rate)), read.held_back)
    rate = total_bytes / max(read.took_s, 1e-6)
    # One block, and then nothing until nobody waited any longer, is no short read.
    stalled = start.total_bytes == total_bytes and read.took_s >= LEAST_S
    return Reading(at_ms, max(1, int(rate)), read.held_back or not stalled)


def low_quartile(readings: Sequence[Reading]) -> Reading | None:
    """The reading that three of four are no slower than (nearest rank); None without any that
    succeeded."""
    by_rate = sorted(
        (r for r in readings if r.bytes_per_s != FAILED), key=lambda r: (r.bytes_per_s, r.at_least)
    )
    return by_rate[(len(by_rate) + 3) // 4 - 1] if by_rate else None


@dataclass(frozen=True, slots=True)
class History:
    """What is remembered of one source: when it was last asked, and what came of it."""

    asked_ms: int = 0
    readings: tuple[Reading, ...] = ()

    def due(self, now_ms: int, every_s: int) -> bool:
        """Whether it may be asked again; also where the clock was set back behind the last time."""
        return not self.asked_ms <= now_ms < self.asked_ms + every_s * 1000

    def with_reading(self, reading: Reading) -> History:
        """With one more; what is too old, or too much, is forgotten."""
        oldest_ms = reading.at_ms - READING_AGE_MAX_MS
        kept = [r for r in (*self.readings, reading) if oldest_ms < r.at_ms <= reading.at_ms]
        return replace(self, readings=tuple(kept[-READINGS_MAX:]))

    def rate(self, source: Source, ahead_ms: int) -> DataRate | None:
        """As it is reported, by a clock that is so much ahead of ours."""
        if not self.readings:
            return None
        last, low = self.readings[-1], low_quartile(self.readings)
        failed = low is None or last.bytes_per_s == FAILED
        return DataRate(
            source_region=source.region,
            target=source.address,
            bytes_per_s=FAILED if failed or low is None else low.bytes_per_s,
            at_least=low is not None and not failed and low.at_least,
            readings=sum(r.bytes_per_s != FAILED for r in self.readings),
            measured_ms=last.at_ms + ahead_ms,
        )


Fetch = Callable[[str, DataReads], Awaitable[Read | None]]
"""Reads a little of a URL; None where nothing came."""


@dataclass(slots=True)
class DataRates:
    """Measures the sources of a site, one after the other, and remembers what came of it."""

    sources: tuple[Source, ...]
    path: Path
    clock: Clock
    fetch: Fetch
    _known: dict[str, History] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.sources:
            self._known = _remembered(self.path)

    async def measure(self, limits: DataReads) -> bool:
        """Read from every source whose turn it is; whether there was one. That it was asked is
        written down first: a crash in between costs a reading, not a second read."""
        if not limits.size_bytes:
            return False
        asked = False
        for source in self.sources:
            known, now_ms = self._known.get(source.key, History()), self.clock.now_ms()
            if not known.due(now_ms, limits.every_s):
                continue
            asked = True
            self._keep(source, replace(known, asked_ms=now_ms))
            read = await self.fetch(source.url, limits)
            reading = reading_of(read, self.clock.now_ms())
            self._keep(source, self._known[source.key].with_reading(reading))
        return asked

    def rates(self, broker_ms: int) -> tuple[DataRate, ...]:
        """What is known of every source, at a time of the broker."""
        ahead_ms = broker_ms - self.clock.now_ms()
        made = (self._known.get(s.key, History()).rate(s, ahead_ms) for s in self.sources)
        return tuple(rate for rate in made if rate is not None)

    def _keep(self, source: Source, history: History) -> None:
        self._known[source.key] = history
        wanted = {s.key for s in self.sources}
        body = {key: asdict(known) for key, known in self._known.items() if key in wanted}
        fresh = self.path.with_name(self.path.name + ".new")
        with contextlib.suppress(OSError):  # a full disk: what is in memory holds
            fresh.write_text(json.dumps(body), encoding="utf-8")
            os.replace(fresh, self.path)


def _remembered(path: Path) -> dict[str, History]:
    """What an earlier life wrote; nothing where it cannot be read."""
    try:
        body: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return {
            str(key): History(
                int(each["asked_ms"]),
                tuple(
                    Reading(int(r["at_ms"]), int(r["bytes_per_s"]), bool(r["at_least"]))
                    for r in each["readings"]
                ),
            )
            for key, each in body.items()
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}
