"""A site in memory around the pure conversation: a journal that keeps what was committed, a
scheduler that remembers what it was given, and a crash that forgets everything else."""

from __future__ import annotations

from dataclasses import replace

from federation.jobs import canonical_bytes, parse_job_spec, spec_digest
from federation.runs import Runs
from federation.tickets import Ticket, TicketSigner, sign_ticket
from regional_agent.session import actions as act
from regional_agent.session import inputs
from regional_agent.session.admission import SiteRules
from regional_agent.session.commands import Dispatch, Placement
from regional_agent.session.conversation import Conversation, Remembered, Restored
from regional_agent.session.events import Event
from regional_agent.session.inputs import End, LocalView, Now
from regional_agent.session.ledger import Ledger, Pool

SIGNER = TicketSigner.from_seed(b"s" * 32)
RULES = SiteRules("eu", frozenset({"array", "gang"}))
POOLS = (Pool("cpu", "CPU", 1, 8, 8_000, 8 * 2**30),)
NOW_MS = 1_000_000
ONE = Runs(((0, 0),))


def now(ms: int = NOW_MS) -> Now:
    return Now(ms, ms)


def dispatch(uid: str, seq: int = 1, *, epoch: int = 1, **more) -> Dispatch:
    spec = canonical_bytes(parse_job_spec(more.pop("spec", {"run": "true"})))
    ticket = Ticket(
        uid=uid,
        job=uid.rpartition("-")[0],
        epoch=epoch,
        cluster="eu",
        tenant="lab",
        subject="user:ann",
        spec_sha256=spec_digest(spec),
        not_after_ms=NOW_MS + 600_000,
    )
    ticket = replace(ticket, **more.pop("in_ticket", {}))
    placement = Placement("cpu", accelerators_per_replica=1, cpus_milli_per_replica=1_000)
    placement = replace(placement, **more.pop("placement", {}))
    adopt_only = more.pop("adopt_only", False)
    return Dispatch(seq, uid, sign_ticket(ticket, SIGNER), spec, placement, adopt_only)


class Disk:
    """What survives a crash of the agent: rows by uid, events by number."""

    def __init__(self) -> None:
        self.rows: dict[str, Remembered] = {}
        self.events: dict[int, Event] = {}
        self.event_seq = 0
        self.acked = 0
        self.dispatch_seq = 0
        self.epoch = 0

    def commit(self, writes: list[act.Write]) -> None:
        for write in writes:
            self._apply(write)

    def _apply(self, write: act.Write) -> None:
        if isinstance(write, act.Accept):
            c = write.command
            assert c.uid not in self.rows, "accepted once"
            self.rows[c.uid] = Remembered(
                c.uid,
                c.dispatch_seq,
                write.epoch,
                c.ticket,
                c.spec,
                c.placement,
                write.reservation,
                write.accepted_ms,
                "accepted",
                b"",
                0,
            )
        elif isinstance(write, act.Remember):
            row = self.rows[write.uid]
            assert row.ended_seq == 0, "a tombstone does not move"
            self.rows[write.uid] = replace(row, state=write.state, detail=write.detail)
        elif isinstance(write, act.Retake):
            row = self.rows[write.uid]
            self.rows[write.uid] = replace(row, epoch=write.epoch, ticket=write.ticket)
        elif isinstance(write, act.Tell):
            self._tell(write)
        elif isinstance(write, act.Acknowledge):
            self.acked = max(self.acked, write.event_seq)
            self.events = {s: e for s, e in self.events.items() if s > self.acked}
        elif isinstance(write, act.Take):
            self.dispatch_seq = max(self.dispatch_seq, write.dispatch_seq)
            self.epoch = max(self.epoch, write.epoch)
        elif isinstance(write, act.NumberFrom):
            self.event_seq = max(self.event_seq, write.event_seq)
        elif isinstance(write, act.Drop):
            assert 0 < self.rows[write.uid].ended_seq <= self.acked
            del self.rows[write.uid]

    def _tell(self, write: act.Tell) -> None:
        self.event_seq += 1
        assert write.event_seq == self.event_seq, "journal and conversation count alike"
        self.events[write.event_seq] = write.event
        if write.last:
            row = self.rows[write.event.uid]
            self.rows[row.uid] = replace(
                row, state="ended", detail=write.detail, ended_seq=write.event_seq
            )

    def restored(self) -> Restored:
        return Restored(
            tuple(self.rows.values()),
            {seq: event.uid for seq, event in self.events.items()},
            self.event_seq,
            self.acked,
            self.dispatch_seq,
            self.epoch,
        )


class SiteWorld:
    """`told` is everything ever committed for the broker, in order."""

    pools = POOLS

    def __init__(self) -> None:
        self.disk = Disk()
        self.told: list[tuple[int, Event]] = []
        self.effects: list[act.Effect] = []
        self.views: dict[str, LocalView] = {}
        self.launches: list[str] = []
        self.start()

    def start(self) -> None:
        self.effects = []
        self.talk = Conversation(RULES, Ledger(self.pools), self.disk.restored())
        do = act.Actions()
        asked = self.talk.asked
        self.talk.recovered({uid: self.view(uid) for uid in asked}, now(), do)
        self._finish(do)

    def crash(self, happened: inputs.Input | None = None) -> None:
        """Lose what is in memory; `happened` was taken, but not committed."""
        if happened is not None:
            self.talk.take(happened, now(), act.Actions())
        self.start()

    def welcome(self, epoch: int = 1, resume: int | None = None, **more) -> None:
        self.take(
            inputs.SessionStands(
                epoch,
                {SIGNER.kid: SIGNER.public_key},
                self.disk.acked if resume is None else resume,
                more.pop("disk_replaced", False),
            )
        )

    def send(self, *commands, epoch: int = 1, ack: int = 0) -> list[act.Effect]:
        return self.take(inputs.UpdateArrived(epoch, commands, ack))

    def ack(self) -> None:
        self.send(ack=self.disk.event_seq)

    def take(self, happened: inputs.Input, ms: int = NOW_MS) -> list[act.Effect]:
        do = act.Actions()
        self.talk.take(happened, now(ms), do)
        self._finish(do)
        return do.effects

    def _finish(self, do: act.Actions) -> None:
        self.disk.commit(do.writes)
        self.told += [(w.event_seq, w.event) for w in do.writes if isinstance(w, act.Tell)]
        self.effects += do.effects

    # The scheduler --------------------------------------------------------------------------------

    def view(self, uid: str) -> LocalView:
        return self.views.get(uid) or LocalView(uid, "unknown", Runs(), Runs())

    def submit(self, uid: str) -> None:
        """What a scheduler does with a submit: the second one changes nothing."""
        if uid not in self.views:
            self.launches.append(uid)
            self.views[uid] = LocalView(uid, "queued", ONE, Runs(), submitted_ms=NOW_MS)

    def cancel(self, uid: str) -> None:
        seen = self.views.get(uid)
        if seen is None or seen.phase != "ended":
            base = seen or LocalView(uid, "queued", ONE, Runs())
            self.views[uid] = replace(
                base, phase="ended", running=Runs(), outcome=End("cancelled"), ended_ms=NOW_MS
            )

    def begin(self, uid: str) -> None:
        if self.views[uid].phase == "queued":
            self.views[uid] = replace(
                self.views[uid],
                phase="running",
                unstarted=Runs(),
                running=ONE,
                started_ms=NOW_MS + 5,
            )

    def finish(self, uid: str, kind: str = "succeeded", code: int = 0) -> None:
        if self.views[uid].phase == "running":
            end = End(kind, code)
            self.views[uid] = replace(
                self.views[uid],
                phase="ended",
                running=Runs(),
                ended=((end, ONE),),
                outcome=end,
                ended_ms=NOW_MS + 9,
                wall_ms=4,
            )

    def look(self, *uids: str) -> list[act.Effect]:
        seen = tuple(self.views[uid] for uid in uids)
        return self.take(inputs.LocalChanged(seen), NOW_MS + 10)

    def run_effects(self) -> None:
        """Carry out what was asked for, until nothing more is."""
        while self.effects:
            self.one_effect()

    def one_effect(self) -> None:
        effect = self.effects.pop(0)
        if isinstance(effect, act.Launch):
            if not effect.staged:
                self.take(inputs.Staged(effect.uid, 1))
            self.submit(effect.uid)
            self.take(inputs.Submitted(effect.uid, f"local-{effect.uid}"))
        elif isinstance(effect, act.Cancel):
            self.cancel(effect.uid)
            self.look(effect.uid)
        elif isinstance(effect, act.Collect):
            self.take(inputs.Collected(effect.uid, (), (("output", 3),)))
        elif isinstance(effect, act.Look):
            found = f"local-{effect.uid}" if effect.uid in self.views else ""
            self.take(inputs.Looked(effect.uid, found))
            if found:
                self.look(effect.uid)
        elif isinstance(effect, act.Clear):
            self.views.pop(effect.uid, None)
            self.take(inputs.Forgotten(effect.uid))
        elif isinstance(effect, act.Reslice):
            self.take(inputs.SliceIs(effect.uid, effect.dispatch_seq, effect.tasks))

    def kinds(self, uid: str) -> list[str]:
        return [type(e.said).__name__ for _, e in self.told if e.uid == uid]

    def last(self, uid: str):
        return [e.said for _, e in self.told if e.uid == uid][-1]
