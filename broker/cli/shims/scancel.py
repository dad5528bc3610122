"""tradewind-scancel: stop jobs."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Sequence
from typing import Any

from broker.cli.session import now
from broker.cli.shims.listing import by_number, living
from broker.cli.shims.rows import Row, listed, numbers, wanted_states, whose
from broker.cli.shims.running import Arguments
from broker.cli.shims.spool import Spool
from broker.cli.shims.submitting import with_broker
from broker.client import Client, Refused

_STOPS = ("", "KILL", "SIGKILL", "9", "TERM", "SIGTERM", "15", "INT", "SIGINT", "2")


def main(arguments: Sequence[str]) -> int:
    """Stop the jobs named, or those the filters leave; 1 if one could not be."""
    options = Arguments("scancel")
    for names in (
        ("-u", "--user"),
        ("-t", "--state"),
        ("-p", "--partition"),
        ("-A", "--account"),
        ("-q", "--qos"),
        ("-s", "--signal"),
        ("-M", "--clusters"),
        ("-w", "--nodelist"),
        ("-R", "--reservation"),
        ("--wckey",),
        ("--sibling",),
    ):
        options.text(*names)
    options.text("-n", "--name", "--jobname")
    for flags in (
        ("--me",),
        ("-b", "--batch"),
        ("-f", "--full"),
        ("-H", "--hurry"),
        ("-Q", "--quiet"),
        ("-v", "--verbose"),
        ("-i", "--interactive"),
        ("--ctld",),
        ("-V", "--version"),
    ):
        options.flag(*flags)
    options.add_argument("jobs", nargs="*")
    given = options.parse_args(list(arguments))
    if given.version:
        sys.stdout.write("slurm 22.05.8 (tradewind)\n")
        return 0
    if given.signal.upper() not in _STOPS:
        options.error(f"signal {given.signal}: jobs can only be stopped, not signalled")
    if not given.jobs and not _filters(given):
        options.error("No job identification provided")
    return with_broker(lambda client, spool: _cancel(client, spool, given))


def _filters(given: Namespace) -> bool:
    return bool(
        given.user
        or given.name
        or given.state
        or given.partition
        or given.account
        or given.qos
        or given.me
        or given.clusters
    )


async def _cancel(client: Client, _: Spool, given: Namespace) -> int:
    code = 0
    for number, task in numbers(given.jobs):
        if task and not task.startswith("["):
            _complain(f"{number}_{task}", "single tasks cannot be stopped, only whole arrays")
            code = 1
    whole = [number for number, task in numbers(given.jobs) if task[:1] in ("", "[")]
    jobs, missing = await by_number(client, whole) if given.jobs else (await living(client), [])
    for text in missing:
        _complain(text, "Invalid job id specified")
        code = 1
    who = await whose(client)
    for job in jobs:
        if _meant(Row(job, who, now()), given, who.user) and not await _one(client, job, given):
            code = 1
    return code


def _meant(row: Row, given: Namespace, user: str) -> bool:
    return all(
        not text or value in listed(text)
        for value, text in (
            (row.user, given.user),
            (row.name, given.name),
            (row.partition, given.partition),
            (row.label("slurm-account"), given.account),
            (row.label("slurm-qos"), given.qos),
            (row.user, user if given.me else ""),
            (row.cluster, given.clusters),
        )
    ) and (not given.state or row.state in wanted_states(given.state))


async def _one(client: Client, job: dict[str, Any], given: Namespace) -> bool:
    try:
        await client.cancel(str(job["id"]), "scancel")
    except Refused as refused:
        if refused.problem.status == 409:  # it has ended: scancel says that only when asked to
            if given.verbose:
                _complain(str(job["id"]), "Job/step already completing or completed")
            return True
        _complain(str(job["id"]), refused.problem.line)
        return False
    return True


def _complain(job: str, why: str) -> None:
    sys.stderr.write(f"scancel: error: Kill job error on job id {job}: {why}\n")
