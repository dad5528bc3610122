"""Files of other systems on the command line: told apart, read, and made ready to submit."""

from __future__ import annotations

import copy
import os
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from broker.cli.exits import Exit, Failure, note
from broker.cli.integer_lookup import find_any
from broker.cli.session import ask
from broker.client import Client
from broker.compat.imported import Imported
from broker.compat.kinds import Kind
from broker.compat.reading import import_text

SEND = "TRADEWIND_SEND_DIRECTORY"
_SCRIPTS = (Kind.SBATCH, Kind.QSUB)
# What a script's own variables repeat: said beside the script, they would contradict it.
_OWN_WORDS = ("name", "array", "cpus", "memory", "accelerators", "replicas")


def foreign_job(
    path: Path, text: str, clusters: Sequence[str], said: Collection[str]
) -> dict[str, Any]:
    """The job of a file of another system, as a mapping.

    `clusters` are those named beside the file, `said` the names of other options given. Asks the
    broker only where the job is kept to one kind of site or waits for others. Raises Failure.
    """
    imported = import_text(path.name, text)
    refuse_errors(imported, str(path))
    doubled = [key for key in _OWN_WORDS if key in said]
    if imported.kind in _SCRIPTS and doubled:
        raise Failure(
            Exit.BAD_INPUT,
            f"--{doubled[0]} beside a script of {imported.kind}",
            f"say it in the script's own words, or give them to tradewind-{imported.kind}",
        )
    tell_warnings(imported)
    data = job_data(imported, os.environ, Path.cwd())
    data.setdefault("name", path.stem[:128] or None)
    if imported.only or imported.client.after:
        ask(lambda client: settle(client, imported, data, clusters))
    return data


def refuse_errors(imported: Imported, name: str) -> None:
    """Raise Failure with the errors of a file, a line each."""
    if imported.errors:
        lines = "\n  ".join(str(error) for error in imported.errors[:20])
        raise Failure(Exit.BAD_INPUT, f"{name} cannot be run as it stands:\n  {lines}")


def tell_warnings(imported: Imported, prefix: str = "warning") -> None:
    """Warnings on stderr, a line each."""
    for each in imported.warnings:
        note(f"{prefix}: {each}")


def job_data(imported: Imported, environ: Mapping[str, str], base: Path) -> dict[str, Any]:
    """The job as a mapping with absolute paths, and with the variables it takes from here."""
    data: dict[str, Any] = copy.deepcopy(dict(imported.data or {}))
    inherited = {name: environ[name] for name in imported.client.inherit if name in environ}
    if inherited:
        data["env"] = {**inherited, **data.get("env", {})}
    for missing in set(imported.client.inherit) - set(inherited):
        note(f"warning: {missing} is not set here, so the job does not have it")
    workdir = data.get("workdir")
    if isinstance(workdir, str):
        if may_send(base / workdir, environ):
            data["workdir"] = os.path.normpath(base / Path(workdir).expanduser())
        else:
            del data["workdir"]
    files = data.get("files")
    if isinstance(files, dict):
        data["files"] = {
            path: os.path.normpath(base / Path(source).expanduser())
            for path, source in files.items()
        }
    return data


def may_send(directory: Path, environ: Mapping[str, str]) -> bool:
    """Whether a directory is sent along: never a home or the root of all, nor if told not to."""
    if environ.get(SEND, "").lower() in ("no", "0", "false"):
        return False
    resolved = directory.resolve()
    if (
        resolved in (Path("/"), Path.home().resolve())
        or resolved in Path.home().resolve().parents
    ):
        note(
            f"note: {resolved} is too much to send along: the job starts in an empty directory"
        )
        return False
    return True


async def settle(
    client: Client, imported: Imported, data: dict[str, Any], clusters: Sequence[str] = ()
) -> None:
    """Fill in what only the broker knows: clusters of the kind the job is kept to, and the ids of
    the jobs it waits for. Raises Failure where there are none."""
    if imported.only:
        chosen = list(clusters) or list(data.get("placement", {}).get("clusters", ()))
        data.setdefault("placement", {})["clusters"] = await _of_kind(
            client, imported.only, chosen
        )
    waits: list[dict[str, str]] = []
    for after in imported.client.after:
        job = await find_any(client, after.job)
        if job is None:
            raise Failure(Exit.NOT_FOUND, f"no job {after.job} to wait for")
        if not _holds(job, after.when, after.job):
            waits.append({"job": str(job["id"]), "when": after.when})
    if waits:
        data["depends_on"] = waits


def _holds(job: Mapping[str, Any], when: str, named: str) -> bool:
    """Whether what is waited for has come already. Raises Failure if it never will."""
    if job.get("phase") != "ended":
        return when == "started" and job.get("phase") == "running"
    outcome = job.get("outcome")
    kind = outcome.get("kind") if isinstance(outcome, Mapping) else None
    if when == "succeeded" and kind != "succeeded":
        raise Failure(
            Exit.BAD_INPUT,
            f"job {named} has ended as {kind}: a job that waits for its success"
            " would never start",
        )
    return True


async def _of_kind(client: Client, kind: str, chosen: list[str]) -> list[str]:
    known = {str(c.get("name")): str(c.get("scheduler")) for c in await client.clusters()}
    fitting = sorted(name for name, scheduler in known.items() if scheduler == kind)
    wrong = [name for name in chosen if known.get(name, kind) != kind]
    if wrong:
        raise Failure(
            Exit.BAD_INPUT, f"the job needs a {kind} site, and {wrong[0]} is none",
            f"{kind} sites: {', '.join(fitting) or 'none'}",
        )  # fmt: skip
    if not chosen and not fitting:
        raise Failure(
            Exit.BAD_INPUT, f"the job needs a {kind} site, and the federation has none",
            "the warnings above say what in it needs one",
        )  # fmt: skip
    return chosen or fitting
