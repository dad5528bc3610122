"""`tradewind explain`."""

from __future__ import annotations

from typing import Any

from broker.cli.exits import Exit
from broker.cli.explanation import show_explanation
from broker.cli.options import JobName, Json
from broker.cli.output import show_json
from broker.cli.session import find_job, now, telling, with_client
from broker.client import Client


def explain(job: JobName, as_json: Json = False) -> int:
    """Why a job is where it is, or why it waits and the smallest change that would start it."""

    async def ask(client: Client) -> dict[str, Any]:
        async with telling("asking for the reasons"):
            return await client.explain(await find_job(client, job))

    answer = with_client(ask)
    if as_json:
        show_json(answer)
    else:
        show_explanation(answer, now())
    return Exit.OK
