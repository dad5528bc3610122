"""tradewind-qsub: submit a Grid Engine script to the federation."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from broker.cli.exits import Exit, Failure
from broker.cli.shims.spool import Spool
from broker.cli.shims.submitting import (
    Handed,
    checked,
    exit_code,
    hand_over,
    read_script,
    wait_for,
    with_broker,
)
from broker.client import Client
from broker.compat.imported import Imported
from broker.compat.notes import Findings
from broker.compat.sge_job import CommandLine, import_qsub
from broker.compat.sge_options import read_options
from federation.runs import parse_array

USAGE = """\
usage: qsub [options] [script [args]]      (tradewind-qsub)
Takes the options of Grid Engine's qsub, on the command line and in #$ lines.
`tradewind import SCRIPT` shows what each means here.
"""


def main(arguments: Sequence[str]) -> int:
    """Submit, and say so as qsub does: `Your job 12345 ("name") has been submitted`."""
    given, rest = read_options(arguments, 0, Findings())
    values = {one.option.name: one.value for one in given}
    if "help" in values:
        sys.stdout.write(USAGE)
        return 0
    words = list(arguments[: len(arguments) - len(rest)])
    imported = _imported(words, rest, values)
    asked = imported.client.flags
    checked(imported, "qsub", quiet="terse" in asked)
    if "verify" in asked:
        sys.stdout.write(f"verification: found suitable queue(s)\n{imported.kind}\n")
        return 0

    async def work(client: Client, spool: Spool) -> int:
        handed = await hand_over(client, spool, imported)
        _say(handed, terse="terse" in asked)
        if "sync" not in asked:
            return 0
        code = exit_code(await wait_for(client, spool, handed))
        sys.stdout.write(f"Job {handed.number} exited with exit code {code}.\n")
        return code

    return with_broker(work)


def _imported(words: list[str], rest: list[str], values: dict[str, str]) -> Imported:
    if values.get("b", "n").lower().startswith("y"):
        if not rest:
            raise Failure(Exit.BAD_INPUT, "command required for a binary job")
        name = Path(rest[0]).name
        text = f"#!/bin/sh\nexec {' '.join(shlex.quote(word) for word in rest)}\n"
        return import_qsub(name, text, CommandLine(_plain(words)))
    if rest:
        name, text, arguments = Path(rest[0]).name, read_script(rest[0]), rest[1:]
    else:
        name, text, arguments = "STDIN", sys.stdin.read(), []
    if not text.strip():
        raise Failure(
            Exit.BAD_INPUT, "no input read from stdin" if not rest else "empty script"
        )
    return import_qsub(name, text, CommandLine(_plain(words), arguments))


def _plain(words: list[str]) -> list[str]:
    """`-wd` of the directory we are in is what -cwd says."""
    here, plain = os.getcwd(), list(words)
    for index, word in enumerate(plain[:-1]):
        if word == "-wd" and os.path.normpath(plain[index + 1]) == here:
            plain[index : index + 2] = ["-cwd"]
            return plain
    return plain


def _say(handed: Handed, *, terse: bool) -> None:
    number = str(handed.number)
    if handed.array:
        runs = parse_array(handed.array)[0]
        indices = list(runs)[:2]
        step = indices[1] - indices[0] if len(indices) > 1 else 1
        number += f".{runs.runs[0][0]}-{runs.runs[-1][1]}:{step}"
    if terse:
        sys.stdout.write(f"{number}\n")
    else:
        kind = "job-array" if handed.array else "job"
        sys.stdout.write(f'Your {kind} {number} ("{handed.name}") has been submitted\n')
    sys.stdout.flush()
