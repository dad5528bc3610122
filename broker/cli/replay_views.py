"""Stored decisions, and one decided again, as tables and lines. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from broker.cli.formatting import (
    NONE,
    Now,
    at,
    count,
    mapping,
    mappings,
    moment,
    number,
    seconds,
    size,
    text,
    usd,
)
from broker.cli.output import Column, Table

Document = Mapping[str, Any]


def percent(value: object) -> str:
    """A fraction in per cent."""
    found = number(value)
    return NONE if found is None else f"{found:.2%}"


def cycle_table(found: Document, now: Now) -> Table:
    """One line per stored decision, the newest first."""
    table = Table(
        (
            Column("cycle"), Column("decided"), Column("status"), Column("gap", right=True),
            Column("jobs", right=True), Column("placed", right=True),
            Column("wait", right=True), Column("cpu", right=True), Column("size", right=True),
            Column("kept for"),
        ),
        empty="no decision is stored here",
    )  # fmt: skip
    for cycle in mappings(found.get("cycles")):
        table.rows.append((
            text(cycle.get("cycle")), moment(cycle.get("decided_at"), now),
            text(cycle.get("status")), percent(cycle.get("gap")), count(cycle.get("considered")),
            count(cycle.get("placed")), count(cycle.get("unplaced")),
            seconds(cycle.get("cpu_s")), size(cycle.get("size_bytes")),
            text(cycle.get("why_kept")),
        ))  # fmt: skip
    return table


def replay_facts(told: Document, now: Now) -> list[tuple[str, str]]:
    """What was decided, and whether it is decided so again."""
    recorded = mapping(told.get("recorded"))
    then, today = mapping(recorded.get("answer")), mapping(told.get("answer"))
    verdict = "the same plan" if told.get("same") is True else "another plan"
    return [
        ("cycle", f"{text(told.get('cycle'))}, decided {moment(recorded.get('at'), now)}"),
        ("again", f"{verdict}, with {text(told.get('budget_s'))} s of CPU time to spend"),
        ("then", _answer(then)),
        ("now", _answer(today)),
    ]


def _answer(answer: Document) -> str:
    copies = sum(int(number(item.get("count")) or 0) for item in mappings(answer["assignments"]))
    waits = sum(int(number(item.get("count")) or 0) for item in mappings(answer["unplaced"]))
    gap = percent(at(answer, "gap"))
    return (
        f"{text(answer.get('status'))}: {copies:,} copies placed, {waits:,} wait, "
        f"{usd(answer.get('cost_usd'))}" + ("" if gap == NONE else f", gap {gap}")
    )


def difference_table(told: Document) -> Table:
    """What differs, by name."""
    table = Table((Column("what"), Column("recorded"), Column("now")))
    for row in mappings(told.get("differences")):
        table.rows.append((
            text(row.get("what")), text(row.get("recorded")), text(row.get("now"))
        ))  # fmt: skip
    return table
