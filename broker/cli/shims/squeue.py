"""tradewind-squeue: jobs that wait or run, in squeue's columns."""

from __future__ import annotations

import sys
import time
from argparse import Namespace
from collections.abc import Sequence

from broker.cli.shims.columns import by_letters, by_names
from broker.cli.shims.listing import by_number, living, recent, rows
from broker.cli.shims.rows import Row, listed, wanted_states, whose
from broker.cli.shims.running import Arguments
from broker.cli.shims.spool import Spool, catch_up
from broker.cli.shims.squeue_fields import FIELDS, NAMED
from broker.cli.shims.submitting import with_broker
from broker.client import Client

DEFAULT = "%.18i %.9P %.8j %.8u %.2t %.10M %.6D %R"
LONG = "%.18i %.9P %.8j %.8u %.8T %.10M %.9l %.6D %R"
START = "%.18i %.9P %.8j %.8u %.2t  %.19S %.6D %20Y %R"
_LIVE = {"PENDING", "RUNNING"}


def main(arguments: Sequence[str]) -> int:
    """List; with -i again and again."""
    given = _options().parse_args(list(arguments))
    if given.version:
        sys.stdout.write("slurm 22.05.8 (tradewind)\n")
        return 0
    code = with_broker(lambda client, spool: _list(client, spool, given))
    while given.iterate and code == 0:
        time.sleep(float(given.iterate))
        code = with_broker(lambda client, spool: _list(client, spool, given))
    return code


def _options() -> Arguments:
    options = Arguments("squeue")
    options.flag("-h", "--noheader")
    options.flag("-l", "--long")
    options.flag("--me")
    options.flag("--start")
    options.flag("-V", "--version")
    options.text("-j", "--jobs")
    options.text("-u", "--user")
    options.text("-n", "--name")
    options.text("-t", "--states")
    options.text("-p", "--partition")
    options.text("-A", "--account")
    options.text("-q", "--qos")
    options.text("-M", "--clusters")
    options.text("-S", "--sort")
    options.text("-o", "--format")
    options.text("-O", "--Format")
    options.add_argument("-i", "--iterate", type=float, default=0.0)
    for flags in (
        ("-a", "--all"),
        ("-r", "--array"),
        ("--array-unique",),
        ("-v", "--verbose"),
        ("--federation",),
        ("--local",),
        ("--sibling",),
        ("--hide",),
        ("-P", "--priority"),
        ("--noconvert",),
    ):
        options.flag(*flags)
    options.text("-w", "--nodelist")
    options.text("-R", "--reservation")
    options.text("-L", "--licenses")
    options.add_argument("more", nargs="*")
    return options


async def _list(client: Client, spool: Spool, given: Namespace) -> int:
    texts = [text for text in (given.jobs, *given.more) if text]
    who = await whose(client)
    missing: list[str] = []
    asked_states = wanted_states(given.states)
    if texts:
        jobs, missing = await by_number(client, texts)
    else:
        jobs = await (recent(client) if asked_states - _LIVE else living(client))
    states = asked_states or _LIVE

    def keep(row: Row) -> bool:
        return (
            ("ALL" in states or row.state in states)
            and _among(row.user, given.user)
            and (not given.me or row.user == who.user)
            and _among(row.name, given.name)
            and _among(row.partition, given.partition)
            and _among(row.label("slurm-account"), given.account)
            and _among(row.label("slurm-qos"), given.qos)
            and _among(row.cluster, "" if given.clusters == "all" else given.clusters)
        )

    # Who hears that a job has ended looks into its output next.
    await catch_up(
        client, spool, [str(job["id"]) for job in jobs if job.get("phase") != "ended"]
    )
    found = await rows(client, jobs, who, keep)
    if texts and missing and not jobs:
        sys.stderr.write("slurm_load_jobs error: Invalid job id specified\n")
        return 1
    _print(_sorted(found, given.sort), given)
    return 0


def _among(value: str, text: str) -> bool:
    return not text or value in listed(text)


def _sorted(found: list[Row], sort: str) -> list[Row]:
    """By submission, oldest first, unless -S says otherwise (`i`, `-V`, `t,-p`)."""
    result = sorted(found, key=lambda row: str(row.job["id"]))
    for key in reversed(listed(sort)):
        letter = key.lstrip("+-")
        field = FIELDS.get(letter)
        if field is not None:
            value = field.value
            if letter in "iAF":
                result.sort(key=lambda row: row.number, reverse=key.startswith("-"))
            else:
                result.sort(key=value, reverse=key.startswith("-"))
    return result


def _print(found: list[Row], given: Namespace) -> None:
    if given.Format:
        cells = by_names(given.Format, NAMED, "squeue", left=True)
        heading = "".join(cell.fit(cell.field.title) for cell in cells)
        lines = ["".join(cell.text(row) for cell in cells) for row in found]
    else:
        default = LONG if given.long else START if given.start else DEFAULT
        line = by_letters(given.format or default, FIELDS, "squeue")
        heading, lines = line.heading(), [line.text(row) for row in found]
    if not given.noheader:
        sys.stdout.write(f"{heading}\n")
    sys.stdout.write("".join(f"{text}\n" for text in lines))
