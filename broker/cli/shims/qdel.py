"""tradewind-qdel: stop jobs."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Sequence
from fnmatch import fnmatchcase

from broker.cli.session import now
from broker.cli.shims.listing import by_number, living
from broker.cli.shims.rows import Row, listed, whose
from broker.cli.shims.running import Arguments
from broker.cli.shims.spool import Spool
from broker.cli.shims.submitting import with_broker
from broker.client import Client, Refused


def main(arguments: Sequence[str]) -> int:
    """Stop the jobs named, or those of the users named; 1 if there is none such."""
    options = Arguments("qdel")
    options.flag("-f")
    options.text("-u")
    options.text("-t")
    options.add_argument("jobs", nargs="*")
    given = options.parse_args(list(arguments))
    if given.t:
        options.error("-t: single tasks cannot be stopped, only whole arrays")
    if not given.jobs and not given.u:
        options.error("no jobs given")
    return with_broker(lambda client, spool: _delete(client, spool, given))


async def _delete(client: Client, _: Spool, given: Namespace) -> int:
    who = await whose(client)
    names = [name for text in given.jobs for name in listed(text)]
    code = 0
    if names:
        ids = [name for name in names if name.isdigit() or name.startswith("j")]
        jobs, missing = await by_number(client, ids)
        patterns = [name for name in names if name not in ids]
        if patterns:
            jobs += [
                job
                for job in await living(client)
                if any(fnmatchcase(str(job.get("name")), pattern) for pattern in patterns)
            ]
    else:
        jobs, missing = await living(client), []
    for text in missing:
        sys.stdout.write(f'denied: job "{text}" does not exist\n')
        code = 1
    for job in jobs:
        row = Row(job, who, now())
        if given.u and not any(fnmatchcase(row.user, user) for user in listed(given.u)):
            continue
        if not await _one(client, row):
            code = 1
    return code


async def _one(client: Client, row: Row) -> bool:
    waiting = row.state == "PENDING"
    try:
        await client.cancel(str(row.job["id"]), "qdel")
    except Refused as refused:
        if refused.problem.status != 409:
            sys.stdout.write(f"denied: {refused.problem.line}\n")
            return False
        sys.stdout.write(f'denied: job "{row.number}" does not exist\n')  # it has ended
        return False
    what = (
        f"has deleted job {row.number}"
        if waiting
        else (f"has registered the job {row.number} for deletion")
    )
    sys.stdout.write(f"{row.who.user} {what}\n")
    return True
