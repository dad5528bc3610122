"""Running a command against the broker: the connection, progress on stderr, and Ctrl-C."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlsplit

from broker.cli.exits import Exit, Failure, note
from broker.cli.formatting import Now, mappings
from broker.client import Client, connect, find_connection
from broker.client.configuration import LOOPBACK
from federation.ids import InvalidJobId, parse_job_id
from federation.system import SystemClock

Result = TypeVar("Result")
_PATIENT_S = 2.0


def with_client(work: Callable[[Client], Awaitable[Result]]) -> Result:
    """Do `work` with a client of the user's broker. Raises what the client raises."""
    connection = find_connection(os.environ, Path.home())

    async def session() -> Result:
        brief = is_direct(connection.url)
        async with connect(connection, notify=note, brief=brief) as client:
            return await work(client)

    return asyncio.run(session())


def is_direct(url: str) -> bool:
    """Whether no proxy that the environment names is between here and a broker."""
    if urlsplit(url).hostname in LOOPBACK:
        return True
    from urllib.request import getproxies

    return not getproxies()


def ask(question: Callable[[Client], Awaitable[Result]]) -> Result:
    """One question to the broker, with a word on stderr if it takes long."""

    async def work(client: Client) -> Result:
        async with telling("asking the broker"):
            return await question(client)

    return with_client(work)


def now() -> Now:
    """This moment, in the user's zone."""
    return Now(SystemClock().now_ms())


@asynccontextmanager
async def telling(what: str) -> AsyncIterator[None]:
    """Say on stderr what is going on if it takes more than two seconds."""
    teller = asyncio.create_task(_tell(what))
    try:
        yield
    finally:
        teller.cancel()
        with suppress(asyncio.CancelledError):
            await teller


async def _tell(what: str) -> None:
    await asyncio.sleep(_PATIENT_S)
    if not sys.stderr.isatty():
        note(f"{what} ...")
        return
    waited_s = int(_PATIENT_S)
    try:
        while True:
            sys.stderr.write(f"\r{what} ... {waited_s}s ")
            sys.stderr.flush()
            await asyncio.sleep(1.0)
            waited_s += 1
    finally:
        sys.stderr.write("\r\x1b[K")
        sys.stderr.flush()


async def find_job(client: Client, wanted: str) -> str:
    """The id of the job called `wanted`: an id, or a name only one job has.

    Raises Failure when there is none, or more than one.
    """
    try:
        return parse_job_id(wanted)
    except InvalidJobId:
        pass
    page = await client.jobs(limit=500, name=wanted)
    found = [
        str(job.get("id")) for job in mappings(page.get("jobs")) if job.get("name") == wanted
    ]
    if not found:
        raise Failure(Exit.NOT_FOUND, f"no job {wanted!r}", "`tradewind jobs` lists them")
    if len(found) > 1:
        more = ", ".join(found[:3])
        raise Failure(Exit.BAD_INPUT, f"several jobs are called {wanted!r}", f"name one: {more}")
    return found[0]
