"""Expressions of policies, in the Common Expression Language: the one door to its library.

CEL has no loops and no side effects, and its regular expressions run in linear time. What is left
to bound is bounded here: the length of a text, and how often it may go through lists. An expression
that fails for a job or a cluster never counts as true.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from difflib import get_close_matches
from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import cel

SOURCE_CHARS_MAX = 1_000
MACROS_MAX = 2
"""Passes over lists (`all`, `exists`, `map`, ...): with so many nested in a text of that length an
evaluation stays below some milliseconds."""
KEPT_MAX = 4_096

_MACROS = re.compile(r"\.(all|exists|exists_one|map|filter)\s*\(")
_PLACE = re.compile(r"ERROR: <input>:(\d+):(\d+): (.*)")
Facts = Mapping[str, Mapping[str, Any]]


class BadExpression(ValueError):
    """A text that is no expression, or not for these facts; where it is known, its line and column
    count from 1."""

    def __init__(self, problem: str, remedy: str, place: tuple[int, int] = (1, 1)) -> None:
        super().__init__(problem)
        self.problem = problem
        self.remedy = remedy
        self.place = place


class ExpressionFailed(Exception):
    """An expression that has no value for some facts: the text says why."""


def check_expression(source: str, sample: Facts, kind: type) -> None:
    """Refuse what is no expression over facts like these, or has another kind of value. Raises
    BadExpression."""
    if len(source) > SOURCE_CHARS_MAX:
        remedy = f"write at most {SOURCE_CHARS_MAX} characters"
        raise BadExpression(f"an expression of {len(source)} characters", remedy)
    passes = len(_MACROS.findall(source))
    if passes > MACROS_MAX:
        remedy = f"use all, exists, map and filter at most {MACROS_MAX} times"
        raise BadExpression(f"goes through lists {passes} times", remedy)
    _program(source)
    try:
        found = _value(source, sample)
    except KeyError as missing:
        name = str(missing.args[0])
        if re.search(rf"labels\s*(\.|\[\s*['\"])\s*{re.escape(name)}\b", source):
            return  # a label that the sample does not have
        known = sorted({key for facts in sample.values() for key in facts})
        near = get_close_matches(name, known, n=1, cutoff=0.6)
        remedy = f"did you mean {near[0]}?" if near else f"known: {', '.join(known)}"
        raise BadExpression(f"unknown name {name}", remedy) from None
    except ExpressionFailed as failed:
        raise BadExpression(str(failed), f"known: {', '.join(sorted(sample))}") from None
    if not isinstance(found, kind):
        word = {bool: "true or false", str: "text"}[kind]
        raise BadExpression(f"gives {type(found).__name__}, not {word}", f"write one of {word}")


def holds(source: str, facts: Facts) -> bool:
    """Whether an expression is true. Raises ExpressionFailed where it has no value."""
    try:
        return _value(source, facts) is True
    except KeyError as missing:
        name = missing.args[0]
        raise ExpressionFailed(f"there is no {name!r}; ask has(...) first") from None


def words(source: str, facts: Facts) -> str:
    """The text an expression gives. Raises ExpressionFailed where it gives none."""
    try:
        found = _value(source, facts)
    except KeyError as missing:
        name = missing.args[0]
        raise ExpressionFailed(f"there is no {name!r}; ask has(...) first") from None
    if not isinstance(found, str):
        raise ExpressionFailed(f"gives {type(found).__name__}, not text")
    return found


def _value(source: str, facts: Facts) -> Any:
    try:
        return _program(source).execute({name: dict(known) for name, known in facts.items()})
    except KeyError:
        raise
    except Exception as error:  # noqa: BLE001  whatever it is, it is no value
        first = str(error).split(". Check", 1)[0].splitlines()[0][:200]
        raise ExpressionFailed(first or type(error).__name__) from None


@lru_cache(KEPT_MAX)
def _program(source: str) -> cel.Program:
    import cel  # takes a tenth of a second, which brokers without expressions need not spend

    try:
        return cel.compile(source)
    except ValueError as error:
        found = _PLACE.search(str(error))
        place = (int(found[1]), int(found[2])) if found else (1, 1)
        said = re.sub(r" expecting \{.*", "", found[3]) if found else "not an expression"
        raise BadExpression(said[:200], "see docs/policies.md for examples", place) from None
