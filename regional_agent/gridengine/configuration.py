"""What `qconf` says of a site: queues, parallel environments, resources, limits, quotas. Pure.

Read from Grid Engine 8.1.9. Values that differ by host (`[@group=...]`) are taken as their default.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

NONE = "NONE"
PE_SLOTS = "$pe_slots"
EVERYBODY = frozenset({"*", "{*}"})
_SIZE = re.compile(r"([0-9.]+)([kKmMgGtT]?)")
_UNITS = {"": 1, "k": 1000, "m": 1000**2, "g": 1000**3, "t": 1000**4,
          "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}  # fmt: skip
"""sge_types(1): lower-case units are decimal, upper-case ones binary."""
_RULE = re.compile(r"(users|projects|queues|hosts|pes)\s+(\{[^}]*\}|[^\s{}]+)")


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
class QuotaRule:
    """A line of a resource quota set. `filters`: by kind the names it is about, with their braces.
    `limits`: by resource."""

    filters: Mapping[str, str]
    limits: Mapping[str, float]


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
    quotas: tuple[tuple[QuotaRule, ...], ...]

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


def parse_quotas(out: str) -> tuple[tuple[QuotaRule, ...], ...]:
    """Of `qconf -srqs '*'`: the sets that are enabled."""
    found = []
    for text in re.findall(r"(?ms)^\{(.*?)^\}", out.replace("\\\n", " ")):
        lines = [line.split(None, 1) for line in text.splitlines() if len(line.split()) > 1]
        if any(name == "enabled" and value.strip().upper() == "TRUE" for name, value in lines):
            found.append(tuple(_rule(value) for name, value in lines if name == "limit"))
    return tuple(found)


def _rule(text: str) -> QuotaRule:
    head, _, limits = f" {text}".rpartition(" to ")
    said = {name.strip(): value.strip() for name, _, value in _pairs(limits)}
    fixed = {name: amount(value) for name, value in said.items() if _SIZE.match(value)}
    return QuotaRule(dict(_RULE.findall(head)), fixed)


def _pairs(text: str) -> Iterator[tuple[str, str, str]]:
    return (part.partition("=") for part in text.split(","))


def parse_amounts(text: str) -> dict[str, float]:
    """`gpu=8,h_vmem=64G`, as `complex_values` of a host has it."""
    return {name.strip(): amount(value.strip()) for name, _, value in _pairs(text)}


def quota(
    quotas: Iterable[Iterable[QuotaRule]], resource: str, owner: str, project: str
) -> float | None:
    """How much of a resource one user may hold everywhere together; None = no limit. What is said
    of single queues, hosts or environments is left to Grid Engine, as are lists of users."""
    least: float | None = None
    for rules in quotas:
        for rule in rules:
            if _is_of(rule, owner, project):
                limit = rule.limits.get(resource)
                if limit is not None:
                    least = limit if least is None else min(least, limit)
                break
    return least


def _is_of(rule: QuotaRule, owner: str, project: str) -> bool:
    narrow = [rule.filters.get(kind, "*") not in ("*",) for kind in ("queues", "hosts", "pes")]
    if any(narrow):
        return False
    projects = rule.filters.get("projects")
    in_project = projects is None or _holds(projects, project)
    return in_project and _holds(rule.filters.get("users", "*"), owner)


def _holds(names: str, one: str) -> bool:
    """Whether `a,!b,{*}` is about one; a name after `!` is not."""
    each = {name.strip() for name in names.strip("{}").split(",")}
    if f"!{one}" in each or (not one and "*" in each):
        return False
    return one in each or "*" in each or ("!*" in each and not one)


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


def amount(text: str) -> float:
    """A number with or without a unit; 0 for something else."""
    match = _SIZE.match(text)
    try:
        return float(match[1]) * _UNITS[match[2]] if match else 0.0
    except ValueError:
        return 0.0


def _number(text: str) -> int:
    digits = text.partition(",")[0]
    return int(digits) if digits.isdigit() else 0
