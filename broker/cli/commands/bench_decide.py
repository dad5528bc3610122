"""`tradewind bench decide`: how fast and how good decisions are, beside simpler schedulers."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Annotated, Any

import typer

from broker.cli.bench.instances import Size
from broker.cli.bench.measuring import Task, task_to_json
from broker.cli.exits import Exit, Failure, note
from broker.cli.options import Json
from broker.cli.output import Column, Table, show, show_json

_SIZES = ["10,200,50", "50,2000,300", "100,10000,1000"]
_COLUMNS = (
    Column("problem"),
    Column("decided"),
    Column("status"),
    Column("cpu_s", right=True),
    Column("objective USD", right=True),
    Column("bound USD", right=True),
    Column("gap", right=True),
    Column("cost USD", right=True),
    Column("cost vs fifo", right=True),
    Column("placed vs fifo", right=True),
    Column("moved", right=True),
    Column("peak MiB", right=True),
)


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
        list[float] | None, typer.Option(help="CPU seconds of a cold decision; may be repeated.")
    ] = None,
    warm_budget_s: Annotated[
        float, typer.Option(help="CPU seconds of a decision that follows the last one.")
    ] = 0.2,
    mode: Annotated[str, typer.Option(help="scalar or place_first.")] = "scalar",
    problem: Annotated[
        list[str] | None,
        typer.Option(metavar="FILE[.gz]", help="Measure on this problem instead of made-up ones."),
    ] = None,
    as_json: Json = False,
) -> int:
    """Decide made-up problems and compare with simpler schedulers, on the same problems.

    Each decision stands beside what the baselines reach: by priority and age to the cheapest pool;
    big gangs first; the first cluster that admits. A warm decision follows the last one after 2 %
    of the jobs have changed. CPU seconds count from the parsed problem to the verified plan. One
    process after another: run nothing else meanwhile.
    """
    if mode not in ("scalar", "place_first"):
        raise Failure(Exit.BAD_INPUT, f"unknown mode {mode!r}", "scalar or place_first")
    budgets = tuple(budget_s or [5.0])
    tasks: list[tuple[str, Task]] = []
    for file in problem or []:
        tasks.append((file, Task(None, 1, mode, budgets, warm_budget_s, file)))
    for text in size or ([] if problem else _SIZES):
        for ratio in load or [1.0]:
            for seed in range(1, seeds + 1):
                instance = _size(text, ratio)
                name = f"{text} load {ratio:g} seed {seed}"
                tasks.append((name, Task(instance, seed, mode, budgets, warm_budget_s)))
    found: list[dict[str, Any]] = []
    for name, task in tasks:
        note(f"measuring {name}")
        found += [{"problem": name, **row} for row in _measure(task)]
    if as_json:
        show_json({"rows": found})
    else:
        show(Table(_COLUMNS, [_cells(row) for row in found]))
    return Exit.OK


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


def _cells(row: dict[str, Any]) -> list[str]:
    def percent(value: float | None, digits: int = 2) -> str:
        return "-" if value is None else f"{value:+.{digits}%}"

    return [
        row["problem"],
        row["how"],
        row["status"],
        f"{row['cpu_s']:.2f}",
        f"{row['objective_usd']:,.0f}",
        "-" if row["bound_usd"] is None else f"{row['bound_usd']:,.0f}",
        "-" if row["gap"] is None else f"{row['gap']:.3%}",
        f"{row['cost_usd']:,.0f}",
        percent(row["cost_share"], 1),
        percent(row["placed_share"]),
        "-" if row["moved"] is None else f"{row['moved']:.2%}",
        f"{row['peak_mib']:,.0f}",
    ]
