"""Reading the values of a policy's YAML, one node at a time."""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal
from difflib import get_close_matches
from typing import Any

import yaml

from broker.control.expressions import BadExpression, Facts, check_expression
from broker.control.policy_hours import EXAMPLE, InvalidHours, read_hours
from broker.model.policies import ISOLATION_GRADES, Hours
from federation.accelerators import InvalidAccelerator, canonical_names
from federation.ids import InvalidName, parse_cluster
from federation.job_errors import show
from federation.units import InvalidQuantity, parse_duration_s, usd_to_micro

RTT_MS_MAX = 10_000
Node = yaml.nodes.Node
Read = Callable[[Node, str], Any]

_NUMBER = re.compile(r"-?[0-9]{1,20}(\.[0-9]{1,20})?", re.ASCII)
_INTEGER = re.compile(r"-?[0-9]{1,15}", re.ASCII)
_PERCENT = re.compile(r"([0-9]{1,3}(?:\.[0-9]{1,4})?) ?%", re.ASCII)
_TAG = "tag:yaml.org,2002:"


class Bad(Exception):
    """A value that is wrong; `place` (line, column, from 1) where it is not where its node begins.
    """

    def __init__(
        self, problem: str, remedy: str, value: str = "", place: tuple[int, int] | None = None
    ) -> None:
        super().__init__(problem)
        self.problem = problem
        self.remedy = remedy
        self.value = value
        self.place = place


def tag_of(node: Node) -> str:
    """What YAML takes a node for: `str`, `int`, ..."""
    return str(node.tag).removeprefix(_TAG)


def scalar(node: Node, what: str, remedy: str) -> str:
    """The text of one value. Raises Bad."""
    if not isinstance(node, yaml.nodes.ScalarNode) or tag_of(node) == "null":
        raise Bad(f"not {what}", remedy)
    return str(node.value)


# Values -------------------------------------------------------------------------------------------


def read_text(limit: int) -> Read:
    """A line of text."""
    def read(node: Node, path: str) -> str:
        value = scalar(node, "text", "write one line of text")
        if tag_of(node) != "str" or len(value) > limit or not " ".join(value.split()).isprintable():
            raise Bad(f"not text of at most {limit} characters", "write it in quotes", show(value))
        return value.strip()

    return read


def read_name(parse: Callable[[object], str]) -> Read:
    """A name, by the rule that `parse` holds."""
    def read(node: Node, path: str) -> str:
        value = scalar(node, "a name", "write a name")
        try:
            return str(parse(value if tag_of(node) == "str" else None))
        except InvalidName as error:
            remedy = error.rule if tag_of(node) == "str" else f'write it in quotes: "{value[:40]}"'
            raise Bad(f"not a valid {error.what}", remedy, show(value)) from None

    return read


def policy_name(value: object) -> str:
    """The name of a policy. Raises InvalidName."""
    try:
        return str(parse_cluster(value))
    except InvalidName as error:
        raise InvalidName("policy name", value, error.rule) from None


def read_accelerator(node: Node, path: str) -> tuple[str, ...]:
    """An accelerator, as all the models it stands for."""
    value = scalar(node, "the name of an accelerator", "write for example H100")
    try:
        return canonical_names(value)
    except InvalidAccelerator as error:
        raise Bad("unknown accelerator", error.remedy, show(value)) from None


def read_word(words: tuple[str, ...]) -> Read:
    """One of some words."""
    def read(node: Node, path: str) -> str:
        value = scalar(node, "a word", f"use one of {', '.join(words)}")
        if value not in words:
            raise Bad("not a word known here", nearest(value, words), show(value))
        return value

    return read


def read_isolation(node: Node, path: str) -> str:
    """A grade of isolation that some kind of site gives."""
    value = str(read_word(ISOLATION_GRADES)(node, path))
    if value == "hard":
        problem = "no kind of site of this version gives hard isolation"
        raise Bad(problem, "write sandboxed, or leave it out", value)
    return value


def read_percent(node: Node, path: str) -> float:
    """A share, as a fraction."""
    value = scalar(node, "a share", "write a share such as 50%")
    found = _PERCENT.fullmatch(value)
    if found is None or not 0 <= float(found[1]) <= 100:
        raise Bad("not a share from 0% to 100%", "write a share such as 50%", show(value))
    return float(found[1]) / 100


def yes_or_no(node: Node, path: str) -> bool:
    """A truth, as YAML writes it."""
    value = scalar(node, "yes or no", "write yes or no")
    if tag_of(node) != "bool":
        raise Bad("neither yes nor no", "write yes or no", show(value))
    return value.lower() in ("yes", "true", "on")


def read_integer(least: int, most: int) -> Read:
    """A whole number within bounds."""
    def read(node: Node, path: str) -> int:
        value = scalar(node, "a whole number", "write a whole number")
        if tag_of(node) != "int" or not _INTEGER.fullmatch(value):
            raise Bad("not a whole number", "write a whole number, without quotes", show(value))
        if not least <= int(value) <= most:
            raise Bad(f"outside {least} to {most}", "correct it", value)
        return int(value)

    return read


def read_number(node: Node, example: str) -> Decimal:
    """A plain number. Raises Bad."""
    value = scalar(node, "a number", f"write a number such as {example}")
    if tag_of(node) not in ("int", "float") or not _NUMBER.fullmatch(value):
        raise Bad(
            "not a plain number", f"write a number such as {example}, without quotes", show(value)
        )
    return Decimal(value)


def read_usd(node: Node, path: str) -> int:
    """An amount in USD, as micro-USD."""
    try:
        return usd_to_micro(read_number(node, "2.49"))
    except InvalidQuantity as error:
        raise Bad(error.rule, error.remedy, show(node.value)) from None


def read_milliseconds(node: Node, path: str) -> float:
    """Milliseconds of a round trip."""
    number = read_number(node, "40")
    if not 0 < number <= RTT_MS_MAX:
        raise Bad(f"outside 0 to {RTT_MS_MAX}", "write milliseconds such as 40", str(node.value))
    return float(number)


def read_duration(node: Node, path: str) -> int:
    """A duration, in seconds."""
    value = scalar(node, "a duration", "write for example 90s or 10m")
    try:
        seconds = parse_duration_s(value if tag_of(node) == "str" else _plain_integer(value))
    except InvalidQuantity as error:
        raise Bad(error.rule, error.remedy, show(value)) from None
    if seconds < 1:
        raise Bad("a duration of nothing", "write 1s or more", show(value))
    return seconds


def _plain_integer(value: str) -> object:
    return int(value) if _INTEGER.fullmatch(value) else None


def read_label(node: Node, path: str) -> str:
    """The value of a label."""
    value = scalar(node, "text", "write the value a job's label must have")
    if tag_of(node) != "str":
        raise Bad("labels are text", f'write it in quotes: "{value[:40]}"', show(value))
    return value


def nearest(value: str, known: tuple[str, ...] | list[str]) -> str:
    """A remedy: the word that was probably meant."""
    near = get_close_matches(value, known, n=1, cutoff=0.6)
    return f"did you mean `{near[0]}`?" if near else f"use one of {', '.join(known)}"


def read_expression(sample: Facts, kind: type) -> Read:
    """A text that is an expression over facts like these, and has this kind of value."""

    def read(node: Node, path: str) -> str:
        value = scalar(node, "an expression", "write an expression, in quotes")
        if tag_of(node) != "str":
            raise Bad("not an expression", "write an expression, in quotes", show(value))
        try:
            check_expression(value, sample, kind)
        except BadExpression as bad:
            raise Bad(bad.problem, bad.remedy, show(value), _place(node, bad.place)) from None
        return value

    return read


def _place(node: Node, place: tuple[int, int]) -> tuple[int, int]:
    """Where a place in the text of a node is in the whole text."""
    line, column, mark = *place, node.start_mark
    style = getattr(node, "style", None)
    if style in ("|", ">"):
        lines = str(mark.buffer or "").splitlines()
        at = mark.line + line
        text = lines[at] if at < len(lines) else ""
        return at + 1, len(text) - len(text.lstrip(" ")) + column
    if line > 1:
        return mark.line + 1, mark.column + 1
    return mark.line + 1, mark.column + column + (style in ("'", '"'))


def read_week(node: Node, path: str) -> Hours:
    """Hours of the week."""
    value = scalar(node, "hours of the week", EXAMPLE)
    try:
        return read_hours(value)
    except InvalidHours as error:
        raise Bad(str(error), EXAMPLE, show(value)) from None
