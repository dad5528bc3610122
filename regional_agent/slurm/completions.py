"""The file in which `JobCompType=jobcomp/filetxt` keeps a line for every job that ended: what is
known of ends where there is no accounting and the controller has forgotten the job.

It names neither cpu time nor memory. Read from a running cluster of 22.05. Times are those of the
controller's time zone, which is taken to be ours.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from datetime import datetime
from pathlib import Path

from regional_agent.slurm.books import JobAccount
from regional_agent.slurm.states import state_word

CHUNK_BYTES = 2**18
LOOKED_BYTES_MAX = 2**26
"""How far back in the file a job is looked for."""
_FIELD = re.compile(r"(\w+)=(.*?)(?= \w+=|\s*$)")


def parse_completion(line: str) -> JobAccount | None:
    """One line; None for one that is not whole. A job that was put back, and ended again, has
    a line for each time."""
    said: dict[str, str] = dict(_FIELD.findall(line))
    index = said.get("ArrayTaskId", "0")
    if not {"JobId", "JobState", "ExitCode"} <= said.keys() or not index.isdigit():
        return None
    code, _, number = said["ExitCode"].partition(":")
    return JobAccount(
        local_id=said.get("ArrayJobId", said["JobId"]),
        index=int(index),
        name=said.get("Name", ""),
        state=state_word(said["JobState"]),
        state_text=said["JobState"],
        code=int(code) if code.isdigit() else 0,
        signal=int(number) if number.isdigit() else 0,
        started_s=_epoch_s(said.get("StartTime", "")),
        ended_s=_epoch_s(said.get("EndTime", "")),
        cpu_ms=0,
        max_rss_bytes=0,
        work=said.get("WorkDir", ""),
        comment="",
    )


def completed(path: Path, local_ids: Collection[str]) -> tuple[JobAccount, ...]:
    """The last line of each of these jobs, or elements of arrays. Raises OSError."""
    wanted = frozenset(local_ids)
    found: dict[tuple[str, int], JobAccount] = {}
    for line in _backwards(path):
        head = re.match(r"JobId=(\d+)", line)
        array = re.search(r" ArrayJobId=(\d+)", line)
        if head is None or (array or head)[1] not in wanted:
            continue
        job = parse_completion(line)
        if job is not None:
            found.setdefault((job.local_id, job.index), job)
    return tuple(found.values())


def completed_in(path: Path, name: str, work: str) -> JobAccount | None:
    """The job of this name that worked in this directory. Raises OSError."""
    for line in _backwards(path):
        if f" Name={name} " in line and f" WorkDir={work} " in line:
            return parse_completion(line)
    return None


def _backwards(path: Path) -> Iterator[str]:
    """The lines of a file, the last one first; one that is still being written is left out."""
    with path.open("rb") as file:
        at = file.seek(0, 2)
        least, rest = max(0, at - LOOKED_BYTES_MAX), b""
        first = True
        while at > least:
            step = min(CHUNK_BYTES, at - least)
            at -= step
            file.seek(at)
            parts = (file.read(step) + rest).split(b"\n")
            rest = parts[0]
            whole = parts[1:-1] if first else parts[1:]
            first = False
            for part in reversed(whole):
                yield part.decode(errors="replace")
        if at == 0 and rest and not first:
            yield rest.decode(errors="replace")


def _epoch_s(text: str) -> int:
    try:
        return int(datetime.fromisoformat(text).timestamp())
    except ValueError:  # Unknown, None
        return 0
