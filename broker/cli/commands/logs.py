"""`tradewind logs`: what a job printed, so far or as it comes."""

from __future__ import annotations

import base64
import sys
from typing import Annotated

import typer

from broker.cli.exits import Exit, exit_of_job, note
from broker.cli.formatting import outcome
from broker.cli.options import JobName, Json
from broker.cli.output import show_json
from broker.cli.session import find_job, telling, with_client
from broker.client import Client, LogChoice, LogEnd, LogPiece, LogWaiting, follow_log


def logs(
    job: JobName,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on until the job has ended.")
    ] = False,
    task: Annotated[int | None, typer.Option(min=0, help="Of this task of an array.")] = None,
    attempt: Annotated[
        str | None, typer.Option(help="Of this attempt (uid or number); else the last.")
    ] = None,
    stream: Annotated[str, typer.Option(help="Which of its streams.")] = "output",
    offset: Annotated[int, typer.Option(min=0, help="From this byte on.")] = 0,
    as_json: Json = False,
) -> int:
    """What a job printed; -f goes on until it has ended (exit code: 0 succeeded, 1 not)."""

    async def ask(client: Client) -> int:
        job_id = await find_job(client, job)
        choice = LogChoice(
            job_id, task="" if task is None else str(task),
            attempt=(attempt or "").rpartition("-")[2],
            offset=offset,
            stream=stream,
        )  # fmt: skip
        if follow and not as_json:
            return await print_log(client, choice)
        return await _print_so_far(client, choice, as_json=as_json)

    return with_client(ask)


async def print_log(client: Client, choice: LogChoice) -> int:
    """Write a log to stdout as it grows; the exit code the end of the job means."""
    attempt = ""
    async for event in follow_log(client, choice):
        if isinstance(event, LogPiece):
            if attempt and event.attempt != attempt:
                note(f"--- {event.attempt}")
            attempt = event.attempt
            _write(event.data)
        elif isinstance(event, LogWaiting):
            note(event.text)
        elif isinstance(event, LogEnd):
            note(f"--- {outcome(event.outcome) if event.outcome else event.phase}")
            return exit_of_job({"outcome": event.outcome}) if event.outcome else Exit.OK
    return Exit.OK


async def _print_so_far(client: Client, choice: LogChoice, *, as_json: bool) -> int:
    offset, collected = choice.offset, bytearray()
    while True:
        async with telling("fetching the log"):
            piece = await client.log(
                choice.job,
                offset=offset,
                stream=choice.stream,
                task=choice.task or None,
                attempt=choice.attempt or None,
            )
        if as_json:
            collected += piece.data
        else:
            _write(piece.data)
        offset = piece.offset + len(piece.data)
        if not piece.data or (piece.total is not None and offset >= piece.total):
            break
    if not as_json and offset == choice.offset and not piece.complete:
        note("nothing yet; -f waits for it")
    if as_json:
        show_json({
            "job": choice.job, "attempt": choice.attempt or None, "stream": choice.stream,
            "offset": choice.offset, "total_bytes": piece.total, "complete": piece.complete,
            "data_base64": base64.b64encode(collected).decode(),
            "text": collected.decode("utf-8", "replace"),
        })  # fmt: skip
    return Exit.OK


def _write(data: bytes) -> None:
    # Bytes as the job wrote them: a log is not always text in our encoding.
    sys.stdout.flush()
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()
