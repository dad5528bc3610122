"""A Ray cluster as a `BatchSystem`, by its Jobs API.

A job's submission id is the name of its part of an attempt, and its metadata say whose it is: it
is looked for before it is handed over again, since Ray answers a repeat with an error of its own.
Nothing is ever retried by Ray. Every job runs as the user the cluster runs as. A stop is read
from the attempt's directory by the job itself, which so has its grace: Ray's own gives seconds.
"""

from __future__ import annotations

import asyncio
import functools
import json
import os
import shlex
from collections.abc import Callable, Collection, Coroutine, Mapping
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

from federation.refusals import Refusal, RefusalCode
from federation.runs import Runs, parse_runs
from regional_agent.act.schedulers.batch.marks import outcome_of
from regional_agent.act.schedulers.batch.system import (
    SINGLE,
    Account,
    Live,
    Queued,
    Submission,
    Traits,
)
from regional_agent.act.schedulers.port import (
    Feature,
    LaunchOrder,
    Outcome,
    OutcomeKind,
    SchedulerUnavailable,
)
from regional_agent.ray.api import (
    DIRECTORY,
    INDICES,
    TAG,
    RayApi,
    RayJob,
    RayRefused,
    RaySilent,
)
from regional_agent.ray.programs import ELEMENTS, RANKS

P = ParamSpec("P")
T = TypeVar("T")
FEATURES = frozenset({Feature.ARRAY, Feature.GANG, Feature.MAX_RUNTIME, Feature.SET_SLICE,
                      Feature.LIVE_LOGS, Feature.ADOPT, Feature.QUEUE, Feature.FENCE})  # fmt: skip
HEADER = r"""TW_LOCAL=$(echo "$TW_DIR" | cksum | cut -d' ' -f1)
TW_INDEX=${TW_RAY_INDEX-}
TW_PYTHON=$(command -v python3)
tw_watch() {
  while kill -0 $$ 2>/dev/null; do
    [ -e "$TW_DIR/cancelled" ] && { kill -TERM $$ 2>/dev/null; exit 0; }
    sleep 0.5
  done
}
tw_watch </dev/null >/dev/null 2>&1 &
"""
LAUNCHER = '"$TW_PYTHON" "$TW_DIR/ranks.py" "$TW_DIR/ranks.json"'
NAMES_MAX = 3


def _asking(
    ask: Callable[Concatenate[Ray, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Ray, P], Coroutine[Any, Any, T]]:
    """Ray's silence as that of a scheduler."""

    @functools.wraps(ask)
    async def asked(ray: Ray, /, *args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return await ask(ray, *args, **kwargs)
        except RaySilent as problem:
            raise SchedulerUnavailable(str(problem)) from problem

    return asked


class Ray:
    """See the module. `models`: by pool the resource that its nodes alone have, as last seen."""

    def __init__(self, api: RayApi) -> None:
        self.api = api
        self.models: Mapping[str, str] = {}
        self._withdrawn: set[str] = set()

    @_asking
    async def traits(self) -> Traits:
        """What every Ray can do. Raises SchedulerUnavailable where none answers."""
        await self.api.version()
        return Traits(
            kind="ray",
            header=HEADER,
            features=FEATURES,
            array_max=10_000,
            launcher=LAUNCHER,
            stop_ranks=":",
        )

    # Submitting ---------------------------------------------------------------------------------

    @_asking
    async def submit(self, job: Submission) -> str | Refusal:
        """Under the first name that is not taken by somebody else. Refuses submit_failed."""
        for name in _names(job.name):
            there = await self.api.job(name)
            if there is None:
                break
            if there.metadata.get(TAG) == job.tag:
                return name
        else:
            return Refusal(
                RefusalCode.SUBMIT_FAILED, job.order.uid, available=f"{job.name} is taken at Ray"
            )
        body = await asyncio.to_thread(_request, job, name, self.models)
        try:
            await self.api.submit(body)
        except RayRefused as refused:
            return Refusal(RefusalCode.SUBMIT_FAILED, job.order.uid, available=str(refused))
        return name

    @_asking
    async def look(self, name: str, tag: str, work: Path) -> str | None:
        """See the port."""
        for each in _names(name):
            there = await self.api.job(each)
            if there is None:
                return None
            if there.metadata.get(TAG) == tag:
                return each
        return None

    # Looking ------------------------------------------------------------------------------------

    @_asking
    async def queue(self) -> tuple[Queued, ...]:
        """See the port: one request. What waits and was withdrawn counts as gone: Ray keeps it
        until there is room for it, and then its script finds that it was cancelled."""
        ours = [j for j in await self.api.jobs() if not j.ended and TAG in j.metadata]
        self._withdrawn &= {job.name for job in ours}
        return tuple(
            Queued(job.name, job.metadata[TAG], _indices(job), _live(job), job.message)
            for job in ours
            if job.name not in self._withdrawn or _live(job) is not Live.PENDING
        )

    @_asking
    async def books(self, local_ids: Collection[str]) -> tuple[Account, ...]:
        """What Ray still knows: it keeps ended jobs as long as its head lives."""
        wanted = set(local_ids)
        return tuple(
            Account(
                local_id=job.name,
                index=index,
                outcome=_outcome(job),
                text=f"Ray says {job.status}: {job.message}",
                started_ms=job.started_ms,
                ended_ms=job.ended_ms,
            )
            for job in await self.api.jobs()
            if job.name in wanted
            for index in _indices(job)
        )

    # Acting -------------------------------------------------------------------------------------

    @_asking
    async def stop(self, local_ids: Collection[str]) -> None:
        """Take what waits out of the queue; what runs has read of it already."""
        wanted = set(local_ids)
        for job in await self.api.jobs():
            if job.name in wanted and _live(job) is Live.PENDING:
                await self.api.stop(job.name)
                self._withdrawn.add(job.name)

    @_asking
    async def remove(self, local_id: str, indices: Runs | None = None) -> None:
        """See the port. Elements that were taken back find their claims taken."""
        if indices is None:
            await self.api.stop(local_id)

    @_asking
    async def widen(self, local_id: str, width: int) -> None:
        """See the port: the job of an array reads its width while it runs."""
        job = await self.api.job(local_id)
        if job is not None and DIRECTORY in job.metadata:
            path = Path(job.metadata[DIRECTORY]) / f"width.{local_id}"
            await asyncio.to_thread(_replace, path, str(width))


def _names(name: str) -> list[str]:
    """Names to submit under, the attempt's own first: others are free to use it too."""
    return [name, *(f"{name}-tw{n}" for n in range(2, NAMES_MAX + 1))]


def _live(job: RayJob) -> Live:
    known = {"PENDING": Live.PENDING, "RUNNING": Live.RUNNING}
    return known.get(job.status, Live.UNKNOWN)


def _indices(job: RayJob) -> Runs:
    text = job.metadata.get(INDICES, "")
    return parse_runs(text) if text else SINGLE


def _outcome(job: RayJob) -> Outcome | None:
    """FAILED without an exit code: nobody saw its program end; its node or Ray's head died."""
    if job.status == "SUCCEEDED":
        return Outcome(OutcomeKind.SUCCEEDED)
    if job.status == "STOPPED":
        return Outcome(OutcomeKind.CANCELLED)
    if job.status != "FAILED":
        return None
    if job.exit_code is None:
        return Outcome(OutcomeKind.LOST)
    return outcome_of(job.exit_code if job.exit_code >= 0 else 128 - job.exit_code)


def _request(job: Submission, name: str, models: Mapping[str, str]) -> dict[str, Any]:
    """The body of a submission; lays the programs it names. An array and a gang ask for nothing
    themselves: their tasks and ranks do."""
    root = job.script.parent
    if job.indices is not None or job.order.replicas > 1:
        (root / "nodes").mkdir(exist_ok=True)
    metadata = {TAG: job.tag, DIRECTORY: str(root), "job_name": job.order.job}
    said: dict[str, Any] = {"submission_id": name, "metadata": metadata}
    needs = _needs(job.order, models)
    if job.order.replicas > 1:
        (root / "ranks.py").write_text(RANKS)
        told = {"ranks": job.order.replicas, "bundle": needs, "nodes": str(root / "nodes")}
        (root / "ranks.json").write_text(json.dumps(told))
    if job.indices is not None:
        metadata[INDICES] = str(job.indices)
        _replace(root / f"width.{name}", str(job.width))
        (root / "elements.py").write_text(ELEMENTS)
        told = {
            "script": str(job.script), "indices": list(job.indices),
            "width": str(root / f"width.{name}"), "cancelled": str(root / "cancelled"),
            "nodes": str(root / "nodes") if job.order.replicas == 1 else "",
            "options": _options(needs) if job.order.replicas == 1 else {"num_cpus": 0},
        }  # fmt: skip
        path = root / f"elements.{name}.json"
        path.write_text(json.dumps(told))
        words = ["python3", str(root / "elements.py"), str(path)]
    else:
        words = ["/bin/sh", str(job.script)]
        if job.order.replicas == 1:
            said |= {f"entrypoint_{key}": value for key, value in _options(needs).items()}
    quiet = " </dev/null >> " + shlex.quote(str(job.log)) + " 2>&1"
    return said | {"entrypoint": "exec " + shlex.join(words) + quiet}


def _needs(order: LaunchOrder, models: Mapping[str, str]) -> dict[str, float]:
    """Ray's resources of one replica; a thousandth of what stands for a model, as Ray's own
    `accelerator_type` asks for it."""
    needs: dict[str, float] = {"CPU": max(order.cpus_milli, 1) / 1000}
    if order.places and order.accelerator not in ("", "CPU"):
        needs["GPU"] = len(order.places[0].accelerators)
        if model := models.get(order.places[0].pool):
            needs[model] = 0.001
    if order.memory_bytes:
        needs["memory"] = order.memory_bytes
    return needs


def _options(needs: dict[str, float]) -> dict[str, Any]:
    """The same as a task's options call it."""
    names = {"CPU": "num_cpus", "GPU": "num_gpus", "memory": "memory"}
    found: dict[str, Any] = {names[key]: needs[key] for key in names if key in needs}
    if own := {key: value for key, value in needs.items() if key not in names}:
        found["resources"] = own
    return found


def _replace(path: Path, text: str) -> None:
    new = path.with_name(path.name + ".new")
    new.write_text(text)
    os.replace(new, path)
