"""Stopping what runs, for others or for a better place: only as far as operators let it.

`freeze` lets nothing be stopped. A cycle that would take more than a set share from its users waits
until an operator approves it by name; what is approved is that list of attempts, no other.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field

from broker.control.freeze_record import Proposal, read_freeze, read_proposal
from broker.control.round import Round
from broker.decide.admission.making_room import Stop, Stops
from broker.lifecycle import events as ev
from broker.model.jobs import Desired, OutcomeKind
from broker.state import keys
from broker.state.group_commit import GroupCommitter
from broker.state.projection import Projection
from federation.kv import Delete, Op, Put, StoreError
from federation.wire import records as pb

SCHEMA = 1
log = logging.getLogger("tradewind.disturbing")


@dataclass(frozen=True, slots=True)
class Preemptions:
    """Attempts to be stopped for others, as of one cycle."""

    stops: tuple[Stop, ...]

    def fold(self, round_: Round, leader: object) -> None:
        """Fold them in, as far as nobody stopped them meanwhile."""
        for stop in self.stops:
            job = round_.draft.job(stop.attempt.job)
            uid = stop.attempt.uid
            attempt = job.attempt(uid) if job else None
            if job is None or attempt is None or not attempt.live:
                continue
            if attempt.desired is not Desired.STOP:
                kind = OutcomeKind.MOVED if stop.moves else OutcomeKind.PREEMPTED
                event = ev.StopDecided(uid, kind, stop.why)
                round_.contain(uid, round_.fold, job, event)

    def applied(self, round_: Round) -> None:
        """Nothing more to do."""


@dataclass(slots=True)
class Disturbing:
    """Decides for one leadership what is stopped of what admission wants stopped."""

    projection: Projection
    committer: GroupCommitter
    share_max: float
    alarm: Callable[[str], None]
    _told: str = field(default="")

    @property
    def frozen(self) -> bool:
        """Whether everything is to stay where it is."""
        return read_freeze(self.projection).frozen

    async def decide(self, stops: Stops, cycle: str, now_ms: int) -> Preemptions | None:
        """What is to be stopped now, to be folded in by the leader; None = nothing."""
        freeze, proposal = read_freeze(self.projection), read_proposal(self.projection)
        wanted = frozenset(stop.attempt.uid for stop in stops.stops)
        if not wanted:
            await self._withdraw(proposal)
            return None
        if freeze.frozen:
            return None
        # One attempt may always go: a small federation must not wait for people each time.
        if len(wanted) > 1 and stops.share > self.share_max:
            known = proposal is not None and wanted <= proposal.attempts
            approved = proposal is not None and freeze.approved_cycle == proposal.cycle
            if not (known and approved):
                if not known:
                    await self._propose(stops, cycle, now_ms)
                return None
        await self._withdraw(proposal)
        return Preemptions(stops.stops)

    async def _propose(self, stops: Stops, cycle: str, now_ms: int) -> None:
        found = pb.ProposalRecord(
            schema=SCHEMA,
            cycle=cycle,
            at_ms=now_ms,
            attempts=sorted(stop.attempt.uid for stop in stops.stops),
            accelerators=stops.accelerators,
            in_use=stops.in_use,
            why=stops.stops[0].why,
        )
        if await self._write(Put(keys.PROPOSAL, found.SerializeToString())):
            self.alarm(
                f"cycle {cycle} would stop {len(stops.stops)} attempts with {stops.accelerators} "
                f"of {stops.in_use} accelerators in use and waits: tradewind freeze approve {cycle}"
            )

    async def _withdraw(self, proposal: Proposal | None) -> None:
        if proposal is not None:
            await self._write(Delete(keys.PROPOSAL))

    async def _write(self, op: Op) -> bool:
        try:
            result = await self.committer.commit((), (op,))
        except StoreError as error:
            log.warning("the proposal is not written: %s", error)
            return False
        self.projection.fold_own(result.revision, (op,))
        return True

