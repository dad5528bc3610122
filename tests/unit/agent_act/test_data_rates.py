"""How fast data comes: what a read says of a way, how little is read, and what is remembered."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.sense.reports import data_rates_from
from federation.wire import records
from regional_agent.sense.data_rates import (
    FAILED,
    FILE,
    Arrival,
    DataRates,
    History,
    InvalidSource,
    Read,
    Reading,
    Source,
    low_quartile,
    parse_source,
    reading_of,
)
from regional_agent.sense.reports import DataRate, LatencyReport
from regional_agent.session.site_policy import DataReads
from regional_agent.translate import latency_to_wire

MB = 1_000_000
HOUR_MS = 3_600_000
SECRET = "https://data.example/bucket/part-0?X-Signature=hush"
EU = Source("eu-west", SECRET)
ASIA = Source("asia", "http://[fd00::1]:8080/x")


class Hands:
    """A clock that is set, and reads that are counted."""

    def __init__(self, *reads: Read | None) -> None:
        self.ms = 10 * HOUR_MS
        self.asked: list[str] = []
        self._reads = list(reads)

    def now_ms(self) -> int:
        return self.ms

    def monotonic_s(self) -> float:
        return self.ms / 1000

    async def fetch(self, url: str, limits: DataReads) -> Read | None:
        self.asked.append(url)
        return self._reads.pop(0) if self._reads else steady(limits.size_bytes, 10.0)

    def measuring(self, path: Path, *sources: Source) -> DataRates:
        return DataRates(sources or (EU,), path / FILE, self, self.fetch)


def steady(total_bytes: int, took_s: float, *, held_back: bool = False) -> Read:
    """A hundred blocks at an even pace."""
    steps = range(1, 101)
    arrivals = tuple(Arrival(took_s * n / 100, total_bytes * n // 100) for n in steps)
    return Read(arrivals, took_s, held_back)


# What a read says --------------------------------------------------------------------------------


def test_the_quarter_in_which_a_connection_gathers_speed_does_not_count() -> None:
    slow = [Arrival(0.1 * n, 20_000 * n) for n in range(1, 101)]
    fast = [Arrival(10 + 0.01 * n, 2 * MB + 60_000 * n) for n in range(1, 101)]
    read = Read((*slow, *fast), 11.0)
    assert reading_of(read, 5) == Reading(5, pytest.approx(6 * MB, rel=0.02))  # type: ignore[arg-type]


def test_a_short_read_says_what_a_way_does_at_least() -> None:
    assert reading_of(steady(8 * MB, 0.5), 5) == Reading(5, 16 * MB, at_least=True)
    assert reading_of(steady(8 * MB, 8.0), 5).at_least is False


def test_a_read_that_lasted_because_it_began_slowly_says_at_least() -> None:
    """8 MiB over a way of 80 Mbit/s and 80 ms: three quarters of it came in 0.66 s of 1.47."""
    blocks = range(17)
    read = Read(tuple(Arrival(0.62 + 0.053 * n, (n + 1) * MB // 2) for n in blocks), 1.47)
    assert reading_of(read, 5).at_least


def test_a_way_that_we_held_back_may_be_faster() -> None:
    assert reading_of(steady(8 * MB, 8.0, held_back=True), 5).at_least


def test_what_stood_still_until_nobody_waited_any_longer_was_slow() -> None:
    assert reading_of(Read((Arrival(0.2, 30_000),), 30.0), 5) == Reading(5, 1_000)
    half = Read((Arrival(1.0, 1 * MB), Arrival(2.0, 2 * MB)), 30.0)
    assert reading_of(half, 5).bytes_per_s < MB / 20


@pytest.mark.parametrize("read", [None, Read((), 30.0)])
def test_nothing_is_no_speed(read: Read | None) -> None:
    assert reading_of(read, 5) == Reading(5, FAILED)


@given(st.lists(st.integers(1, 10**9), min_size=1, max_size=24))
def test_three_of_four_readings_are_no_slower_than_what_is_reported(rates: list[int]) -> None:
    low = low_quartile([Reading(n, rate) for n, rate in enumerate(rates)])
    assert low is not None and low.bytes_per_s in rates
    assert sum(rate >= low.bytes_per_s for rate in rates) >= 0.75 * len(rates)


def test_of_few_readings_the_slowest_counts_and_failures_never() -> None:
    def low(*rates: int) -> int | None:
        found = low_quartile([Reading(0, rate) for rate in rates])
        return None if found is None else found.bytes_per_s

    assert low(5, 3, FAILED, 9) == 3
    assert low(8, 7, 6, 5, 4) == 5
    assert low(FAILED) is low() is None


# How little is read ------------------------------------------------------------------------------


async def test_a_way_is_read_once_an_hour_however_often_the_agent_starts(tmp_path: Path) -> None:
    hands = Hands()
    for _ in range(5):
        await hands.measuring(tmp_path).measure(DataReads())
        hands.ms += 60_000
    assert len(hands.asked) == 1
    hands.ms += HOUR_MS
    assert await hands.measuring(tmp_path).measure(DataReads())
    assert len(hands.asked) == 2
    (rate,) = hands.measuring(tmp_path).rates(hands.ms)
    assert rate.readings == 2, "what an earlier life read still counts"


async def test_an_agent_that_dies_while_it_reads_does_not_read_again(tmp_path: Path) -> None:
    hands = Hands()

    async def dies(url: str, limits: DataReads) -> Read | None:
        hands.asked.append(url)
        raise asyncio.CancelledError

    for _ in range(3):
        rates = DataRates((EU,), tmp_path / FILE, hands, dies)
        try:
            await rates.measure(DataReads())
        except asyncio.CancelledError:
            hands.ms += 1_000
    assert len(hands.asked) == 1


async def test_a_failed_read_waits_for_its_turn_too(tmp_path: Path) -> None:
    hands = Hands(steady(8 * MB, 8.0), None)
    rates = hands.measuring(tmp_path)
    await rates.measure(DataReads())
    hands.ms += HOUR_MS
    await rates.measure(DataReads())
    assert not await rates.measure(DataReads()) and len(hands.asked) == 2
    (rate,) = rates.rates(hands.ms)
    assert (rate.bytes_per_s, rate.at_least, rate.readings) == (FAILED, False, 1)


async def test_the_site_switches_it_off(tmp_path: Path) -> None:
    hands = Hands()
    assert not await hands.measuring(tmp_path).measure(DataReads(size_bytes=0))
    assert hands.asked == [] and hands.measuring(tmp_path).rates(hands.ms) == ()


@pytest.mark.parametrize("text", ["", "{", "[]", '{"a": 1}', '{"a": {"asked_ms": 1}}'])
async def test_a_memory_that_cannot_be_read_is_none(tmp_path: Path, text: str) -> None:
    (tmp_path / FILE).write_text(text)
    hands = Hands()
    assert await hands.measuring(tmp_path).measure(DataReads())
    assert len(hands.asked) == 1


def test_a_clock_set_back_does_not_stop_the_measuring() -> None:
    known = History(asked_ms=10 * HOUR_MS)
    assert not known.due(10 * HOUR_MS + 1, 3_600)
    assert known.due(5 * HOUR_MS, 3_600)


def test_what_is_older_than_a_day_is_forgotten() -> None:
    known = History()
    for hour in range(100):
        known = known.with_reading(Reading(hour * HOUR_MS, hour + 1))
    assert len(known.readings) == 24 and known.readings[0].bytes_per_s == 77


# What is told of it ------------------------------------------------------------------------------


async def test_it_is_told_by_the_brokers_clock_and_without_what_a_url_may_hold(
    tmp_path: Path,
) -> None:
    hands = Hands()
    rates = hands.measuring(tmp_path, EU, ASIA)
    await rates.measure(DataReads(size_bytes=10 * MB))
    told = rates.rates(hands.ms + 7_000)
    assert told[0] == DataRate("eu-west", "data.example:443", MB, False, 1, hands.ms + 7_000)
    assert told[1].target == "[fd00::1]:8080"
    assert "hush" not in (tmp_path / FILE).read_text() + repr(told)


def read_back(rates: Sequence[DataRate], received_ms: int) -> list[tuple[object, ...]]:
    wire = latency_to_wire(LatencyReport(7, (), tuple(rates))).latency
    sent = records.LatencyReport.FromString(wire.SerializeToString())
    return [
        (r.source_region, r.target, r.bytes_per_s, r.at_least, r.readings, r.measured_ms)
        for r in data_rates_from(sent, received_ms)
    ]


def test_the_broker_reads_what_was_told_and_nothing_is_younger_than_its_report() -> None:
    good = DataRate("eu", "h:1", MB, True, 3, 500)
    assert read_back([good], 1_000) == [("eu", "h:1", MB, True, 3, 500)]
    assert read_back([good], 400) == [("eu", "h:1", MB, True, 3, 400)]
    assert read_back([good], 0) == [("eu", "h:1", MB, True, 3, 500)]
    odd = [DataRate("eu", "h:1", rate, False, 1, 500) for rate in (0, -2, 10**13)]
    assert read_back([*odd, DataRate("", "h:1", MB, False, 1, 500)], 1_000) == []


@pytest.mark.parametrize("url", ["s3://bucket/x", "data.example/x", "http://", "http://h:99999/x"])
def test_a_source_is_an_http_url(url: str) -> None:
    with pytest.raises(InvalidSource, match="is not a URL such as https://host/file"):
        parse_source("eu", url)
