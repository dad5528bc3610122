"""Changes that would start a job, in the words people use. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping

from broker.decide.changes import Advice
from broker.decide.constraints.constraint import Change
from broker.model.problem import Job
from federation.refusals import RefusalCode
from federation.units import format_duration


def advice_words(advice: Advice, job: Job) -> str:
    """`max_rtt 40 -> 58 ms and allow spot`."""
    return " and ".join(change_words(change, job) for change in advice.changes)


def reason_words(text: str) -> str:
    """A reason with what it advises in a job file's words: a planning problem counts in hours."""
    return _ADVISED.sub(_of_job, text)


def _of_job(found: re.Match[str]) -> str:
    name, figure = found[1], float(found[2])
    if name.endswith("_h"):
        up = name != "max_runtime_h"
        return f"{_OF_JOBS[name]} {_hours(figure, up=up)}"
    return f"{_OF_JOBS[name]} {found[2]} ms"


_OF_JOBS = {
    "deadline_h": "deadline in",
    "defer_h": "defer",
    "max_runtime_h": "max_runtime",
    "max_rtt_ms": "max_rtt",
}
_ADVISED = re.compile(rf"\b({'|'.join(_OF_JOBS)}) ([0-9.]+(?:e[+-]?[0-9]+)?)")


def change_words(change: Change, job: Job) -> str:
    """One change: in a job file's words, with its unit."""
    before, after = _figure(change.before), _figure(change.after)
    if change.code in _QUOTAS:
        models = " or ".join(sorted(job.accelerators)) or "accelerators"
        one = change.what.startswith("1 ")
        words = ("CPU slot" if one else "CPU slots") if models == "CPU" else models
        return change.what.replace(" more of quota", f" more {words} of quota")
    if change.code in _SPREAD:  # what a job file has of the kind
        return "leave out placement.spread"
    if before is None or after is None or change.code not in _LIMITS:
        return change.text
    name, unit, digits = _LIMITS[change.code]
    if unit == "h":
        return f"{name} {_hours(before, up=False)} -> {_hours(after, up=True)}"
    first, second = (_money(x) if digits else f"{x:.10g}" for x in (before, after))
    return f"{name} {first} -> {second}" + (f" {unit}" if unit else "")


_QUOTAS = (RefusalCode.TENANT_QUOTA, RefusalCode.CLUSTER_QUOTA)
_SPREAD = (RefusalCode.KEPT_APART, RefusalCode.REGION_TAKEN, RefusalCode.NODES_TAKEN)
_LIMITS: Mapping[RefusalCode, tuple[str, str, bool]] = {
    RefusalCode.ROUND_TRIP_TOO_LONG: ("max_rtt", "ms", False),
    RefusalCode.DEADLINE_TOO_SOON: ("deadline in", "h", False),
    RefusalCode.MAINTENANCE: ("max_runtime", "h", False),
    RefusalCode.OVER_BUDGET: ("budget", "USD", True),
    RefusalCode.PRICE_CAP: ("price cap", "", True),
}


def _figure(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _money(usd: float) -> str:
    """At least cents, and as many digits as are needed."""
    return f"{usd:.2f}" if round(usd, 2) == usd else f"{usd:.10g}"


def _hours(hours: float, *, up: bool) -> str:
    whole_s = int(hours * 3600)
    return format_duration(whole_s + (1 if up and whole_s < hours * 3600 else 0))
