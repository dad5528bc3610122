"""`tradewind policy sensitivity`: asked of a stored decision or a file, told as tables."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from broker.cli.exits import Exit, Failure
from broker.cli.formatting import count, mappings, number, text, usd
from broker.cli.output import Column, Table
from broker.cli.session import with_client
from broker.client import Client
from broker.client.decisions import stored_cycles, stored_problem

SHOWN_MAX = 20
_WORDS = {"value_of_time_usd_per_h": "value of time", "latency_usd_per_ms": "latency"}
Document = Mapping[str, Any]


def sensitivity_of(file: str | None) -> dict[str, Any]:
    """What half and twice the weights change. Raises Failure, and what the client raises."""
    from broker.cli.plan_problem import read_problem_bytes
    from broker.decide.problem_file import ProblemError, parse_problem
    from broker.decide.sensitivity import sensitivity

    cycle = None
    try:
        if file is None:
            cycle, data = with_client(_newest)
        else:
            data = read_problem_bytes(file)
        problem = parse_problem(data)
    except (ProblemError, OSError, EOFError, zlib.error) as error:
        raise Failure(Exit.BAD_INPUT, f"{file or cycle}: {error}") from None
    trials = sensitivity(problem)
    return {
        "cycle": cycle,
        "jobs": len(problem.jobs),
        "trials": [{**asdict(t), "shifts": [asdict(s) for s in t.shifts]} for t in trials],
    }


async def _newest(client: Client) -> tuple[str, bytes]:
    listed = mappings((await stored_cycles(client, 1)).get("cycles"))
    if not listed:
        remedy = "wait until something was decided, or give --problem FILE"
        raise Failure(Exit.NOT_FOUND, "no decision is stored here", remedy)
    cycle = str(listed[0].get("cycle"))
    return cycle, await stored_problem(client, cycle)


def verdict(told: Document) -> str:
    """Whether the ranking survives, in a line."""
    trials = mappings(told.get("trials"))
    weighed = max((number(trial.get("classes")) or 0.0 for trial in trials), default=0.0)
    if not weighed:
        return (
            "No job here has a weight (value_of_time_usd_per_hour, latency_usd_per_ms of a job or "
            "its policy): no choice depends on one."
        )
    changed = [trial for trial in trials if number(trial.get("first_differs"))]
    if not changed:
        return "The first choice of every kind of job survives half and twice each weight."
    return "The first choice of some kinds of jobs depends on what time or distance is worth."


def trial_table(told: Document) -> Table:
    """One line per weight and factor."""
    table = Table(
        (
            Column("weight"), Column("times", right=True), Column("kinds of jobs", right=True),
            Column("first choice differs", right=True), Column("order differs", right=True),
        )
    )  # fmt: skip
    for trial in mappings(told.get("trials")):
        weight = text(trial.get("weight"))
        table.rows.append((
            _WORDS.get(weight, weight), text(trial.get("factor")), count(trial.get("classes")),
            count(trial.get("first_differs")), count(trial.get("order_differs")),
        ))  # fmt: skip
    return table


def shift_table(told: Document) -> Table:
    """The kinds of jobs whose first choice differs, where it matters most first."""
    table = Table(
        (
            Column("job"), Column("copies", right=True), Column("weight"),
            Column("times", right=True), Column("first choice"), Column("then"),
            Column("worth", right=True),
        ),
        empty="",
    )  # fmt: skip
    shifts = [s for trial in mappings(told.get("trials")) for s in mappings(trial.get("shifts"))]
    shifts.sort(key=lambda shift: -(number(shift.get("more_usd")) or 0.0))
    for shift in shifts[:SHOWN_MAX]:
        weight = text(shift.get("weight"))
        table.rows.append((
            text(shift.get("job")), count(shift.get("copies")), _WORDS.get(weight, weight),
            text(shift.get("factor")), text(shift.get("first")), text(shift.get("then")),
            usd(shift.get("more_usd")),
        ))  # fmt: skip
    return table
