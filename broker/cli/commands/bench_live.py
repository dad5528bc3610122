"""`tradewind bench submit | dispatch | restart`: measure a running federation beside its floors."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from broker.cli.commands.up import surroundings
from broker.cli.exits import Exit, Failure, note
from broker.cli.options import Json
from broker.cli.output import Column, Table, show, show_json

if TYPE_CHECKING:
    from broker.local.bench.figures import Figure

Runs = Annotated[int, typer.Option(min=1, help="How often; figures are min, median, max.")]
Measured = Callable[[Any], Awaitable["list[Figure]"]]


def submit(runs: Runs = 3, as_json: Json = False) -> int:
    """Jobs taken on a second, singly and in batches, beside plain puts into the same etcd."""
    from broker.local.bench.submit import SubmitSize, bench_submit

    return _measure("submit", lambda given: bench_submit(SubmitSize(runs), given), as_json=as_json)


def dispatch(runs: Runs = 3, as_json: Json = False) -> int:
    """Jobs that get to work: to a process site, and to stub sites that cost nothing."""
    from broker.local.bench.dispatch import DispatchSize, bench_dispatch

    return _measure(
        "dispatch", lambda given: bench_dispatch(DispatchSize(runs), given), as_json=as_json
    )


def restart(runs: Runs = 3, as_json: Json = False) -> int:
    """Memory of a broker full of live work, and how soon a killed one serves again."""
    from broker.local.bench.restart import RestartSize, bench_restart

    return _measure(
        "restart", lambda given: bench_restart(RestartSize(runs), given), as_json=as_json
    )


def _measure(name: str, measured: Measured, *, as_json: bool) -> int:
    from broker.local.bench.machine import this_machine
    from broker.local.bench.stage import BenchFailed
    from broker.local.federation import StartFailed
    from federation.system import SystemClock

    machine = this_machine(SystemClock().now_ms())
    if machine.busy:
        note(f"other work is going on (load average {machine.load:g}): figures will be worse")
    try:
        figures = asyncio.run(_run(measured))
    except (BenchFailed, StartFailed, OSError) as error:
        raise Failure(Exit.FAULT, str(error)) from error
    if as_json:
        documents = [figure.document() for figure in figures]
        show_json({"bench": name, "machine": machine.document(), "figures": documents})
    else:
        show(_table(figures))
    return Exit.OK


async def _run(measured: Measured) -> list[Figure]:
    return await measured(surroundings(note))


def _table(figures: list[Figure]) -> Table:
    from broker.local.bench.figures import HEADINGS

    left = ("figure", "unit", "target", "met")
    columns = [Column(title, right=title not in left) for title in HEADINGS]
    return Table(columns, [figure.row() for figure in figures])
