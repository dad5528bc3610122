"""What `qconf` says of a site: queues, parallel environments, resources, limits. Pure.

Read from Grid Engine 8.1.9. Values that differ by host (`[@group=...]`) are taken as their default.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from regional_agent.gridengine.quotas import Quotas

NONE = "NONE"
PE_SLOTS = "$pe_slots"
MEMORY_NAMES = ("h_vmem", "h_rss", "mem_free", "virtual_free")
"""Resources of every Grid Engine that sites count memory by: two limits, two load values."""

@dataclass(frozen=True, slots=True)
class Environment:
    """A parallel environment. `rule`: how its slots are spread over hosts; `spreads`: its jobs may
    start processes on other hosts of theirs."""

    name: str
    rule: str
    slots: int
    spreads: bool

    @property
    def one_host(self) -> bool:
        """All slots of a job are on one host."""
        return self.rule == PE_SLOTS

    @property
    def per_host(self) -> int:
        """Slots on each host of a job where that is fixed, else 0."""
        return int(self.rule) if self.rule.isdigit() else 0


@dataclass(frozen=True, slots=True)
class QueueConfig:
    """A cluster queue. `walltime_max_s` 0 = no limit."""

    name: str
    order: int
    environments: tuple[str, ...]
    walltime_max_s: int


@dataclass(frozen=True, slots=True)
class Memory:
    """Of `MEMORY_NAMES` those a job has to ask for: `counted` are consumable, `forced` ones keep
    away what does not name them."""

    counted: tuple[str, ...] = ()
    forced: tuple[str, ...] = ()

    def asked(self, named: str) -> tuple[str, ...]:
        """Those in use; `named`, by the settings, stands in for all that are found."""
        return (named,) if named else tuple(dict.fromkeys((*self.counted, *self.forced)))

    def must(self, named: str) -> tuple[str, ...]:
        """Of those the ones without which no job is taken."""
        return tuple(name for name in self.asked(named) if name in self.forced)


@dataclass(frozen=True, slots=True)
class Configuration:
    """`per_job`: resources that a job consumes once, however many slots it has. `jobs_max`: of one
    user, waiting and running, 0 = no limit. `quotas`: sets of rules, of each of which the first
    that fits counts."""

    queues: tuple[QueueConfig, ...]
    environments: Mapping[str, Environment]
    per_job: frozenset[str]
    array_max: int
    jobs_max: int
    quotas: Quotas
    memory: Memory = Memory()

    def of_queue(
        self, queue: QueueConfig, allowed: Collection[str] = ()
    ) -> tuple[Environment, ...]:
        """The environments of a queue, of those allowed if that says any."""
        names = [n for n in queue.environments if not allowed or n in allowed]
        return tuple(self.environments[n] for n in names if n in self.environments)


def parse_lines(out: str) -> dict[str, str]:
    """`name value` a line, continued after a backslash: how qconf shows most things."""
    said = {}
    for line in out.replace("\\\n", " ").splitlines():
        name, _, value = line.strip().partition(" ")
        if name and not name.startswith("#"):
            said[name] = " ".join(value.split())
    return said


def parse_records(out: str, first: str) -> Iterator[dict[str, str]]:
    """Several things that qconf shows one after the other, each beginning with the line `first`."""
    for text in re.split(rf"(?m)^(?={first}\s)", out):
        if text.startswith(first):
            yield parse_lines(text)


def parse_queues(out: str) -> tuple[QueueConfig, ...]:
    """Of `qconf -sq '*'`, in the order in which the scheduler fills them."""
    found = [
        QueueConfig(
            said["qname"],
            _number(said.get("seq_no", "")),
            tuple(_names(said.get("pe_list", ""))),
            seconds(said.get("h_rt", "")),
        )
        for said in parse_records(out, "qname")
    ]
    return tuple(sorted(found, key=lambda queue: (queue.order, queue.name)))


def parse_environment(out: str) -> Environment:
    """Of `qconf -sp NAME`."""
    said = parse_lines(out)
    return Environment(
        said.get("pe_name", ""),
        said.get("allocation_rule", ""),
        _number(said.get("slots", "")),
        said.get("control_slaves", "").upper() == "TRUE",
    )


def parse_per_job(out: str) -> frozenset[str]:
    """Of `qconf -sc`: name, shortcut, type, relation, requestable, consumable, ..."""
    rows = [line.split() for line in out.splitlines() if not line.startswith("#")]
    fields = 6
    return frozenset(row[0] for row in rows if len(row) >= fields and row[5].upper() == "JOB")


def parse_memory(out: str) -> Memory:
    """Of `qconf -sc`."""
    rows = [line.split() for line in out.splitlines() if not line.startswith("#")]
    fields = 6
    known = {row[0]: row for row in rows if len(row) >= fields and row[0] in MEMORY_NAMES}
    return Memory(
        tuple(n for n in MEMORY_NAMES if n in known and known[n][5].upper() in ("YES", "JOB")),
        tuple(n for n in MEMORY_NAMES if n in known and known[n][4].upper() == "FORCED"),
    )


def _names(text: str) -> Iterator[str]:
    """Of `smp mpi,[@fast=mpi]`: the default."""
    for word in text.partition("[")[0].replace(",", " ").split():
        if word != NONE:
            yield word


def seconds(text: str) -> int:
    """`HH:MM:SS` or seconds; 0 for INFINITY."""
    default = text.partition(",")[0]
    total = 0
    try:
        for part in default.split(":"):
            total = total * 60 + int(part)
    except ValueError:
        return 0
    return total


def _number(text: str) -> int:
    digits = text.partition(",")[0]
    return int(digits) if digits.isdigit() else 0
