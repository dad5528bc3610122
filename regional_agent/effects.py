"""Carrying out: stage, submit, cancel, collect. What became of it goes back as an input.

The effects of one attempt happen one after the other, so that a new slice finds its array
submitted; only a cancel overtakes, and ends a staging that is under way. A scheduler that cannot
be asked is asked again: nothing is concluded from its silence.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from federation.environment import Clock
from federation.jobs import JobSpec
from federation.refusals import Refusal, RefusalCode
from federation.traces import TRACEPARENT
from regional_agent.act.backends.https_blobs import HttpsBlobs
from regional_agent.act.blobs import BlobUnavailable, BlobUnknown
from regional_agent.act.cache import MAX_BLOB_BYTES
from regional_agent.act.schedulers.port import (
    NEVER,
    Fencing,
    Imaging,
    LaunchOrder,
    LocalScheduler,
    SchedulerUnavailable,
)
from regional_agent.act.stage import (
    Collected,
    StageFile,
    Stager,
    StageRequest,
    digests_of,
)
from regional_agent.contact import Contact
from regional_agent.session import actions as act
from regional_agent.session import inputs
from regional_agent.session.admission import on_one_node
from regional_agent.session.events import Output
from regional_agent.session.ledger import Place, Request
from regional_agent.translate import view_of
from regional_agent.warming import Warming

RETRY_FIRST_S = 0.1
RETRY_MAX_S = 5.0
STAGE_TRIES = 5
UPLOAD_TRIES = 8
CHECKPOINT = "TRADEWIND_CHECKPOINT"
"""Where a job finds what it kept of itself."""
NO_CONTACT = "no contact with a leader for too long before it was started"
_log = logging.getLogger(__name__)
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Means:
    """What effects are carried out with. `connected`: a session stands; `env`: what every job
    here finds in its environment."""

    scheduler: LocalScheduler
    stager: Stager
    blobs: HttpsBlobs
    clock: Clock
    connected: Callable[[], bool]
    contact: Contact
    env: tuple[tuple[str, str], ...] = ()


class Effects:
    """Carries effects out; `put` takes what became of them."""

    def __init__(self, means: Means, put: Callable[[inputs.Input], None]) -> None:
        self._means = means
        self._put = put
        self._chains: dict[str, asyncio.Task[None]] = {}
        self._staging: dict[str, asyncio.Task[bool]] = {}
        self._loose: set[asyncio.Task[None]] = set()
        self._warming = Warming(
            means.stager, means.blobs, means.scheduler, lambda: not self._staging
        )

    def start(self, effect: act.Effect) -> None:
        """Begin; returns at once."""
        if isinstance(effect, act.Cancel | act.Withdraw):
            staging = self._staging.get(effect.uid)
            if staging is not None:
                staging.cancel()
        if isinstance(effect, act.Cancel):
            task = asyncio.create_task(self._cancel(effect))
            self._loose.add(task)
            task.add_done_callback(self._loose.discard)
            return
        if isinstance(effect, act.Warm):
            self._warming.begin(effect)
            return
        assert not isinstance(effect, act.Complain), "told to the broker, not done here"
        if isinstance(effect, act.Launch):
            self._warming.overtaken(effect.job)
        uid = effect.uid
        task = asyncio.create_task(self._after(self._chains.get(uid), effect))
        self._chains[uid] = task
        task.add_done_callback(lambda done: self._finished(uid, done))

    async def close(self) -> None:
        """Stop where it stands; what was begun is taken up again at the next start."""
        self._warming.close()
        tasks = [*self._chains.values(), *self._loose, *self._warming.tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _finished(self, uid: str, task: asyncio.Task[None]) -> None:
        if self._chains.get(uid) is task:
            del self._chains[uid]
        if not task.cancelled() and task.exception() is not None:
            _log.error("%s: an effect failed", uid, exc_info=task.exception())

    async def _after(self, before: asyncio.Task[None] | None, effect: act.Effect) -> None:
        if before is not None:
            await asyncio.wait([before])
        if isinstance(effect, act.Launch):
            await self._launch(effect)
        elif isinstance(effect, act.Withdraw):
            await self._withdraw(effect)
        elif isinstance(effect, act.Reslice):
            await self._reslice(effect)
        elif isinstance(effect, act.Collect):
            await self._collect(effect)
        elif isinstance(effect, act.Look):
            await self._look(effect)
        elif isinstance(effect, act.Clear):
            await self._clear(effect)

    # Launch ---------------------------------------------------------------------------------

    async def _launch(self, launch: act.Launch) -> None:
        scheduler = self._means.scheduler
        there = launch.staged
        if launch.look_first and not there:
            there = bool(await _insist(lambda: scheduler.find(launch.uid)))
        contact = self._means.contact
        contact.begin(launch.uid, 0 if there else launch.placement.fence_after_s, launch.contact_s)
        try:
            if not there and not await self._staged(launch):
                return
            contact_s = contact.of(launch.uid)
            if contact_s is None:
                self._put(inputs.LaunchRefused(launch.uid, RefusalCode.FENCED, NO_CONTACT))
                return
            order = launch_order(launch, self._means.env, contact_s)
            answer = await _insist(lambda: scheduler.submit(order))
        finally:
            contact.end(launch.uid)
        if isinstance(answer, Refusal):
            self._put(inputs.LaunchRefused(launch.uid, answer.code, answer.text))
        else:
            self._put(inputs.Submitted(launch.uid, answer.local_id))

    async def _staged(self, launch: act.Launch) -> bool:
        """Whether everything is laid; a cancel may end this."""
        task = asyncio.create_task(self._stage(launch))
        self._staging[launch.uid] = task
        try:
            return await task
        except asyncio.CancelledError:
            current = asyncio.current_task()
            if current is not None and current.cancelling():
                raise
            return False  # the cancel tells the scheduler, which then says that it ended
        finally:
            del self._staging[launch.uid]

    async def _stage(self, launch: act.Launch) -> bool:
        began_s = self._means.clock.monotonic_s()
        request = stage_request(launch.uid, launch.spec)
        fetched = cached = 0
        if request is not None:
            hashes = digests_of(request)
            self._means.blobs.grant(hashes, launch.ticket)
            try:
                laid = await self._lay(request)
            finally:
                self._means.blobs.revoke(hashes, launch.ticket)
            if isinstance(laid, Refusal):
                self._put(inputs.LaunchRefused(launch.uid, laid.code, laid.text))
                return False
            fetched, cached = laid
        if launch.spec.image is not None and not await self._have_image(launch):
            return False
        took_ms = round((self._means.clock.monotonic_s() - began_s) * 1000)
        self._put(inputs.Staged(launch.uid, took_ms, fetched, cached))
        return True

    async def _have_image(self, launch: act.Launch) -> bool:
        scheduler, image = self._means.scheduler, launch.spec.image or ""
        if not isinstance(scheduler, Imaging):
            return True
        refused = await scheduler.prepare_image(launch.uid, image)
        if refused is not None:
            self._put(inputs.LaunchRefused(launch.uid, refused.code, refused.text))
        return refused is None

    async def _lay(self, request: StageRequest) -> tuple[int, int] | Refusal:
        """A source that cannot be reached is tried again for a while."""
        for tried in range(STAGE_TRIES):
            laid = await self._means.stager.stage(request)
            if not isinstance(laid, Refusal):
                return laid.fetched_bytes, laid.cached_bytes
            if laid.code is not RefusalCode.STAGE_FAILED or tried == STAGE_TRIES - 1:
                return laid
            await asyncio.sleep(_wait_s(tried))
        raise AssertionError("the last try returns")

    # The others -----------------------------------------------------------------------------

    async def _cancel(self, cancel: act.Cancel) -> None:
        await _insist(lambda: self._means.scheduler.cancel(cancel.uid, cancel.grace_s))

    async def _withdraw(self, withdraw: act.Withdraw) -> None:
        """After a submission under way: what that starts has begun."""
        if not await _insist(lambda: self._means.scheduler.withdraw(withdraw.uid)):
            self._put(inputs.StaysHere(withdraw.uid))

    async def _reslice(self, wanted: act.Reslice) -> None:
        answer = await _insist(
            lambda: self._means.scheduler.set_slice(wanted.uid, wanted.tasks, wanted.width)
        )
        head = (wanted.uid, wanted.dispatch_seq)
        if isinstance(answer, Refusal):
            self._put(inputs.SliceIs(*head, None, answer.text))
        else:
            self._put(inputs.SliceIs(*head, answer))

    async def _look(self, look: act.Look) -> None:
        scheduler = self._means.scheduler
        local_id = await _insist(lambda: scheduler.find(look.uid))
        self._put(inputs.Looked(look.uid, local_id or ""))
        if local_id:
            states = await _insist(lambda: scheduler.status([look.uid]))
            self._put(inputs.LocalChanged((view_of(states[look.uid]),)))

    async def _clear(self, clear: act.Clear) -> None:
        try:
            await _insist(lambda: self._means.scheduler.forget(clear.uid))
        except ValueError as problem:  # it has not ended there: kept, and asked for again
            _log.warning("%s is not cleared: %s", clear.uid, problem)
            return
        self._put(inputs.Forgotten(clear.uid))

    # Results --------------------------------------------------------------------------------

    async def _collect(self, collect: act.Collect) -> None:
        scheduler = self._means.scheduler
        extents = await _insist(lambda: scheduler.log_extents(collect.uid))
        logs = tuple((extent.stream, extent.bytes) for extent in extents)
        outputs: list[Output] = []
        notes: list[str] = []
        if collect.paths:
            outputs, notes = await self._outputs(collect)
        self._put(inputs.Collected(collect.uid, tuple(outputs), logs, "; ".join(notes)))

    async def _outputs(self, collect: act.Collect) -> tuple[list[Output], list[str]]:
        try:
            files = await self._means.stager.collect(collect.uid, collect.paths)
        except (ValueError, OSError) as problem:
            return [], [f"outputs were not collected: {problem}"]
        done: list[Output] = []
        notes: list[str] = []
        for file in files:
            problem_text = await self._upload(file, collect.ticket)
            if problem_text:
                notes.append(f"output {file.path}: {problem_text}")
            else:
                done.append(Output(file.path, file.sha256, file.size_bytes, file.mode))
        if not files:
            notes.append("no file matches outputs")
        return done, notes

    async def _upload(self, file: Collected, ticket: bytes) -> str:
        """Why a file is not at the broker; empty when it is. A broker that is away is waited
        for: the end could not be told either."""
        if file.size_bytes > MAX_BLOB_BYTES:
            return f"{file.size_bytes} bytes, at most {MAX_BLOB_BYTES}"
        sink = self._means.blobs.sink(ticket)
        tried = 0
        while True:
            try:
                await sink.put(file.sha256, file.file, file.size_bytes)
                return ""
            except (BlobUnknown, OSError) as problem:
                return str(problem)
            except BlobUnavailable as problem:
                tried += 1 if self._means.connected() else 0
                if tried >= UPLOAD_TRIES:
                    return str(problem)
                await asyncio.sleep(_wait_s(max(1, tried)))


def launch_order(
    launch: act.Launch, env: tuple[tuple[str, str], ...], contact_s: float = NEVER
) -> LaunchOrder:
    """An accepted attempt as the scheduler takes it; `contact_s` is the last one it had."""
    spec, placement = launch.spec, launch.placement
    array = bool(placement.tasks)
    if launch.traceparent:
        env = (*env, (TRACEPARENT, launch.traceparent))
    if spec.checkpoint is not None:
        env = (*env, (CHECKPOINT, spec.checkpoint.path))
    return LaunchOrder(
        uid=launch.uid,
        job=launch.job,
        tenant=launch.tenant,
        argv=spec.command or (),
        run=spec.run or "",
        env=env + tuple(spec.env.items()),
        accelerator=placement.accelerator,
        cpus_milli=placement.cpus_milli_per_replica,
        memory_bytes=placement.memory_bytes_per_replica,
        max_runtime_s=placement.max_runtime_s,
        grace_s=placement.stop_grace_s,
        replicas=max(1, placement.replicas),
        one_node=on_one_node(spec),
        own_nodes=bool(spec.apart_on_nodes),
        tasks=placement.tasks if array else None,
        width=max(1, placement.width) if array else 1,
        places=launch.reservation.places or nominal_places(launch.reservation.request),
        fence_after_s=placement.fence_after_s,
        contact_s=contact_s,
        network=spec.resources.network or bool(spec.ports),
        image=spec.image or "",
        keep=tuple(output.path for output in spec.outputs if output.to is None),
        queued=placement.queued and not launch.reservation.places,
        features=spec.resources.features,
        extras=tuple(sorted(spec.resources.extras.items())),
    )


def nominal_places(request: Request) -> tuple[Place, ...]:
    """What waits in the site's queue sits nowhere yet: only its pool, and how many accelerators
    each replica takes, is said."""
    place = Place(request.pool, 0, tuple(range(request.accelerators)))
    return (place,) * (request.replicas * request.width)


def stage_request(uid: str, spec: JobSpec) -> StageRequest | None:
    """What has to be laid; None for nothing, which costs nothing."""
    if spec.workdir is None and not spec.files:
        return None
    return StageRequest(
        uid=uid,
        workdir_sha256=spec.workdir.archive if spec.workdir else "",
        files=tuple(StageFile(f.path, f.sha256, f.mode) for f in spec.files),
    )


def _wait_s(tried: int) -> float:
    return min(RETRY_FIRST_S * 2.0**tried, RETRY_MAX_S)


async def _insist(ask: Callable[[], Awaitable[_T]]) -> _T:
    """Ask the scheduler until it answers."""
    tried = 0
    while True:
        try:
            return await ask()
        except SchedulerUnavailable as problem:
            if tried in (0, 8):
                _log.warning("the local scheduler does not answer: %s", problem)
            await asyncio.sleep(_wait_s(tried))
            tried = min(tried + 1, 16)


async def keep_contact(scheduler: LocalScheduler, contact: Contact) -> None:
    """Tell a scheduler that keeps contact deadlines of every contact, for ever."""
    if not isinstance(scheduler, Fencing):
        return
    while True:
        await contact.renewed.wait()
        contact.renewed.clear()
        try:
            await scheduler.contact(contact.at_s)
        except SchedulerUnavailable:
            contact.renewed.set()
            await asyncio.sleep(RETRY_FIRST_S)


async def follow(scheduler: LocalScheduler, put: Callable[[inputs.Input], None]) -> None:
    """Hand over whatever changes at the scheduler, for ever."""
    while True:
        with contextlib.suppress(SchedulerUnavailable):
            async for changes in scheduler.changes():
                put(inputs.LocalChanged(tuple(view_of(change.state) for change in changes)))
        await asyncio.sleep(RETRY_FIRST_S)
