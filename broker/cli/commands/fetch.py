"""`tradewind fetch`: a job's results, checked and laid where they belong."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from broker.cli.exits import Exit, Failure, note
from broker.cli.formatting import number, text
from broker.cli.job_views import output_table
from broker.cli.options import JobName, Json
from broker.cli.output import show, show_json
from broker.cli.session import find_job, telling, with_client
from broker.client import BadFile, Client


def fetch(
    job: JobName,
    directory: Annotated[
        Path | None, typer.Argument(metavar="[DIR]", help="Where to; else a directory named by id.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite files that differ.")] = False,
    as_json: Json = False,
) -> int:
    """Bring a job's results here. Tasks of an array get a directory each (task-N)."""

    async def work(client: Client) -> int:
        job_id = await find_job(client, job)
        async with telling("asking for results"):
            outputs = await client.outputs(job_id)
        top = directory or Path(job_id)
        brought = []
        for output in outputs:
            path = destination(top, output)
            async with telling(f"fetching {text(output.get('path'))}"):
                await _bring(client, output, path, force=force)
            brought.append({**output, "local_path": str(path)})
        if as_json:
            show_json({"job": job_id, "directory": str(top), "outputs": brought})
        elif not brought:
            note(f"{job_id} has no results; name them with outputs: in the job")
        else:
            show(output_table({**one, "path": one["local_path"]} for one in brought))
        return Exit.OK

    return with_client(work)


def destination(top: Path, output: Mapping[str, Any]) -> Path:
    """Where a result belongs below `top`; raises Failure when it would lie elsewhere."""
    named = output.get("path")
    parts = Path(named).parts if isinstance(named, str) else ()
    if not parts or ".." in parts or Path(*parts).is_absolute() or "\0" in str(named):
        raise Failure(Exit.BAD_INPUT, f"a result is called {text(named)!r}, which is no path")
    task = number(output.get("task"))
    inner = top / f"task-{task:.0f}" if task is not None else top
    path = inner.joinpath(*parts)
    # A link somewhere on the way must not lead the file out of the directory.
    if not Path(os.path.realpath(path)).is_relative_to(os.path.realpath(top)):
        raise Failure(Exit.BAD_INPUT, f"{path} leads out of {top} by a link")
    return path


async def _bring(
    client: Client, output: Mapping[str, Any], path: Path, *, force: bool
) -> None:
    digest = str(output.get("sha256", ""))
    if path.exists() and not force:
        if path.is_file() and _digest(path) == digest:
            return
        raise Failure(Exit.BAD_INPUT, f"{path} is there and differs", "use --force, or name a DIR")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, draft_name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name[:40]}.")
    except OSError as error:
        raise BadFile(f"cannot write {path}: {error.strerror}") from None
    draft = Path(draft_name)
    try:
        with os.fdopen(handle, "wb") as content:
            await client.get_blob(digest, content)
        draft.chmod(_mode(output.get("mode")))
        draft.replace(path)
    except OSError as error:
        raise BadFile(f"cannot write {path}: {error.strerror}") from None
    finally:
        draft.unlink(missing_ok=True)


def _digest(path: Path) -> str:
    with path.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def _mode(value: object) -> int:
    """Executable if it was; never set-uid, never open for others to write."""
    bits = value if isinstance(value, int) and not isinstance(value, bool) else 0
    if isinstance(value, str) and value.isdigit() and set(value) <= set("01234567"):
        bits = int(value, 8)
    return 0o755 if bits & 0o100 else 0o644
