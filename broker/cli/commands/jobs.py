"""`tradewind jobs` and `tradewind show`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from broker.cli.exits import Exit, note
from broker.cli.formatting import at, mappings
from broker.cli.job_views import (
    attempt_table,
    job_facts,
    job_table,
    output_table,
    receipt_lines,
)
from broker.cli.options import JobName, Json
from broker.cli.output import say, show, show_facts, show_json
from broker.cli.session import find_job, now, telling, with_client
from broker.client import Client, all_jobs

Option = typer.Option


def jobs(
    tenant: Annotated[str | None, Option(help="Only this tenant's.")] = None,
    phase: Annotated[
        str | None, Option(help="queued, held, placed, running or ended.")
    ] = None,
    outcome: Annotated[str | None, Option(help="succeeded, failed, cancelled, ...")] = None,
    name: Annotated[str | None, Option(help="Only of this name.")] = None,
    label: Annotated[str | None, Option(help="Only with this label, KEY=VALUE.")] = None,
    cluster: Annotated[str | None, Option(help="Only in this cluster.")] = None,
    limit: Annotated[int, Option("--limit", "-n", min=1, help="At most so many.")] = 100,
    as_json: Json = False,
) -> int:
    """List jobs over the whole federation, newest first."""
    filters = {
        "tenant": tenant, "phase": phase, "outcome": outcome, "name": name, "label": label,
        "cluster": cluster,
    }  # fmt: skip
    found, notes = with_client(lambda client: _collect(client, limit, filters))
    if as_json:
        show_json({"jobs": found, "notes": notes})
        return Exit.OK
    table = job_table(found, now())
    show(table.without_blank_columns())
    for line in notes:
        note(f"note: {line}")
    return Exit.OK


async def _collect(
    client: Client, limit: int, filters: dict[str, str | None]
) -> tuple[list[dict[str, Any]], list[str]]:
    found: list[dict[str, Any]] = []
    notes: dict[str, None] = {}
    async with telling("collecting jobs"):
        async for page, said in all_jobs(client, limit, **filters):
            found.extend(page)
            notes.update(dict.fromkeys(said))
    return found, list(notes)


def show_job(job: dict[str, Any]) -> None:
    """Print all there is to say about one job."""
    moment = now()
    show_facts(job_facts(job, moment))
    attempts = attempt_table(job, moment).without_blank_columns()
    if attempts.rows:
        say()
        show(attempts)
    lines = receipt_lines(job, moment)
    if lines:
        say()
    for line in lines:
        say(line)
    outputs = [output for attempt in mappings(job.get("attempts"))
               for output in mappings(at(attempt, "outputs"))]  # fmt: skip
    if outputs:
        say()
        show(output_table(outputs))


def show_one(job: JobName, as_json: Json = False) -> int:
    """Everything about one job: its attempts, what they took, when, and at what price."""

    async def ask(client: Client) -> dict[str, Any]:
        async with telling("asking the broker"):
            return await client.job(await find_job(client, job))

    found = with_client(ask)
    if as_json:
        show_json(found)
    else:
        show_job(found)
    return Exit.OK
