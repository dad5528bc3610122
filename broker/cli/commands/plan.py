"""`tradewind plan`: where a job would go now, or the answer to a planning problem."""

from __future__ import annotations

from typing import Annotated

import typer

from broker.cli.commands.submit import prepare
from broker.cli.exits import Exit, Failure
from broker.cli.explanation import show_explanation
from broker.cli.job_options import JobOptions, read_job
from broker.cli.options import Json
from broker.cli.output import show_json
from broker.cli.session import now, telling, with_client
from broker.client import Client


def plan(
    file: Annotated[str | None, typer.Argument(metavar="[JOB.yaml]", help="A job file.")] = None,
    problem: Annotated[
        str | None, typer.Option(metavar="FILE[.gz]", help="Solve this planning problem instead.")
    ] = None,
    budget_s: Annotated[
        float, typer.Option(help="CPU seconds to spend on the problem.")
    ] = 5.0,
    as_json: Json = False,
) -> int:
    """Where a job would go now (nothing is stored), or the answer to a planning problem.

    --problem needs no broker; it exits 0 whenever a verified plan is printed.
    """
    if problem is not None:
        if file is not None:
            raise Failure(Exit.BAD_INPUT, "a job file and a problem", "give one of them")
        from broker.cli.plan_problem import run_plan_problem

        return run_plan_problem(problem, budget_s, as_json)
    prepared = prepare(read_job(file, None, JobOptions()))

    async def ask(client: Client) -> int:
        async with telling("asking where it would go"):
            answer = await client.plan(prepared.spec)
        if as_json:
            show_json(answer)
        else:
            show_explanation(answer, now())
        return Exit.OK

    return with_client(ask)
