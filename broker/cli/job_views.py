"""Jobs as tables and lines of facts. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from broker.cli.formatting import (
    NONE,
    Now,
    age,
    at,
    between,
    count,
    mapping,
    mappings,
    moment,
    number,
    outcome,
    size,
    state,
    taken,
    text,
    usd,
    waits_at_site,
)
from broker.cli.output import Column, Table
from broker.cli.starts import start_told

Job = Mapping[str, Any]


def job_table(jobs: Iterable[Job], now: Now) -> Table:
    """The merged list of jobs, one line each, newest first as the API gives them."""
    table = Table(
        (
            Column("job"), Column("name", fold=True), Column("tenant"),
            Column("state", styled=True), Column("where"), Column("accelerators"),
            Column("tasks", right=True), Column("age", right=True), Column("ran", right=True),
            Column("cost", right=True), Column("why", fold=True),
        ),
        empty="no jobs",
    )  # fmt: skip
    for job in jobs:
        table.rows.append((
            text(job.get("id")), text(job.get("name")), text(job.get("tenant")), state(job),
            where(job), accelerators(job), tasks(job), age(job.get("created_at"), now),
            between(job.get("started_at"), job.get("ended_at"), now), usd(job.get("cost_usd")),
            why(job),
        ))  # fmt: skip
    return table


def live_or_last(job: Job) -> list[dict[str, Any]]:
    """The attempts that count and have not ended, or the last one."""
    attempts = mappings(job.get("attempts"))
    live = [
        attempt
        for attempt in attempts
        if attempt.get("phase") != "ended" and not attempt.get("superseded_at")
    ]
    return live or attempts[-1:]


def where(job: Job) -> str:
    """Clusters a job is in, or was in last."""
    names = list(dict.fromkeys(text(attempt.get("cluster")) for attempt in live_or_last(job)))
    if not names and isinstance(job.get("clusters"), list):
        names = [text(name) for name in job["clusters"]]
    if len(names) > 2:
        return f"{names[0]} +{len(names) - 1}"
    return ", ".join(names) or NONE


def accelerators(job: Job) -> str:
    """What a job takes: `8 x H100`, or what it asked for while it waits."""
    for attempt in live_or_last(job)[:1]:
        held = number(attempt.get("accelerators"))
        model = text(attempt.get("accelerator"))
        if held is not None and model not in (NONE, "CPU"):
            return f"{held:.0f} x {model}"
    return text(at(job, "spec", "resources", "accelerators"))


def tasks(job: Job) -> str:
    """An array's progress: ended/all, with failures."""
    array = mapping(job.get("array"))
    total = number(array.get("tasks"))
    if total is None:
        return NONE
    failed = number(array.get("failed")) or 0
    ended = (number(array.get("succeeded")) or 0) + failed + (number(array.get("cancelled")) or 0)
    progress = f"{ended:.0f}/{total:.0f}"
    return f"{progress} ({failed:.0f} failed)" if failed else progress


def why(job: Job) -> str:
    """Why a job is in its state, where there is something to say."""
    reason = text(at(job, "reason", "text"))
    if reason == NONE:
        reason = text(at(job, "reason", "code"))
    waiting = waits_at_site(job)
    if reason == NONE and waiting:
        expected = text(waiting.get("expected_start_at"))
        place = f"waits in the queue of {text(waiting.get('cluster'))}"
        return place if expected == NONE else f"{place}, expected to start {expected}"
    return reason if reason != NONE else text(at(job, "outcome", "text"))


def job_facts(job: Job, now: Now) -> list[tuple[str, str]]:
    """What there is to say about one job, but its attempts."""
    created = job.get("created_at")
    when = moment(created, now)
    return [
        ("job", text(job.get("id"))),
        ("name", text(job.get("name"))),
        ("tenant", text(job.get("tenant"))),
        ("by", text(job.get("subject"))),
        ("kind", text(job.get("kind"))),
        ("state", state(job)),
        ("why", why(job)),
        ("priority", count(job.get("priority"))),
        ("submitted", when if when == NONE else f"{when} ({age(created, now)} ago)"),
        ("started", moment(job.get("started_at"), now)),
        ("ended", moment(job.get("ended_at"), now)),
        ("ran", between(job.get("started_at"), job.get("ended_at"), now)),
        ("tasks", _task_counts(job)),
        ("asks for", _asks(job)),
        ("command", _command(job)),
        ("cost", usd(job.get("cost_usd"))),
        ("labels", text(job.get("labels"))),
    ]


def _task_counts(job: Job) -> str:
    array = mapping(job.get("array"))
    names = ("tasks", "unstarted", "running", "succeeded", "failed", "cancelled")
    parts = [f"{count(array[name])} {name}" for name in names if number(array.get(name))]
    return ", ".join(parts) or NONE


def _asks(job: Job) -> str:
    wanted = mapping(at(job, "spec", "resources"))
    parts = []
    for key, shown in (("replicas", "replicas"), ("cpus", "cpus"), ("memory", "memory"),
                       ("disk", "disk"), ("accelerators", "")):  # fmt: skip
        if wanted.get(key) is not None:
            parts.append(f"{text(wanted[key])} {shown}".strip())
    runtime = text(at(job, "spec", "max_runtime"))
    if runtime != NONE:
        parts.append(f"at most {runtime}")
    return ", ".join(parts) or NONE


def _command(job: Job) -> str:
    command = at(job, "spec", "command")
    if isinstance(command, list):
        return text(" ".join(str(word) for word in command))
    return text(at(job, "spec", "run"))


def attempt_table(job: Job, now: Now) -> Table:
    """The attempts of one job: where, when, how they ended, and at what price."""
    table = Table(
        (
            Column("attempt"), Column("cluster"), Column("pool"), Column("takes"),
            Column("tasks", right=True), Column("state", styled=True), Column("placed"),
            Column("started"), Column("ran", right=True), Column("rate", right=True),
            Column("handshake", right=True), Column("prepare", right=True),
            Column("launch", right=True), Column("nodes", fold=True),
        ),
        empty="no attempts yet",
    )  # fmt: skip
    for attempt in mappings(job.get("attempts")):
        table.rows.append((
            text(attempt.get("uid")), text(attempt.get("cluster")), text(attempt.get("pool")),
            _takes(attempt), text(attempt.get("tasks")), state(attempt),
            moment(attempt.get("placed_at"), now), moment(attempt.get("started_at"), now),
            between(attempt.get("started_at"), attempt.get("ended_at"), now),
            _rate(attempt), taken(attempt.get("handshake_ms")),
            taken(attempt.get("prepare_ms")), taken(attempt.get("launch_ms")),
            text(attempt.get("nodes")),
        ))  # fmt: skip
    return table


def _takes(attempt: Mapping[str, Any]) -> str:
    parts = []
    held, model = number(attempt.get("accelerators")), text(attempt.get("accelerator"))
    if held and model not in (NONE, "CPU"):
        parts.append(f"{held:.0f} x {model}")
    cpus, memory = number(attempt.get("cpus")), size(attempt.get("memory_bytes"))
    if cpus:
        parts.append(f"{cpus:g} cpus")
    if memory not in (NONE, "0B"):
        parts.append(memory)
    return ", ".join(parts) or NONE


def _rate(attempt: Mapping[str, Any]) -> str:
    price = usd(attempt.get("price_usd_per_accelerator_hour"))
    return price if price == NONE else f"{price}/h each"


def receipt_lines(job: Job, now: Now) -> list[str]:
    """For each attempt, where its price came from and how the start compared to the promise."""
    lines = []
    for attempt in mappings(job.get("attempts")):
        if text(at(attempt, "outcome", "kind")) == "moved":
            lines.append(f"{text(attempt.get('uid'))} {text(at(attempt, 'outcome', 'text'))}")
        source = text(attempt.get("price_source"))
        if source == NONE:
            continue
        line = f"{text(attempt.get('uid'))}: price from {source}"
        as_of = moment(attempt.get("price_as_of_at"), now)
        line += f" as of {as_of}" if as_of != NONE else ""
        told = start_told(attempt)
        lines.append(f"{line}; {told}" if told else line)
    return lines


def output_table(outputs: Iterable[Mapping[str, Any]]) -> Table:
    """The results of a job."""
    table = Table((Column("output", fold=True), Column("size", right=True), Column("sha256")))
    for output in outputs:
        digest = text(output.get("sha256"))
        table.rows.append((text(output.get("path")), size(output.get("size_bytes")), digest[:16]))
    return table


def end_line(job: Job, now: Now) -> str:
    """One line about a job that ended (or changed): `j... succeeded in us-east after 4m10s`."""
    line = f"{text(job.get('id'))} {state(job)}"
    places = where(job)
    line += f" in {places}" if places != NONE else ""
    ran = between(job.get("started_at"), job.get("ended_at"), now)
    if job.get("outcome") and ran != NONE:
        line += f" after {ran}"
    said = why(job)
    ended_well = outcome(job.get("outcome")) == "succeeded"
    return line if said == NONE or ended_well else f"{line}: {said}"
