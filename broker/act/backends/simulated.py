"""The gateway in virtual time: sessions over lines instead of gRPC, with the real handshake.

What a frame means, who is let in and which reports count is decided by the same code as behind
gRPC (`federation.handshake`, `incoming`, `translate`). Only the wire is another one.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

from broker.act.backends.incoming import Incoming
from broker.act.gateway import (
    Command,
    GatewayEvent,
    LogPart,
    SessionClosed,
    SessionOpened,
    SiteSilent,
)
from broker.act.session_facts import ReportReaders, SessionFactsSource
from broker.act.translate import command_to_wire
from federation.environment import Clock
from federation.handshake.frames import SILENT_HEARTBEATS_REDIAL, Goodbye, Welcome
from federation.handshake.machine import BrokerHandshake
from federation.handshake.values import (
    BrokerEvent,
    BrokerSession,
    BrokerView,
    Closed,
    EndOther,
    Established,
    FrameArrived,
    HelloArrived,
    LeavingOffice,
    LiveSession,
    Over,
    Peer,
    PeerConnected,
    Rechecked,
    Send,
    StreamEnded,
    Superseded,
)
from federation.lines import Line
from federation.wire import session as pb
from federation.wire.handshake_frames import (
    goodbye_to_wire,
    hello_from_wire,
    welcome_to_wire,
)

RECHECK_S = 60.0
LOG_WAIT_S = 10.0

ReadLog = Callable[[str, str, int, int], Awaitable[LogPart]]
"""(uid, stream, offset, limit) at the site; raises LookupError."""


class SimulatedGateway:
    """`Gateway` of one broker replica; agents come in by `serve`."""

    def __init__(self, facts: SessionFactsSource, readers: ReportReaders, clock: Clock) -> None:
        self.facts = facts
        self.readers = readers
        self.clock = clock
        self.sessions: dict[str, _Session] = {}
        self._open: dict[_Session, None] = {}
        self._inbox: asyncio.Queue[GatewayEvent] = asyncio.Queue()
        self._numbers = 0
        self.answers_s: dict[str, float] = {}

    async def serve(self, peer: Peer, line: Line, read_log: ReadLog) -> None:
        """One stream from its beginning to its end."""
        session = _Session(self, peer, line, read_log)
        self._open[session] = None
        try:
            await session.run()
        finally:
            del self._open[session]

    # The port -------------------------------------------------------------------------------------

    async def inbox(self) -> AsyncIterator[tuple[GatewayEvent, ...]]:
        """See the port."""
        while True:
            batch = [await self._inbox.get()]
            while not self._inbox.empty():
                batch.append(self._inbox.get_nowait())
            yield tuple(batch)

    async def send(self, cluster: str, commands: Sequence[Command]) -> None:
        """See the port."""
        session = self.sessions.get(cluster)
        if session is None:
            raise SiteSilent(f"cluster {cluster} has no session here")
        session.send(commands)

    async def acknowledge(self, cluster: str, event_seq: int) -> None:
        """See the port."""
        session = self.sessions.get(cluster)
        if session is not None:
            session.acknowledge(event_seq)

    async def read_log(
        self, cluster: str, uid: str, stream: str, offset: int, limit: int, *, wait_ms: int = 0
    ) -> LogPart:
        """See the port; there is nothing to wait for in a simulated log."""
        session = self.sessions.get(cluster)
        if session is None:
            raise SiteSilent(f"cluster {cluster} has no session here")
        async with asyncio.timeout(LOG_WAIT_S):
            return await session.read_log(uid, stream, offset, limit)

    def answered_s(self, cluster: str) -> float:
        """See the port."""
        return self.answers_s.get(cluster, float("-inf"))

    def leave_office(self, successor: str) -> None:
        """See the port."""
        for session in tuple(self._open):
            session.take(LeavingOffice(successor, stopping=False))

    async def close(self) -> None:
        """See the port."""
        for session in tuple(self._open):
            session.take(LeavingOffice("", stopping=True))

    # What sessions use ----------------------------------------------------------------------------

    def deliver(self, event: GatewayEvent) -> None:
        """Into the inbox."""
        self._inbox.put_nowait(event)

    def install(self, session: _Session) -> int:
        """Make this the session of its cluster; returns its number."""
        self._numbers += 1
        self.sessions[session.cluster] = session
        return self._numbers

    def remove(self, session: _Session, why: str) -> None:
        """A session is over."""
        if self.sessions.get(session.cluster) is session:
            del self.sessions[session.cluster]
            self.deliver(SessionClosed(session.cluster, session.number, why))


class _Session:
    """The broker's half of one stream."""

    def __init__(
        self, gateway: SimulatedGateway, peer: Peer, line: Line, read_log: ReadLog
    ) -> None:
        self._gateway = gateway
        self._peer = peer
        self._line = line
        self.read_log = read_log
        self._handshake = BrokerHandshake()
        self._incoming: Incoming | None = None
        self._commands: deque[pb.Command] = deque()
        self._ack = 0
        self._echo = 0
        self._gathering = False
        self._began_s = gateway.clock.monotonic_s()
        self.cluster = peer.cluster
        self.number = 0

    # From the gateway -----------------------------------------------------------------------------

    def send(self, commands: Sequence[Command]) -> None:
        """Put commands in line."""
        self._commands.extend(command_to_wire(command) for command in commands)
        self._gather()

    def acknowledge(self, event_seq: int) -> None:
        """Events up to this one are durable."""
        if event_seq > self._ack:
            self._ack = event_seq
            self._gather()

    def take(self, event: BrokerEvent) -> None:
        """Let something happen to the handshake and do what follows, in order."""
        for output in self._handshake.take(event):
            if isinstance(output, EndOther):
                other = self._gateway.sessions.get(self.cluster)
                if other is not None and other is not self:
                    other.take(Superseded())
            elif isinstance(output, Send):
                self._say(output.frame)
            elif isinstance(output, Established):
                assert isinstance(output.session, BrokerSession), "the broker's half"
                self._established(output.session)
            elif isinstance(output, Closed):
                self._gateway.remove(self, f"{output.over.code}: {output.over.text}")
                self._line.down.send(None)
                self._line.up.cut()

    # Life -----------------------------------------------------------------------------------------

    async def run(self) -> None:
        """From the first frame to the last word."""
        self.take(PeerConnected(self._peer, self._view()))
        watching = asyncio.create_task(self._watch(), name=f"session-watch-{self.cluster}")
        try:
            while not self._over:
                frame = await self._line.up.receive()
                if frame is None:
                    break
                self._frame(frame)
            self.take(StreamEnded("the stream ended"))
        finally:
            watching.cancel()

    def live(self) -> LiveSession | None:
        """This session as another of the same cluster sees it."""
        return self._handshake.live(self._gateway.clock.now_ms())

    def _view(self) -> BrokerView:
        facts = self._gateway.facts
        other = self._gateway.sessions.get(self.cluster)
        return BrokerView(
            now_ms=self._gateway.clock.now_ms(),
            epoch=facts.epoch(),
            offer=facts.offer(),
            known=facts.known(self.cluster),
            live=other.live() if other is not None and other is not self else None,
            ready=facts.ready(),
            leading=facts.leading(),
            leader_address=facts.leader_address(),
        )

    @property
    def _over(self) -> bool:
        return isinstance(self._handshake.state, Over)

    def _established(self, session: BrokerSession) -> None:
        gateway, hello = self._gateway, session.hello
        waited_ms = round((gateway.clock.monotonic_s() - self._began_s) * 1000)
        self.number = gateway.install(self)
        gateway.answers_s[self.cluster] = gateway.clock.monotonic_s()
        self._incoming = Incoming(
            self.cluster, self.number, gateway.readers, session.resume_event_seq
        )
        gateway.deliver(
            SessionOpened(
                cluster=self.cluster,
                session=self.number,
                instance=hello.instance,
                journal=hello.journal,
                disk_replaced=session.disk_replaced,
                event_seq=hello.event_seq,
                dispatch_seq=hello.dispatch_seq,
                scheduler=hello.scheduler,
                isolation=hello.isolation,
                capabilities=hello.capabilities,
                version=hello.version,
                sealing_key=hello.sealing_key,
                certificate_serial=session.peer.serial,
                certificate_expires_ms=session.peer.not_after_ms,
                handshake_ms=max(0, hello.connect_ms) + waited_ms,
            )
        )

    # Reading --------------------------------------------------------------------------------------

    def _frame(self, frame: pb.AgentFrame) -> None:
        now_ms = self._gateway.clock.now_ms()
        if frame.WhichOneof("body") == "hello":
            self.take(HelloArrived(hello_from_wire(frame.hello), self._view()))
            return
        self.take(FrameArrived(now_ms))
        if self._incoming is None or self._over:
            return
        if frame.update.heartbeat:
            self._echo = frame.update.heartbeat
            self._gather()
        now_s = self._gateway.clock.monotonic_s()
        for event in self._incoming.take(frame.update, now_ms, now_s):
            self._gateway.deliver(event)

    # Writing --------------------------------------------------------------------------------------

    def _say(self, frame: object) -> None:
        if isinstance(frame, Welcome):
            self._line.down.send(welcome_to_wire(frame))
        else:
            assert isinstance(frame, Goodbye), "a broker says welcome or goodbye"
            self._line.down.send(goodbye_to_wire(frame))

    def _gather(self) -> None:
        """What comes up in one turn of the loop goes out as one frame."""
        if not self._gathering:
            self._gathering = True
            asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        self._gathering = False
        if self._over:
            return
        if self._echo and self._gateway.facts.leading():
            self._gateway.answers_s[self.cluster] = self._gateway.clock.monotonic_s()
        else:
            self._echo = 0
        update = pb.BrokerUpdate(
            epoch=self._epoch(),
            server_time_ms=self._gateway.clock.now_ms(),
            commands=self._commands,
            ack_event_seq=self._ack,
            heartbeat_echo=self._echo,
        )
        self._commands.clear()
        self._ack = self._echo = 0
        self._line.down.send(pb.BrokerFrame(update=update))

    def _epoch(self) -> int:
        """Never that of another leader: this replica speaks for its own leadership only."""
        state, facts = self._handshake.state, self._gateway.facts
        told = state.epoch if isinstance(state, BrokerSession) else 0
        return max(told, facts.epoch()) if facts.leading() else told

    # Watching -------------------------------------------------------------------------------------

    async def _watch(self) -> None:
        """Ends the silent, looks again each minute, keeps the line warm."""
        clock, heartbeat_ms = self._gateway.clock, self._gateway.facts.offer().heartbeat_ms
        checked_s = clock.monotonic_s()
        while not self._over:
            await asyncio.sleep(heartbeat_ms / 1000)
            live = self.live()
            if live and live.silent_ms > SILENT_HEARTBEATS_REDIAL * heartbeat_ms:
                self.take(StreamEnded(f"silent for {live.silent_ms / 1000:.1f} s"))
                return
            if live is None or clock.monotonic_s() - checked_s > RECHECK_S:
                checked_s = clock.monotonic_s()
                self.take(Rechecked(self._view()))
            if live:
                self._gather()
