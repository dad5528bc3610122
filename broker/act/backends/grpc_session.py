"""One session stream at the broker: handshake, frames in, frames out, watching.

The reader hands what arrives to the gateway's inbox, the writer sends whatever has gathered as
one frame in the order it was given, the watcher ends what is silent and looks again at the
certificate each minute. All judgement is the handshake's.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import grpc
from google.protobuf.message import DecodeError

from broker.act.backends.incoming import Incoming
from broker.act.gateway import Command, GatewayEvent, SessionOpened
from broker.act.session_facts import ReportReaders, SessionFactsSource
from broker.act.translate import BadFrame, command_to_wire
from federation.environment import Clock
from federation.handshake.frames import (
    HELLO_WAIT_MS,
    SILENT_HEARTBEATS_REDIAL,
    Goodbye,
    SessionCode,
    Welcome,
)
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
    LiveSession,
    Over,
    PeerConnected,
    Rechecked,
    Send,
    StreamEnded,
    Superseded,
)
from federation.log_lines import put_fields
from federation.session_tls import peer_of
from federation.wire import session as pb
from federation.wire.handshake_frames import (
    goodbye_to_wire,
    hello_from_wire,
    welcome_to_wire,
)

BATCH_BYTES_MAX = 3 * 1024 * 1024
WATCH_S = 1.0
RECHECK_S = 60.0
LAST_WORDS_S = 2.0
_log = logging.getLogger(__name__)


def shown(context: grpc.aio.ServicerContext[bytes, bytes]) -> Mapping[str, Sequence[bytes]]:
    """What TLS showed of the peer of a call."""
    return {name: tuple(values) for name, values in context.auth_context().items()}


class Sessions(Protocol):
    """What a conversation needs of the gateway it belongs to."""

    def deliver(self, event: GatewayEvent) -> None:
        """Into the inbox."""

    def current(self, cluster: str) -> Conversation | None:
        """The session of a cluster."""

    def answered(self, cluster: str) -> None:
        """A heartbeat is being answered."""

    def install(self, cluster: str, conversation: Conversation) -> int:
        """Make this the session of its cluster; returns its number."""

    def remove(self, cluster: str, conversation: Conversation, why: str) -> None:
        """A session is over."""


@dataclass(frozen=True, slots=True)
class ServedBy:
    """What all conversations of a gateway share."""

    facts: SessionFactsSource
    readers: ReportReaders
    clock: Clock
    sessions: Sessions


class Conversation:
    """One stream. `number` is set once it is a session."""

    def __init__(
        self, served: ServedBy, context: grpc.aio.ServicerContext[bytes, bytes]
    ) -> None:
        self._served = served
        self._context = context
        self._handshake = BrokerHandshake()
        self._frames: deque[pb.BrokerFrame] = deque()
        self._commands: deque[pb.Command] = deque()
        self._ack = 0
        self._echo = 0
        self._wake = asyncio.Event()
        self._began_s = served.clock.monotonic_s()
        self._incoming: Incoming | None = None
        self._cluster = ""
        self.number = 0

    # From the gateway -----------------------------------------------------------------------------

    def send(self, commands: Sequence[Command]) -> None:
        """Put commands in line."""
        self._commands.extend(command_to_wire(command) for command in commands)
        self._wake.set()

    def acknowledge(self, event_seq: int) -> None:
        """Events up to this one are durable."""
        if event_seq > self._ack:
            self._ack = event_seq
            self._wake.set()

    def recheck(self) -> None:
        """Look at the certificate again."""
        self.take(Rechecked(self._view()))

    def live(self) -> LiveSession | None:
        """This session as another of the same cluster sees it."""
        return self._handshake.live(self._served.clock.now_ms())

    def take(self, event: BrokerEvent) -> None:
        """Let something happen to the handshake and do what follows, in order."""
        for output in self._handshake.take(event):
            if isinstance(output, EndOther):
                self._end_other()
            elif isinstance(output, Send):
                self._queue(output.frame)
            elif isinstance(output, Established):
                assert isinstance(output.session, BrokerSession)
                self._established(output.session)
            elif isinstance(output, Closed):
                self._closed(output.over)

    # Life -----------------------------------------------------------------------------------------

    async def run(self) -> None:
        """From the first frame to the last word."""
        peer = peer_of(shown(self._context))
        self._cluster = peer.cluster
        put_fields(cluster=peer.cluster)
        self.take(PeerConnected(peer, self._view()))
        writing = asyncio.create_task(self._write())
        others = [asyncio.create_task(self._read()), asyncio.create_task(self._watch())]
        try:
            await asyncio.wait([writing, *others], return_when=asyncio.FIRST_COMPLETED)
            self.take(StreamEnded("the stream ended"))
            # What was said last, a Goodbye most of all, should still reach the other side.
            await asyncio.wait([writing], timeout=LAST_WORDS_S)
        finally:
            self.take(StreamEnded("the stream was cut"))
            for task in (writing, *others):
                task.cancel()
            await asyncio.gather(writing, *others, return_exceptions=True)

    def _view(self) -> BrokerView:
        served = self._served
        other = served.sessions.current(self._cluster) if self._cluster else None
        return BrokerView(
            now_ms=served.clock.now_ms(),
            epoch=served.facts.epoch(),
            offer=served.facts.offer(),
            known=served.facts.known(self._cluster) if self._cluster else None,
            live=other.live() if other is not None and other is not self else None,
            ready=served.facts.ready(),
            leading=served.facts.leading(),
            leader_address=served.facts.leader_address(),
        )

    def _end_other(self) -> None:
        other = self._served.sessions.current(self._cluster)
        if other is not None and other is not self:
            other.take(Superseded())

    def _established(self, session: BrokerSession) -> None:
        served, hello = self._served, session.hello
        waited_ms = round((served.clock.monotonic_s() - self._began_s) * 1000)
        self.number = served.sessions.install(self._cluster, self)
        served.sessions.answered(self._cluster)  # a welcome is contact, too
        self._incoming = Incoming(
            self._cluster, self.number, served.readers, session.resume_event_seq
        )
        served.sessions.deliver(
            SessionOpened(
                cluster=self._cluster,
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

    def _closed(self, over: Over) -> None:
        if over.code != SessionCode.STREAM_LOST:
            _log.info("session of %s ends: %s", self._cluster or "an unknown peer", over.text)
        self._served.sessions.remove(self._cluster, self, f"{over.code}: {over.text}")
        self._wake.set()

    @property
    def _over(self) -> bool:
        return isinstance(self._handshake.state, Over)

    # Reading --------------------------------------------------------------------------------------

    async def _read(self) -> None:
        try:
            while not self._over:
                raw = await self._context.read()
                if not isinstance(raw, bytes):  # the end of the stream
                    return
                self._frame(raw)
        except BadFrame as problem:
            self._bad_frame(str(problem))
        except grpc.aio.BaseError as problem:
            self.take(StreamEnded(str(problem) or "the stream was cut"))

    def _frame(self, raw: bytes) -> None:
        try:
            frame = pb.AgentFrame.FromString(raw)
        except DecodeError as problem:
            raise BadFrame("a frame that is not of this protocol") from problem
        now_ms = self._served.clock.now_ms()
        body = frame.WhichOneof("body")
        if body == "hello":
            self.take(HelloArrived(hello_from_wire(frame.hello), self._view()))
        elif body == "update":
            self.take(FrameArrived(now_ms))
            if self._incoming is not None and not self._over:
                self._update(frame.update, now_ms)
        else:
            raise BadFrame("an empty frame")

    def _update(self, update: pb.AgentUpdate, now_ms: int) -> None:
        assert self._incoming is not None
        if update.heartbeat:
            self._echo = update.heartbeat
            self._wake.set()
        for text in update.refused_commands[:100]:
            _log.warning("%s refused a command: %s", self._cluster, text[:500])
        now_s = self._served.clock.monotonic_s()
        for event in self._incoming.take(update, now_ms, now_s):
            self._served.sessions.deliver(event)

    def _bad_frame(self, text: str) -> None:
        _log.warning("session of %s ends: %s", self._cluster or "an unknown peer", text)
        retry = SessionCode.UNEXPECTED_FRAME.retry
        self._queue(Goodbye(SessionCode.UNEXPECTED_FRAME, text, retry))
        self.take(StreamEnded(text))

    # Writing --------------------------------------------------------------------------------------

    def _queue(self, frame: object) -> None:
        if isinstance(frame, Welcome):
            self._frames.append(welcome_to_wire(frame))
        elif isinstance(frame, Goodbye):
            self._frames.append(goodbye_to_wire(frame))
        self._wake.set()

    async def _write(self) -> None:
        with contextlib.suppress(grpc.aio.BaseError):
            while True:
                while self._frames:
                    await self._context.write(self._frames.popleft().SerializeToString())
                if self._over:
                    return
                if self._commands or self._ack or self._echo:
                    await self._context.write(self._gathered().SerializeToString())
                    continue
                self._wake.clear()
                await self._wake.wait()

    def _gathered(self) -> pb.BrokerFrame:
        if self._echo and self._served.facts.leading():
            self._served.sessions.answered(self._cluster)
        else:
            self._echo = 0
        update = pb.BrokerUpdate(
            epoch=self._epoch(),
            server_time_ms=self._served.clock.now_ms(),
            ack_event_seq=self._ack,
            heartbeat_echo=self._echo,
        )
        self._ack = self._echo = 0
        size_bytes = 0
        while self._commands and size_bytes < BATCH_BYTES_MAX:
            size_bytes += self._commands[0].ByteSize()
            if size_bytes > BATCH_BYTES_MAX and update.commands:
                break
            update.commands.append(self._commands.popleft())
        return pb.BrokerFrame(update=update)

    def _epoch(self) -> int:
        """Never that of another leader: this replica speaks for its own leadership only."""
        state, facts = self._handshake.state, self._served.facts
        told = state.epoch if isinstance(state, BrokerSession) else 0
        return max(told, facts.epoch()) if facts.leading() else told

    # Watching -------------------------------------------------------------------------------------

    async def _watch(self) -> None:
        """Ends the silent, looks again each minute, keeps the line warm."""
        clock, facts = self._served.clock, self._served.facts
        heartbeat_ms = facts.offer().heartbeat_ms
        checked_s = beat_s = clock.monotonic_s()
        while not self._over:
            await asyncio.sleep(min(WATCH_S, heartbeat_ms / 2_000))
            now_s = clock.monotonic_s()
            live = self.live()
            if live is None and (now_s - self._began_s) * 1000 > HELLO_WAIT_MS:
                self.recheck()
            elif live and live.silent_ms > SILENT_HEARTBEATS_REDIAL * heartbeat_ms:
                self.take(StreamEnded(f"silent for {live.silent_ms / 1000:.1f} s"))
            elif now_s - checked_s > RECHECK_S:
                checked_s = now_s
                self.recheck()
            if live and (now_s - beat_s) * 1000 >= heartbeat_ms:
                beat_s = now_s
                self._beat()

    def _beat(self) -> None:
        update = pb.BrokerUpdate(
            epoch=self._epoch(), server_time_ms=self._served.clock.now_ms()
        )
        self._frames.append(pb.BrokerFrame(update=update))
        self._wake.set()
