"""`tradewind submit`: show where a job would go, hand it over, and follow it if asked."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from broker.cli.exits import Exit, Failure, exit_of_job, note
from broker.cli.explanation import show_explanation
from broker.cli.human_time import NoSuchTime, read_time_ms
from broker.cli.job_options import JobOptions, bad_job, read_job
from broker.cli.options import Json
from broker.cli.output import say, show_json
from broker.cli.session import now, telling, with_client
from broker.client import Client, ClientError, Prepared, Refused, prepare_job
from federation.jobs import InvalidJob, JobFile
from federation.units import format_utc

if TYPE_CHECKING:
    from broker.cli.tracing import Submitting

Option = typer.Option


def submit(
    context: typer.Context,
    file: Annotated[
        str | None, typer.Argument(metavar="[JOB.yaml | -- COMMAND...]", help="A job file.")
    ] = None,
    name: Annotated[str | None, Option(help="Name of the job.")] = None,
    tenant: Annotated[str | None, Option(help="Who it is for.")] = None,
    image: Annotated[str | None, Option(help="Container image.")] = None,
    cpus: Annotated[float | None, Option(help="Cpus per replica.")] = None,
    memory: Annotated[str | None, Option(help="Memory per replica, such as 64GiB.")] = None,
    accelerators: Annotated[
        list[str] | None, Option(help="Per replica, such as H100:8; repeat for alternatives.")
    ] = None,
    replicas: Annotated[int | None, Option(help="Members of the gang.")] = None,
    array: Annotated[str | None, Option(help="Tasks, such as 0-99 or 0-99%10.")] = None,
    priority: Annotated[int | None, Option(help="Higher goes first.")] = None,
    max_runtime: Annotated[str | None, Option(help="Stopped after, such as 2h30m.")] = None,
    deadline: Annotated[
        str | None, Option(help="By when it must have ended: 'Fri 18:00', 6h, on your clock.")
    ] = None,
    region: Annotated[list[str] | None, Option(help="Only there; repeat for more.")] = None,
    cluster: Annotated[list[str] | None, Option(help="Only there; repeat for more.")] = None,
    policy: Annotated[str | None, Option(help="Routing policy, or NAME@VERSION.")] = None,
    max_price: Annotated[
        float | None, Option(help="Most USD per accelerator and hour.")
    ] = None,
    budget: Annotated[float | None, Option(help="Most USD in all.")] = None,
    spot: Annotated[bool | None, Option("--spot/--no-spot", help="Whether spot will do.")] = None,
    value_of_time: Annotated[
        float | None, Option(help="USD an hour of waiting costs you.")
    ] = None,
    env: Annotated[list[str] | None, Option("--env", help="NAME=VALUE, repeatable.")] = None,
    files: Annotated[
        list[str] | None, Option("--file", help="A file to send along, SRC[:NAME], repeatable.")
    ] = None,
    workdir: Annotated[str | None, Option(help="A directory to send along.")] = None,
    output: Annotated[
        list[str] | None, Option("--output", help="A result to bring back, repeatable.")
    ] = None,
    label: Annotated[list[str] | None, Option("--label", help="KEY=VALUE, repeatable.")] = None,
    idempotency_key: Annotated[
        str | None, Option(help="The same key makes one job, however often it is sent.")
    ] = None,
    dry_run: Annotated[bool, Option("--dry-run", help="Only show where it would go.")] = False,
    wait: Annotated[bool, Option("--wait", help="Wait until it has ended.")] = False,
    follow: Annotated[bool, Option("--follow", "-f", help="Show its output too.")] = False,
    quiet: Annotated[bool, Option("--quiet", "-q", help="Print the id only.")] = False,
    as_json: Json = False,
) -> int:
    """Submit a job file, or a command after --.

    Prints the places that were looked at, the chosen one marked, then the id as the last line.
    """
    options = JobOptions(
        fields={
            "name": name, "tenant": tenant, "image": image, "array": array, "priority": priority,
            "max_runtime": max_runtime, "value_of_time_usd_per_hour": value_of_time,
            "workdir": workdir, "deadline": read_deadline(deadline),
        },
        resources={
            "cpus": cpus, "memory": memory, "replicas": replicas,
            "accelerators": accelerators or None,
        },
        placement={
            "regions": region, "clusters": cluster, "policy": policy, "spot": spot,
            "budget_usd": budget,
            "max_price_usd_per_accelerator_hour": max_price,
        },
        env=env or (), labels=label or (), files=files or (), outputs=output or (),
    )  # fmt: skip
    prepared = prepare(read_job(file, context.obj, options))
    submission = _Submission(
        prepared, idempotency_key, wait=wait, follow=follow, quiet=quiet, as_json=as_json
    )
    if dry_run:
        return with_client(submission.dry_run)
    return with_client(submission.run)


def read_deadline(text: str | None) -> str | None:
    """A deadline as people write it, as a job file has it. Raises Failure."""
    if text is None:
        return None
    try:
        return format_utc(read_time_ms(text, now()))
    except NoSuchTime as error:
        raise Failure(Exit.BAD_INPUT, f"--deadline: {error}") from None


def prepare(job: JobFile) -> Prepared:
    """`job` with its local paths read and packed; raises Failure and BadFile."""
    try:
        prepared = prepare_job(job, Path.cwd())
    except InvalidJob as invalid:
        raise bad_job(invalid) from None
    for warning in prepared.warnings:
        note(f"warning: {warning}")
    return prepared


class _Submission:
    def __init__(
        self, prepared: Prepared, key: str | None, *, wait: bool, follow: bool, quiet: bool,
        as_json: bool,
    ) -> None:  # fmt: skip
        self._prepared = prepared
        self._key = key
        self._wait = wait
        self._follow = follow
        self._quiet = quiet
        self._json = as_json

    async def dry_run(self, client: Client) -> int:
        """Show where the job would go; 0 also when nowhere, for that is the answer."""
        async with telling("asking where it would go"):
            plan = await client.plan(self._prepared.spec)
        if self._json:
            show_json(plan)
        else:
            show_explanation(plan, now())
        return Exit.OK

    async def run(self, client: Client) -> int:
        """Hand it over; wait or follow as asked."""
        from broker.cli.tracing import submitting

        with submitting() as trace:
            return await self._run(client, trace)

    async def _run(self, client: Client, trace: Submitting) -> int:
        plan = None if self._quiet else await self._plan(client)
        if plan is not None and not self._json:
            show_explanation(plan, now(), briefly=True)
            say()
        async with telling("sending files"):
            await client.upload(self._prepared)
        key = self._key or client.new_key()
        async with telling("submitting"):
            submitted = await client.submit(self._prepared.spec, key, trace.traceparent)
        trace.submitted(submitted.id)
        if submitted.replayed:
            note("this key was used before: that job, not a new one")
        if not self._json:
            say(submitted.id)
        job = submitted.job
        code = Exit.OK
        if self._follow or self._wait:
            job = await self._until_ended(client, submitted.id)
            code = exit_of_job(job)
        if self._json:
            show_json({
                "id": submitted.id, "replayed": submitted.replayed, "job": job, "plan": plan,
            })  # fmt: skip
        return code

    async def _plan(self, client: Client) -> dict[str, Any] | None:
        """The candidate table, if the broker can make one now; a bad job is refused here."""
        try:
            async with telling("asking where it would go"):
                return await client.plan(self._prepared.spec)
        except Refused as refused:
            if refused.problem.status in (400, 401, 403, 413, 422):
                raise
            note(f"no table of candidates: {refused.text}")
        except ClientError as error:
            note(f"no table of candidates: {error.text}")
        return None

    async def _until_ended(self, client: Client, job_id: str) -> dict[str, Any]:
        from broker.cli.commands.logs import print_log
        from broker.cli.job_views import end_line
        from broker.client import LogChoice
        from broker.client import wait_for_jobs as wait_until_ended

        try:
            if self._follow and not self._json:
                await print_log(client, LogChoice(job_id))
            async with telling(f"waiting for {job_id}"):
                ended = (await wait_until_ended(client, [job_id]))[job_id]
        except asyncio.CancelledError:  # Ctrl-C
            note(f"\n{job_id} goes on; stop it with: tradewind cancel {job_id}")
            raise
        note(end_line(ended, now()))
        return ended
