"""Values of the API as text for people. Pure; whatever is missing or odd is shown as `-`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta, tzinfo
from typing import Any

from federation.units import InvalidQuantity, format_bytes, parse_rfc3339_ms

NONE = "-"
_MAX_CELL = 400


@dataclass(frozen=True, slots=True)
class Now:
    """The moment a view is made for: UTC epoch milliseconds, and the zone people live in.

    `zone` None is this machine's own zone.
    """

    ms: int
    zone: tzinfo | None = None

    def local(self, epoch_ms: int) -> datetime:
        """That moment on the clock on the wall."""
        return datetime.fromtimestamp(epoch_ms / 1000, tz=self.zone).astimezone(self.zone)


def at(document: object, *keys: str) -> Any:
    """The value under nested `keys`, or None when any of it is not there."""
    value: Any = document
    for key in keys:
        if not isinstance(value, Mapping):
            return None
        value = value.get(key)
    return value


def mapping(value: object) -> dict[str, Any]:
    """`value` if it is a JSON object, else an empty one."""
    return value if isinstance(value, dict) else {}


def mappings(value: object) -> list[dict[str, Any]]:
    """The objects in a JSON list, or nothing."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def number(value: object) -> float | None:
    """A finite number, or None."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:
        return None


def text(value: object) -> str:
    """One line without control characters: what others wrote must not steer our terminal."""
    if value is None or value == "" or value == [] or value == {}:
        return NONE
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return text(", ".join(text(item) for item in value[:32]))
    if isinstance(value, dict):
        return text(" ".join(f"{key}={text(item)}" for key, item in list(value.items())[:32]))
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, int) and value.bit_length() > 256:
        return NONE
    shown = "".join(
        character if character.isprintable() else " " for character in str(value)[:4096]
    ).strip()
    return shown if len(shown) <= _MAX_CELL else f"{shown[: _MAX_CELL - 3]}..."


def count(value: object) -> str:
    """A whole number with separators."""
    found = number(value)
    return NONE if found is None else f"{found:,.0f}"


def usd(value: object) -> str:
    """Money: cents where they matter, more digits where a cent would hide it."""
    found = number(value)
    if found is None:
        return NONE
    sign, size = ("-" if found < 0 else ""), abs(found)
    if 0 < size < 0.00005:
        return f"{sign}<$0.0001"
    if 0 < size < 0.1:
        return f"{sign}${size:.4f}"
    return f"{sign}${size:,.2f}"


def seconds(value: object) -> str:
    """A duration: `0.4s`, `45s`, `4m10s`, `2h05m`, `3d4h`."""
    found = number(value)
    if found is None:
        return NONE
    if found < 0:
        return f"-{seconds(-found)}"
    if found < 10:
        return f"{round(found, 1):g}s"
    whole = round(found)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02d}s"
    if whole < 86_400:
        return f"{whole // 3600}h{whole % 3600 // 60:02d}m"
    return f"{whole // 86_400:,}d{whole % 86_400 // 3600}h"


def milliseconds(value: object) -> str:
    """A time on the network or in a handshake: `0.4 ms`, `84 ms`, `2.1 s`."""
    found = number(value)
    if found is None:
        return NONE
    if abs(found) >= 10_000:
        return f"{found / 1000:,.1f} s"
    return f"{found:.0f} ms" if abs(found) >= 10 else f"{round(found, 1):g} ms"


def taken(value: object) -> str:
    """Measured milliseconds, of which 0 means not measured."""
    return milliseconds(value) if value else NONE


def gbits(way: Mapping[str, object]) -> str:
    """How fast data comes by a way: `8 Gbit/s`, `>= 0.4 Gbit/s` where it may be faster."""
    found = number(way.get("gbps"))
    if found is None:
        return NONE
    return f"{'>= ' if way.get('at_least') is True else ''}{found:.3g} Gbit/s"


def size(value: object) -> str:
    """Bytes, base 2."""
    found = number(value)
    return NONE if found is None or found < 0 else format_bytes(int(found))


def epoch_ms(value: object) -> int | None:
    """UTC epoch milliseconds of a time of the API, or None."""
    try:
        return parse_rfc3339_ms(value)
    except InvalidQuantity:
        return None


def moment(value: object, now: Now) -> str:
    """A time on the user's clock: `13:04:11` today, else `2026-11-29 13:04`."""
    found = epoch_ms(value)
    if found is None:
        return NONE
    try:
        then, today = now.local(found), now.local(now.ms)
    except (OverflowError, ValueError, OSError):
        return NONE
    if then.date() == today.date():
        return then.strftime("%H:%M:%S")
    return then.strftime("%Y-%m-%d %H:%M")


def age(value: object, now: Now) -> str:
    """How long ago a time of the API was: `12s`, `3m`, `2h`, `5d`; `in 3m` for the future."""
    found = epoch_ms(value)
    if found is None:
        return NONE
    passed_s = (now.ms - found) / 1000
    return short(passed_s) if passed_s > -1 else f"in {short(-passed_s)}"


def short(passed_s: object) -> str:
    """Seconds in one unit: `12s`, `3m`, `2h`, `5d`."""
    found = number(passed_s)
    if found is None:
        return NONE
    whole = max(int(found), 0)
    for unit, length in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if whole >= 2 * length:
            return f"{whole // length}{unit}"
    return f"{whole}s"


def between(start: object, end: object, now: Now) -> str:
    """How long something took, or has taken so far."""
    first, last = epoch_ms(start), epoch_ms(end)
    if first is None:
        return NONE
    passed_ms = (last if last is not None else now.ms) - first
    return seconds(timedelta(milliseconds=max(passed_ms, 0)).total_seconds())


def outcome(value: object) -> str:
    """How it ended: `succeeded`, `failed (exit 3)`, `failed (signal 9)`, `refused (site_full)`."""
    if isinstance(value, str):
        return text(value).replace("_", " ")
    kind = text(at(value, "kind")).replace("_", " ")
    if kind == NONE or kind == "succeeded":
        return kind
    signal, exit_code = number(at(value, "signal")), number(at(value, "exit_code"))
    if signal:
        return f"{kind} (signal {signal:.0f})"
    if exit_code:
        return f"{kind} (exit {exit_code:.0f})"
    code = text(at(value, "code"))
    return kind if code in (NONE, kind) else f"{kind} ({code})"


_PAST_WAITING = ("running", "releasing", "ended")


def state(job: Mapping[str, Any]) -> str:
    """A job's or an attempt's phase, or how it ended."""
    ended = at(job, "outcome")
    shown = outcome(ended) if ended else text(job.get("phase"))
    if waits_at_site(job):
        shown = "queued at site"
    return f"{shown}, superseded" if job.get("superseded_at") else shown


def waits_at_site(job: Mapping[str, Any]) -> Mapping[str, Any]:
    """Of an attempt, or of a job's live ones, the one that waits in its site's own queue; empty
    for none."""
    attempts = mappings(job.get("attempts")) or [dict(job)]
    waiting = [a for a in attempts if a.get("queued") and a.get("phase") not in _PAST_WAITING]
    return waiting[-1] if waiting and not job.get("outcome") else {}
