"""What `scontrol show config` and `show partition` say that matters to us."""

from __future__ import annotations

import re
from dataclasses import dataclass

_VERSION = re.compile(r"(\d+)\.(\d+)")
OLDEST = (20, 11)
NODES_BY_SCONTROL = (23, 2)
"""From this release on scontrol prints nodes as JSON, and sinfo another form."""
ARRAY_MAX_USUAL = 1001


@dataclass(frozen=True, slots=True)
class Limits:
    """`version`: (major, minor). `preempt_mode` as configured: what happens to a job whose room
    is wanted. `enforces_memory`: a job that takes more than it asked for is ended. `completions`:
    the file in which the controller keeps a line for each job that ended."""

    version: tuple[int, int]
    cluster: str
    array_max: int
    jobs_max: int
    preempt_mode: str
    books: bool
    enforces_memory: bool
    completions: str = ""


@dataclass(frozen=True, slots=True)
class Partition:
    """`walltime_max_s` 0 = no limit; `usual`: jobs that name none go there; `up`: takes jobs;
    `qos`: the one whose limits bind all jobs in it."""

    name: str
    usual: bool
    up: bool
    walltime_max_s: int
    qos: str = ""


def parse_version(out: str) -> tuple[int, int]:
    """Of `sbatch --version`; (0, 0) for something else."""
    match = _VERSION.search(out)
    return (int(match[1]), int(match[2])) if match else (0, 0)


def parse_config(out: str, version: tuple[int, int]) -> Limits:
    """Of `scontrol show config`."""
    said = {}
    for line in out.splitlines():
        name, mark, value = line.partition("=")
        if mark:
            said[name.strip()] = value.strip()
    storage = said.get("AccountingStorageType", "")
    completion = said.get("JobCompType") == "jobcomp/filetxt"
    gather = said.get("JobAcctGatherParams", "")
    return Limits(
        version=version,
        cluster=said.get("ClusterName", ""),
        array_max=_number(said.get("MaxArraySize", ""), ARRAY_MAX_USUAL),
        jobs_max=_number(said.get("MaxJobCount", ""), 0),
        preempt_mode=said.get("PreemptMode", "OFF"),
        books=storage not in ("", "(null)", "accounting_storage/none"),
        enforces_memory="OverMemoryKill" in gather or "cgroup" in said.get("TaskPlugin", ""),
        completions=said.get("JobCompLoc", "") if completion else "",
    )


def parse_partitions(out: str) -> tuple[Partition, ...]:
    """Of `scontrol -o show partition`."""
    found = []
    for line in out.splitlines():
        said = fields_of(line)
        if "PartitionName" in said:
            found.append(
                Partition(
                    name=said["PartitionName"],
                    usual=said.get("Default") == "YES",
                    up=said.get("State") == "UP",
                    walltime_max_s=walltime_s(said.get("MaxTime", "")),
                    qos="" if said.get("QoS", "N/A") == "N/A" else said["QoS"],
                )
            )
    return tuple(found)


def fields_of(line: str) -> dict[str, str]:
    """A line of `scontrol -o`, `Name=value ...`, whose values have no blanks in them."""
    return dict(part.split("=", 1) for part in line.split() if "=" in part)


def walltime_s(text: str) -> int:
    """`[D-]HH:MM:SS` in seconds; 0 for UNLIMITED."""
    days, _, rest = text.rpartition("-")
    seconds = 0
    try:
        for part in rest.split(":"):
            seconds = seconds * 60 + int(part)
        return seconds + int(days or 0) * 86_400
    except ValueError:
        return 0


def _number(text: str, otherwise: int) -> int:
    return int(text) if text.isdigit() else otherwise
