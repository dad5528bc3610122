"""From the integers old tools use for jobs to the jobs themselves, by asking the broker."""

from __future__ import annotations

from typing import Any

from broker.cli.exits import Exit, Failure
from broker.cli.formatting import mappings
from broker.client import Client, all_jobs
from broker.compat.integer_ids import LABEL, from_random, number_of
from federation.environment import Rng
from federation.ids import InvalidJobId, parse_job_id

SCANNED_MAX = 5_000
_DRAWS = 8


async def find_number(client: Client, number: int) -> dict[str, Any] | None:
    """The job known by `number`: the one so labelled, else one whose id gives it; or None.

    Raises Failure when several jobs have it, and what the client raises.
    """
    page = await client.jobs(limit=10, label=f"{LABEL}={number}")
    found = mappings(page.get("jobs"))
    if not found:
        async for jobs, _ in all_jobs(client, SCANNED_MAX):
            found += [job for job in jobs if number_of(job) == number]
    if len(found) > 1:
        names = ", ".join(str(job.get("id")) for job in found[:3])
        text = f"several jobs have the number {number}"
        raise Failure(Exit.BAD_INPUT, text, f"name one: {names}")
    return found[0] if found else None


async def find_any(client: Client, text: str) -> dict[str, Any] | None:
    """The job called `text`, an integer or a job id; None when there is none such."""
    if text.isascii() and text.isdigit() and len(text) <= 12:
        return await find_number(client, int(text))
    try:
        job_id = parse_job_id(text)
    except InvalidJobId:
        return None
    return await client.job(job_id)


async def draw_number(client: Client, rng: Rng) -> int:
    """A number no job carries as its label now. Raises Failure if none was found."""
    for _ in range(_DRAWS):
        number = from_random(rng.random_bits(32))
        page = await client.jobs(limit=1, label=f"{LABEL}={number}")
        if not mappings(page.get("jobs")):
            return number
    raise Failure(Exit.FAULT, "no free number was found", "try again")
