"""The values of Slurm's options: times, sizes, counts, generic resources, dependencies."""

from __future__ import annotations

import re
from dataclasses import dataclass

from federation.units import GIB, KIB, MAX_DURATION_S, MIB, TIB

MAX_COUNT = 10_000_000
_MEMORY = re.compile(r"([0-9]{1,15})(?:\.([0-9]{1,6}))?\s?([kKmMgGtT]?)[bB]?", re.ASCII)
_UNITS = {"k": KIB, "m": MIB, "g": GIB, "t": TIB}
_COUNT = re.compile(r"([0-9]{1,9})([kKmM]?)", re.ASCII)
_GRES_COUNT = re.compile(r"([0-9]{1,12})([kKmMgGtTpP]?)", re.ASCII)
_NUMBER = re.compile(r"[0-9]{1,9}", re.ASCII)
_JOB = re.compile(r"([0-9]{1,12})(_[0-9*]+)?", re.ASCII)
_FEDERATED = re.compile(r"j[0-9a-hjkmnp-tv-z]{16}")
_SIGNAL = re.compile(r"(?:([RB]{1,2}):)?([A-Za-z0-9+]{1,16})(?:@([0-9]{1,6}))?", re.ASCII)
_WHEN = {"after": "started", "afterany": "ended", "afterok": "succeeded"}


class BadValue(ValueError):
    """A value that cannot be used: why, and what would be right."""


def time_s(text: str) -> int | None:
    """Seconds of a time limit in one of Slurm's six formats; None = no limit asked for.

    minutes, minutes:seconds, hours:minutes:seconds, days-hours, days-hours:minutes and
    days-hours:minutes:seconds; UNLIMITED, INFINITE, -1 and 0 mean no limit. Raises BadValue.
    """
    if text.upper() in ("UNLIMITED", "INFINITE", "-1", "0"):
        return None
    days, dash, rest = text.partition("-")
    fields = (rest if dash else text).split(":")
    numbers = [days, *fields] if dash else fields
    if not all(_NUMBER.fullmatch(number) for number in numbers) or not 1 <= len(fields) <= 3:
        raise BadValue("not a time: write minutes, hours:minutes:seconds or days-hours")
    if dash:
        hours, minutes, seconds = (*map(int, fields), 0, 0)[:3]
        total = int(days) * 86_400 + hours * 3600 + minutes * 60 + seconds
    elif len(fields) == 3:
        total = int(fields[0]) * 3600 + int(fields[1]) * 60 + int(fields[2])
    else:
        total = int(fields[0]) * 60 + (int(fields[1]) if len(fields) == 2 else 0)
    if total > MAX_DURATION_S:
        raise BadValue("more than ten years")
    return total or None


def memory_bytes(text: str) -> int:
    """Bytes of a size; K, M, G, T count in 1024, and a bare number is in MiB. Raises BadValue."""
    match = _MEMORY.fullmatch(text)
    if match is None:
        raise BadValue("not a size: write 4000 (MiB), 4G, 512M or 1T")
    if match[2]:
        raise BadValue("Slurm takes whole numbers only")
    return int(match[1]) * _UNITS[match[3].lower() or "m"]


def count(text: str, least: int = 1) -> int:
    """A whole number, with k (1024) or m (1024 x 1024) behind it. Raises BadValue."""
    match = _COUNT.fullmatch(text)
    if match is None:
        raise BadValue("not a whole number")
    number = int(match[1]) * {"": 1, "k": 1024, "m": 1 << 20}[match[2].lower()]
    if not least <= number <= MAX_COUNT:
        raise BadValue(f"outside {least} to {MAX_COUNT}")
    return number


def nodes(text: str) -> tuple[int, int]:
    """Least and most nodes of `4` or `2-4`. Raises BadValue, also for lists of counts."""
    if "," in text or ":" in text:
        raise BadValue("a list of node counts is not read: write one, such as 4 or 2-4")
    low, dash, high = text.partition("-")
    least = count(low)
    most = count(high) if dash else least
    if most < least:
        raise BadValue("the most nodes are fewer than the least")
    return least, most


@dataclass(frozen=True, slots=True)
class Gres:
    """So many of a generic resource per node, of a type or of any ("")."""

    name: str
    type: str
    count: int


def gres(text: str) -> tuple[Gres, ...]:
    """Generic resources such as `gpu:a100:2,shard:4`; `none` is none. Raises BadValue."""
    if text.lower() in ("none", "0"):
        return ()
    return tuple(_one_gres(part.strip()) for part in text.split(","))


def _one_gres(part: str) -> Gres:
    fields = part.removeprefix("gres/").removeprefix("gres:").replace("=", ":").split(":")
    if not fields[0] or len(fields) > 3 or not all(fields):
        raise BadValue("not a generic resource: write gpu:2 or gpu:a100:2")
    match = _GRES_COUNT.fullmatch(fields[-1]) if len(fields) > 1 else None
    if match is None:
        if len(fields) == 3:
            raise BadValue(f"{fields[-1][:40]} is not a count")
        return Gres(fields[0], fields[1] if len(fields) == 2 else "", 1)
    number = int(match[1]) * 1024 ** " kmgtp".index(match[2].lower() or " ")
    return Gres(fields[0], fields[1] if len(fields) == 3 else "", number)


def gpus(text: str) -> tuple[Gres, ...]:
    """GPUs such as `4`, `a100:4` or `a100:2,v100:2`. Raises BadValue."""
    found = []
    for part in text.split(","):
        kind, colon, number = part.strip().rpartition(":")
        if not _GRES_COUNT.fullmatch(number) and not colon:
            kind, number = number, "1"
        if (colon and not kind) or not number:
            raise BadValue("not GPUs: write 4 or a100:4")
        found.append(Gres("gpu", kind, count(number, 0)))
    return tuple(found)


@dataclass(frozen=True, slots=True)
class Wait:
    """One job waited for: an integer or a job id, and `started`, `ended` or `succeeded`."""

    job: str
    when: str


def dependencies(text: str) -> tuple[Wait, ...]:
    """All of `afterok:20:21,afterany:23`. Raises BadValue for what cannot be said here."""
    if "?" in text:
        raise BadValue("any one of several jobs cannot be waited for: `,` (all) can")
    found: list[Wait] = []
    for part in text.split(","):
        kind, _, ids = part.strip().partition(":")
        if kind == "singleton":
            raise BadValue("singleton: jobs of one name are not kept apart here")
        if kind.isdigit():  # a bare id means afterany
            kind, ids = "afterany", part.strip()
        if kind not in _WHEN:
            raise BadValue(
                f"{kind[:30] or 'nothing'}: only after, afterany and afterok are known"
            )
        found += [_wait(kind, one) for one in ids.split(":")]
    return tuple(found)


def _wait(kind: str, one: str) -> Wait:
    job, plus, _ = one.partition("+")
    if plus:
        raise BadValue("a time after the start cannot be waited for")
    match = _JOB.fullmatch(job)
    if match is not None and match[2]:
        raise BadValue(f"{job[:30]}: single tasks of an array cannot be waited for")
    if match is None and not _FEDERATED.fullmatch(job):
        raise BadValue(f"{job[:30] or 'nothing'} is no job id")
    return Wait(job, _WHEN[kind])


@dataclass(frozen=True, slots=True)
class Notice:
    """A signal so long before the end of the walltime; `shell` = to the batch shell alone."""

    name: str
    seconds: int
    shell: bool


def signal(text: str) -> Notice:
    """`[{R|B}:]signal[@seconds]`, 60 s by default. Raises BadValue."""
    match = _SIGNAL.fullmatch(text)
    if match is None:
        raise BadValue("not a signal: write USR1@120 or B:TERM@60")
    name = match[2].upper().removeprefix("SIG")
    return Notice(name, int(match[3] or 60), "B" in (match[1] or ""))
