"""What sacct says of jobs, and scontrol where there is no accounting."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from regional_agent.slurm import states

FIELDS = ("JobID", "JobName", "State", "ExitCode", "Start", "End", "TotalCPU", "MaxRSS",
          "ReqMem", "Submit", "WorkDir", "Comment")  # fmt: skip
_UNITS = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40, "": 1}
_SIZE = re.compile(r"([0-9.]+)([KMGT]?)")
_ELEMENT = re.compile(r"(\d+)(?:_(\d+))?")
KILLED = "0:9"
DAY_S = 86_400


@dataclass(frozen=True, slots=True)
class JobAccount:
    """One job, or element of an array. Times in epoch seconds, 0 = none; `code`, `signal` as the
    batch script ended."""

    local_id: str
    index: int
    name: str
    state: str
    state_text: str
    code: int
    signal: int
    started_s: int
    ended_s: int
    cpu_ms: int
    max_rss_bytes: int
    work: str
    comment: str

    @property
    def ended(self) -> bool:
        """Whether it will not run any more, as far as this is known."""
        return self.state in states.ENDED


def parse_sacct(out: str) -> tuple[JobAccount, ...]:
    """Of `sacct -n -P -o FIELDS`, steps folded into their jobs.

    A job whose step was killed while it held more than was asked for ran out of memory, also
    where Slurm only says that it failed (the limit was enforced by accounting, not by cgroups).
    """
    jobs: dict[tuple[str, int], JobAccount] = {}
    asked: dict[tuple[str, int], int] = {}
    for line in out.splitlines():
        parts = line.split("|", len(FIELDS) - 1)
        if len(parts) != len(FIELDS):
            continue
        said = dict(zip(FIELDS, parts, strict=True))
        head, _, step = said["JobID"].partition(".")
        match = _ELEMENT.fullmatch(head)
        if match is None:
            continue  # elements that were never made: 17_[3-9]
        key = (match[1], int(match[2] or 0))
        if not step:
            jobs[key] = _job(key, said)
            asked[key] = size_bytes(said["ReqMem"])
        elif key in jobs:
            jobs[key] = _with_step(jobs[key], said, asked[key])
    return tuple(jobs.values())


def _job(key: tuple[str, int], said: dict[str, str]) -> JobAccount:
    code, _, number = said["ExitCode"].partition(":")
    return JobAccount(
        local_id=key[0],
        index=key[1],
        name=said["JobName"],
        state=states.state_word(said["State"]),
        state_text=said["State"],
        code=_number(code),
        signal=_number(number),
        started_s=_number(said["Start"]),
        ended_s=_number(said["End"]),
        cpu_ms=cpu_ms(said["TotalCPU"]),
        max_rss_bytes=0,
        work=said["WorkDir"],
        comment=said["Comment"],
    )


def _with_step(job: JobAccount, said: dict[str, str], asked_bytes: int) -> JobAccount:
    rss = size_bytes(said["MaxRSS"])
    step_state = states.state_word(said["State"])
    over = 0 < asked_bytes <= rss and step_state == "CANCELLED" and job.state in states.FAILED
    if over or (step_state in states.OUT_OF_MEMORY and job.ended):
        job = replace(job, state="OUT_OF_MEMORY")
    return replace(job, max_rss_bytes=max(job.max_rss_bytes, rss))


def parse_show_job(out: str) -> tuple[JobAccount, ...]:
    """Of `scontrol -o show job`: for sites without accounting, while the controller still knows
    the job (MinJobAge)."""
    found = []
    for line in out.splitlines():
        said = dict(part.split("=", 1) for part in line.split() if "=" in part)
        if "JobState" not in said:
            continue
        index = said.get("ArrayTaskId", "0")
        if not index.isdigit():
            continue
        code, _, number = said.get("ExitCode", "0:0").partition(":")
        found.append(
            JobAccount(
                local_id=said.get("ArrayJobId", said["JobId"]),
                index=int(index),
                name=said.get("JobName", ""),
                state=said["JobState"],
                state_text=said["JobState"],
                code=_number(code),
                signal=_number(number),
                started_s=_number(said.get("StartTime", "")),
                ended_s=_number(said.get("EndTime", "")),
                cpu_ms=0,
                max_rss_bytes=0,
                work=said.get("WorkDir", ""),
                comment=said.get("Comment", ""),
            )
        )
    return tuple(found)


def by_name(jobs: Iterable[JobAccount], name: str, tag: str, work: str) -> str | None:
    """The job of this name that is ours: by its comment, or, where the books keep none, by the
    directory it was to work in, which no other job has."""
    for job in jobs:
        ours = job.comment == tag or job.comment.startswith(f"{tag}:")
        if job.name == name and (ours or (not job.comment and job.work == work)):
            return job.local_id
    return None


def cpu_ms(text: str) -> int:
    """`[DD-[HH:]]MM:SS[.mmm]` in milliseconds."""
    days, _, rest = text.rpartition("-")
    seconds = 0.0
    try:
        for part in rest.split(":"):
            seconds = seconds * 60 + float(part or 0)
        return round((seconds + int(days or 0) * DAY_S) * 1000)
    except ValueError:
        return 0


def size_bytes(text: str) -> int:
    """A size of Slurm's, `599636K`, `100M`, `4Gn`; 0 for anything else."""
    match = _SIZE.match(text)
    return round(float(match[1]) * _UNITS[match[2]]) if match else 0


def _number(text: str) -> int:
    return int(text) if text.isdigit() else 0
