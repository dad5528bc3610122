"""`tradewind simulate`: a whole federation in virtual time, from a scenario file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from broker.cli.exits import Exit, Failure, note
from broker.cli.options import Json
from broker.cli.output import Column, Table, show, show_json


def simulate(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A scenario (docs/simulation.md).")],
    seed: Annotated[
        int | None, typer.Option(help="Another seed than the scenario's.")
    ] = None,
    transcript: Annotated[
        str | None, typer.Option(metavar="OUT", help="Write everything that happened there.")
    ] = None,
    as_json: Json = False,
) -> int:
    """Run a scenario: real broker and agents, simulated sites, virtual time.

    Exits 1 when a checker finds a fault or an expectation of the scenario is not met.
    """
    from broker.simulator.report import unmet
    from broker.simulator.run import prepare, run
    from broker.simulator.scenario import ScenarioError, read_scenario

    try:
        scenario = read_scenario(Path(file))
        prepared = prepare(scenario, Path(file).parent)
        results = {
            name: run(prepared, seed=seed, policy=name) for name in scenario.policies
        }
    except ScenarioError as error:
        remedy = "docs/simulation.md describes the file"
        raise Failure(Exit.BAD_INPUT, str(error), remedy) from error
    if transcript is not None:
        lines = (line for result in results.values() for line in result.transcript)
        Path(transcript).write_text("\n".join(lines) + "\n", encoding="utf-8")
    metrics = {name: result.metrics for name, result in results.items()}
    if as_json:
        show_json({"version": 1, "policies": metrics})
    else:
        columns = [Column("metric"), *(Column(name, right=True) for name in metrics)]
        names = dict.fromkeys(key for each in metrics.values() for key in each)
        rows: list[Sequence[str]] = [
            [key, *(_shown(each.get(key)) for each in metrics.values())] for key in names
        ]
        show(Table(columns, rows))
    missed = unmet(scenario, metrics[scenario.policies[0]])
    faults = [fault for result in results.values() for fault in result.violations]
    for text in (*(f"violation: {fault}" for fault in faults), *(f"unmet: {m}" for m in missed)):
        note(text)
    return Exit.JOB_FAILED if faults or missed else Exit.OK


def _shown(value: float | None) -> str:
    return "-" if value is None else f"{value:,.6g}"
