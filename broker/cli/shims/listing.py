"""Jobs for squeue, sacct and qstat: found by number or by what they have in common."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from broker.cli.integer_lookup import find_any
from broker.cli.session import now
from broker.cli.shims.rows import Row, Whose, numbers
from broker.client import Client, all_jobs

LISTED_MAX = 5_000
DETAILED_MAX = 500
_AT_ONCE = 8


async def by_number(
    client: Client, texts: Sequence[str]
) -> tuple[list[dict[str, Any]], list[str]]:
    """(jobs, what was not found) of `12`, `12_3`, ...; each job once, in the order asked for."""
    found: dict[str, dict[str, Any]] = {}
    missing = []
    for text, _ in numbers(texts):
        job = await find_any(client, text)
        if job is None:
            missing.append(text)
        else:
            found[str(job["id"])] = job
    return list(found.values()), missing


async def living(client: Client) -> list[dict[str, Any]]:
    """Jobs that have not ended, newest first."""
    found: list[dict[str, Any]] = []
    for phase in ("queued", "held", "placed", "running"):
        async for jobs, _ in all_jobs(client, LISTED_MAX, phase=phase):
            found += jobs
    unique = {str(job["id"]): job for job in found}
    return [unique[job_id] for job_id in sorted(unique, reverse=True)]


async def recent(client: Client, limit: int = LISTED_MAX) -> list[dict[str, Any]]:
    """Jobs of any phase, newest first."""
    found: list[dict[str, Any]] = []
    async for jobs, _ in all_jobs(client, limit):
        found += jobs
    return found


async def rows(
    client: Client,
    jobs: list[dict[str, Any]],
    who: Whose,
    keep: Callable[[Row], bool] = lambda row: True,
) -> list[Row]:
    """Rows of those jobs that are kept, with their specs (of at most 500)."""
    moment = now()
    kept = [row for job in jobs if keep(row := Row(job, who, moment))]
    gate = asyncio.Semaphore(_AT_ONCE)

    async def whole(row: Row) -> Row:
        if "spec" in row.job:
            return row
        async with gate:
            return Row(await client.job(str(row.job["id"])), who, moment)

    detailed = await asyncio.gather(*(whole(row) for row in kept[:DETAILED_MAX]))
    return [*detailed, *kept[DETAILED_MAX:]]
