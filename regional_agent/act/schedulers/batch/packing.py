"""Single jobs that come together and are alike go to the batch system as one array.

The first of them waits a moment for others; while two submissions of a kind are under way the next
ones gather, so a stream of jobs makes larger packs, not more calls. The order of things is that of
a job of its own: written down, handed over, its answer written down; what may be there already is
looked for by name and tag before it is handed over again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from federation.environment import Clock
from federation.refusals import Refusal, RefusalCode
from federation.runs import Runs
from regional_agent.act.keeper.layout import AttemptDir
from regional_agent.act.schedulers.batch import laying, packs
from regional_agent.act.schedulers.batch.attempt import Attempt, lay_dirs
from regional_agent.act.schedulers.batch.pack import Pack
from regional_agent.act.schedulers.batch.system import (
    BatchSystem,
    Packing,
    Submission,
    Traits,
)
from regional_agent.act.schedulers.port import LaunchOrder, Submitted

GATHER_S = 0.01
AT_ONCE = 2
"""Packs of one kind under way together."""
Answers = dict[str, Submitted | Refusal]


@dataclass(frozen=True, slots=True)
class Desk:
    """What a packer works with. `room` bounds the submissions under way; `told` hears of attempts
    that have been handed over."""

    state: Path
    env: tuple[tuple[str, str], ...]
    system: BatchSystem
    clock: Clock
    reached: Callable[[str], None]
    room: asyncio.Semaphore
    told: Callable[[Attempt], None]


@dataclass(slots=True)
class _Lane:
    """Orders of one kind: those that gather, and how many packs of the kind are under way."""

    room: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(AT_ONCE))
    orders: list[LaunchOrder] = field(default_factory=list)
    gathering: asyncio.Task[Answers] | None = None
    users: int = 0


class Packer:
    """Keeps its attempts in `attempts`, which are those of the scheduler."""

    def __init__(self, desk: Desk, attempts: dict[str, Attempt]) -> None:
        self._desk = desk
        self._attempts = attempts
        self._lanes: dict[Hashable, _Lane] = {}
        self._tasks: set[asyncio.Task[Answers]] = set()

    async def together(self, order: LaunchOrder, traits: Traits) -> Submitted | Refusal | None:
        """The answer for an order that goes, or went, together with others. Raises
        SchedulerUnavailable."""
        attempt = self._attempts.get(order.uid)
        if attempt is None:
            return await self.join(order, traits)
        done = attempt.cancel is not None or attempt.outcome is not None
        if attempt.pack is None or done or attempt.parts[0].local_id:
            return None
        return (await self.hand_over(attempt.pack, traits)).get(order.uid)

    async def join(self, order: LaunchOrder, traits: Traits) -> Submitted | Refusal | None:
        """Hand an order over together with others. None: it goes alone, because no other came or
        it is like no other. Raises SchedulerUnavailable."""
        system = self._desk.system
        if not isinstance(system, Packing) or order.tasks is not None or order.fence_after_s:
            return None
        kind = await system.alike(order)
        if kind is None:
            return None
        lane = self._lanes.setdefault(kind, _Lane())
        full = system.pack_max(_uids([*lane.orders, order])) <= len(lane.orders)
        if lane.gathering is None or full:
            lane.orders = []
            lane.gathering = asyncio.create_task(self._gathered(lane, lane.orders, traits))
            self._tasks.add(lane.gathering)
            lane.gathering.add_done_callback(self._tasks.discard)
        lane.orders.append(order)
        lane.users += 1
        try:
            return (await asyncio.shield(lane.gathering)).get(order.uid)
        finally:
            lane.users -= 1
            if not lane.users:
                self._lanes.pop(kind, None)

    async def close(self) -> None:
        """Stop where it stands; what was begun is found again."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _gathered(
        self, lane: _Lane, orders: list[LaunchOrder], traits: Traits
    ) -> Answers:
        await asyncio.sleep(GATHER_S)
        async with lane.room:
            if lane.orders is orders:  # nobody joins any more
                lane.gathering = None
            return await self._send(orders, traits)

    async def _send(self, orders: Sequence[LaunchOrder], traits: Traits) -> Answers:
        """What became of each. One that was cancelled meanwhile is known and not sent."""
        fresh = [order for order in orders if order.uid not in self._attempts]
        system = self._desk.system
        assert isinstance(system, Packing), "only its orders gather"
        answers: Answers = {}
        while len(fresh) > 1:
            some = fresh[: max(1, min(system.pack_max(_uids(fresh)), traits.array_max))]
            fresh = fresh[len(some) :]
            if len(some) > 1:
                answers |= await self._begin(some, traits)
        return answers

    async def _begin(self, orders: Sequence[LaunchOrder], traits: Traits) -> Answers:
        desk, now_ms = self._desk, self._desk.clock.now_ms()
        name = f"{orders[0].uid}.p{now_ms:x}"
        try:
            await asyncio.to_thread(self._lay, name, orders, traits)
            desk.reached("order-written")
            pack = await asyncio.to_thread(packs.begin, desk.state, name, orders, now_ms)
        except OSError as problem:
            refused = Refusal(RefusalCode.DISK_FULL, orders[0].uid, available=str(problem))
            return {order.uid: refused for order in orders}
        for attempt in packs.attempts_of(desk.state, pack, orders):
            known = self._attempts.get(attempt.uid)
            attempt.cancel = known.cancel if known else None  # cancelled while this was written
            self._attempts[attempt.uid] = attempt
        desk.reached("intent-written")
        return await self.hand_over(pack, traits)

    async def hand_over(self, pack: Pack, traits: Traits) -> Answers:
        """Submit a pack that is not there yet; however many of its attempts ask, once. Raises
        SchedulerUnavailable."""
        async with pack.handing_over:
            if pack.answers:
                return pack.answers
            desk = self._desk
            made = [a for uid in pack.members if (a := self._attempts.get(uid)) and a.pack is pack]
            found = None
            if pack.tried:  # an earlier try may have come through
                found = await desk.system.look(pack.name, pack.tag, pack.root)
                if found is None:
                    orders = [attempt.order for attempt in made]
                    await asyncio.to_thread(self._lay, pack.name, orders, traits, pack.members)
            pack.tried = True
            if found is None:
                async with desk.room:
                    answer = await desk.system.submit(_submission(pack, made[0].order))
                if isinstance(answer, Refusal):
                    pack.answers = await self._refused(pack, made, answer, traits)
                    return pack.answers
                found = answer
                desk.reached("handed-over")
            await asyncio.to_thread(pack.write_local_id, found)
            desk.reached("recorded")
            pack.local_id = found
            for attempt in made:
                self._handed_over(attempt, found)
            pack.answers = {a.uid: Submitted(a.local_id, fresh=True) for a in made}
            return pack.answers

    def _handed_over(self, attempt: Attempt, local_id: str) -> None:
        (part,) = attempt.parts
        part.local_id = local_id
        part.submitted_s = asyncio.get_running_loop().time()
        if attempt.cancel is not None:
            attempt.stopped_s = 0.0
        self._desk.told(attempt)

    async def _refused(
        self, pack: Pack, made: Sequence[Attempt], refusal: Refusal, traits: Traits
    ) -> Answers:
        """Nothing of it ran and nothing is kept. Fewer may go through where a limit refused so
        many."""
        for attempt in made:
            del self._attempts[attempt.uid]
        await asyncio.to_thread(pack.remove)
        orders = [attempt.order for attempt in made]
        if refusal.code is not RefusalCode.SITE_LIMIT:
            await asyncio.to_thread(laying.clear, self._desk.state, _uids(orders))
            return {uid: replace(refusal, subject=uid) for uid in _uids(orders)}
        half = len(orders) // 2
        return await self._send(orders[:half], traits) | await self._send(orders[half:], traits)

    def _lay(
        self,
        name: str,
        orders: Sequence[LaunchOrder],
        traits: Traits,
        members: Sequence[str] = (),
    ) -> None:
        """The files the scripts need."""
        state = self._desk.state
        for order in orders:
            place = AttemptDir(state, order.uid)
            lay_dirs(place)
            laying.lay_program(place, order, self._desk.env)
        laying.lay_pack(state, name, members or _uids(orders), orders[0], traits)


def _submission(pack: Pack, order: LaunchOrder) -> Submission:
    count = len(pack.members)
    return Submission(
        name=pack.name,
        tag=pack.tag,
        order=order,
        script=pack.script,
        work=pack.root,
        log=pack.log,
        indices=Runs(((0, count - 1),)),
        width=count,
        members=pack.members,
    )


def _uids(orders: Sequence[LaunchOrder]) -> tuple[str, ...]:
    return tuple(order.uid for order in orders)
