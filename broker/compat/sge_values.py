"""The values of Grid Engine's options: times, sizes, task ranges, resource lists."""

from __future__ import annotations

import re

from federation.runs import InvalidRuns, Runs
from federation.units import GIB, KIB, MAX_DURATION_S, MIB, TIB

_SIZE = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,6})?)([KkMmGgTt]?)[bB]?", re.ASCII)
_UNITS = {
    "": 1, "K": KIB, "M": MIB, "G": GIB, "T": TIB, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12,
}  # fmt: skip
_TASKS = re.compile(r"([0-9]{1,10})(?:-([0-9]{1,10})(?::([0-9]{1,10}))?)?", re.ASCII)
_MAX_RANGES = 10_000
_SLOTS = re.compile(r"([0-9]{0,7})(-?)([0-9]{0,7})", re.ASCII)


class BadValue(ValueError):
    """A value that cannot be used: why, and what would be right."""


def time_s(text: str) -> int | None:
    """Seconds of `3600`, `1:00:00` or `60:00`; None for INFINITY. Raises BadValue."""
    if text.upper() in ("INFINITY", "INF"):
        return None
    fields = text.split(":")
    if not 1 <= len(fields) <= 3 or not all(re.fullmatch(r"[0-9]{0,9}", f) for f in fields):
        raise BadValue("not a time: write seconds or hours:minutes:seconds")
    total = 0
    for field in fields:
        total = total * 60 + int(field or 0)
    if not 0 < total <= MAX_DURATION_S:
        raise BadValue("no time, or more than ten years")
    return total


def size_bytes(text: str) -> int:
    """Bytes of a size: K, M, G, T count in 1024; k, m, g, t in 1000; a bare number in bytes.

    Raises BadValue.
    """
    match = _SIZE.fullmatch(text)
    if match is None:
        raise BadValue("not a size: write 4G or 512M")
    size = int(float(match[1]) * _UNITS[match[2]])
    if size < 1:
        raise BadValue("a size of nothing")
    return size


def tasks(text: str) -> tuple[Runs, tuple[int, int, int]]:
    """(tasks, (first, last, step)) of `1-100:2` or `7`. Raises BadValue."""
    match = _TASKS.fullmatch(text)
    if match is None:
        raise BadValue("not a task range: write 1-100 or 1-100:2")
    first = int(match[1])
    last = int(match[2]) if match[2] else first
    step = int(match[3]) if match[3] else 1
    if first < 1 or last < first or step < 1:
        raise BadValue("task ids begin at 1 and go upwards")
    pairs = [(first, last)] if step == 1 else []
    if step > 1:
        indices = range(first, last + 1, step)
        if len(indices) > _MAX_RANGES:
            raise BadValue(f"more than {_MAX_RANGES} tasks apart from each other")
        pairs = [(index, index) for index in indices]
    try:
        return Runs.of(pairs), (first, last, step)
    except InvalidRuns as error:
        raise BadValue(error.rule) from None


def slots(text: str) -> tuple[int, bool]:
    """(slots, whether a range was given) of `8`, `4-8`, `4-` or `-8`. Raises BadValue."""
    match = _SLOTS.fullmatch(text)
    if match is None or not (match[1] or match[3]) or (match[3] and not match[2]):
        raise BadValue("not a number of slots: write 8 or 4-8")
    least = int(match[1] or 1)
    if least < 1 or (match[3] and int(match[3]) < least):
        raise BadValue("not a number of slots: write 8 or 4-8")
    return least, bool(match[2])


def resources(text: str) -> list[tuple[str, str]]:
    """(name, value) of each part of `h_rt=1:00:00,gpu=2`; a name alone is TRUE."""
    found = []
    for part in text.split(","):
        name, equals, value = part.strip().partition("=")
        if name:
            found.append((name, value.strip() if equals else "TRUE"))
    return found
