"""Resource quota sets (sge_resource_quota(5)), as `qconf -srqs` shows them, and how much of them is
used, as `qquota -xml` does. Pure; read from Grid Engine 8.1.9.

Of each set the first rule that fits a job counts. Rules for single hosts or parallel environments
are left to Grid Engine: where a job will run, and in which shape, is not known before.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase

from regional_agent.gridengine.amounts import amount, is_amount, pairs
from regional_agent.gridengine.said import xml_of

_FILTER = re.compile(r"(name|users|projects|queues|hosts|pes)\s+(\{[^}]*\}|[^\s{}]+)")
UNREAD = ("hosts", "pes")


@dataclass(frozen=True, slots=True)
class QuotaRule:
    """A line of a set. `name`: `<set>/<name or number of the rule>`. `filters`: by kind the names
    it is about; in braces: each of them by itself. `limits`: by resource."""

    name: str
    filters: Mapping[str, str]
    limits: Mapping[str, float]

    @property
    def lists(self) -> frozenset[str]:
        """The lists of users it names."""
        names = _names(self.filters.get("users", ""))
        return frozenset(n.lstrip("!@") for n in names if n.lstrip("!").startswith("@"))


Quotas = tuple[tuple[QuotaRule, ...], ...]


@dataclass(frozen=True, slots=True)
class Whose:
    """Whose jobs: `lists` are the lists of users that the owner is in."""

    owner: str = ""
    project: str = ""
    lists: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Bound:
    """What one rule allows the jobs in some queues together."""

    rule: str
    queues: frozenset[str]
    most: float


@dataclass(frozen=True, slots=True)
class Used:
    """What is used of a rule; `queue` where it counts each by itself."""

    rule: str
    resource: str
    queue: str
    used: float


def parse_quotas(out: str) -> Quotas:
    """Of `qconf -srqs`: the sets that are enabled."""
    found = []
    for text in re.findall(r"(?ms)^\{(.*?)^\}", out.replace("\\\n", " ")):
        lines = [line.split(None, 1) for line in text.splitlines() if len(line.split()) > 1]
        said = {name: value.strip() for name, value in lines}
        limits = [value for name, value in lines if name == "limit"]
        if said.get("enabled", "").upper() == "TRUE":
            rules = enumerate(limits, start=1)
            found.append(tuple(_rule(said.get("name", ""), nth, text) for nth, text in rules))
    return tuple(found)


def _rule(of: str, nth: int, text: str) -> QuotaRule:
    head, _, limits = f" {text}".rpartition(" to ")
    said = {name.strip(): value.strip() for name, _, value in pairs(limits)}
    filters = dict(_FILTER.findall(head))
    fixed = {name: amount(value) for name, value in said.items() if is_amount(value)}
    return QuotaRule(f"{of}/{filters.pop('name', nth)}", filters, fixed)


def parse_used(out: str) -> tuple[Used, ...]:
    """Of `qquota -xml`. Raises ValueError for something else."""
    tree = xml_of("qquota", out)
    return tuple(
        Used(
            rule.get("name", ""),
            limit.get("resource", ""),
            rule.findtext("{*}queues", ""),
            amount(limit.get("value", "")),
        )
        for rule in tree.iterfind("{*}qquota_rule")
        for limit in rule.iterfind("{*}limit")
    )


def bounds(
    quotas: Quotas, resource: str, whose: Whose, queues: Iterable[str]
) -> Iterator[Bound]:
    """What jobs in these queues may hold of a resource."""
    each = sorted(queues)
    for rules in quotas:
        of_rule: dict[int, list[str]] = defaultdict(list)
        for queue in each:
            for nth, rule in enumerate(rules):
                if _is_of(rule, whose, queue):
                    of_rule[nth].append(queue)
                    break
        for nth, some in of_rule.items():
            rule = rules[nth]
            if resource in rule.limits:
                alone = rule.filters.get("queues", "").startswith("{")
                for group in [[queue] for queue in some] if alone else [some]:
                    yield Bound(rule.name, frozenset(group), rule.limits[resource])


def used_of(bound: Bound, resource: str, used: Iterable[Used]) -> float:
    """What is used of what a rule allows, by all for whom it counts together."""
    return sum(
        each.used
        for each in used
        if (each.rule, each.resource) == (bound.rule, resource)
        and (each.queue in bound.queues or len(bound.queues) != 1 or not each.queue)
    )


def too_much(
    quotas: Quotas, whose: Whose, queue: str, asked: Mapping[str, float]
) -> tuple[str, str] | None:
    """What one job asks for, and what a rule ever lets it have where that is less: it would wait
    for ever."""
    for resource, amount_asked in asked.items():
        for bound in bounds(quotas, resource, whose, [queue]):
            if amount_asked > bound.most:
                there = f"{resource}={bound.most:.0f} at most, by quota {bound.rule}"
                return f"{resource}={amount_asked:.0f}", there
    return None


def _is_of(rule: QuotaRule, whose: Whose, queue: str) -> bool:
    if any(rule.filters.get(kind, "*") != "*" for kind in UNREAD):
        return False
    own = [whose.owner, *(f"@{name}" for name in whose.lists)]
    called = {"users": own, "projects": [whose.project], "queues": [queue]}
    return all(
        kind not in rule.filters or _holds(rule.filters[kind], names)
        for kind, names in called.items()
    )


def _holds(names: str, own: Iterable[str]) -> bool:
    """Whether `a,!b,{*}` is about something, called `own`; a name after `!` is not. Something
    without a name is of none but `!*`."""
    each, called = _names(names), [name for name in own if name]
    if not called:
        return "!*" in each
    refused = [name[1:] for name in each if name.startswith("!")]
    if any(fnmatchcase(name, pattern) for name in called for pattern in refused):
        return False
    return any(fnmatchcase(name, pattern) for name in called for pattern in each)


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.strip("{}").split(",") if name.strip()]
