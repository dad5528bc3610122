"""A site that is nothing but its half of the session: it says at once that everything ran.

    python -m broker.local.bench.stub_site DIR

DIR/stub.json says where to dial and what to be; DIR holds the certificate. What it did is printed
as one JSON line whenever a line comes in on stdin; the end of stdin ends it. What is measured
with it is the broker's own path: no agent, no journal, no process is started.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc

from federation.certificates import Credential
from federation.handshake.frames import Hello
from federation.heeding import heed_cancellation
from federation.runs import Runs
from federation.session_tls import channel_credentials
from federation.system import SystemClock
from federation.wire import LOGS_METHOD, SESSION_METHOD, records, session
from federation.wire.handshake_frames import hello_to_wire

GIB = 1024**3
EVENTS_PER_FRAME = 500
EVENT_EVERY_S = 0.1
REPORT_EVERY_S = 1.05
"""A little over what the broker takes: one report a second."""
RETRY_S = 0.2
_BREAKS = (grpc.aio.AioRpcError, ConnectionError, asyncio.InvalidStateError)
FRAME_BYTES_MAX = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Stub:
    """What a stub is. `hold`: what has started never ends. `task_s`: how long each task of an
    array takes; single jobs take no time at all."""

    cluster: str
    address: str
    slots: int
    hold: bool = False
    task_s: float = 0.01


@dataclass(slots=True)
class Slice:
    """A part of an array that runs here."""

    tasks: Runs
    width: int
    epoch: int
    done: Runs = field(default_factory=Runs)
    running: Runs = field(default_factory=Runs)


@dataclass(slots=True)
class Counts:
    """What a stub did, with instants of its own monotonic clock."""

    dispatched: int = 0
    ended: int = 0
    ended_acked: int = 0
    tasks_done: int = 0
    tasks_running: int = 0
    slices_set: int = 0
    sessions: int = 0
    first_dispatch_s: float = 0.0
    last_dispatch_s: float = 0.0
    last_ack_s: float = 0.0


class StubSite:
    """One stub. Its journal is its memory: a new process is a site with a new disk."""

    def __init__(self, stub: Stub, ca_pem: bytes, credential: Credential) -> None:
        self._stub = stub
        self._ca_pem = ca_pem
        self._credential = credential
        self._clock = SystemClock()
        self._seq = 0
        self._acked = 0
        self._taken = 0
        self._journal: deque[session.Event] = deque()
        self._outgoing: deque[session.Event] = deque()
        self._ends: deque[int] = deque()
        self._held: dict[str, int] = {}
        self._slices: dict[str, Slice] = {}
        self._wake = asyncio.Event()
        self._report_due_s = 0.0
        self.counts = Counts()

    async def run(self) -> None:
        """Dial, and dial again."""
        while True:
            with contextlib.suppress(*_BREAKS):
                await self._one_session()
            heed_cancellation()
            await asyncio.sleep(RETRY_S)

    async def _one_session(self) -> None:
        options = [
            ("grpc.max_receive_message_length", FRAME_BYTES_MAX),
            ("grpc.use_local_subchannel_pool", 1),
            ("grpc.enable_http_proxy", 0),
        ]
        credentials = channel_credentials(self._ca_pem, self._credential)
        async with grpc.aio.secure_channel(self._stub.address, credentials, options) as channel:
            call: Any = channel.stream_stream(SESSION_METHOD)()
            hello = Hello(
                cluster=self._stub.cluster,
                instance=f"stub-{self.counts.sessions}",
                journal=f"stub-{self._stub.cluster}",
                event_seq=self._seq,
                event_seq_acked=self._acked,
                dispatch_seq=self._taken,
                scheduler="process",
                isolation="per-user",
                version="stub",
                sealing_key=bytes(32),
            )
            await call.write(hello_to_wire(hello).SerializeToString())
            welcome = await self._frame(call)
            if welcome.WhichOneof("body") != "welcome":
                raise ConnectionError("no welcome")
            resume = welcome.welcome.resume_event_seq
            self._outgoing = deque(e for e in self._journal if e.event_seq > resume)
            self._report_due_s = 0.0
            self.counts.sessions += 1
            logs: Any = channel.stream_stream(LOGS_METHOD)()
            await logs.write(session.LogReply(cluster=self._stub.cluster).SerializeToString())
            writing = asyncio.create_task(self._write(call, welcome.welcome.heartbeat_ms / 1000))
            try:
                while True:
                    frame = await self._frame(call)
                    if frame.WhichOneof("body") == "update":
                        self._update(frame.update)
                    else:
                        raise ConnectionError("goodbye")
            finally:
                writing.cancel()
                await asyncio.gather(writing, return_exceptions=True)

    async def _frame(self, call: Any) -> session.BrokerFrame:
        raw = await call.read()
        if not isinstance(raw, bytes):
            raise ConnectionError("the stream ended")
        return session.BrokerFrame.FromString(raw)

    # Commands in ----------------------------------------------------------------------------------

    def _update(self, update: session.BrokerUpdate) -> None:
        if update.ack_event_seq:
            self._acknowledged(update.ack_event_seq)
        for command in update.commands:
            self._taken = max(self._taken, command.dispatch_seq)
            what = command.WhichOneof("what")
            if what == "dispatch" and command.uid not in self._held:
                self._dispatch(command, update.epoch)
            elif what == "set_slice":
                self._set_slice(command, update.epoch)
            elif what == "stop" and command.uid in self._held:
                self._end(command.uid, update.epoch, "cancelled")
            elif what == "forget":
                self._held.pop(command.uid, None)
        self._wake.set()

    def _acknowledged(self, seq: int) -> None:
        self._acked = max(self._acked, seq)
        while self._journal and self._journal[0].event_seq <= seq:
            self._journal.popleft()
        while self._ends and self._ends[0] <= seq:
            self._ends.popleft()
            self.counts.ended_acked += 1
            self.counts.last_ack_s = self._clock.monotonic_s()

    def _dispatch(self, command: session.Command, epoch: int) -> None:
        uid, placement = command.uid, command.dispatch.placement
        self.counts.dispatched += 1
        self.counts.last_dispatch_s = self._clock.monotonic_s()
        self.counts.first_dispatch_s = (
            self.counts.first_dispatch_s or self.counts.last_dispatch_s
        )
        accepted = session.Accepted(dispatch_seq=command.dispatch_seq, nodes=["stub"])
        self._say(uid, epoch, accepted=accepted)
        self._say(uid, epoch, prepared=session.Prepared())
        self._say(uid, epoch, started=session.Started(local_id=uid))
        width = placement.width or placement.replicas
        self._held[uid] = width * placement.accelerators_per_replica
        if placement.width:
            tasks = Runs.of((run.first, run.last) for run in placement.tasks)
            self._slices[uid] = Slice(tasks, placement.width, epoch)
            self._advance(uid)
        elif not self._stub.hold:
            self._end(uid, epoch, "succeeded")

    def _set_slice(self, command: session.Command, epoch: int) -> None:
        asked = Runs.of((run.first, run.last) for run in command.set_slice.tasks)
        part = self._slices.get(command.uid)
        if part is not None:
            begun = part.done.union(part.running)
            part.tasks = asked.union(begun)
            part.width = command.set_slice.width or part.width
        self.counts.slices_set += 1
        told = session.SliceSet(dispatch_seq=command.dispatch_seq)
        told.tasks.extend(_runs(part.tasks if part else asked))
        self._say(command.uid, epoch, slice_set=told)
        if part is not None:
            self._advance(command.uid)

    def _advance(self, uid: str) -> None:
        """Start as many tasks as there is width for, unless some run."""
        part = self._slices[uid]
        if part.running:
            return
        part.running, _ = part.tasks.difference(part.done).take(part.width)
        if part.running:
            self.counts.tasks_running += part.running.count
            self._say(uid, part.epoch, tasks=session.TasksChanged(started=_runs(part.running)))
        if self._stub.hold:
            return
        if part.running:
            loop = asyncio.get_running_loop()
            loop.call_later(self._stub.task_s * self._rounds, self._tasks_over, uid)
        else:
            self._end(uid, part.epoch, "succeeded")

    @property
    def _rounds(self) -> int:
        """As an agent does, what happens within 100 ms is one event."""
        return max(int(EVENT_EVERY_S / self._stub.task_s), 1)

    def _tasks_over(self, uid: str) -> None:
        part = self._slices.get(uid)
        if part is None:
            return
        left = part.tasks.difference(part.done.union(part.running))
        more, _ = left.take(part.width * (self._rounds - 1))
        over = part.running.union(more)
        part.done, part.running = part.done.union(over), Runs()
        self.counts.tasks_done += over.count
        changed = session.TasksChanged(started=_runs(more), succeeded=_runs(over))
        self._say(uid, part.epoch, tasks=changed)
        self._advance(uid)
        self._wake.set()

    def _end(self, uid: str, epoch: int, kind: str) -> None:
        self._held[uid] = 0
        self._slices.pop(uid, None)
        self.counts.ended += 1
        self._say(uid, epoch, ended=session.Ended(outcome=records.Outcome(kind=kind)))
        self._ends.append(self._seq)

    def _say(self, uid: str, epoch: int, **what: Any) -> None:
        self._seq += 1
        event = session.Event(
            event_seq=self._seq, uid=uid, epoch=epoch, at_ms=self._clock.now_ms(), **what
        )
        self._journal.append(event)
        self._outgoing.append(event)

    # Frames out -----------------------------------------------------------------------------------

    async def _write(self, call: Any, heartbeat_s: float) -> None:
        beat, beat_due_s = 0, 0.0
        while True:
            self._wake.clear()
            now_s = self._clock.monotonic_s()
            events = self._gathered()
            update = session.AgentUpdate(
                events=events, sent_ms=self._clock.now_ms(), dispatch_seq=self._taken
            )
            if now_s >= beat_due_s:
                beat, beat_due_s = beat + 1, now_s + heartbeat_s
                update.heartbeat = beat
            if now_s >= self._report_due_s and not self._outgoing:
                self._report_due_s = now_s + REPORT_EVERY_S
                update.reports.append(self._capacity())
                if beat <= 1:
                    update.reports.append(self._prices())
            if events or update.heartbeat or update.reports:
                await call.write(session.AgentFrame(update=update).SerializeToString())
                continue
            until_s = min(beat_due_s, self._report_due_s) - now_s
            try:
                async with asyncio.timeout(max(until_s, 0.01)):
                    await self._wake.wait()
            except TimeoutError:
                continue

    def _gathered(self) -> list[session.Event]:
        count = min(len(self._outgoing), EVENTS_PER_FRAME)
        return [self._outgoing.popleft() for _ in range(count)]

    def _capacity(self) -> session.Report:
        slots = self._stub.slots
        free = max(slots - sum(self._held.values()), 0)
        node = records.NodeGroup(
            count=1, accelerator="CPU", total=slots, free=free,
            cpus_milli=slots * 1000, free_cpus_milli=free * 1000,
            memory_bytes=slots * 4 * GIB, free_memory_bytes=slots * 4 * GIB,
        )  # fmt: skip
        capacity = records.CapacityReport(
            as_of_ms=self._clock.now_ms(),
            reflects_dispatch_seq=self._taken,
            reflects_event_seq=self._seq,
            pools=[records.PoolCapacity(pool="cpu", groups=[node], simulated=True)],
        )
        return session.Report(capacity=capacity)

    def _prices(self) -> session.Report:
        price = records.PoolPrice(
            pool="cpu", kind="owned", marginal_micro_usd=50_000, full_micro_usd=50_000,
            as_of_ms=self._clock.now_ms(), source="typed for a measurement",
        )  # fmt: skip
        return session.Report(price=records.PriceReport(pools=[price]))


def _runs(runs: Runs) -> list[records.Run]:
    return [records.Run(first=first, last=last) for first, last in runs.runs]


# The process --------------------------------------------------------------------------------------


async def serve(directory: Path) -> None:
    """All stubs of DIR/stub.json until stdin ends; a line in, a line of counts out."""
    settings = json.loads((directory / "stub.json").read_text(encoding="utf-8"))
    ca_pem = (directory / "ca.pem").read_bytes()
    sites = [
        StubSite(Stub(**stub), ca_pem, _credential(directory, stub["cluster"]))
        for stub in settings
    ]
    running = [asyncio.create_task(site.run()) for site in sites]
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while await reader.readline():
        lines = [
            {name: getattr(site.counts, name) for name in Counts.__slots__} for site in sites
        ]
        sys.stdout.write(json.dumps(lines) + "\n")
        sys.stdout.flush()
    for task in running:
        task.cancel()


def _credential(directory: Path, cluster: str) -> Credential:
    return Credential(
        (directory / f"{cluster}.crt").read_bytes(), (directory / f"{cluster}.key").read_bytes()
    )


if __name__ == "__main__":
    asyncio.run(serve(Path(sys.argv[1])))
