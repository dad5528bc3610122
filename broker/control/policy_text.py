"""Reading a policy's YAML: every fault at once, each with its line, its column and a remedy.

Works on the composed nodes, so that nothing YAML guesses (numbers in base 60, dates, aliases)
gets past. The format is described in docs/policies.md.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from difflib import get_close_matches
from typing import Any

import yaml

from broker.model.policies import ISOLATION_GRADES, Match, Policy, Require, RttLimit, Weights
from federation.accelerators import InvalidAccelerator, canonical_names
from federation.ids import InvalidName, parse_cluster, parse_region, parse_tenant
from federation.job_errors import show
from federation.job_fields import printable
from federation.jobs import FieldError
from federation.units import InvalidQuantity, parse_duration_s, usd_to_micro

SOURCE_BYTES_MAX = 65_536
FAULTS_MAX = 50
LIST_MAX = 256
PRIORITY_MAX = 1_000_000
RTT_MS_MAX = 10_000
KINDS = ("batch", "training", "service", "workflow")

Node = yaml.nodes.Node
Read = Callable[[Node, str], Any]

_NUMBER = re.compile(r"-?[0-9]{1,20}(\.[0-9]{1,20})?", re.ASCII)
_INTEGER = re.compile(r"-?[0-9]{1,15}", re.ASCII)
_TAG = "tag:yaml.org,2002:"


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
        reader.add(node, "name", _Bad("missing", "write name: the-name-of-the-policy"))
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


class _Bad(Exception):
    def __init__(self, problem: str, remedy: str, value: str = "") -> None:
        super().__init__(problem)
        self.problem = problem
        self.remedy = remedy
        self.value = value


def _tag(node: Node) -> str:
    return str(node.tag).removeprefix(_TAG)


def _scalar(node: Node, what: str, remedy: str) -> str:
    if not isinstance(node, yaml.nodes.ScalarNode) or _tag(node) == "null":
        raise _Bad(f"not {what}", remedy)
    return str(node.value)


# Values -------------------------------------------------------------------------------------------


def _text(limit: int) -> Read:
    def read(node: Node, path: str) -> str:
        value = _scalar(node, "text", "write one line of text")
        if _tag(node) != "str" or len(value) > limit or not " ".join(value.split()).isprintable():
            raise _Bad(f"not text of at most {limit} characters", "write it in quotes", show(value))
        return value.strip()

    return read


def _name(parse: Callable[[object], str]) -> Read:
    def read(node: Node, path: str) -> str:
        value = _scalar(node, "a name", "write a name")
        try:
            return str(parse(value if _tag(node) == "str" else None))
        except InvalidName as error:
            remedy = error.rule if _tag(node) == "str" else f'write it in quotes: "{value[:40]}"'
            raise _Bad(f"not a valid {error.what}", remedy, show(value)) from None

    return read


def _policy_name(value: object) -> str:
    try:
        return str(parse_cluster(value))
    except InvalidName as error:
        raise InvalidName("policy name", value, error.rule) from None


def _accelerator(node: Node, path: str) -> tuple[str, ...]:
    value = _scalar(node, "the name of an accelerator", "write for example H100")
    try:
        return canonical_names(value)
    except InvalidAccelerator as error:
        raise _Bad("unknown accelerator", error.remedy, show(value)) from None


def _word(words: tuple[str, ...]) -> Read:
    def read(node: Node, path: str) -> str:
        value = _scalar(node, "a word", f"use one of {', '.join(words)}")
        if value not in words:
            raise _Bad("not a word known here", _nearest(value, words), show(value))
        return value

    return read


def _isolation(node: Node, path: str) -> str:
    value = str(_word(ISOLATION_GRADES)(node, path))
    if value == "hard":
        problem = "no kind of site of this version gives hard isolation"
        raise _Bad(problem, "write sandboxed, or leave it out", value)
    return value


def _spread(node: Node, path: str) -> None:
    raise _Bad("this version does not spread the replicas of a job", "leave spread out")


def _yes_or_no(node: Node, path: str) -> bool:
    value = _scalar(node, "yes or no", "write yes or no")
    if _tag(node) != "bool":
        raise _Bad("neither yes nor no", "write yes or no", show(value))
    return value.lower() in ("yes", "true", "on")


def _integer(least: int, most: int) -> Read:
    def read(node: Node, path: str) -> int:
        value = _scalar(node, "a whole number", "write a whole number")
        if _tag(node) != "int" or not _INTEGER.fullmatch(value):
            raise _Bad("not a whole number", "write a whole number, without quotes", show(value))
        if not least <= int(value) <= most:
            raise _Bad(f"outside {least} to {most}", "correct it", value)
        return int(value)

    return read


def _number(node: Node, example: str) -> Decimal:
    value = _scalar(node, "a number", f"write a number such as {example}")
    if _tag(node) not in ("int", "float") or not _NUMBER.fullmatch(value):
        raise _Bad(
            "not a plain number", f"write a number such as {example}, without quotes", show(value)
        )
    return Decimal(value)


def _usd(node: Node, path: str) -> int:
    try:
        return usd_to_micro(_number(node, "2.49"))
    except InvalidQuantity as error:
        raise _Bad(error.rule, error.remedy, show(node.value)) from None


def _milliseconds(node: Node, path: str) -> float:
    number = _number(node, "40")
    if not 0 < number <= RTT_MS_MAX:
        raise _Bad(f"outside 0 to {RTT_MS_MAX}", "write milliseconds such as 40", str(node.value))
    return float(number)


def _duration(node: Node, path: str) -> int:
    value = _scalar(node, "a duration", "write for example 90s or 10m")
    try:
        seconds = parse_duration_s(value if _tag(node) == "str" else _plain_integer(value))
    except InvalidQuantity as error:
        raise _Bad(error.rule, error.remedy, show(value)) from None
    if seconds < 1:
        raise _Bad("a duration of nothing", "write 1s or more", show(value))
    return seconds


def _plain_integer(value: str) -> object:
    return int(value) if _INTEGER.fullmatch(value) else None


def _label(node: Node, path: str) -> str:
    value = _scalar(node, "text", "write the value a job's label must have")
    if _tag(node) != "str":
        raise _Bad("labels are text", f'write it in quotes: "{value[:40]}"', show(value))
    return value


def _nearest(value: str, known: tuple[str, ...] | list[str]) -> str:
    near = get_close_matches(value, known, n=1, cutoff=0.6)
    return f"did you mean `{near[0]}`?" if near else f"use one of {', '.join(known)}"


# The whole ----------------------------------------------------------------------------------------


class _Reader:
    """Collects faults instead of stopping at the first."""

    def __init__(self) -> None:
        self.faults: list[PolicyFault] = []

    def add(self, node: Node, path: str, bad: _Bad) -> None:
        """Note a fault where a node begins."""
        mark = node.start_mark
        self.faults.append(
            PolicyFault(
                printable(path)[:200], printable(bad.value), printable(bad.problem),
                printable(bad.remedy), mark.line + 1, mark.column + 1,
            )
        )  # fmt: skip

    def top(self) -> dict[str, Read]:
        """The keys of a policy."""
        match: dict[str, Read] = {
            "tenants": self._list(_name(parse_tenant)),
            "kinds": self._list(_word(KINDS)),
            "labels": self._labels,
            "accelerators": self._accelerators,
        }
        require: dict[str, Read] = {
            "regions": self._list(_name(parse_region)),
            "max_price_usd_per_accelerator_hour": _usd,
            "max_rtt": self._rtt,
            "max_start_delay": _duration,
            "isolation": _isolation,
        }
        weights: dict[str, Read] = {
            "value_of_time_usd_per_hour": _usd,
            "latency_usd_per_ms": _usd,
        }
        return {
            "name": _name(_policy_name),
            "description": _text(2_000),
            "priority": _integer(0, PRIORITY_MAX),
            "match": lambda node, path: self.mapping(node, path, match),
            "require": lambda node, path: self.mapping(node, path, require),
            "weights": lambda node, path: self.mapping(node, path, weights),
            "spot": _yes_or_no,
            "spread": _spread,
        }

    def mapping(self, node: Node, path: str, keys: Mapping[str, Read]) -> dict[str, Any]:
        """The values of a mapping that could be read, under the names the values have."""
        if not isinstance(node, yaml.nodes.MappingNode):
            every = "write match: {} to match every job"
            remedy = every if path == "match" else "write keys and values"
            self.add(node, path, _Bad("not a mapping of keys to values", remedy))
            return {}
        found: dict[str, Any] = {}
        seen: set[str] = set()
        for key, value in node.value:
            name = str(key.value) if isinstance(key, yaml.nodes.ScalarNode) else "?"
            below = f"{path}.{name}" if path else name
            if name in seen:
                self.add(key, below, _Bad("stands twice", "leave one of them out"))
            elif name not in keys:
                remedy = _nearest(name, list(keys))
                self.add(key, below, _Bad(f"unknown key `{name[:60]}`", remedy))
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
        except _Bad as bad:
            self.add(node, path, bad)

    def _list(self, read: Read) -> Read:
        def read_list(node: Node, path: str) -> tuple[Any, ...]:
            if not isinstance(node, yaml.nodes.SequenceNode):
                raise _Bad("not a list", "write a list such as [a, b]")
            if not 1 <= len(node.value) <= LIST_MAX:
                raise _Bad(
                    f"{len(node.value)} entries", "name 1 to 256, or leave the key out for all"
                )
            found: list[Any] = []
            for index, item in enumerate(node.value):
                try:
                    value = read(item, path)
                    if value in found:
                        raise _Bad("stands twice", "leave one of them out", show(item.value))
                    found.append(value)
                except _Bad as bad:
                    self.add(item, f"{path}[{index}]", bad)
            return tuple(found)

        return read_list

    def _accelerators(self, node: Node, path: str) -> tuple[str, ...]:
        groups = self._list(_accelerator)(node, path)
        return tuple(dict.fromkeys(name for group in groups for name in group))

    def _labels(self, node: Node, path: str) -> dict[str, str]:
        if not isinstance(node, yaml.nodes.MappingNode) or not node.value:
            raise _Bad("not a mapping of labels", "write labels: {team: physics}")
        names = [str(key.value) for key, _ in node.value]
        return self.mapping(node, path, dict.fromkeys(names, _label))

    def _rtt(self, node: Node, path: str) -> RttLimit:
        before = len(self.faults)
        found = self.mapping(node, path, {"to": _name(parse_region), "ms": _milliseconds})
        if len(found) == 2:
            return RttLimit(found["to"], found["ms"])
        if len(self.faults) == before:
            raise _Bad("needs both to and ms", "write max_rtt: {to: eu-west, ms: 40}")
        return RttLimit("", 0.0)  # its faults are noted: nothing comes of it


_FIELDS = {
    "max_price_usd_per_accelerator_hour": "max_price_micro_usd_per_accelerator_hour",
    "max_start_delay": "max_start_delay_s",
    "value_of_time_usd_per_hour": "value_of_time_micro_usd_per_hour",
    "latency_usd_per_ms": "latency_micro_usd_per_ms",
}
"""Keys whose values have other names inside, because of their units."""
