from decimal import Decimal

import pytest

from federation.units import (
    GIB,
    InvalidQuantity,
    exact_bytes,
    format_bytes,
    format_duration,
    format_utc,
    micro_to_usd_text,
    parse_bytes,
    parse_duration_s,
    parse_rfc3339_ms,
    usd_to_micro,
)


@pytest.mark.parametrize(
    "text, size",
    [("64GiB", 64 * GIB), ("500MB", 500_000_000), ("1.5TiB", 1536 * GIB), ("0B", 0),
     ("1kB", 1000), ("1KB", 1000), ("1KiB", 1024), (" 2 GiB ", 2 * GIB), ("1EiB", 1 << 60),
     ("1500MB", 1_500_000_000), ("0.1GiB", 107_374_182), ("0.7B", 1)],
)  # fmt: skip
def test_sizes_are_read_exactly(text, size):
    assert parse_bytes(text) == size


@pytest.mark.parametrize(
    "value, hint",
    [("64", "64GiB"), ("64G", "64GiB (1024) or 64GB (1000)"), ("64Gi", "64GiB"),
     ("64gib", "64GiB"), ("64Gb", "64GB"), ("64gb", "64GB"), (64, "64GiB"), ("-1GiB", "64GiB"),
     ("64 parsecs", "the units are"), ("nan", "64GiB"), ("", "64GiB"), (None, "64GiB"),
     (True, "64GiB"), (1.5, "64GiB"), ("2EiB", "check the unit"), ("1e3MB", "64GiB"),
     ("٣GiB", "64GiB"), pytest.param(10**5000, "64GiB", id="enormous"),
     pytest.param("9" * 100_000 + "B", "64GiB", id="long")],
)  # fmt: skip
def test_other_sizes_are_refused_with_what_would_be_right(value, hint):
    with pytest.raises(InvalidQuantity) as caught:
        parse_bytes(value)
    assert hint in caught.value.remedy
    assert len(str(caught.value)) < 300


def test_sizes_for_people():
    assert format_bytes(0) == "0B"
    assert format_bytes(1023) == "1023B"
    assert format_bytes(3 * GIB // 2) == "1.5GiB"
    assert format_bytes(64 * GIB) == "64GiB"


def test_exact_sizes_keep_the_shorter_base():
    assert exact_bytes(64 * GIB) == "64GiB"
    assert exact_bytes(500_000_000) == "500MB"
    assert exact_bytes(1) == "1B"


@pytest.mark.parametrize(
    "text, seconds",
    [("45s", 45), ("90m", 5400), ("2h30m", 9000), ("1d", 86_400), ("1w2d", 777_600),
     ("1.5h", 5400), ("0s", 0), ("3653d", 3653 * 86_400)],
)  # fmt: skip
def test_durations_are_read(text, seconds):
    assert parse_duration_s(text) == seconds


@pytest.mark.parametrize(
    "value, hint",
    [("90", "90s, 90m or 90h"), (90, "90s, 90m or 90h"), ("0.5s", "whole seconds"),
     ("11y", "2h30m"), ("30m2h", "2h30m"), ("1h1h", "2h30m"), ("-5m", "2h30m"),
     ("100w10000d", "check the unit"), ("", "2h30m"), ("inf", "2h30m"), (None, "90s"),
     (True, "90s"), ("1:30", "2h30m"), ("90 m", "2h30m"), ([], "90s")],
)  # fmt: skip
def test_other_durations_are_refused_with_what_would_be_right(value, hint):
    with pytest.raises(InvalidQuantity) as caught:
        parse_duration_s(value)
    assert hint in caught.value.remedy


def test_durations_are_written_exactly():
    assert format_duration(9000) == "2h30m"
    assert format_duration(86_400) == "1d"
    assert format_duration(0) == "0s"


@pytest.mark.parametrize(
    "value, micro_usd",
    [(2.49, 2_490_000), (0, 0), (0.1, 100_000), ("12.50", 12_500_000), (Decimal("1e-6"), 1),
     (4e-7, 0), (7e-7, 1), (10**9, 10**15)],
)  # fmt: skip
def test_money_is_counted_in_millionths(value, micro_usd):
    assert usd_to_micro(value) == micro_usd


@pytest.mark.parametrize(
    "value",
    [float("nan"), float("inf"), -0.01, 1e10, pytest.param(10**5000, id="enormous"),
     True, None, "x", "", "1e999999999999999",
     pytest.param("9" * 1000, id="long"), [], Decimal("sNaN")],
)  # fmt: skip
def test_money_that_is_none_is_refused(value):
    with pytest.raises(InvalidQuantity):
        usd_to_micro(value)


@pytest.mark.parametrize(
    "micro_usd, text",
    [(2_490_000, "2.49"), (0, "0.00"), (1, "0.000001"), (-1_500_000, "-1.50"),
     (10**12, "1000000.00")],
)  # fmt: skip
def test_money_is_written_exactly(micro_usd, text):
    assert micro_to_usd_text(micro_usd) == text


def test_times_are_read_in_any_offset_and_written_in_utc():
    assert parse_rfc3339_ms("1970-01-01T00:00:00Z") == 0
    noon = parse_rfc3339_ms("2026-03-01T13:00:00.25+01:00")
    assert format_utc(noon) == "2026-03-01T12:00:00.250Z"
    assert parse_rfc3339_ms("2026-03-01 12:00:00.250z") == noon
    assert parse_rfc3339_ms("2026-03-01T07:00:00.2509-05:00") == noon


@pytest.mark.parametrize(
    "value",
    ["2026-03-01", "2026-03-01T12:00:00", "2026-02-30T12:00:00Z", "2026-03-01T24:00:00Z",
     "2026-03-01T12:00:60Z", "2026-03-01T12:00:00+25:00", "1969-12-31T23:59:59Z",
     "0001-01-01T00:00:00+10:00", "tomorrow", "", None, 0, 5.0],
)  # fmt: skip
def test_other_times_are_refused(value):
    with pytest.raises(InvalidQuantity):
        parse_rfc3339_ms(value)
