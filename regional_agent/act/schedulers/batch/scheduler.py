"""The local scheduler of a site with a batch system: `LocalScheduler` over a `BatchSystem`.

Every step of a submission is written down before it is taken, and a job that may be there already
is looked for by name and tag before it is handed over again. Should there be two copies all the
same, the claim its script takes lets one run.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from federation.environment import Clock
from federation.refusals import Refusal, RefusalCode
from federation.runs import Runs
from regional_agent.act.keeper.layout import STREAM_FORMAT, AttemptDir
from regional_agent.act.schedulers import log_files
from regional_agent.act.schedulers.batch import laying, shelf, taking_back
from regional_agent.act.schedulers.batch.attempt import Attempt, create
from regional_agent.act.schedulers.batch.deadlines import Deadlines
from regional_agent.act.schedulers.batch.following import Follower, Pace
from regional_agent.act.schedulers.batch.judging import tag_of
from regional_agent.act.schedulers.batch.packing import Desk, Packer
from regional_agent.act.schedulers.batch.parts import Part, plan
from regional_agent.act.schedulers.batch.system import (
    BatchSystem,
    Packing,
    Submission,
    Traits,
)
from regional_agent.act.schedulers.port import (
    Capabilities,
    LaunchOrder,
    LocalChange,
    LocalState,
    LogExtent,
    LogSlice,
    Phase,
    Submitted,
    TaskStates,
    UsageSample,
)
from regional_agent.session.ledger import Place

BATCH_S = 0.1
AT_ONCE = 8
"""Submissions under way together: more only wait for each other in the controller."""
FOUND = "found"
CRASH_POINTS = ("order-written", "intent-written", "handed-over", "recorded")


@dataclass(frozen=True, slots=True)
class BatchSettings:
    """`state`: the agent's directory, on a file system the nodes share. `env`: what every job
    finds in its environment unless its order says otherwise. `follow` False: only look at what is
    there, or stop it, beside or without the one that follows it."""

    state: Path
    env: tuple[tuple[str, str], ...] = ()
    pace: Pace = field(default_factory=Pace)
    follow: bool = True


class BatchScheduler:
    """See the module. `reached` hears of the crash points a submission passes."""

    def __init__(
        self,
        settings: BatchSettings,
        system: BatchSystem,
        clock: Clock,
        reached: Callable[[str], None] = lambda point: None,
    ) -> None:
        self._settings = settings
        self._system = system
        self._clock = clock
        self._reached = reached
        self._deadlines = Deadlines(settings.state, clock, self._changed)
        self._follower = Follower(system, settings.pace, clock, self._changed, self._deadlines)
        self._attempts = self._follower.attempts
        self._following: asyncio.Task[None] | None = None
        self._locks: dict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._room = asyncio.Semaphore(AT_ONCE)
        self._starting = asyncio.Lock()
        self._listeners: dict[asyncio.Event, dict[str, None]] = {}
        self._found: dict[str, tuple[str, int] | None] = {}
        """What the batch system has and the disk does not; with id and index if it is in a pack."""
        desk = Desk(settings.state, settings.env, system, clock, reached, self._room, self._taken)
        self._packer = Packer(desk, self._attempts)

    # Looking ------------------------------------------------------------------------------------

    async def capabilities(self) -> Capabilities:
        """See the port."""
        traits = await self._ready()
        return Capabilities(traits.kind, traits.features)

    async def find(self, uid: str) -> str | None:
        """See the port. The queue is asked only for what nothing here knows."""
        await self._ready()
        attempt = self._attempts.get(uid)
        if attempt is not None:
            return attempt.local_id
        local_id = await self._system.look(
            uid, f"tradewind:{uid}:0", AttemptDir(self._settings.state, uid).work
        )
        if local_id is not None:
            self._found[uid] = None
        elif isinstance(self._system, Packing):
            packed = await self._system.look_in_packs(uid)
            if packed is not None:
                self._found[uid] = packed
                local_id = packed[0]
        return local_id

    async def attempts(self) -> tuple[str, ...]:
        """See the port."""
        await self._ready()
        return tuple(self._attempts)

    async def status(self, uids: Collection[str]) -> Mapping[str, LocalState]:
        """See the port: no call of a client, but what claims and marks say now."""
        await self._ready()
        live = [a for uid in uids if (a := self._attempts.get(uid)) and a.outcome is None]
        await self._follower.scan(live)
        return {uid: self._state(uid) for uid in uids}

    async def read_log(self, uid: str, stream: str, offset: int, limit: int) -> LogSlice:
        """See the port."""
        match = STREAM_FORMAT.fullmatch(stream)
        if match is None:
            raise ValueError(f"not a log stream: {stream!r}")
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
        """Nothing while it runs: what it used comes with its end, from the books."""
        return {}

    async def changes(self) -> AsyncIterator[tuple[LocalChange, ...]]:
        """See the port."""
        await self._ready()
        woken = asyncio.Event()
        self._listeners[woken] = dict.fromkeys(self._attempts)
        woken.set()
        try:
            while True:
                await woken.wait()
                woken.clear()
                dirty, self._listeners[woken] = self._listeners[woken], {}
                yield tuple(LocalChange(uid, self._state(uid)) for uid in dirty)
                await asyncio.sleep(BATCH_S)
        finally:
            del self._listeners[woken]

    # Submitting ---------------------------------------------------------------------------------

    async def submit(self, order: LaunchOrder) -> Submitted | Refusal:
        """See the port. Refuses what the batch system refuses, and disk_full."""
        traits = await self._ready()
        async with self._locks[order.uid]:
            there = order.uid in self._found
            answer = None if there else await self._packer.together(order, traits)
            if answer is not None:
                return answer
            attempt = self._attempts.get(order.uid) or await self._take_on(order)
            if isinstance(attempt, Refusal):
                return attempt
            if order.fence_after_s:
                await self._deadlines.look(self._follower.live, order.contact_s)
            if attempt.cancel is not None or attempt.outcome is not None:
                self._follower.wake()
                return Submitted(attempt.local_id, fresh=False)
            fresh = not any(part.local_id for part in attempt.parts)
            if not attempt.parts:
                attempt.parts = plan(attempt.order, attempt.tasks, attempt.width, traits)
                if order.uid in self._found:  # of a disk that was lost: it is looked for again
                    env = self._settings.env
                    await asyncio.to_thread(laying.lay_again, attempt.place, order, env)
                    self._as_found(attempt.parts[0], self._found[order.uid])
            refused = await self._hand_over(attempt, traits)
            return refused or Submitted(attempt.local_id, fresh)

    def _as_found(self, part: Part, packed: tuple[str, int] | None) -> None:
        part.intended_ms = self._clock.now_ms()
        if packed is not None:
            part.local_id, part.first_index = packed
            part.table, part.pack = True, FOUND

    async def _take_on(self, order: LaunchOrder) -> Attempt | Refusal:
        place = AttemptDir(self._settings.state, order.uid)
        try:
            attempt = await asyncio.to_thread(create, place, order, self._clock.now_ms())
        except OSError as problem:
            return Refusal(RefusalCode.DISK_FULL, order.uid, available=str(problem))
        self._attempts[order.uid] = attempt
        self._reached("order-written")
        return attempt

    async def _hand_over(self, attempt: Attempt, traits: Traits) -> Refusal | None:
        """Submit every part that is not there yet."""
        for part in attempt.parts:
            if part.local_id:
                continue
            found = None
            if part.intended_ms:  # an earlier try may have come through
                tag, work = tag_of(attempt, part), attempt.place.work
                found = await self._system.look(_name(attempt, part), tag, work)
            if found is None:
                answer = await self._submit(attempt, part, traits)
                if isinstance(answer, Refusal):
                    return await self._refused(attempt, answer)
                found = answer
                self._reached("handed-over")
            part.local_id = found
            part.submitted_s = asyncio.get_running_loop().time()
            await asyncio.to_thread(attempt.wrote_part, part)
            self._reached("recorded")
            if attempt.cancel is not None:
                attempt.stopped_s = 0.0
        self._taken(attempt)
        return None

    async def _submit(self, attempt: Attempt, part: Part, traits: Traits) -> str | Refusal:
        if not part.intended_ms:
            usual = self._settings.env
            await asyncio.to_thread(laying.lay, attempt.place, attempt.order, part, traits, usual)
            part.intended_ms = self._clock.now_ms()
            await asyncio.to_thread(attempt.wrote_part, part)
            self._reached("intent-written")
        job = Submission(
            name=_name(attempt, part),
            tag=tag_of(attempt, part),
            order=attempt.order,
            script=attempt.place.root / f"job-{part.nth}.sh",
            work=attempt.place.work,
            log=attempt.place.root / "job.log",
            indices=part.indices if attempt.order.tasks is not None else None,
            width=part.width,
        )
        async with self._room:
            return await self._system.submit(job)

    async def _refused(self, attempt: Attempt, refusal: Refusal) -> Refusal:
        """It never ran and never will: nothing of it is kept, unless a part of it runs."""
        if not any(part.local_id for part in attempt.parts):
            del self._attempts[attempt.uid]
            await asyncio.to_thread(shelf.remove, self._settings.state, attempt.uid)
        return refusal

    async def contact(self, at_s: float) -> None:
        """See `Fencing`."""
        await self._ready()
        await self._deadlines.look(self._follower.live, at_s)

    # Changing -----------------------------------------------------------------------------------

    async def cancel(self, uid: str, grace_s: int) -> None:
        """See the port."""
        await self._ready()
        attempt, now_ms = self._attempts.get(uid), self._clock.now_ms()
        if attempt is None:
            place = AttemptDir(self._settings.state, uid)
            never = LaunchOrder(uid, "", "", argv=("/bin/false",))
            attempt = await asyncio.to_thread(create, place, never, now_ms, cancelled=True)
            self._attempts[uid] = attempt
        elif attempt.outcome is None and (attempt.cancel is None or grace_s < attempt.cancel[0]):
            await asyncio.to_thread(attempt.wrote_cancel, grace_s, now_ms)
            attempt.left_queue, attempt.stopped_s = False, 0.0
        if not self._settings.follow:
            await self._follower.scan([attempt])
            await self._follower.stop([attempt])
        self._follower.wake()

    async def withdraw(self, uid: str) -> bool:
        """See the port. Its claims decide: whoever has one first, a script or this."""
        traits = await self._ready()
        async with self._locks[uid]:
            attempt = self._attempts.get(uid)
            if attempt is not None:
                await self._follower.scan([attempt])
                if not await taking_back.all_of_it(attempt, self._system, traits):
                    if attempt.order.tasks is not None:
                        await self._hand_over(attempt, traits)
                        self._follower.wake()
                    return False
            await self.cancel(uid, 0)
            return True

    async def set_slice(
        self, uid: str, tasks: Runs, width: int, places: tuple[Place, ...] | None = None
    ) -> Runs | Refusal:
        """See the port. A task is taken back by taking its claim: who has begun keeps it."""
        traits = await self._ready()
        async with self._locks[uid]:
            attempt = self._attempts.get(uid)
            if attempt is None or attempt.order.tasks is None:
                return Refusal(RefusalCode.UNSUPPORTED, uid, available="no such array")
            await self._follower.scan([attempt])
            if attempt.outcome is not None or attempt.cancel is not None:
                return attempt.tasks
            await taking_back.drop(attempt, self._system, attempt.tasks.difference(tasks))
            added = tasks.difference(attempt.tasks)
            attempt.tasks, attempt.width = attempt.tasks.union(added), width
            await asyncio.to_thread(attempt.wrote_slice)
            if added:
                attempt.parts += plan(attempt.order, added, 0, traits, len(attempt.parts))
            refused = await self._hand_over(attempt, traits)
            if refused is not None:
                return refused
            self._follower.wake()
            self._changed(attempt)
            return attempt.tasks

    async def forget(self, uid: str) -> None:
        """See the port."""
        await self._ready()
        attempt = self._attempts.get(uid)
        if attempt is None:
            return
        if attempt.outcome is None:
            raise ValueError(f"{uid} has not ended")
        del self._attempts[uid]
        self._locks.pop(uid, None)
        await asyncio.to_thread(shelf.remove, self._settings.state, uid, attempt.pack)

    async def shut_down(self, *, kill: bool) -> None:
        """Nothing of ours runs but jobs. Raises ValueError if there are any, unless `kill`."""
        await self._ready()
        live = [attempt.uid for attempt in self._follower.live]
        if live and not kill:
            raise ValueError(f"{len(live)} attempts have not ended")
        for uid in live:
            await self.cancel(uid, 0)
        await self._follower.step()

    def look_soon(self) -> None:
        """There is news at the batch system: its queue is looked at with the next look."""
        self._follower.hurry()

    async def close(self) -> None:
        """Leave everything running."""
        await self._packer.close()
        if self._following is not None:
            self._following.cancel()
            await asyncio.gather(self._following, return_exceptions=True)
            self._following = None

    # Inside -------------------------------------------------------------------------------------

    async def _ready(self) -> Traits:
        async with self._starting:
            if self._follower.traits is None:
                traits = await self._system.traits()
                found = await asyncio.to_thread(shelf.restore_all, self._settings.state)
                self._attempts.update({attempt.uid: attempt for attempt in found})
                self._follower.traits = traits
            if self._following is None and self._settings.follow:
                self._following = asyncio.create_task(self._follower.run())
            return self._follower.traits

    def _taken(self, attempt: Attempt) -> None:
        self._follower.wake()
        self._changed(attempt)

    def _changed(self, attempt: Attempt) -> None:
        for woken, dirty in self._listeners.items():
            dirty[attempt.uid] = None
            woken.set()

    def _state(self, uid: str) -> LocalState:
        attempt = self._attempts.get(uid)
        if attempt is None:
            return LocalState(uid, Phase.UNKNOWN, TaskStates(Runs(), Runs()))
        return attempt.state()


def _name(attempt: Attempt, part: Part) -> str:
    return f"{attempt.uid}.{part.nth}" if part.nth else attempt.uid
