"""Sets of array indices as sorted, disjoint, non-adjacent runs.

An array of a million tasks is one short value: every operation costs by the number of runs,
never by the number of tasks.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

MAX_TASKS = 1_000_000
MAX_INDEX = 2**31 - 1
MAX_PARSED_RUNS = 10_000

_PART = re.compile(r"([0-9]{1,10})(?:-([0-9]{1,10})(?::([0-9]{1,10}))?)?", re.ASCII)
_EXAMPLE = "write for example 0-99, 1-10,20,30-40:2 or 0-99%10"


class InvalidRuns(ValueError):
    """An array expression or a set of runs that breaks the rule it names."""

    def __init__(self, value: object, rule: str, remedy: str = _EXAMPLE) -> None:
        shown = repr(value)[:80] if isinstance(value, str) else type(value).__name__
        super().__init__(f"array {shown} is not valid: {rule}; {remedy}")
        self.value = value
        self.rule = rule
        self.remedy = remedy


@dataclass(frozen=True, slots=True)
class Runs:
    """A set of indices; `runs` holds (first, last) pairs, both inclusive, ascending, apart.

    Raises InvalidRuns when the pairs are not in that form or exceed the bounds of an array.
    """

    runs: tuple[tuple[int, int], ...] = ()

    def __post_init__(self) -> None:
        if not self.runs:
            return
        previous = -2
        for first, last in self.runs:
            if first <= previous + 1 or last < first:
                raise InvalidRuns(self.runs, "runs must be ascending, disjoint and not adjacent")
            previous = last
        if previous > MAX_INDEX:
            raise InvalidRuns(self.runs, f"an index is at most {MAX_INDEX}")
        if self.count > MAX_TASKS:
            raise InvalidRuns(self.runs, f"at most {MAX_TASKS} tasks")

    @staticmethod
    def of(pairs: Iterable[tuple[int, int]]) -> Runs:
        """The union of (first, last) pairs in any order, overlapping or not; raises InvalidRuns."""
        merged: list[tuple[int, int]] = []
        for first, last in sorted(pairs):
            if first < 0 or last < first:
                raise InvalidRuns(f"{first}-{last}", "a range goes upwards from 0 or more")
            if merged and first <= merged[-1][1] + 1:
                merged[-1] = (merged[-1][0], max(last, merged[-1][1]))
            else:
                merged.append((first, last))
        return Runs(tuple(merged))

    @property
    def count(self) -> int:
        """How many indices there are."""
        return sum(last - first + 1 for first, last in self.runs)

    def __bool__(self) -> bool:
        return bool(self.runs)

    def __contains__(self, index: object) -> bool:
        if not isinstance(index, int):
            return False
        at = bisect_right(self.runs, (index, MAX_INDEX + 1)) - 1
        return at >= 0 and self.runs[at][0] <= index <= self.runs[at][1]

    def __iter__(self) -> Iterator[int]:
        for first, last in self.runs:
            yield from range(first, last + 1)

    def __str__(self) -> str:
        return ",".join(f"{a}" if a == b else f"{a}-{b}" for a, b in self.runs)

    def union(self, other: Runs) -> Runs:
        """Indices in either; raises InvalidRuns when that is more than an array may have."""
        if not (self.runs and other.runs):
            return self if self.runs else other
        return Runs.of((*self.runs, *other.runs))

    def difference(self, other: Runs) -> Runs:
        """Indices here and not in `other`."""
        if not (self.runs and other.runs):
            return self
        kept: list[tuple[int, int]] = []
        cuts, at = other.runs, 0
        for start, last in self.runs:
            first = start
            while at < len(cuts) and cuts[at][1] < first:
                at += 1
            scan = at
            while scan < len(cuts) and cuts[scan][0] <= last:
                if cuts[scan][0] > first:
                    kept.append((first, cuts[scan][0] - 1))
                first = cuts[scan][1] + 1
                scan += 1
            if first <= last:
                kept.append((first, last))
        return Runs(tuple(kept))

    def intersection(self, other: Runs) -> Runs:
        """Indices in both."""
        shared: list[tuple[int, int]] = []
        mine, theirs = 0, 0
        while mine < len(self.runs) and theirs < len(other.runs):
            first = max(self.runs[mine][0], other.runs[theirs][0])
            last = min(self.runs[mine][1], other.runs[theirs][1])
            if first <= last:
                shared.append((first, last))
            if self.runs[mine][1] < other.runs[theirs][1]:
                mine += 1
            else:
                theirs += 1
        return Runs(tuple(shared))

    def take(self, n: int) -> tuple[Runs, Runs]:
        """The first `n` indices (all, if there are fewer) and the rest."""
        head: list[tuple[int, int]] = []
        for position, (first, last) in enumerate(self.runs):
            if n <= 0:
                return Runs(tuple(head)), Runs(self.runs[position:])
            size = last - first + 1
            if size > n:
                head.append((first, first + n - 1))
                return Runs(tuple(head)), Runs(((first + n, last), *self.runs[position + 1 :]))
            head.append((first, last))
            n -= size
        return self, Runs()


def parse_runs(text: object) -> Runs:
    """The set written as `0-99`, `7`, or `1-10,20,30-40:2`; raises InvalidRuns."""
    if not isinstance(text, str):
        raise InvalidRuns(text, "an array is text")
    pairs: list[tuple[int, int]] = []
    for part in text.split(",", MAX_PARSED_RUNS)[:MAX_PARSED_RUNS]:
        pairs.extend(_pairs(text, part.strip()))
        if len(pairs) > MAX_PARSED_RUNS:
            break
    if len(pairs) > MAX_PARSED_RUNS or text.count(",") >= MAX_PARSED_RUNS:
        rule = f"more than {MAX_PARSED_RUNS} separate ranges"
        raise InvalidRuns(text, rule, "use contiguous indices")
    return Runs.of(pairs)


def _pairs(text: str, part: str) -> Iterable[tuple[int, int]]:
    match = _PART.fullmatch(part)
    if match is None:
        raise InvalidRuns(text, f"{part[:40]!r} is not an index or a range")
    first = int(match[1])
    last = int(match[2]) if match[2] else first
    step = int(match[3]) if match[3] else 1
    if last < first:
        raise InvalidRuns(text, f"{part!r} runs backwards", f"write {last}-{first}")
    if step == 0:
        raise InvalidRuns(text, f"{part!r} has a step of 0")
    if last > MAX_INDEX:
        raise InvalidRuns(text, f"an index is at most {MAX_INDEX}")
    if step == 1:
        return ((first, last),)
    indices = range(first, last + 1, step)
    return ((index, index) for index in indices[: MAX_PARSED_RUNS + 1])


def parse_array(text: object) -> tuple[Runs, int | None]:
    """Indices and the most tasks at once of `0-99%10` (None without `%`); raises InvalidRuns."""
    if not isinstance(text, str):
        raise InvalidRuns(text, "an array is text", "write for example '0-99' or '0-99%10'")
    expression, percent, limit_text = text.partition("%")
    if not percent:
        return parse_runs(expression), None
    if not re.fullmatch(r"[1-9][0-9]{0,6}", limit_text.strip(), re.ASCII):
        raise InvalidRuns(text, "the limit after % is a whole number from 1 to 9999999")
    return parse_runs(expression), int(limit_text)


def format_array(tasks: Runs, limit: int | None) -> str:
    """The text `parse_array` reads back."""
    return f"{tasks}" if limit is None else f"{tasks}%{limit}"
