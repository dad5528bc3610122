"""When a job will have ended, from its expected start and how long it, or jobs of its name, ran.
Pure.

The late end is a p90 only where earlier runs say so; otherwise it is what `max_runtime` allows, and
is called that.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from broker.feedback.ports import JobEntry
from federation.jobs import MAX_REPLICAS, JobSpec
from federation.units import format_utc

SERIAL_PART = 0.1
"""Of a gang's run time, what more nodes are taken not to make shorter."""
RUNS_LEAST = 5
"""Fewer earlier runs say nothing of the next one."""


@dataclass(frozen=True, slots=True)
class RunTime:
    """How long a job runs in seconds: usually, and late; and where that is known from."""

    usual_s: float
    late_s: float
    basis: str
    late_means: str


def run_time(spec: JobSpec, earlier: Sequence[JobEntry]) -> RunTime | None:
    """From jobs of its name that succeeded, else from what the job says; None where it says
    nothing."""
    measured = sorted(
        (entry.ended_ms - entry.started_ms) / 1000
        for entry in earlier
        if entry.name == spec.name and entry.started_ms and not entry.tasks_total
    )
    if len(measured) >= RUNS_LEAST and spec.array is None:
        usual_s = measured[len(measured) // 2]
        late_s = measured[min(int(0.9 * len(measured)), len(measured) - 1)]
        return RunTime(usual_s, late_s, f"{len(measured)} earlier runs", "90 %")
    said_s, most_s = spec.expected_runtime_s, spec.max_runtime_s
    if not said_s and not most_s:
        return None
    basis = "expected_runtime" if said_s else "max_runtime"
    return RunTime(float(said_s or most_s or 0), float(most_s or said_s or 0), basis, "at most")


@dataclass(frozen=True, slots=True)
class Ending:
    """Ends in UTC ms, of all tasks of an array."""

    usual_ms: int
    late_ms: int


def ending(
    start_s: tuple[float, float], runs: RunTime, now_ms: int, tasks: int = 1, at_once: int = 1
) -> Ending:
    """The end of a job whose start is expected in (usually, late) seconds. An array runs in as many
    waves as its width needs."""
    waves = -(-tasks // max(at_once, 1))
    usual_s = start_s[0] + waves * runs.usual_s
    late_s = max(start_s[1] + waves * runs.late_s, usual_s)
    return Ending(now_ms + round(usual_s * 1000), now_ms + round(late_s * 1000))


def start_of(row: Mapping[str, Any]) -> tuple[float, float] | None:
    """(usual, late) seconds to the start of a row of the candidate table; None where none is in
    sight."""
    room = row["room_in_s"]
    if not row["feasible"] and room is None:
        return None
    first, last = room or (0.0, 0.0)
    return row["start_delay_s"] + first, row["start_delay_p90_s"] + last


def alternatives(
    rows: Sequence[Mapping[str, Any]], chosen: Mapping[str, Any], runs: RunTime, now_ms: int
) -> list[dict[str, Any]]:
    """Other places that would end sooner, at most three, the soonest first."""
    mine = start_of(chosen)
    if mine is None or chosen["hours"] is None:
        return []
    ends = []
    for row in rows:
        start = start_of(row)
        if row["chosen"] or not row["feasible"] or start is None or not row["hours"]:
            continue
        faster = row["hours"] / chosen["hours"]
        scaled = RunTime(runs.usual_s * faster, runs.late_s * faster, "", "")
        found = ending(start, scaled, now_ms)
        if found.usual_ms < ending(mine, runs, now_ms).usual_ms:
            more_usd = (row["total_usd"] or 0.0) - (chosen["total_usd"] or 0.0)
            ends.append((found, f"{row['cluster']}/{row['pool']}", more_usd))
    ends.sort(key=lambda item: item[0].usual_ms)
    return [_alternative(found, f"in {name}", more_usd) for found, name, more_usd in ends[:3]]


def more_nodes(spec: JobSpec) -> tuple[JobSpec, float] | None:
    """A gang with a quarter more replicas, two at least, and what its run time is times; None for
    what is no gang. A tenth of the run time is taken not to get shorter (Amdahl's law)."""
    resources, before = spec.resources, spec.resources.replicas
    after = min(before + max(2, before // 4), MAX_REPLICAS)
    if before < 2 or after == before:
        return None
    factor = SERIAL_PART + (1 - SERIAL_PART) * before / after
    shorter = {
        name: max(1, math.ceil(said_s * factor))
        for name in ("expected_runtime_s", "max_runtime_s")
        if (said_s := getattr(spec, name))
    }
    bigger = resources.model_copy(update={"replicas": after})
    return spec.model_copy(update={"resources": bigger, **shorter}), factor


def on_more_nodes(
    row: Mapping[str, Any], wide: Mapping[str, Any], runs: RunTime, more: tuple[int, float],
    now_ms: int,
) -> list[dict[str, Any]]:  # fmt: skip
    """What more nodes would bring where they end it sooner; nothing otherwise. `row` and `wide` are
    the places chosen without and with them, `more` so many nodes and the factor of the run time."""
    start, later, (nodes, factor) = start_of(row), start_of(wide), more
    if start is None or later is None:
        return []
    found = ending(later, RunTime(runs.usual_s * factor, runs.late_s * factor, "", ""), now_ms)
    if found.usual_ms >= ending(start, runs, now_ms).usual_ms:
        return []
    more_usd = (wide["total_usd"] or 0.0) - (row["total_usd"] or 0.0)
    what = f"+{nodes} nodes, if nine tenths of its work divide over them"
    return [_alternative(found, what, more_usd)]


def wider(found: Ending, copies: int, more_usd: float) -> dict[str, Any]:
    """An array with more tasks at once."""
    return _alternative(found, f"{copies} tasks at once", more_usd)


def _alternative(found: Ending, what: str, more_usd: float) -> dict[str, Any]:
    return {
        "what": what,
        "expected_at": format_utc(found.usual_ms),
        "late_at": format_utc(found.late_ms),
        "difference_usd": more_usd,
    }


def ends_json(
    found: Ending, runs: RunTime, deadline_ms: int | None, more: Sequence[dict[str, Any]] = ()
) -> dict[str, Any]:
    """As the API shows it. `slips`: the expected end is past the deadline; `at_risk`: the late
    one."""
    return {
        "expected_at": format_utc(found.usual_ms),
        "late_at": format_utc(found.late_ms),
        "late_means": runs.late_means,
        "basis": runs.basis,
        "deadline_at": format_utc(deadline_ms) if deadline_ms else None,
        "slips": deadline_ms is not None and found.usual_ms > deadline_ms,
        "at_risk": deadline_ms is not None and found.late_ms > deadline_ms,
        "alternatives": list(more),
    }
