"""The agent's journal in memory: what of a site outlives its agent, beside the scheduler."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from federation.wire import session as pb
from regional_agent.session import actions as act
from regional_agent.session.conversation import Remembered, Restored


class MemoryJournal:
    """Each `commit` is durable as a whole. `identity` is another one when the disk is."""

    def __init__(self, identity: str) -> None:
        self.identity = identity
        self.rows: dict[str, Remembered] = {}
        self.events: dict[int, pb.Event] = {}
        self.event_seq = 0
        self.acked = 0
        self.dispatch_seq = 0
        self.epoch = 0
        self.addresses: tuple[str, ...] = ()

    def commit(self, writes: Sequence[act.Write], events: Sequence[pb.Event]) -> None:
        """Make writes durable; `events` are those of the `Tell`s, in order.

        Raises RuntimeError when journal and conversation disagree about a number.
        """
        told = iter(events)
        for write in writes:
            if isinstance(write, act.Tell):
                self._tell(write, next(told))
            elif isinstance(write, act.Take):
                self.dispatch_seq = max(self.dispatch_seq, write.dispatch_seq)
                self.epoch = max(self.epoch, write.epoch)
            elif isinstance(write, act.Acknowledge):
                self._acknowledge(min(write.event_seq, self.event_seq))
            elif isinstance(write, act.NumberFrom):
                self.event_seq = max(self.event_seq, write.event_seq)
            elif isinstance(write, act.Addresses):
                self.addresses = write.addresses
            else:
                self._row(write)

    def restored(self) -> Restored:
        """What a new life of the agent takes up."""
        rows = sorted(self.rows.values(), key=lambda r: (r.dispatch_seq, r.uid))
        return Restored(
            rows=tuple(rows),
            unacknowledged={seq: event.uid for seq, event in self.events.items()},
            event_seq=self.event_seq,
            event_seq_acked=self.acked,
            dispatch_seq=self.dispatch_seq,
            epoch=self.epoch,
        )

    def pending(self) -> Iterable[pb.Event]:
        """What the broker has not acknowledged, in order."""
        return tuple(self.events.values())

    def _tell(self, write: act.Tell, event: pb.Event) -> None:
        self.event_seq += 1
        if self.event_seq != write.event_seq:
            raise RuntimeError(f"event {write.event_seq} became {self.event_seq}")
        self.events[self.event_seq] = event
        if write.last:
            uid = write.event.uid
            self.rows[uid] = replace(
                self.rows[uid],
                state="ended",
                detail=write.detail,
                ended_seq=write.event_seq,
            )

    def _acknowledge(self, event_seq: int) -> None:
        self.acked = max(self.acked, event_seq)
        for seq in [seq for seq in self.events if seq <= event_seq]:
            del self.events[seq]

    def _row(self, write: act.Write) -> None:
        if isinstance(write, act.Accept):
            command = write.command
            if command.uid in self.rows:
                raise RuntimeError(f"{command.uid} was accepted before")
            self.rows[command.uid] = Remembered(
                command.uid,
                command.dispatch_seq,
                write.epoch,
                command.ticket,
                command.spec,
                command.placement,
                write.reservation,
                write.accepted_ms,
                "accepted",
                b"",
                0,
            )
        elif isinstance(write, act.Remember):
            row = self.rows[write.uid]
            self.rows[write.uid] = replace(row, state=write.state, detail=write.detail)
        elif isinstance(write, act.Retake):
            self.rows[write.uid] = replace(
                self.rows[write.uid],
                dispatch_seq=write.dispatch_seq,
                epoch=write.epoch,
                ticket=write.ticket,
            )
        elif isinstance(write, act.Drop):
            row = self.rows[write.uid]
            if 0 < row.ended_seq <= self.acked:
                del self.rows[write.uid]
