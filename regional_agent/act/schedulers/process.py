"""The local scheduler of a plain host: jobs are processes of the keeper's."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
from collections.abc import AsyncIterator, Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from federation.refusals import Refusal, RefusalCode
from federation.runs import Runs
from regional_agent.act.images import Images, Unpacked
from regional_agent.act.isolation import Isolation
from regional_agent.act.keeper.client import KeeperClient, KeeperGone, KeeperRefused
from regional_agent.act.keeper.layout import STREAM_FORMAT, AttemptDir, trash_dir
from regional_agent.act.keeper.orders import Order, Seat, order_json, pairs_of, runs_of
from regional_agent.act.schedulers import log_files
from regional_agent.act.schedulers.port import (
    NEVER,
    Capabilities,
    Feature,
    LaunchOrder,
    LocalChange,
    LocalState,
    LogExtent,
    LogSlice,
    Outcome,
    OutcomeKind,
    Phase,
    SchedulerUnavailable,
    Submitted,
    TaskStates,
    Usage,
    UsageSample,
)
from regional_agent.session.ledger import Place

PROTOCOL_FENCE = 2
"""The protocol of the first keeper that keeps contact deadlines."""
_FEATURES = frozenset({Feature.ARRAY, Feature.GANG, Feature.SET_SLICE, Feature.MAX_RUNTIME,
                       Feature.MEMORY_LIMIT, Feature.LIVE_LOGS, Feature.LIVE_USAGE, Feature.ADOPT,
                       Feature.FENCE, Feature.SANDBOX, Feature.ONE_NODE, Feature.PARTS,
                       Feature.IMAGES, Feature.CONTROL_GROUPS})  # fmt: skip
"""Where the host allows them. Nothing and nobody is kept apart by nodes: all pools are one host."""
UNKNOWN = LocalState("", Phase.UNKNOWN, TaskStates(Runs(), Runs()))


@dataclass(frozen=True, slots=True)
class ProcessSettings:
    """`cpus_milli`: what all jobs here may claim together, 0 = no bound. `env`: what every job
    finds in its environment unless its order says otherwise (PATH, LANG, TZ)."""

    state: Path
    cpus_milli: int = 0
    env: tuple[tuple[str, str], ...] = ()
    keeper_arguments: tuple[str, ...] = ()
    isolation: Isolation = field(default_factory=Isolation)
    images: Images | None = None


class ProcessScheduler:
    """`LocalScheduler` on the keeper. Starts the keeper if there is none, else adopts its jobs."""

    def __init__(self, settings: ProcessSettings) -> None:
        self._settings = settings
        self._keeper = KeeperClient(settings.state, settings.keeper_arguments)
        self._groups: str | None = None

    async def capabilities(self) -> Capabilities:
        """Everything the port knows, and of what the host decides what it gives. Asks anew: the
        keeper may be another one, and older than this agent."""
        hello = await self._ask("hello")
        self._groups = self._why_no_groups(hello)
        missing: set[Feature] = set()
        if hello["protocol"] < PROTOCOL_FENCE:
            missing.add(Feature.FENCE)
        if self._groups:
            missing.add(Feature.CONTROL_GROUPS)
        if self._settings.isolation.sandbox is None or not hello.get("sandbox"):
            missing.add(Feature.SANDBOX)
        if self._settings.images is None or not hello.get("images"):
            missing.add(Feature.IMAGES)
        return Capabilities("process", _FEATURES - missing)

    def _why_no_groups(self, hello: Mapping[str, Any]) -> str:
        """Why jobs get no control groups; empty if they do."""
        if not self._settings.isolation.limits:
            return "not asked for"
        groups = hello.get("groups", "the keeper that runs is older than this agent")
        return groups if isinstance(groups, str) else ""

    async def submit(self, order: LaunchOrder) -> Submitted | Refusal:
        """See the port. Refuses capacity_taken, disk_full, submit_failed, and images that cannot
        be had."""
        if self._groups is None:
            await self.capabilities()
        unpacked = None
        if order.image:
            had = await self._image(order.uid, order.image)
            if isinstance(had, Refusal):
                return had
            unpacked = had
        body = order_json(self._order(order, unpacked))
        try:
            answer = await self._ask(
                "submit",
                order=body,
                cpus_milli=self._settings.cpus_milli,
                contact_s=None if order.contact_s == NEVER else order.contact_s,
            )
        except KeeperRefused as error:
            full = f"[Errno {errno.ENOSPC}]" in str(error)
            code = RefusalCode.DISK_FULL if full else RefusalCode.SUBMIT_FAILED
            return Refusal(code, order.uid, available=str(error))
        if answer["taken"]:
            return Refusal(RefusalCode.CAPACITY_TAKEN, order.uid, available=answer["taken"])
        return Submitted(local_id=order.uid, fresh=answer["fresh"])

    async def prepare_image(self, uid: str, image: str) -> Refusal | None:
        """See `Imaging`."""
        had = await self._image(uid, image)
        return had if isinstance(had, Refusal) else None

    async def prefetch(self, image: str) -> str:
        """See `Prefetching`."""
        refused = await self.prepare_image("ahead", image)
        return "" if refused is None else refused.text

    async def _image(self, uid: str, image: str) -> Unpacked | Refusal:
        if self._settings.images is None:
            return Refusal(RefusalCode.UNSUPPORTED, uid, needed=f"the image {image}")
        return await self._settings.images.have(uid, image)

    async def find(self, uid: str) -> str | None:
        """The uid itself, if the keeper holds it."""
        return uid if await self._ask("status", uids=[uid]) else None

    async def attempts(self) -> tuple[str, ...]:
        """Uids of all attempts the keeper holds."""
        return tuple(state["uid"] for state in await self._ask("status", uids=None))

    async def status(self, uids: Collection[str]) -> Mapping[str, LocalState]:
        """One state per asked uid."""
        known = {s["uid"]: _state(s) for s in await self._ask("status", uids=sorted(set(uids)))}
        return {uid: known.get(uid) or _unknown(uid) for uid in uids}

    async def cancel(self, uid: str, grace_s: int) -> None:
        """See the port."""
        await self._ask("cancel", uid=uid, grace_s=grace_s)

    async def withdraw(self, uid: str) -> bool:
        """See the port. What the keeper has taken on it starts at once."""
        state = (await self.status([uid]))[uid]
        if state.phase not in (Phase.UNKNOWN, Phase.ENDED):
            return False
        await self.cancel(uid, 0)
        return True

    async def contact(self, at_s: float) -> None:
        """See `Fencing`."""
        await self._ask("contact", at_s=at_s)

    async def set_slice(
        self, uid: str, tasks: Runs, width: int, places: tuple[Place, ...] | None = None
    ) -> Runs | Refusal:
        """See the port. Refuses unsupported: not an array, not here, more lanes than places."""
        seats = None if places is None else [_seat(place).to_json() for place in places]
        fields = {"uid": uid, "tasks": pairs_of(tasks), "width": width, "places": seats}
        try:
            return runs_of(await self._ask("slice", **fields))
        except KeeperRefused as error:
            return Refusal(RefusalCode.UNSUPPORTED, uid, available=str(error))

    async def read_log(self, uid: str, stream: str, offset: int, limit: int) -> LogSlice:
        """See the port."""
        match = STREAM_FORMAT.fullmatch(stream)
        if match is None:
            raise ValueError(f"not a log stream: {stream!r}")
        # Asked before reading: what is written after the end is nothing.
        state = (await self.status([uid]))[uid]
        task = int(match[1] or 0)
        live = state.phase not in (Phase.ENDED, Phase.UNKNOWN) and (
            task in state.tasks.running or task in state.tasks.unstarted
        )
        path = AttemptDir(self._settings.state, uid).logs / stream
        return await asyncio.to_thread(log_files.read, path, offset, limit, ended=not live)

    async def log_extents(self, uid: str) -> tuple[LogExtent, ...]:
        """See the port."""
        logs = AttemptDir(self._settings.state, uid).logs
        return await asyncio.to_thread(log_files.extents, logs)

    async def usage(self, uids: Collection[str]) -> Mapping[str, UsageSample]:
        """See the port."""
        samples = await self._ask("usage", uids=sorted(set(uids)))
        return {uid: UsageSample(*sample) for uid, sample in samples.items()}

    async def forget(self, uid: str) -> None:
        """See the port."""
        try:
            await self._ask("forget", uid=uid)
        except KeeperRefused as error:
            raise ValueError(str(error)) from error
        await asyncio.to_thread(_empty, trash_dir(self._settings.state))

    async def changes(self) -> AsyncIterator[tuple[LocalChange, ...]]:
        """See the port."""
        async for states in self._keeper.changes():
            yield tuple(LocalChange(state["uid"], _state(state)) for state in states)

    async def shut_down(self, *, kill: bool) -> None:
        """End the keeper. Raises ValueError if attempts run, unless `kill`, which ends them."""
        try:
            await self._ask("shutdown", kill=kill)
        except KeeperRefused as error:
            raise ValueError(str(error)) from error

    async def close(self) -> None:
        """Leave the keeper and its jobs running."""
        await self._keeper.close()

    async def _ask(self, op: str, **fields: Any) -> Any:
        try:
            return await self._keeper.request(op, **fields)
        except KeeperGone as error:
            raise SchedulerUnavailable(str(error)) from error

    def _order(self, order: LaunchOrder, unpacked: Unpacked | None) -> Order:
        network = order.network or order.replicas > 1
        sandbox, env = self._settings.isolation.of(network=network), self._settings.env
        if unpacked is not None and self._settings.images is not None:
            sandbox = self._settings.images.sandbox
            sandbox = replace(sandbox, root=str(unpacked.root), network=sandbox.network or network)
            # Paths of the machine are none of the image.
            env = (*(pair for pair in env if pair[0] != "PATH"), *unpacked.env)
        return Order(
            uid=order.uid,
            job=order.job,
            tenant=order.tenant,
            argv=order.argv,
            run=order.run,
            env=env + order.env,
            accelerator=order.accelerator,
            cpus_milli=order.cpus_milli,
            memory_bytes=order.memory_bytes,
            max_runtime_s=order.max_runtime_s,
            grace_s=order.grace_s,
            replicas=order.replicas,
            tasks=order.tasks,
            width=order.width,
            places=tuple(_seat(place) for place in order.places),
            fence_after_s=order.fence_after_s,
            sandbox=sandbox,
            grouped=self._groups == "",
            image=order.image,
        )


def _seat(place: Place) -> Seat:
    return Seat(place.pool, place.node, place.accelerators)


def _outcome(kind: str, number: int) -> Outcome:
    if kind == OutcomeKind.FAILED:
        return Outcome(OutcomeKind.FAILED, exit_code=number)
    if kind == OutcomeKind.SIGNALLED:
        return Outcome(OutcomeKind.SIGNALLED, signal=number)
    return Outcome(OutcomeKind(kind))


def _state(body: Mapping[str, Any]) -> LocalState:
    done = tuple((_outcome(kind, n), runs_of(tasks)) for kind, n, tasks in body["done"])
    submitted_ms, started_ms, ended_ms = body["times"]
    return LocalState(
        uid=body["uid"],
        phase=Phase(body["phase"]),
        tasks=TaskStates(runs_of(body["unstarted"]), runs_of(body["running"]), done),
        submitted_ms=submitted_ms,
        started_ms=started_ms,
        ended_ms=ended_ms,
        outcome=None if body["outcome"] is None else _outcome(*body["outcome"]),
        usage=Usage(*body["usage"]),
        detail=body["detail"],
    )


def _unknown(uid: str) -> LocalState:
    return LocalState(uid, Phase.UNKNOWN, UNKNOWN.tasks)


def _empty(trash: Path) -> None:
    for entry in os.scandir(trash):
        shutil.rmtree(entry.path, ignore_errors=True)
