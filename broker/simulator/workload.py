"""What users do in a scenario: submissions and later wishes, by hand or from a trace."""

from __future__ import annotations

import csv
import gzip
import io
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from broker.simulator.fleet import FleetPlan
from broker.simulator.scenario import JobPart, Scenario, ScenarioError

RUNTIME_MAX_S = 31 * 86_400
RUNTIME_USUAL_S = 86_400
NEEDED = ("submit_s", "duration_s", "num_gpu")
HOME = "home"


@dataclass(frozen=True, slots=True)
class Wish:
    """Something asked for at `at_s`: cancel, hold or release of a whole submission."""

    at_s: float
    what: str


@dataclass(frozen=True, slots=True)
class Submission:
    """Jobs submitted in one request: `bodies` are job specs as the API takes them."""

    at_s: float
    name: str
    bodies: tuple[Mapping[str, Any], ...]
    wishes: tuple[Wish, ...] = ()

    @property
    def tenants(self) -> set[str]:
        """Tenants named."""
        return {str(body["tenant"]) for body in self.bodies if "tenant" in body}


@dataclass(frozen=True, slots=True)
class TraceRow:
    """One line of a trace, times moved and scaled as the scenario says."""

    number: int
    submit_s: float
    duration_s: float
    accelerators: int
    cluster: str
    tenant: str
    priority: int


def submissions(scenario: Scenario, fleet: FleetPlan, rows: list[TraceRow]) -> list[Submission]:
    """All submissions of a scenario, earliest first."""
    found = [_by_hand(job) for job in scenario.workload.jobs]
    found += [_traced(row, fleet) for row in rows]
    return sorted(found, key=lambda s: (s.at_s, s.name))


def pinned(submission: Submission, fleet: FleetPlan) -> Submission:
    """Policy `home`: a job whose trace names its cluster runs there or not at all."""
    names = {site.name for site in fleet.sites}
    bodies = []
    for body in submission.bodies:
        home = body.get("labels", {}).get(HOME, "")
        placement = {**body.get("placement", {}), "clusters": [home]} if home in names else None
        bodies.append({**body, "placement": placement} if placement else body)
    return replace(submission, bodies=tuple(bodies))


def governed(submission: Submission, policy: str) -> Submission:
    """A routing policy: jobs that name none name this one."""
    bodies = tuple(
        {**body, "placement": {"policy": policy, **body.get("placement", {})}}
        for body in submission.bodies
    )
    return replace(submission, bodies=bodies)


def _by_hand(job: JobPart) -> Submission:
    wishes = tuple(
        Wish(at_s, what)
        for what in ("cancel", "hold", "release")
        if (at_s := getattr(job, what)) is not None
    )
    body = {"name": job.name, **_program(job.duration, job.exit), **job.spec}
    return Submission(job.at, job.name, (body,) * job.count, wishes)


def _traced(row: TraceRow, fleet: FleetPlan) -> Submission:
    duration_s = min(row.duration_s, RUNTIME_MAX_S)
    limit_s = min(max(RUNTIME_USUAL_S, math.ceil(duration_s) + 3600), RUNTIME_MAX_S)
    resources: dict[str, Any] = {"cpus": 1}
    if row.accelerators and fleet.models:
        size = min(row.accelerators, fleet.node_size)
        resources["replicas"] = -(-row.accelerators // size)
        resources["accelerators"] = [f"{model}:{size}" for model in fleet.models]
    body: dict[str, Any] = {
        "name": f"trace-{row.number}",
        **_program(duration_s, 0),
        "max_runtime": f"{limit_s}s",
        "resources": resources,
        "priority": row.priority,
    }
    if row.cluster:
        body["labels"] = {HOME: row.cluster}
    if row.tenant:
        body["tenant"] = row.tenant
    return Submission(row.submit_s, f"trace-{row.number}", (body,))


def _program(duration_s: float, code: int) -> dict[str, Any]:
    """The argv of a simulated job; its author knows how long it takes."""
    return {
        "command": ["work", f"{duration_s:g}", str(code)],
        "expected_runtime": f"{max(1, math.ceil(duration_s))}s",
    }


# Traces -------------------------------------------------------------------------------------------


def read_trace(scenario: Scenario, directory: Path) -> list[TraceRow]:
    """The rows of the scenario's trace within its window, the first at 0 s. Raises
    ScenarioError."""
    part = scenario.workload
    if not part.trace:
        return []
    path = directory / part.trace
    try:
        raw = path.read_bytes()
        text = (gzip.decompress(raw) if path.suffix == ".gz" else raw).decode("utf-8")
    except (OSError, EOFError, UnicodeDecodeError) as fault:
        raise ScenarioError(f"workload.trace: {path}: {fault}") from fault
    reader = csv.DictReader(io.StringIO(text))
    missing = [name for name in NEEDED if name not in (reader.fieldnames or ())]
    if missing:
        raise ScenarioError(f"workload.trace: {path}: no column {', '.join(missing)}")
    until_s = part.to_s if part.to_s is not None else math.inf
    found = []
    for number, line in enumerate(reader):
        try:
            submit_s = float(line["submit_s"])
            if part.from_s <= submit_s < until_s:
                at_s = (submit_s - part.from_s) / part.load
                found.append(_row(number, at_s, line))
        except (ValueError, TypeError) as fault:
            where = f"workload.trace: {path}: line {number + 2}"
            raise ScenarioError(f"{where}: {fault}") from fault
    return found


def _row(number: int, at_s: float, line: Mapping[str, str]) -> TraceRow:
    return TraceRow(
        number,
        at_s,
        float(line["duration_s"]),
        int(float(line["num_gpu"])),
        line.get("cluster") or "",
        _tenant(line.get("tenant") or line.get("vc") or ""),
        int(line.get("priority") or 0),
    )


def _tenant(name: str) -> str:
    """A tenant's name from whatever the trace calls it."""
    plain = re.sub(r"[^a-z0-9-]+", "-", name.lower()).strip("-")
    return f"t-{plain}"[:32] if plain and not plain[0].isalpha() else plain[:32]


def demand(rows: list[TraceRow], percentile: int) -> dict[str, int]:
    """Per cluster of the trace (empty name: all rows without one) the accelerators wanted at
    once, if every job started when submitted, during that share of the time."""
    return {
        cluster: _percentile(list(_levels([r for r in rows if r.cluster == cluster])), percentile)
        for cluster in sorted({row.cluster for row in rows})
    }


def _levels(rows: list[TraceRow]) -> Iterator[tuple[int, float]]:
    """(accelerators wanted, for how many seconds)."""
    steps = sorted(
        step
        for row in rows
        for step in (
            (row.submit_s, row.accelerators),
            (row.submit_s + row.duration_s, -row.accelerators),
        )
    )
    level, since_s = 0, 0.0
    for at_s, change in steps:
        if at_s > since_s:
            yield level, at_s - since_s
        level, since_s = level + change, at_s


def _percentile(levels: list[tuple[int, float]], percentile: int) -> int:
    whole = sum(lasted_s for _, lasted_s in levels) * percentile / 100
    for level, lasted_s in sorted(levels):
        whole -= lasted_s
        if whole <= 0:
            return level
    return 0
