"""Reading a policy's YAML: every fault at once, each with its line, its column and a remedy.

Works on the composed nodes, so that nothing YAML guesses (numbers in base 60, dates, aliases)
gets past. The format is described in docs/policies.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from broker.control.expression_facts import SAMPLE_CLUSTER, SAMPLE_JOB
from broker.control.policy_values import (
    Bad,
    Node,
    Read,
    nearest,
    policy_name,
    read_accelerator,
    read_duration,
    read_expression,
    read_integer,
    read_isolation,
    read_label,
    read_milliseconds,
    read_name,
    read_percent,
    read_text,
    read_usd,
    read_week,
    read_word,
    yes_or_no,
)
from broker.model.policies import (
    Defer,
    Failover,
    Match,
    Mutate,
    Policy,
    Require,
    RttLimit,
    Weights,
)
from federation.ids import parse_cluster, parse_region, parse_tenant
from federation.job_errors import show
from federation.job_fields import printable
from federation.jobs import MAX_PRIORITY, FieldError

SOURCE_BYTES_MAX = 65_536
FAULTS_MAX = 50
LIST_MAX = 256
PRIORITY_MAX = 1_000_000
RTT_MS_MAX = 10_000
KINDS = ("batch", "training", "service", "workflow")



@dataclass(frozen=True, slots=True)
class PolicyFault(FieldError):
    """What is wrong at one place of the text; `line` and `column` count from 1."""

    line: int = 1
    column: int = 1

    def __str__(self) -> str:
        return f"line {self.line}, column {self.column}: {FieldError.__str__(self)}"


class InvalidPolicy(ValueError):
    """A text that is no policy, with all its faults in the order of the text."""

    def __init__(self, faults: list[PolicyFault]) -> None:
        super().__init__("\n".join(map(str, faults)))
        self.faults = tuple(faults)


def read_policy(source: str) -> Policy:
    """The policy in a YAML text. Raises InvalidPolicy."""
    reader = _Reader()
    node = _compose(source)
    found = reader.mapping(node, "", reader.top())
    if "name" not in found and not any(fault.path in ("", "name") for fault in reader.faults):
        reader.add(node, "name", Bad("missing", "write name: the-name-of-the-policy"))
    if reader.faults:
        faults = sorted(reader.faults, key=lambda fault: (fault.line, fault.column))
        raise InvalidPolicy(faults[:FAULTS_MAX])
    return Policy(
        name=found["name"],
        description=found.get("description", ""),
        priority=found.get("priority", 0),
        match=Match(**found["match"]) if "match" in found else None,
        require=Require(**found.get("require", {})),
        weights=Weights(**found.get("weights", {})),
        spot=found.get("spot"),
        mutate=Mutate(**found.get("mutate", {})),
        **{name: found.get(name) for name in ("tier", "spread", "spot_share")},
        failover=found.get("failover"),
        defer=found.get("defer"),
    )


# Nodes --------------------------------------------------------------------------------------------


class _Plain(yaml.SafeLoader):
    """Composes nodes, without aliases: one word of theirs can stand for gigabytes."""

    def compose_node(self, parent: Node | None, index: int) -> Node | None:
        if self.check_event(yaml.events.AliasEvent):
            mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
            raise yaml.composer.ComposerError(None, None, "aliases are not used here", mark)
        return super().compose_node(parent, index)


def _compose(source: str) -> Node:
    size_bytes = len(source.encode("utf-8", "surrogatepass"))
    if size_bytes > SOURCE_BYTES_MAX:
        raise _whole(f"{size_bytes} bytes", f"write at most {SOURCE_BYTES_MAX}")
    try:
        node = yaml.compose(source, Loader=_Plain)
    except yaml.reader.ReaderError as error:
        before = source[: error.position]
        line, column = before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1
        raise InvalidPolicy(
            [PolicyFault("", "", "not text YAML may hold", "remove the character", line, column)]
        ) from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        problem = printable(error.problem or error.context or "not YAML")
        line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
        raise InvalidPolicy(
            [PolicyFault("", "", problem, "see docs/policies.md for an example", line, column)]
        ) from None
    except RecursionError:
        raise _whole("nested too deeply", "see docs/policies.md for an example") from None
    if node is None:
        raise _whole("is empty", "write name: the-name-of-the-policy")
    return node


def _whole(problem: str, remedy: str) -> InvalidPolicy:
    return InvalidPolicy([PolicyFault("", "", problem, remedy)])


# The whole ----------------------------------------------------------------------------------------


class _Reader:
    """Collects faults instead of stopping at the first."""

    def __init__(self) -> None:
        self.faults: list[PolicyFault] = []

    def add(self, node: Node, path: str, bad: Bad) -> None:
        """Note a fault where a node begins."""
        mark = node.start_mark
        line, column = bad.place or (mark.line + 1, mark.column + 1)
        self.faults.append(
            PolicyFault(
                printable(path)[:200], printable(bad.value), printable(bad.problem),
                printable(bad.remedy), line, column,
            )
        )  # fmt: skip

    def top(self) -> dict[str, Read]:
        """The keys of a policy."""
        match: dict[str, Read] = {
            "tenants": self._list(read_name(parse_tenant)),
            "kinds": self._list(read_word(KINDS)),
            "labels": self._labels,
            "accelerators": self._accelerators,
            "when": read_expression(SAMPLE_JOB, bool),
        }
        require: dict[str, Read] = {
            "regions": self._list(read_name(parse_region)),
            "max_price_usd_per_accelerator_hour": read_usd,
            "max_rtt": self._rtt,
            "max_start_delay": read_duration,
            "isolation": read_isolation,
        }
        require["where"] = read_expression(SAMPLE_CLUSTER, bool)
        require["hours"] = read_week
        mutate: dict[str, Read] = {"labels": self._mutated, "env": self._mutated}
        weights: dict[str, Read] = {
            "value_of_time_usd_per_hour": read_usd,
            "latency_usd_per_ms": read_usd,
        }
        return {
            "name": read_name(policy_name),
            "description": read_text(2_000),
            "priority": read_integer(0, PRIORITY_MAX),
            "match": lambda node, path: self.mapping(node, path, match),
            "require": lambda node, path: self.mapping(node, path, require),
            "weights": lambda node, path: self.mapping(node, path, weights),
            "mutate": lambda node, path: self.mapping(node, path, mutate),
            "spot": yes_or_no,
            "tier": read_integer(0, MAX_PRIORITY),
            "spread": read_percent,
            "spot_share": read_percent,
            "failover": self._failover,
            "defer": self._defer,
        }

    def mapping(self, node: Node, path: str, keys: Mapping[str, Read]) -> dict[str, Any]:
        """The values of a mapping that could be read, under the names the values have."""
        if not isinstance(node, yaml.nodes.MappingNode):
            every = "write match: {} to match every job"
            remedy = every if path == "match" else "write keys and values"
            self.add(node, path, Bad("not a mapping of keys to values", remedy))
            return {}
        found: dict[str, Any] = {}
        seen: set[str] = set()
        for key, value in node.value:
            name = str(key.value) if isinstance(key, yaml.nodes.ScalarNode) else "?"
            below = f"{path}.{name}" if path else name
            if name in seen:
                self.add(key, below, Bad("stands twice", "leave one of them out"))
            elif name not in keys:
                remedy = nearest(name, list(keys))
                self.add(key, below, Bad(f"unknown key `{name[:60]}`", remedy))
            else:
                self._one(found, (name, below), value, keys[name])
            seen.add(name)
        return found

    def _one(
        self, found: dict[str, Any], where: tuple[str, str], node: Node, read: Read
    ) -> None:
        name, path = where
        try:
            found[_FIELDS.get(name, name)] = read(node, path)
        except Bad as bad:
            self.add(node, path, bad)

    def _list(self, read: Read) -> Read:
        def read_list(node: Node, path: str) -> tuple[Any, ...]:
            if not isinstance(node, yaml.nodes.SequenceNode):
                raise Bad("not a list", "write a list such as [a, b]")
            if not 1 <= len(node.value) <= LIST_MAX:
                raise Bad(
                    f"{len(node.value)} entries", "name 1 to 256, or leave the key out for all"
                )
            found: list[Any] = []
            for index, item in enumerate(node.value):
                try:
                    value = read(item, path)
                    if value in found:
                        raise Bad("stands twice", "leave one of them out", show(item.value))
                    found.append(value)
                except Bad as bad:
                    self.add(item, f"{path}[{index}]", bad)
            return tuple(found)

        return read_list

    def _accelerators(self, node: Node, path: str) -> tuple[str, ...]:
        groups = self._list(read_accelerator)(node, path)
        return tuple(dict.fromkeys(name for group in groups for name in group))

    def _labels(self, node: Node, path: str) -> dict[str, str]:
        if not isinstance(node, yaml.nodes.MappingNode) or not node.value:
            raise Bad("not a mapping of labels", "write labels: {team: physics}")
        names = [str(key.value) for key, _ in node.value]
        return self.mapping(node, path, dict.fromkeys(names, read_label))

    def _mutated(self, node: Node, path: str) -> dict[str, str]:
        if not isinstance(node, yaml.nodes.MappingNode) or not node.value:
            raise Bad("not a mapping", "write for example cost-centre: job.labels.team")
        if len(node.value) > LIST_MAX:
            raise Bad(f"{len(node.value)} entries", f"name at most {LIST_MAX}")
        read = read_expression(SAMPLE_JOB, str)
        return self.mapping(node, path, {str(key.value): read for key, _ in node.value})

    def _rtt(self, node: Node, path: str) -> RttLimit | None:
        keys: dict[str, Read] = {"to": read_name(parse_region), "ms": read_milliseconds}
        found = self._both(node, path, keys, "write max_rtt: {to: eu-west, ms: 40}")
        return RttLimit(found["to"], found["ms"]) if found else None

    def _failover(self, node: Node, path: str) -> Failover | None:
        keys = {"order": self._list(read_name(parse_cluster)), "after": read_duration}
        remedy = "write failover: {order: [eu-west, us-east], after: 10m}"
        found = self._both(node, path, keys, remedy)
        return Failover(found["order"], found["after_s"]) if found else None

    def _defer(self, node: Node, path: str) -> Defer | None:
        price = "max_price_usd_per_accelerator_hour"
        keys: dict[str, Read] = {price: read_usd, "up_to": read_duration}
        remedy = f"write defer: {{{price}: 1.20, up_to: 6h}}"
        found = self._both(node, path, keys, remedy)
        return Defer(found[_FIELDS[price]], found["up_to_s"]) if found else None

    def _both(
        self, node: Node, path: str, keys: Mapping[str, Read], remedy: str
    ) -> dict[str, Any] | None:
        """A mapping with each of these keys; None where faults in it are noted."""
        before = len(self.faults)
        found = self.mapping(node, path, keys)
        if len(found) < len(keys) and len(self.faults) == before:
            raise Bad(f"needs both {' and '.join(keys)}", remedy)
        return found if len(self.faults) == before else None


_FIELDS = {
    "max_price_usd_per_accelerator_hour": "max_price_micro_usd_per_accelerator_hour",
    "max_start_delay": "max_start_delay_s",
    "after": "after_s",
    "up_to": "up_to_s",
    "value_of_time_usd_per_hour": "value_of_time_micro_usd_per_hour",
    "latency_usd_per_ms": "latency_micro_usd_per_ms",
}
"""Keys whose values have other names inside, because of their units."""
