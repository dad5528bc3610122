"""A recorded answer beside the answer of today: the same, or what differs, by name. Pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from broker.model.plan import Assignment

_FIGURES = ("status", "objective_usd", "bound_usd", "cost_usd", "placed")
_REL = 1e-9
SHOWN_MAX = 20

Answer = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Difference:
    """What differs: `what` names it, then how it was recorded and how it is now."""

    what: str
    recorded: str
    now: str


def differences(recorded: Answer, now: Answer) -> list[Difference]:
    """Where two answers in the public form differ; empty when they are the same plan. Which nodes
    of a pool are used is not looked at."""
    found = [
        Difference(key, str(recorded.get(key)), str(now.get(key)))
        for key in _FIGURES
        if not _same(recorded.get(key), now.get(key))
    ]
    found += _rows("assignments", _placed(recorded), _placed(now), "copies in")
    found += _rows("unplaced", _unplaced(recorded), _unplaced(now), "wait,")
    return found


def possible_causes(recorded: Mapping[str, Any], here: Mapping[str, str]) -> list[str]:
    """What may make a decision differ: another build, or a plan that no budget alone explains."""
    causes = []
    build = recorded.get("build")
    for name, version in here.items():
        was = build.get(name) if isinstance(build, Mapping) else None
        if was and was != version:
            causes.append(f"{name} was {was}, here it is {version or 'not installed'}")
    notes = recorded.get("notes")
    for note in notes if isinstance(notes, Sequence) and not isinstance(notes, str) else ():
        causes.append(f"recorded with the note: {note}")
    return causes


def _same(one: Any, other: Any) -> bool:
    numbers = isinstance(one, int | float) and isinstance(other, int | float)
    if numbers and not isinstance(one, bool):
        return math.isclose(one, other, rel_tol=_REL, abs_tol=1e-9)
    return bool(one == other)


def _placed(answer: Answer) -> Counter[tuple[str, str]]:
    rows: Counter[tuple[str, str]] = Counter()
    for item in answer.get("assignments") or ():
        later = bool(item.get("queued")), float(item.get("start_h", 0.0))
        found = Assignment(item["job"], item["pool"], item["count"], *later)
        rows[found.job, found.where] += found.count
    return rows


def _unplaced(answer: Answer) -> Counter[tuple[str, str]]:
    rows: Counter[tuple[str, str]] = Counter()
    for item in answer.get("unplaced") or ():
        rows[item["job"], item["code"]] += item["count"]
    return rows


def _rows(
    what: str, recorded: Counter[tuple[str, str]], now: Counter[tuple[str, str]], words: str
) -> list[Difference]:
    changed = [key for key in sorted(recorded.keys() | now.keys()) if recorded[key] != now[key]]
    rows = [
        Difference(f"{what}: {job}", _told(recorded, key, words), _told(now, key, words))
        for key in changed[:SHOWN_MAX]
        for job, _ in (key,)
    ]
    if len(changed) > SHOWN_MAX:
        rows.append(Difference(what, "", f"and {len(changed) - SHOWN_MAX} more"))
    return rows


def _told(rows: Counter[tuple[str, str]], key: tuple[str, str], words: str) -> str:
    return f"{rows[key]} {words} {key[1]}" if rows[key] else "none"
