"""tradewind-sbatch: submit an sbatch script to the federation."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from broker.cli.exits import Exit, Failure
from broker.cli.formatting import mappings, number
from broker.cli.session import now
from broker.cli.shims.spool import Spool
from broker.cli.shims.submitting import (
    Handed,
    checked,
    exit_code,
    hand_over,
    prepare,
    read_script,
    wait_for,
    with_broker,
)
from broker.client import Client
from broker.compat.imported import Imported
from broker.compat.notes import Findings
from broker.compat.slurm_directives import Word, read_options
from broker.compat.slurm_job import CommandLine, import_sbatch
from broker.compat.slurm_options import ENV_NAMES

USAGE = """\
Usage: sbatch [options] [script [args...]]      (tradewind-sbatch)

Takes the options of sbatch, on the command line, in SBATCH_* variables and in #SBATCH lines.
`tradewind import SCRIPT` shows what each means here.
"""
VERSION = "slurm 22.05.8 (tradewind)"


def main(arguments: Sequence[str]) -> int:
    """Submit, and say so as sbatch does: `Submitted batch job 12345`."""
    read = read_options([Word(word, 0) for word in arguments], Findings())
    flags = {given.option.long for given in read.given}
    if flags & {"help", "usage"}:
        sys.stdout.write(USAGE)
        return 0
    if "version" in flags:
        sys.stdout.write(f"{VERSION}\n")
        return 0
    rest = [word.text for word in read.rest]
    words = list(arguments[: len(arguments) - len(rest)])
    wraps = [given.value for given in read.given if given.option.long == "wrap"]
    imported = _imported(words, rest, wraps)
    asked = imported.client.flags
    checked(imported, "sbatch", quiet="quiet" in asked)
    if "test-only" in asked:
        return with_broker(lambda client, _: _test_only(client, imported))

    async def work(client: Client, spool: Spool) -> int:
        handed = await hand_over(client, spool, imported)
        _say(imported, handed)
        if "wait" not in asked:
            return 0
        return exit_code(await wait_for(client, spool, handed))

    return with_broker(work)


def _imported(words: list[str], rest: list[str], wraps: list[str]) -> Imported:
    if words and words[-1] == "--":
        words = words[:-1]
    if wraps:
        if rest:
            raise Failure(Exit.BAD_INPUT, "Script arguments not permitted with --wrap option")
        name = "wrap"
        text = f"#!/bin/sh\n# This script was created by sbatch --wrap.\n\n{wraps[-1]}\n"
    elif rest:
        name, text = Path(rest[0]).name, read_script(rest[0])
    else:
        name, text = "sbatch", sys.stdin.read()
    if not text.strip():
        raise Failure(Exit.BAD_INPUT, "Batch script is empty!")
    if not text.startswith("#!"):
        raise Failure(
            Exit.BAD_INPUT,
            "This does not look like a batch script.  The first\n"
            "line must start with #! followed by the path to an interpreter.\n"
            "For instance: #!/bin/sh",
        )
    variables = [
        (option.long, value if option.takes.value != "nothing" else "")
        for variable, option in ENV_NAMES.items()
        if (value := os.environ.get(variable)) is not None
    ]
    line = CommandLine(words, rest[1:], variables, os.getcwd())
    return import_sbatch(name, text, line)


def _say(imported: Imported, handed: Handed) -> None:
    clusters = (imported.data or {}).get("placement", {}).get("clusters", [])
    where = clusters[0] if len(clusters) == 1 and not imported.only else ""
    if "parsable" in imported.client.flags:
        sys.stdout.write(f"{handed.number};{where}\n" if where else f"{handed.number}\n")
    elif "quiet" not in imported.client.flags:
        suffix = f" on cluster {where}" if where else ""
        sys.stdout.write(f"Submitted batch job {handed.number}{suffix}\n")
    sys.stdout.flush()


async def _test_only(client: Client, imported: Imported) -> int:
    """Where and when it would start; nothing is stored."""
    spec = (await prepare(client, imported, 0)).spec
    plan = await client.plan(spec)
    chosen = [c for c in mappings(plan.get("candidates")) if c.get("chosen")]
    if not chosen:
        why = plan.get("summary") or "Requested node configuration is not available"
        sys.stderr.write(f"allocation failure: {why}\n")
        return 1
    delay_s = number(chosen[0].get("start_delay_s")) or 0.0
    start = datetime.fromtimestamp(now().ms / 1000 + delay_s)  # noqa: DTZ006 - as Slurm: local
    cpus = spec.resources.cpus_milli * spec.resources.replicas // 1000
    sys.stderr.write(
        f"sbatch: Job 1 to start at {start:%Y-%m-%dT%H:%M:%S} using {max(cpus, 1)} processors on"
        f" nodes {chosen[0].get('cluster')} in partition {chosen[0].get('pool')}\n"
    )
    return 0
