"""Bytes, durations, money and times with their units: read strictly, written exactly.

Base 2 and base 10 are never guessed (`GiB` or `GB`, not `G`), a bare number has no meaning, and
what is not finite, negative or absurd is refused with the text that would have been right.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from decimal import ROUND_HALF_EVEN, Decimal, InvalidOperation

KIB, MIB, GIB, TIB, PIB, EIB = (1 << shift for shift in (10, 20, 30, 40, 50, 60))
MAX_BYTES = EIB
MAX_DURATION_S = 3653 * 86_400
MICRO = 1_000_000
MAX_USD = 1_000_000_000

_BYTE_UNITS = {
    "B": 1, "kB": 10**3, "KB": 10**3,
    "MB": 10**6, "GB": 10**9, "TB": 10**12, "PB": 10**15, "EB": 10**18,
    "KiB": KIB, "MiB": MIB, "GiB": GIB, "TiB": TIB, "PiB": PIB, "EiB": EIB,
}  # fmt: skip
_BINARY = (("EiB", EIB), ("PiB", PIB), ("TiB", TIB), ("GiB", GIB), ("MiB", MIB), ("KiB", KIB))
_DECIMAL = (("EB", 10**18), ("PB", 10**15), ("TB", 10**12), ("GB", 10**9), ("MB", 10**6))
_QUANTITY = re.compile(r"([0-9]{1,20}(?:\.[0-9]{1,20})?)\s{0,4}([A-Za-z]{0,10})", re.ASCII)
_DURATION_UNITS = {"w": 604_800, "d": 86_400, "h": 3_600, "m": 60, "s": 1}
_DURATION_PART = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,9})?)([wdhms])", re.ASCII)
_RFC3339 = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[Tt ](\d\d):(\d\d):(\d\d)(?:\.(\d{1,9}))?"
    r"(?:([Zz])|([+-])(\d\d):(\d\d))",
    re.ASCII,
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class InvalidQuantity(ValueError):
    """A quantity that cannot be read: what it should be, the value, the rule, a remedy."""

    def __init__(self, what: str, value: object, rule: str, remedy: str) -> None:
        shown = repr(value) if isinstance(value, str) and len(value) <= 80 else _short(value)
        super().__init__(f"{what} {shown} is not valid: {rule}; {remedy}")
        self.what = what
        self.value = value
        self.rule = rule
        self.remedy = remedy


def _short(value: object) -> str:
    if isinstance(value, str):
        return f"{value[:77]!r}..."
    if isinstance(value, int) and value.bit_length() > 256:
        return "(an enormous integer)"
    return repr(value) if isinstance(value, int | float | Decimal) else type(value).__name__


def parse_bytes(text: object) -> int:
    """Bytes in a size such as `64GiB`, `500MB` or `1.5TiB`, rounded to a whole byte.

    Raises InvalidQuantity on a missing or ambiguous unit, or more than 1 EiB.
    """
    if not isinstance(text, str):
        raise InvalidQuantity(
            "size", text, "a size is text with a unit", f"write {_size_example(text)}"
        )
    match = _QUANTITY.fullmatch(text.strip())
    if match is None:
        raise InvalidQuantity(
            "size", text, "not a number >= 0 with a unit", "write for example 64GiB or 500MB"
        )
    number, unit = match[1], match[2]
    factor = _BYTE_UNITS.get(unit)
    if factor is None:
        raise _wrong_byte_unit(text, number, unit)
    size = int((Decimal(number) * factor).to_integral_value(ROUND_HALF_EVEN))
    if size > MAX_BYTES:
        raise InvalidQuantity("size", text, "more than 1 EiB", "check the unit")
    return size


def _size_example(value: object) -> str:
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 10**6:
        return f"{value}GiB (or {value}MiB, {value}GB, ...)"
    return "for example 64GiB or 500MB"


def _wrong_byte_unit(text: str, number: str, unit: str) -> InvalidQuantity:
    if not unit:
        remedy = f"write {number}GiB (or {number}MiB, {number}GB, ...)"
        return InvalidQuantity("size", text, "the unit is missing", remedy)
    letter = unit[0].upper()
    if unit.lower() in {"k", "m", "g", "t", "p", "e"}:
        rule = f"`{unit}` does not say whether it counts in 1024 or 1000"
        return InvalidQuantity(
            "size", text, rule, f"write {number}{letter}iB (1024) or {number}{letter}B (1000)"
        )
    if re.fullmatch(r"[kmgtpe]ib?", unit, re.IGNORECASE):
        return InvalidQuantity("size", text, f"unknown unit `{unit}`", f"write {number}{letter}iB")
    if re.fullmatch(r"[kmgtpe]b", unit, re.IGNORECASE):
        return InvalidQuantity(
            "size", text, f"unknown unit `{unit}`", f"write {number}{letter}B (bytes, 1000)"
        )
    known = "B, kB, MB, GB, TB, PB (1000) and KiB, MiB, GiB, TiB, PiB (1024)"
    return InvalidQuantity("size", text, f"unknown unit `{unit}`", f"the units are {known}")


def exact_bytes(size_bytes: int) -> str:
    """The shortest text of a size that `parse_bytes` reads back unchanged, such as `64GiB`."""
    for name, factor in (*_BINARY, *_DECIMAL):
        if size_bytes and size_bytes % factor == 0:
            return f"{size_bytes // factor}{name}"
    return f"{size_bytes}B"


def format_bytes(size_bytes: int) -> str:
    """A size for people, base 2, at most one decimal: `1.5GiB`. Not exact: see `exact_bytes`."""
    for name, factor in _BINARY:
        if size_bytes >= factor:
            tenths = (size_bytes * 10 + factor // 2) // factor
            whole, rest = divmod(tenths, 10)
            return f"{whole}.{rest}{name}" if rest else f"{whole}{name}"
    return f"{size_bytes}B"


def parse_duration_s(text: object) -> int:
    """Whole seconds in a duration such as `45s`, `90m`, `2h30m`, `1d`, `1.5h`.

    Units w, d, h, m, s from large to small, each once. Raises InvalidQuantity on anything else,
    on a fraction of a second and on more than ten years.
    """
    if not isinstance(text, str):
        number = text if isinstance(text, int) and not isinstance(text, bool) else 90
        shown = number if 0 <= number < 10**6 else 90
        remedy = f"write {shown}s, {shown}m or {shown}h"
        raise InvalidQuantity("duration", text, "a duration is text with a unit", remedy)
    stripped = text.strip()
    if re.fullmatch(r"[0-9]{1,12}(\.[0-9]{1,9})?", stripped, re.ASCII):
        remedy = f"write {stripped}s, {stripped}m or {stripped}h"
        raise InvalidQuantity("duration", text, "the unit is missing", remedy)
    total = _sum_of_parts(stripped)
    if total is None:
        raise InvalidQuantity(
            "duration", text, "not a duration", "write for example 45s, 90m, 2h30m or 1d"
        )
    if total != total.to_integral_value():
        raise InvalidQuantity("duration", text, "less than a second in it", "use whole seconds")
    if total > MAX_DURATION_S:
        raise InvalidQuantity("duration", text, "more than ten years", "check the unit")
    return int(total)


def _sum_of_parts(text: str) -> Decimal | None:
    total, position, smallest = Decimal(0), 0, 10**9
    while position < len(text):
        match = _DURATION_PART.match(text, position)
        if match is None or _DURATION_UNITS[match[2]] >= smallest:
            return None
        smallest = _DURATION_UNITS[match[2]]
        total += Decimal(match[1]) * smallest
        position = match.end()
    return total if position else None


def format_duration(seconds: int) -> str:
    """Exact text of whole seconds >= 0: `2h30m`, `1d`; `parse_duration_s` reads it back."""
    parts = []
    for unit in ("d", "h", "m", "s"):
        amount, seconds = divmod(seconds, _DURATION_UNITS[unit])
        if amount:
            parts.append(f"{amount}{unit}")
    return "".join(parts) or "0s"


def usd_to_micro(value: object) -> int:
    """Micro-USD of an amount in USD given as int, float, Decimal or decimal text, half to even.

    Raises InvalidQuantity on what is not a number, not finite, negative or above a billion.
    """
    remedy = "write a number of USD such as 2.49"
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal | str):
        raise InvalidQuantity("amount", value, "not a number", remedy)
    if isinstance(value, str) and len(value) > 40:
        raise InvalidQuantity("amount", value, "not a number", remedy)
    if isinstance(value, int) and abs(value) > MAX_USD:
        raise InvalidQuantity("amount", value, "outside 0 to 1,000,000,000 USD", remedy)
    try:
        amount = Decimal(repr(value) if isinstance(value, float) else value)
    except InvalidOperation:
        raise InvalidQuantity("amount", value, "not a number", remedy) from None
    if not amount.is_finite():
        raise InvalidQuantity("amount", value, "not a finite number", remedy)
    if not 0 <= amount <= MAX_USD:
        raise InvalidQuantity("amount", value, "outside 0 to 1,000,000,000 USD", remedy)
    return int((amount * MICRO).to_integral_value(ROUND_HALF_EVEN))


def micro_to_usd_text(micro_usd: int) -> str:
    """Exact decimal text of micro-USD with at least two decimals: 2490000 -> `2.49`."""
    sign = "-" if micro_usd < 0 else ""
    whole, rest = divmod(abs(micro_usd), MICRO)
    decimals = f"{rest:06d}".rstrip("0").ljust(2, "0")
    return f"{sign}{whole}.{decimals}"


def parse_rfc3339_ms(text: object) -> int:
    """UTC epoch milliseconds of an RFC 3339 time with offset, truncated to the millisecond.

    Raises InvalidQuantity on anything else, also when the offset is missing or the time is
    before 1970.
    """
    remedy = "write for example 2026-03-01T08:00:00Z or 2026-03-01T09:00:00+01:00"
    match = _RFC3339.fullmatch(text.strip()) if isinstance(text, str) else None
    if match is None:
        raise InvalidQuantity("time", text, "not an RFC 3339 time with an offset", remedy)
    try:
        naive = datetime(*(int(match[group]) for group in range(1, 7)), tzinfo=UTC)  # type: ignore[misc, arg-type]
        offset = timedelta()
        if match[9]:
            hours, minutes = int(match[10]), int(match[11])
            if hours > 23 or minutes > 59:
                raise ValueError("offset")
            offset = timedelta(hours=hours, minutes=minutes) * (1 if match[9] == "+" else -1)
        since = naive - offset - _EPOCH
    except (ValueError, OverflowError):
        raise InvalidQuantity("time", text, "no such time", remedy) from None
    fraction_ms = int((match[7] or "0").ljust(9, "0")[:3])
    milliseconds = since // timedelta(seconds=1) * 1000 + fraction_ms
    if milliseconds < 0:
        raise InvalidQuantity("time", text, "before 1970", remedy)
    return milliseconds


def format_utc(epoch_ms: int) -> str:
    """RFC 3339 text in UTC of epoch ms: `2026-03-01T08:00:00Z`, decimals only if any."""
    moment = _EPOCH + timedelta(milliseconds=epoch_ms)
    text = moment.strftime("%Y-%m-%dT%H:%M:%S")
    fraction = epoch_ms % 1000
    return f"{text}.{fraction:03d}Z" if fraction else f"{text}Z"
