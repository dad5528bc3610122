"""What tradewind-sbatch and tradewind-qsub share: from a read script to a submitted job."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from broker.cli.exits import Exit, Failure, note
from broker.cli.foreign_jobs import job_data, refuse_errors, settle
from broker.cli.integer_lookup import draw_number
from broker.cli.job_options import bad_job
from broker.cli.shims.follower import start
from broker.cli.shims.patterns import Naming
from broker.cli.shims.rows import local_user
from broker.cli.shims.spool import Spool, bring, entry_of
from broker.client import Client, Prepared, connect, find_connection, prepare_job, wait_for_jobs
from broker.compat.imported import Imported
from broker.compat.integer_ids import LABEL, VARIABLE
from federation.jobs import InvalidJob, JobFile, parse_job_file
from federation.system import SystemRng

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Handed:
    """A job the broker has: its id, its number, and the array it is, if one."""

    job_id: str
    number: int
    array: str
    name: str


def with_broker(work: Callable[[Client, Spool], Awaitable[Result]]) -> Result:
    """Do `work` with a client of the user's broker and the spool of output files for it."""
    connection = find_connection(os.environ, Path.home())
    spool = Spool.of(connection.url, os.environ, Path.home())

    async def session() -> Result:
        async with connect(connection) as client:
            return await work(client, spool)

    return asyncio.run(session())


def checked(imported: Imported, program: str, *, quiet: bool) -> None:
    """Raise Failure for the errors of a script; tell its warnings."""
    refuse_errors(imported, "the script")
    if not quiet:
        for each in imported.warnings:
            note(f"{program}: warning: {each}")


async def prepare(client: Client, imported: Imported, number: int) -> Prepared:
    """The job ready to send: labelled with its number, files packed. Raises Failure, BadFile."""
    data = job_data(imported, os.environ, Path.cwd())
    await settle(client, imported, data)
    data["labels"] = {**data.get("labels", {}), LABEL: str(number)}
    data["env"] = {**data.get("env", {}), VARIABLE: str(number)}
    try:
        return prepare_job(_job(data), Path.cwd())
    except InvalidJob as invalid:
        raise bad_job(invalid) from None


def _job(data: dict[str, Any]) -> JobFile:
    return parse_job_file(data)


async def hand_over(client: Client, spool: Spool, imported: Imported) -> Handed:
    """Submit the job, and have its output brought to its file."""
    number = await draw_number(client, SystemRng())
    prepared = await prepare(client, imported, number)
    for warning in prepared.warnings:
        note(f"warning: {warning}")
    await client.upload(prepared)
    submitted = await client.submit(prepared.spec)
    spec = prepared.spec
    array = str(spec.array) if spec.array else ""
    naming = Naming(number, spec.name or "job", local_user())
    base = Path.cwd() / imported.client.directory
    entry = entry_of(
        naming, imported.client.output, base if base.is_dir() else Path.cwd(), array
    )
    spool.add(submitted.id, entry | {"append": imported.client.append})
    start(spool)
    return Handed(submitted.id, number, array, spec.name or "job")


async def wait_for(client: Client, spool: Spool, handed: Handed) -> dict[str, Any]:
    """The job once it has ended and its output is here."""
    ended = (await wait_for_jobs(client, [handed.job_id]))[handed.job_id]
    await bring(client, spool, handed.job_id)
    return ended


def read_script(path: str) -> str:
    """The text of a script file, looked for as the old commands do: here, then on PATH."""
    found = Path(path)
    if "/" not in path and not found.exists():
        for directory in os.environ.get("PATH", "").split(os.pathsep):
            if directory and (Path(directory) / path).is_file():
                found = Path(directory) / path
                break
    try:
        return found.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise Failure(Exit.BAD_INPUT, f"{path} is not UTF-8 text") from None
    except OSError as error:
        raise Failure(Exit.BAD_INPUT, f"Unable to open file {path}: {error.strerror}") from None


def exit_code(job: dict[str, Any]) -> int:
    """The exit code `--wait` and `-sync y` end with: the job's own, 1 if it has none."""
    outcome = job.get("outcome") or {}
    if outcome.get("kind") == "succeeded":
        return 0
    code = outcome.get("exit_code")
    return code if isinstance(code, int) and 0 < code < 256 else 1
