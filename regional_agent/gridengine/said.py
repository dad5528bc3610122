"""What qstat and qacct say, as values. Read from Grid Engine 8.1.9."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from xml.etree import ElementTree

from federation.runs import InvalidRuns, Runs

RUNNING = frozenset({"r", "t", "s", "S", "T", "hr", "dr", "dt", "ds", "dS", "dT", "N"})
PENDING = frozenset({"qw", "hqw", "w", "hw", "Eqw", "Ehqw", "hRwq", "Rq", "Rr", "Rt", "hRr", "dqw",
                     "dhqw", "dEqw"})  # fmt: skip
"""From qstat(1). R: it was put back into the queue. E: it cannot start, and waits for a person."""
TAG = "tradewind"
"""How the names of jobs of ours begin: qstat lists nothing else that could say whose they are."""
H_RT, AFTER_JOB, RESCHEDULED = 37, 100, 25
UNHEARD = "u"
"""Of the state of a queue instance: nothing was heard of its host for `max_unheard`."""


@dataclass(frozen=True, slots=True)
class ListedJob:
    """A job of `qstat -f -ne -xml`, once for each queue instance it runs in; `indices` None for a
    job that is no array. `silent`: that instance, where its host does not answer the master."""

    local_id: str
    name: str
    owner: str
    state: str
    indices: Runs | None
    silent: str = ""


@dataclass(frozen=True, slots=True)
class BookedJob:
    """A record of qacct. `failed` 0: it ended by itself; times in epoch seconds."""

    local_id: str
    index: int
    name: str
    failed: int
    failed_text: str
    exit_status: int
    started_s: int
    ended_s: int
    cpu_ms: int
    max_memory_bytes: int


def xml_of(program: str, out: str) -> ElementTree.Element:
    """What a program of the site wrote. Raises ValueError where it is no XML."""
    try:
        return ElementTree.fromstring(out)  # noqa: S314  written by the site's own program
    except ElementTree.ParseError as problem:
        raise ValueError(f"{program} wrote no XML: {problem}") from problem


def parse_qstat(out: str) -> tuple[ListedJob, ...]:
    """Of `qstat -f -ne -xml`, or without `-f`. Raises ValueError for something else."""
    tree = xml_of("qstat", out)
    return tuple(
        ListedJob(
            local_id=job.findtext("JB_job_number", ""),
            name=job.findtext("JB_name", ""),
            owner=job.findtext("JB_owner", ""),
            state=job.findtext("state", ""),
            indices=_elements(job.findtext("tasks")),
            silent=holder.findtext("name", "") if UNHEARD in holder.findtext("state", "") else "",
        )
        for holder in tree.iter()
        for job in holder.findall("job_list")
    )


def _elements(text: str | None) -> Runs | None:
    """`5-9:1,12`, as tasks are written; None for no array."""
    if not text:
        return None
    pairs: list[tuple[int, int]] = []
    try:
        for part in text.split(","):
            range_, _, step = part.partition(":")
            first, _, last = range_.partition("-")
            low, high, by = int(first), int(last or first), int(step or 1)
            pairs += [(low, high)] if by == 1 else [(n, n) for n in range(low, high + 1, by)]
        return Runs.of(pairs)
    except (ValueError, InvalidRuns):
        return None


def task_count(text: str | None) -> int:
    """How many elements `tasks` of a job names; 1 for no array."""
    tasks = _elements(text)
    return tasks.count if tasks is not None else 1


def parse_qacct(out: str) -> tuple[BookedJob, ...]:
    """Of `qacct -j`: records apart by lines of `=`."""
    found = []
    for said in _records(out):
        task = said.get("taskid", "undefined")
        code, _, text = said.get("failed", "0").partition(":")
        found.append(
            BookedJob(
                local_id=said.get("jobnumber", ""),
                index=int(task) if task.isdigit() else 0,
                name=said.get("jobname", ""),
                failed=_number(code),
                failed_text=text.strip(),
                exit_status=_number(said.get("exit_status", "0")),
                started_s=_epoch_s(said.get("start_time", "")),
                ended_s=_epoch_s(said.get("end_time", "")),
                cpu_ms=round(_amount(said.get("cpu", "")) * 1000),
                max_memory_bytes=round(_amount(said.get("maxvmem", ""))),
            )
        )
    return tuple(found)


def _records(out: str) -> Iterator[dict[str, str]]:
    for record in out.split("=" * 62):
        lines = [line.split(None, 1) for line in record.splitlines()]
        said = {words[0]: words[1].strip() for words in lines if len(words) > 1}
        if "jobnumber" in said:
            yield said


def _number(text: str) -> int:
    words = text.split()
    return int(words[0]) if words and words[0].isdigit() else 0


def _amount(text: str) -> float:
    """`0.005s`, `3.414MB`, `12.5`."""
    units = {"KB": 2**10, "MB": 2**20, "GB": 2**30, "TB": 2**40}
    scale = units.get(text[-2:], 1)
    try:
        return float(text.rstrip("sBKMGT")) * scale
    except ValueError:
        return 0.0


def _epoch_s(text: str) -> int:
    """`Mon Nov 30 18:36:18 2026`, in the time zone of this machine, as qacct prints it."""
    try:
        return int(time.mktime(time.strptime(text, "%a %b %d %H:%M:%S %Y")))
    except (ValueError, OverflowError):
        return 0
