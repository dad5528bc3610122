"""`tradewind decide`: how good the decisions of this federation are."""

from __future__ import annotations

from typing import Annotated

import typer

from broker.cli.exits import Exit
from broker.cli.options import Json, group
from broker.cli.output import say, show, show_json
from broker.cli.session import ask
from broker.cli.stats_views import calibration_table, gain_table, verdicts
from broker.client.decisions import decision_stats

app = group("How good the decisions of this federation are.")


@app.callback()
def decide() -> None:
    """How good the decisions of this federation are."""


@app.command()
def stats(
    days: Annotated[int, typer.Option(min=1, max=30, help="So many days, today included.")] = 7,
    as_json: Json = False,
) -> int:
    """What the solver gained over the greedy floor, and how predicted starts came true, by day."""
    found = ask(lambda client: decision_stats(client, days))
    if as_json:
        show_json(found)
        return Exit.OK
    show(gain_table(found).without_blank_columns())
    lines = verdicts(found)
    if lines:
        say()
    for line in lines:
        say(line)
    calibration = calibration_table(found)
    if calibration.rows:
        say()
        show(calibration)
    return Exit.OK
