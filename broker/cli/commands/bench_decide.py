"""`tradewind bench decide`: how fast and how good decisions are, beside simpler schedulers."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Annotated, Any

import typer

from broker.cli.bench.decide_tables import by_size, every_decision
from broker.cli.bench.instances import Size
from broker.cli.bench.measuring import Task, task_to_json
from broker.cli.exits import Exit, Failure, complain, note
from broker.cli.options import Json
from broker.cli.output import show, show_json

_SIZES = ["10,200,50", "50,2000,300", "100,10000,1000", "200,20000,3000"]
_LOADS = [0.5, 1.0, 2.0]
_BUDGETS = {50: (1.0,), 300: (1.0, 5.0), 1_000: (1.0,)}
"""CPU seconds of cold decisions by the most classes they are for."""
_LARGE_BUDGETS = (5.0,)
_BASELINES = frozenset(("fifo cheapest first", "big gangs first", "first cluster that admits"))


def decide(
    size: Annotated[
        list[str] | None,
        typer.Option(metavar="C,J,K", help="Clusters, jobs, classes of jobs; may be repeated."),
    ] = None,
    load: Annotated[
        list[float] | None, typer.Option(help="Accelerators asked for over those free.")
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Instances of each size and load.")] = 5,
    budget_s: Annotated[
        list[float] | None,
        typer.Option(help="CPU seconds of a cold decision; may be repeated; by default by size."),
    ] = None,
    warm_budget_s: Annotated[
        float, typer.Option(help="CPU seconds of a decision that follows the last one.")
    ] = 0.2,
    savings: Annotated[
        bool, typer.Option("--savings", help="Also what could be saved at most; takes longer.")
    ] = False,
    mode: Annotated[str, typer.Option(help="scalar or place_first.")] = "scalar",
    problem: Annotated[
        list[str] | None,
        typer.Option(metavar="FILE[.gz]", help="Measure on this problem instead of made-up ones."),
    ] = None,
    as_json: Json = False,
) -> int:
    """Decide made-up problems and compare with simpler schedulers, on the same problems.

    Each decision stands beside what the baselines reach: by priority and age to the cheapest pool
    (fifo); big gangs first; the first cluster that admits. A warm decision follows the last one
    after 2 % of the jobs have changed. "cost for as much" is the cost against fifo once the plan
    has let go of what it places more. CPU seconds count from the parsed problem to the verified
    plan. One process after another: run nothing else meanwhile. Ends with 70 where a baseline is
    better than a decision: that must never be.
    """
    if mode not in ("scalar", "place_first"):
        raise Failure(Exit.BAD_INPUT, f"unknown mode {mode!r}", "scalar or place_first")
    budgets = tuple(budget_s or ())
    tasks: list[tuple[str, Task]] = []
    for file in problem or []:
        task = Task(None, 1, mode, budgets or _LARGE_BUDGETS, warm_budget_s, file, savings)
        tasks.append((file, task))
    for text in size or ([] if problem else _SIZES):
        for ratio in load or _LOADS:
            for seed in range(1, seeds + 1):
                instance = _size(text, ratio)
                times = budgets or _budgets(instance)
                name = f"{text} load {ratio:g} seed {seed}"
                task = Task(instance, seed, mode, times, warm_budget_s, savings=savings)
                tasks.append((name, task))
    found: list[dict[str, Any]] = []
    for name, task in tasks:
        note(f"measuring {name}")
        found += [{"problem": name, **row} for row in _measure(task)]
    beaten = [row for row in found if row["beaten_by"]]
    if as_json:
        show_json({"rows": found})
    else:
        show(every_decision(found))
        show(by_size(found, _BASELINES))
    for row in beaten:
        complain(f"{row['problem']}, {row['how']}: {row['beaten_by']} is better", "report this")
    return Exit.FAULT if beaten else Exit.OK


def _budgets(size: Size) -> tuple[float, ...]:
    fitting = (times for most, times in _BUDGETS.items() if size.classes <= most)
    return next(fitting, _LARGE_BUDGETS)


def _size(text: str, load: float) -> Size:
    parts = text.split(",")
    if len(parts) != 3 or not all(part.strip().isdigit() and int(part) for part in parts):
        raise Failure(Exit.BAD_INPUT, f"--size {text}: not a size", "write it as 50,2000,300")
    clusters, jobs, classes = (int(part) for part in parts)
    if classes > jobs:
        raise Failure(Exit.BAD_INPUT, f"--size {text}: more classes than jobs", "write C,J,K")
    if not load > 0:
        raise Failure(Exit.BAD_INPUT, f"--load {load:g}: must be over 0", "write --load 1")
    return Size(clusters, jobs, classes, load)


def _measure(task: Task) -> list[dict[str, Any]]:
    command = [sys.executable, "-m", "broker.cli.bench.measuring"]
    done = subprocess.run(
        command, input=task_to_json(task), capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        last = done.stderr.strip().splitlines()[-1:] or [f"exit code {done.returncode}"]
        raise Failure(Exit.FAULT, f"the measuring process failed: {last[0]}", "report this")
    rows: list[dict[str, Any]] = json.loads(done.stdout)
    return rows
