"""`tradewind wait`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from broker.cli.exits import Exit, Failure, exit_of_job, note
from broker.cli.job_views import end_line
from broker.cli.options import JobNames, Json
from broker.cli.output import say, show_json
from broker.cli.session import find_job, now, telling, with_client
from broker.client import Client, wait_for_jobs
from federation.units import InvalidQuantity, parse_duration_s


def wait(
    jobs: JobNames,
    timeout: Annotated[
        str | None, typer.Option(help="Give up after, such as 10m (exit code 6).")
    ] = None,
    as_json: Json = False,
) -> int:
    """Wait until jobs have ended. Exit code: 0 all succeeded, 1 any did not, 6 timed out."""
    try:
        timeout_s = float(parse_duration_s(timeout)) if timeout else None
    except InvalidQuantity as error:
        raise Failure(Exit.BAD_INPUT, f"--timeout: {error}") from None

    async def ask(client: Client) -> list[dict[str, Any]]:
        ids = [await find_job(client, job) for job in jobs]
        shown = "the job" if len(ids) == 1 else f"{len(ids)} jobs"
        async with telling(f"waiting for {shown}"):
            ended = await wait_for_jobs(client, ids, timeout_s, _tell_change)
        return [ended[job_id] for job_id in ids]

    ended = with_client(ask)
    if as_json:
        show_json({"jobs": ended})
    else:
        for job in ended:
            say(end_line(job, now()))
    return max((exit_of_job(job) for job in ended), default=Exit.OK)


def _tell_change(job: dict[str, Any]) -> None:
    if job.get("phase") != "ended":
        note(end_line(job, now()))
