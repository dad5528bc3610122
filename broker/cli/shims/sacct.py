"""tradewind-sacct: jobs past and present, in sacct's columns."""

from __future__ import annotations

import re
import sys
from argparse import Namespace
from collections.abc import Sequence
from datetime import datetime, timedelta

from broker.cli.exits import Exit, Failure
from broker.cli.session import now
from broker.cli.shims.columns import by_names
from broker.cli.shims.listing import by_number, recent, rows
from broker.cli.shims.rows import Row, listed, wanted_states, whose
from broker.cli.shims.running import Arguments
from broker.cli.shims.sacct_fields import FIELDS, Line
from broker.cli.shims.spool import Spool, catch_up
from broker.cli.shims.submitting import with_broker
from broker.client import Client

DEFAULT = "jobid%-12,jobname,partition,account,alloccpus,state,exitcode"
BRIEF = "jobid%-12,state,exitcode"
LONG = (
    "jobid%-12,jobidraw,jobname,partition,maxvmsize,maxrss,alloccpus,elapsed,state,exitcode,reqmem,"
    "nnodes,ncpus"
)
_NOW = re.compile(r"now(?:([-+])([0-9]{1,9})(second|minute|hour|day|week)?s?)?")
_UNITS = {"second": 1, "minute": 60, "hour": 3600, "day": 86_400, "week": 604_800}


def main(arguments: Sequence[str]) -> int:
    """List jobs of today, or those named."""
    given = _options().parse_args(list(arguments))
    if given.version:
        sys.stdout.write("slurm 22.05.8 (tradewind)\n")
        return 0
    if given.helpformat:
        sys.stdout.write("\n".join(field.title for field in FIELDS.values()) + "\n")
        return 0
    return with_broker(lambda client, spool: _list(client, spool, given))


def _options() -> Arguments:
    options = Arguments("sacct")
    for flags in (
        ("-n", "--noheader"),
        ("-X", "--allocations"),
        ("-P", "--parsable2"),
        ("-p", "--parsable"),
        ("-b", "--brief"),
        ("-l", "--long"),
        ("-a", "--allusers"),
        ("-D", "--duplicates"),
        ("-L", "--allclusters"),
        ("-e", "--helpformat"),
        ("-T", "--truncate"),
        ("-c", "--completion"),
        ("-v", "--verbose"),
        ("-V", "--version"),
        ("--noconvert",),
        ("--federation",),
        ("--local",),
    ):
        options.flag(*flags)
    for names in (
        ("-j", "--jobs"),
        ("-u", "--user", "--uid"),
        ("-o", "--format"),
        ("-s", "--state"),
        ("-S", "--starttime"),
        ("-E", "--endtime"),
        ("-A", "--accounts"),
        ("-r", "--partition"),
        ("-M", "--clusters"),
        ("-q", "--qos"),
        ("-N", "--nodelist"),
        ("--name",),
        ("--units",),
        ("-g", "--gid"),
        ("-W", "--wckeys"),
    ):
        options.text(*names)
    options.add_argument("--delimiter", default="|")
    return options


async def _list(client: Client, spool: Spool, given: Namespace) -> int:
    who = await whose(client)
    jobs = (await by_number(client, [given.jobs]))[0] if given.jobs else await recent(client)
    await catch_up(
        client, spool, [str(job["id"]) for job in jobs if job.get("phase") != "ended"]
    )
    start = moment_s(given.starttime or ("" if given.jobs else "midnight"), now().ms // 1000)
    end = moment_s(given.endtime, now().ms // 1000)
    states = wanted_states(given.state)

    def keep(row: Row) -> bool:
        over = row.at_s("ended_at")
        return (
            (start is None or over is None or over >= start)
            and (end is None or (row.at_s("created_at") or 0) <= end)
            and (not states or row.state in states)
            and _among(
                row.user, given.user or ("" if given.allusers or given.jobs else who.user)
            )
            and _among(row.name, given.name)
            and _among(row.partition, given.partition)
            and _among(row.label("slurm-account"), given.accounts)
            and _among(row.label("slurm-qos"), given.qos)
            and _among(row.cluster, given.clusters)
        )

    found = sorted(await rows(client, jobs, who, keep), key=lambda row: str(row.job["id"]))
    lines: list[Line] = []
    for row in found:
        lines.append(Line(row))
        if not given.allocations and row.at_s("started_at") and not row.tasks:
            lines.append(Line(row, ".batch"))
    _print(lines, given)
    return 0


def _among(value: str, text: str) -> bool:
    return not text or value in listed(text)


def _print(lines: list[Line], given: Namespace) -> None:
    default = BRIEF if given.brief else LONG if given.long else DEFAULT
    cells = by_names(given.format or default, FIELDS, "sacct", left=False)
    out = []
    if given.parsable or given.parsable2:
        tail = given.delimiter if given.parsable else ""
        if not given.noheader:
            out.append(given.delimiter.join(cell.field.title for cell in cells) + tail)
        for line in lines:
            out.append(given.delimiter.join(cell.field.value(line) for cell in cells) + tail)
    else:
        if not given.noheader:
            out.append(" ".join(cell.heading() for cell in cells) + " ")
            out.append(" ".join("-" * cell.width for cell in cells) + " ")
        out += [" ".join(cell.text(line) for cell in cells) + " " for line in lines]
    sys.stdout.write("".join(f"{text}\n" for text in out))


def moment_s(text: str, now_s: int) -> int | None:
    """Epoch seconds of a time as sacct takes it, on this machine's clock; None for none.

    `now-2hours`, `today`, `midnight`, `HH:MM[:SS]`, `YYYY-MM-DD[THH:MM[:SS]]`, `MM/DD[/YY]`.
    Raises Failure.
    """
    if not text:
        return None
    here = datetime.fromtimestamp(now_s)  # noqa: DTZ006 - times of sacct are local
    if match := _NOW.fullmatch(text):
        span = int(match[2] or 0) * _UNITS[match[3] or "second"]
        return now_s + (span if match[1] == "+" else -span)
    midnight = here.replace(hour=0, minute=0, second=0)
    if text in ("today", "midnight"):
        return int(midnight.timestamp())
    if text == "tomorrow":
        return int((midnight + timedelta(days=1)).timestamp())
    for form in (
        "%Y-%m-%dT%H:%M:%S",
        "%Y-%m-%dT%H:%M",
        "%Y-%m-%d",
        "%m/%d/%y",
        "%H:%M:%S",
        "%H:%M",
        "%m%d%y",
        "%m/%d/%y-%H:%M:%S",
    ):
        try:
            read = datetime.strptime(text, form)  # noqa: DTZ007
        except ValueError:
            continue
        if form.startswith("%H"):
            read = read.replace(year=here.year, month=here.month, day=here.day)
        return int(read.timestamp())
    raise Failure(Exit.BAD_INPUT, f"Invalid time specification ({text})")
