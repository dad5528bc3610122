"""What people ask of jobs that exist: cancel, hold, release, priority."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated, Any

import typer

from broker.cli.exits import Exit, report
from broker.cli.formatting import NONE, text
from broker.cli.options import JobName, JobNames, Json
from broker.cli.output import say, show_json
from broker.cli.session import find_job, telling, with_client
from broker.client import Client, NotReachable, Refused


def cancel(
    jobs: JobNames,
    why: Annotated[str, typer.Option(help="Kept with the job.")] = "",
    as_json: Json = False,
) -> int:
    """Stop jobs. Durable when this returns: no new start is made of them, whatever fails next."""
    return _each(jobs, lambda client, job: client.cancel(job, why), "cancelling", as_json=as_json)


def hold(jobs: JobNames, as_json: Json = False) -> int:
    """Keep queued jobs from starting until they are released."""
    return _each(jobs, lambda client, job: client.hold(job), "held", as_json=as_json)


def release(jobs: JobNames, as_json: Json = False) -> int:
    """Let held jobs start."""
    return _each(jobs, lambda client, job: client.release(job), "released", as_json=as_json)


def priority(
    job: JobName,
    value: Annotated[int, typer.Argument(metavar="PRIORITY", help="Higher goes first.")],
    as_json: Json = False,
) -> int:
    """Change a job's priority."""
    return _each(
        [job],
        lambda client, job_id: client.set_priority(job_id, value),
        f"priority {value}",
        as_json=as_json,
    )


def _each(
    jobs: list[str],
    ask: Callable[[Client, str], Awaitable[dict[str, Any]]],
    done: str,
    *,
    as_json: bool,
) -> int:
    """Ask for each job, the rest also when one is refused; the worst exit code."""

    async def work(client: Client) -> int:
        code, answers = Exit.OK, []
        for name in jobs:
            job_id = await find_job(client, name)
            try:
                async with telling(f"asking for {job_id}"):
                    answer = await ask(client, job_id)
            except NotReachable:
                raise
            except Refused as refused:
                code = max(code, report(refused))
                answers.append({"id": job_id, "error": refused.problem.document})
                continue
            answers.append({"id": job_id, **answer})
            if not as_json:
                state = text(answer.get("state"))
                say(f"{job_id} {done if state == NONE else state}")
        if as_json:
            show_json({"jobs": answers})
        return code

    return with_client(work)
