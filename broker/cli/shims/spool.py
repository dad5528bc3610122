"""Output files as Slurm leaves them: what a job prints comes to a file where it was submitted.

Every job submitted here has an entry in a spool directory of its user, with the files it wants and
how far they are written. A follower process of the user brings what is printed as it comes; the
commands that say that a job has ended bring the rest before they say so. Whoever writes holds a
lock on the entry, and writes at the offset the entry names: a killed writer is repeated, not
doubled.
"""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import json
import os
from collections.abc import AsyncIterator, Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from broker.cli.exits import note
from broker.cli.formatting import mappings
from broker.cli.shims.patterns import Naming, file_name
from broker.client import Client, ClientError, Refused
from federation.private_files import make_private_directory
from federation.runs import parse_array, parse_runs

TASKS_MAX = 1_000
_SETTLE_S = 10.0
_NOWHERE = ("/dev/null", "none")


class Spool:
    """The entries of one user for one broker."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    @classmethod
    def of(cls, url: str, environ: Mapping[str, str], home: Path) -> Spool:
        """The spool for that broker, below the user's state directory."""
        state = environ.get("XDG_STATE_HOME")
        base = Path(state) if state else home / ".local/state"
        name = hashlib.sha256(url.encode()).hexdigest()[:16]
        return cls(base / "tradewind" / "outputs" / name)

    def add(self, job_id: str, entry: dict[str, Any]) -> None:
        """Put an entry in; it is there when this returns."""
        make_private_directory(self.directory)
        draft = self.directory / f".{job_id}.new"
        draft.write_text(json.dumps(entry), encoding="utf-8")
        draft.replace(self.directory / f"{job_id}.json")

    def jobs(self) -> list[str]:
        """Jobs whose files are not all there yet."""
        if not self.directory.is_dir():
            return []
        return sorted(path.stem for path in self.directory.glob("j*.json"))

    @contextmanager
    def held(self, job_id: str, *, wait: bool = True) -> Iterator[dict[str, Any] | None]:
        """The entry of a job while nobody else writes its files; None if there is none any more,
        or (without `wait`) somebody else has it."""
        lock = self.directory / f"{job_id}.lock"
        path = self.directory / f"{job_id}.json"
        if not path.exists():
            yield None
            return
        with lock.open("w") as handle:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            except BlockingIOError:
                yield None
                return
            yield json.loads(path.read_text(encoding="utf-8")) if path.exists() else None

    def save(self, job_id: str, entry: dict[str, Any]) -> None:
        """Write an entry back; only while it is held."""
        self.add(job_id, entry)

    def drop(self, job_id: str) -> None:
        """Forget a job whose files are complete."""
        (self.directory / f"{job_id}.json").unlink(missing_ok=True)
        (self.directory / f"{job_id}.lock").unlink(missing_ok=True)


def entry_of(naming: Naming, pattern: str, base: Path, array: str) -> dict[str, Any]:
    """A new entry; `array` is the job's array or empty, `base` where relative names start."""
    return {
        "append": False,
        "naming": naming.document(), "pattern": pattern, "base": str(base), "array": array,
        "files": {},
    }  # fmt: skip


async def bring(client: Client, spool: Spool, job_id: str, *, wait: bool = True) -> None:
    """Bring what a job has printed so far; forget the job once it has ended and all is here."""
    with spool.held(job_id, wait=wait) as entry:
        if entry is None:
            return
        try:
            job = await client.job(job_id)
        except Refused as refused:
            if refused.problem.status == 404:
                spool.drop(job_id)
                return
            raise
        ended = job.get("phase") == "ended"
        async for _ in _pieces(client, job, entry, ended=ended):
            spool.save(job_id, entry)
        if ended:
            spool.drop(job_id)


async def catch_up(client: Client, spool: Spool, running: Collection[str] = ()) -> None:
    """Bring what is missing of every job but those known to be running."""
    for job_id in spool.jobs():
        if job_id not in running:
            try:
                await bring(client, spool, job_id)
            except (ClientError, OSError) as error:
                note(f"warning: the output of {job_id} cannot be brought: {error}")


async def _pieces(
    client: Client, job: Mapping[str, Any], entry: dict[str, Any], *, ended: bool
) -> AsyncIterator[None]:
    """Write piece after piece; the entry is to be saved after each."""
    for task in _tasks(entry, ended=ended):
        for attempt in _attempts(job, task):
            async for _ in _stream(client, str(job["id"]), entry, (task, attempt), ended=ended):
                yield


def _tasks(entry: Mapping[str, Any], *, ended: bool) -> list[str]:
    """Tasks to read: those of an array at its end, and as it runs if they are few."""
    if not entry["array"]:
        return [""]
    tasks, _ = parse_array(entry["array"])
    if tasks.count > (TASKS_MAX if ended else 16):
        return []
    return [str(task) for task in tasks]


def _attempts(job: Mapping[str, Any], task: str) -> list[str]:
    """Numbers of the attempts that had the task, in order."""
    found = []
    for attempt in mappings(job.get("attempts")):
        tasks = attempt.get("tasks")
        if not task or not tasks or int(task) in parse_runs(str(tasks)):
            found.append(str(attempt.get("uid")).rpartition("-")[2])
    return sorted(found, key=int)


async def _stream(
    client: Client, job_id: str, entry: dict[str, Any], which: tuple[str, str], *, ended: bool
) -> AsyncIterator[None]:
    task, attempt = which
    place = entry["files"].setdefault(task or "-", {"done": {}, "start": None})
    done: dict[str, int] = place["done"]
    loop = asyncio.get_running_loop()
    until = loop.time() + _SETTLE_S
    while True:
        offset = done.get(attempt, 0)
        try:
            piece = await client.log(job_id, offset=offset, task=task or None, attempt=attempt)
        except Refused as refused:
            if refused.problem.status == 404:  # that attempt had no such task
                return
            raise
        if piece.data or place["start"] is None:
            _write(entry, task, piece.data)
            done[attempt] = offset + len(piece.data)
            yield
        if piece.data:
            continue
        if not ended or piece.complete or loop.time() > until:
            return
        await asyncio.sleep(0.2)


def _write(entry: dict[str, Any], task: str, data: bytes) -> None:
    """Write `data` behind what is there of this file, whoever wrote it and however far it came."""
    naming = Naming.of(entry["naming"])
    place = entry["files"][task or "-"]
    name = file_name(entry["pattern"], naming, task)
    if name in _NOWHERE:
        place["start"] = 0
        return
    path = Path(entry["base"]) / Path(name).expanduser()
    path.parent.mkdir(parents=True, exist_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC
    handle = os.open(path, flags, 0o666)
    try:
        if place["start"] is None:
            if not entry.get("append"):
                os.ftruncate(handle, 0)
            place["start"] = os.fstat(handle).st_size
        position = place["start"] + sum(place["done"].values())
        os.pwrite(handle, data, position)
    finally:
        os.close(handle)


async def bring_all(client: Client, spool: Spool) -> int:
    """Bring what all jobs have printed, leaving out those somebody else is at; how many are left.

    A job that cannot be asked for now is left for the next time.
    """
    for job_id in spool.jobs():
        try:
            await bring(client, spool, job_id, wait=False)
        except (ClientError, OSError):
            continue
    return len(spool.jobs())
