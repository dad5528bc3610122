"""tradewind-qstat: jobs that wait or run, in qstat's columns."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Sequence
from datetime import datetime
from fnmatch import fnmatchcase
from xml.sax.saxutils import escape

from broker.cli.shims.listing import by_number, living, rows
from broker.cli.shims.rows import Row, listed, whose
from broker.cli.shims.running import Arguments
from broker.cli.shims.spool import Spool, catch_up
from broker.cli.shims.submitting import with_broker
from broker.client import Client

HEADING = (
    "job-ID  prior   name       user         state submit/start at     queue"
    "                          slots ja-task-ID \n" + "-" * 117 + "\n"
)


def main(arguments: Sequence[str]) -> int:
    """List; `-j` tells about single jobs, and ends with 1 for one that has ended or never was."""
    options = Arguments("qstat")
    options.add_argument("-j", nargs="?", const="*", default=None)
    for names in (
        ("-u",),
        ("-s",),
        ("-q",),
        ("-l",),
        ("-pe",),
        ("-U",),
        ("-g",),
        ("-F",),
        ("-qs",),
    ):
        options.text(*names)
    for flags in (
        ("-f",),
        ("-r",),
        ("-ext",),
        ("-pri",),
        ("-urg",),
        ("-t",),
        ("-ne",),
        ("-ncb",),
    ):
        options.flag(*flags)
    options.flag("-xml")
    given = options.parse_args(list(arguments))
    return with_broker(lambda client, spool: _list(client, spool, given))


async def _list(client: Client, spool: Spool, given: Namespace) -> int:
    who = await whose(client)
    if given.j not in (None, "*"):
        return await _tell(client, spool, given)
    jobs = await living(client)
    await catch_up(client, spool, [str(job["id"]) for job in jobs])
    users = listed(given.u) or [who.user]

    def keep(row: Row) -> bool:
        if not any(fnmatchcase(row.user, user) for user in users):
            return False
        wanted = given.s or "a"
        return (
            "a" in wanted or state(row)[-1] in wanted or (state(row) == "qw" and "p" in wanted)
        )

    found = sorted(await rows(client, jobs, who, keep), key=lambda row: str(row.job["id"]))
    if given.xml:
        sys.stdout.write(_xml(found))
    elif found:
        sys.stdout.write(HEADING + "".join(_line(row) for row in found))
    return 0


def state(row: Row) -> str:
    """qw, hqw, t or r."""
    phase = row.job.get("phase")
    return {"held": "hqw", "placed": "t", "running": "r"}.get(str(phase), "qw")


def _when(row: Row) -> datetime:
    seconds = row.at_s("started_at") or row.at_s("created_at") or 0
    return datetime.fromtimestamp(seconds)  # noqa: DTZ006 - as qstat: local


def _queue(row: Row) -> str:
    return f"tradewind@{row.cluster}" if state(row) in "tr" and row.cluster else ""


def _line(row: Row) -> str:
    prior = int(row.job.get("priority", 0)) / 1000
    return (
        f"{row.number:>7} {prior:.5f} {row.name[:10]:<10} {row.user[:12]:<12} {state(row):<5}"
        f" {_when(row):%m/%d/%Y %H:%M:%S} {_queue(row)[:30]:<30} {row.cpus:>5} {_tasks(row):<10}\n"
    )


def _tasks(row: Row) -> str:
    return row.tasks.partition("%")[0]


async def _tell(client: Client, spool: Spool, given: Namespace) -> int:
    jobs, missing = await by_number(client, [given.j])
    over = [job for job in jobs if job.get("phase") == "ended"]
    await catch_up(client, spool, [str(j["id"]) for j in jobs if j.get("phase") != "ended"])
    who = await whose(client)
    found = await rows(client, [job for job in jobs if job not in over], who)
    gone = [*missing, *(str(row.number) for row in await rows(client, over, who))]
    for row in found:
        sys.stdout.write("=" * 62 + "\n" + _facts(row))
    if gone:
        sys.stderr.write(
            "Following jobs do not exist: \n" + "".join(f"{job}\n" for job in gone)
        )
        return 1
    return 0


def _facts(row: Row) -> str:
    facts = {
        "job_number": str(row.number),
        "submission_time": row.time("created_at"),
        "owner": row.user,
        "job_name": row.name,
        "job_state": state(row),
        "hard resource_list": f"h_rt={row.limit_s}" if row.limit_s else "",
        "project": row.label("sge-project"),
        "job-array tasks": _tasks(row),
        "tradewind_id": str(row.job.get("id")),
    }
    return "".join(f"{name + ':':<28}{value}\n" for name, value in facts.items() if value)


def _xml(found: list[Row]) -> str:
    lists: dict[str, list[str]] = {"running": [], "pending": []}
    for row in found:
        kind = "running" if state(row) in ("r", "t") else "pending"
        when = "JAT_start_time" if kind == "running" else "JB_submission_time"
        parts = {
            "JB_job_number": str(row.number),
            "JAT_prio": f"{int(row.job.get('priority', 0)) / 1000:.5f}",
            "JB_name": row.name,
            "JB_owner": row.user,
            "state": state(row),
            when: f"{_when(row):%Y-%m-%dT%H:%M:%S}",
            "queue_name": _queue(row),
            "slots": str(row.cpus),
            **({"tasks": _tasks(row)} if row.tasks else {}),
        }
        inner = "".join(f"      <{k}>{escape(v)}</{k}>\n" for k, v in parts.items())
        lists[kind].append(f'    <job_list state="{kind}">\n{inner}    </job_list>\n')
    return (
        "<?xml version='1.0'?>\n<job_info>\n"
        f"  <queue_info>\n{''.join(lists['running'])}  </queue_info>\n"
        f"  <job_info>\n{''.join(lists['pending'])}  </job_info>\n</job_info>\n"
    )
