"""One session stream, dialled out: connect, shake hands, then frames both ways until it is over.

Beside it, on the same connection, runs the stream the broker reads logs by.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

import grpc
from google.protobuf.message import DecodeError

from federation.environment import Clock
from federation.front_names import dialled
from federation.handshake.agent_half import patience_ms
from federation.handshake.frames import Hello, SessionCode
from federation.handshake.machine import AgentHandshake
from federation.handshake.values import (
    AgentEvent,
    AgentSession,
    Closed,
    Established,
    GoodbyeArrived,
    Over,
    Remember,
    Send,
    StreamEnded,
    StreamOpened,
    TimePassed,
    UpdateArrived,
    WelcomeArrived,
)
from federation.heeding import heed_cancellation
from federation.session_tls import channel_credentials
from federation.wire import LOGS_METHOD, SESSION_METHOD
from federation.wire import session as pb
from federation.wire.handshake_frames import (
    goodbye_from_wire,
    hello_to_wire,
    welcome_from_wire,
)
from regional_agent.contact import BEAT_MAX_S, HELLO, Contact
from regional_agent.identity import Identity
from regional_agent.log_server import LogServer
from regional_agent.proxying import Proxies
from regional_agent.session import inputs
from regional_agent.translate import BadCommand, command_from_wire
from regional_agent.worker import BrokerTime, Outbox, Worker

FRAME_BYTES_MAX = 4 * 1024 * 1024
EVENTS_PER_FRAME = 500
COMMANDS_PER_INPUT = 16
CONNECT_S = 10.0
LOOK_S = 1.0
_log = logging.getLogger(__name__)

Call = Any  # grpc.aio's stream call, whose stubs name no public type


class ReportBuffer:
    """Reports that wait for the session: the newest of each kind."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._newest: dict[str, pb.Report] = {}
        self._wake = wake

    def put(self, report: pb.Report) -> None:
        """Send this as soon as a session stands, unless a newer one of its kind comes first."""
        self._newest[report.WhichOneof("what") or ""] = report
        self._wake()

    def take(self) -> list[pb.Report]:
        """All that wait."""
        waiting, self._newest = list(self._newest.values()), {}
        return waiting


@dataclass(frozen=True, slots=True)
class Parts:
    """What every session of this agent shares. `hello` is made for each, with the time its
    connection took (ms)."""

    worker: Worker
    outbox: Outbox
    reports: ReportBuffer
    logs: LogServer
    time: BrokerTime
    clock: Clock
    contact: Contact
    hello: Callable[[int], Hello]
    proxies: Proxies = Proxies()


class Link:
    """One session from dialling to its end."""

    def __init__(self, parts: Parts, address: str, identity: Identity) -> None:
        self._parts = parts
        self.address = address
        self.identity = identity
        self._handshake = AgentHandshake()
        self._channel: grpc.aio.Channel | None = None
        self._call: Call = None
        self._wake = asyncio.Event()
        self._cursor = 0
        self._heartbeat = 0

    @property
    def session(self) -> AgentSession | None:
        """The session, while it stands."""
        state = self._handshake.state
        return state if isinstance(state, AgentSession) else None

    @property
    def over(self) -> Over | None:
        """Why it ended."""
        state = self._handshake.state
        return state if isinstance(state, Over) else None

    async def open(self) -> Over | None:
        """Dial and shake hands; None when the session stands."""
        try:
            connect_ms = await self._connect()
            self._call = self._channel_of().stream_stream(SESSION_METHOD)()
            await self._take(
                StreamOpened(self._parts.hello(connect_ms), self._parts.time.monotonic_ms())
            )
            async with asyncio.timeout(CONNECT_S):
                frame = await self._next()
            if frame is None:
                await self._take(StreamEnded("the broker ended the stream"))
            else:
                await self._frame(frame)
        except grpc.aio.AioRpcError as problem:
            await self._take(StreamEnded(_line(problem)))
        except (ConnectionError, TimeoutError) as problem:
            await self._take(StreamEnded(str(problem) or "no welcome came"))
        if self.session is None:
            await self.close()
        return self.over

    async def serve(self) -> Over:
        """Speak until it is over. The session stands when this is called."""
        session = self.session
        assert session is not None, "opened before"
        self._cursor = session.resume_event_seq
        self._parts.outbox.listen(self._wake)
        tasks = [
            asyncio.create_task(self._read()),
            asyncio.create_task(self._write(min(session.heartbeat_ms / 1000, BEAT_MAX_S))),
            asyncio.create_task(self._watch()),
            asyncio.create_task(self._serve_logs()),
        ]
        try:
            await asyncio.wait(tasks[:3], return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._parts.outbox.leave(self._wake)
            for task in tasks:
                task.cancel()
            ends = await asyncio.gather(*tasks, return_exceptions=True)
            await self.close()
        await self._take(StreamEnded(_why(ends)))
        over = self.over
        assert over is not None, "a stream that ended is over"
        return over

    async def close(self) -> None:
        """Let go of the connection."""
        if self._channel is not None:
            channel, self._channel = self._channel, None
            await channel.close()

    # Connecting -----------------------------------------------------------------------------------

    async def _connect(self) -> int:
        """Returns how long it took (ms). Raises ConnectionError, TimeoutError."""
        began_s = self._parts.clock.monotonic_s()
        address, name = dialled(self.address)
        proxy = self._parts.proxies.to(address.rpartition(":")[0])
        options: list[tuple[str, Any]] = [
            ("grpc.max_receive_message_length", FRAME_BYTES_MAX),
            ("grpc.max_send_message_length", FRAME_BYTES_MAX),
            ("grpc.use_local_subchannel_pool", 1),
            ("grpc.keepalive_time_ms", 20_000),
            ("grpc.keepalive_timeout_ms", 10_000),
            ("grpc.enable_http_proxy", 1 if proxy else 0),
        ]
        if proxy:
            options.append(("grpc.http_proxy", proxy))
        if name:
            options.append(("grpc.ssl_target_name_override", name))
        identity = self.identity
        self._channel = channel = grpc.aio.secure_channel(
            address, channel_credentials(identity.ca_pem, identity.credential), options
        )
        async with asyncio.timeout(CONNECT_S):
            state = channel.get_state(try_to_connect=True)
            while state is not grpc.ChannelConnectivity.READY:
                if state in (
                    grpc.ChannelConnectivity.TRANSIENT_FAILURE,
                    grpc.ChannelConnectivity.SHUTDOWN,
                ):
                    raise ConnectionError(f"cannot reach {self.address}")
                await channel.wait_for_state_change(state)
                state = channel.get_state(try_to_connect=True)
        return round((self._parts.clock.monotonic_s() - began_s) * 1000)

    def _channel_of(self) -> grpc.aio.Channel:
        if self._channel is None:
            raise ConnectionError("the connection was closed")
        return self._channel

    # The handshake --------------------------------------------------------------------------------

    async def _take(self, event: AgentEvent) -> None:
        for output in self._handshake.take(event):
            if isinstance(output, Send):
                assert isinstance(output.frame, Hello), "an agent says hello only"
                self._parts.contact.sending(self, HELLO)
                await self._call.write(hello_to_wire(output.frame).SerializeToString())
            elif isinstance(output, Established):
                assert isinstance(output.session, AgentSession), "the agent's half"
                self._parts.contact.answered(self, HELLO)
                await self._established(output.session)
            elif isinstance(output, Remember) and not output.addresses:
                await self._parts.worker.put_durably(inputs.UpdateArrived(output.epoch))
            elif isinstance(output, Closed):
                self._wake.set()

    async def _established(self, session: AgentSession) -> None:
        """The epoch and the addresses are durable before anything of this session is done."""
        self._parts.time.told(session.clock)
        await self._parts.worker.put_durably(
            inputs.SessionStands(
                epoch=session.epoch,
                ticket_keys=session.ticket_keys,
                resume_event_seq=session.resume_event_seq,
                disk_replaced=session.disk_replaced,
                addresses=session.addresses,
            )
        )

    # Reading --------------------------------------------------------------------------------------

    async def _next(self) -> pb.BrokerFrame | None:
        raw = await self._call.read()
        if not isinstance(raw, bytes):  # the end of the stream
            return None
        try:
            return pb.BrokerFrame.FromString(raw)
        except DecodeError as problem:
            raise ConnectionError("the broker sent a frame not of this protocol") from problem

    async def _read(self) -> None:
        while self.over is None:
            frame = await self._next()
            if frame is None:
                return
            await self._frame(frame)

    async def _frame(self, frame: pb.BrokerFrame) -> None:
        body = frame.WhichOneof("body")
        monotonic_ms = self._parts.time.monotonic_ms()
        if body == "welcome":
            await self._take(WelcomeArrived(welcome_from_wire(frame.welcome), monotonic_ms))
        elif body == "goodbye":
            await self._take(GoodbyeArrived(goodbye_from_wire(frame.goodbye)))
        elif body == "update":
            update = frame.update
            await self._take(UpdateArrived(update.epoch, update.server_time_ms, monotonic_ms))
            if self.session is not None:
                self._update(update, self.session)

    def _update(self, update: pb.BrokerUpdate, session: AgentSession) -> None:
        self._parts.time.told(session.clock)
        contact = self._parts.contact
        if update.heartbeat_echo:
            contact.answered(self, update.heartbeat_echo)
        commands = []
        for command in update.commands:
            try:
                commands.append(command_from_wire(command, contact.at_s))
            except BadCommand as problem:
                self._parts.outbox.complain(str(problem))
        put, epoch = self._parts.worker.put, update.epoch
        if update.ack_event_seq:
            put(inputs.UpdateArrived(epoch, (), update.ack_event_seq))
        for start in range(0, len(commands), COMMANDS_PER_INPUT):
            # In parts, so that a large batch holds up neither the heartbeat nor its own start.
            put(inputs.UpdateArrived(epoch, tuple(commands[start : start + COMMANDS_PER_INPUT])))

    # Writing --------------------------------------------------------------------------------------

    async def _write(self, heartbeat_s: float) -> None:
        clock = self._parts.clock
        beat_due_s = 0.0
        while self.over is None:
            self._wake.clear()
            beats = clock.monotonic_s() >= beat_due_s
            update = self._gathered(beats=beats)
            if update is not None:
                if beats:
                    beat_due_s = clock.monotonic_s() + heartbeat_s
                await self._call.write(pb.AgentFrame(update=update).SerializeToString())
                continue
            with contextlib.suppress(TimeoutError):
                left_s = max(0.01, beat_due_s - clock.monotonic_s())
                async with asyncio.timeout(left_s):
                    await self._wake.wait()

    def _gathered(self, *, beats: bool) -> pb.AgentUpdate | None:
        """Events before reports, which may reflect them; None when there is nothing to say."""
        parts = self._parts
        events = parts.outbox.after(self._cursor, EVENTS_PER_FRAME)
        if events:
            self._cursor = events[-1].event_seq
        behind = len(events) == EVENTS_PER_FRAME
        reports = [] if behind else parts.reports.take()
        complaints = parts.outbox.complaints
        if not (events or reports or complaints or beats):
            return None
        if beats:
            self._heartbeat += 1
            parts.contact.sending(self, self._heartbeat)
        update = pb.AgentUpdate(
            events=events,
            reports=reports,
            sent_ms=parts.clock.now_ms(),
            dispatch_seq=parts.worker.conversation.dispatch_seq,
            heartbeat=self._heartbeat if beats else 0,
            refused_commands=list(complaints),
        )
        complaints.clear()
        return update

    # Watching -------------------------------------------------------------------------------------

    async def _watch(self) -> None:
        """Wakes when silence would mean something, not to look whether it does."""
        while self.over is None:
            now_ms = self._parts.time.monotonic_ms()
            await asyncio.sleep(patience_ms(self._handshake.state, now_ms) / 1000)
            await self._take(TimePassed(self._parts.time.monotonic_ms()))

    async def _serve_logs(self) -> None:
        """Ends with the session; a stream that breaks is opened again."""
        wait_s = LOOK_S
        while True:
            try:
                call: Call = self._channel_of().stream_stream(LOGS_METHOD)()
                await self._parts.logs.serve(self.identity.cluster, _Stream(call))
            except (grpc.aio.AioRpcError, ConnectionError) as problem:
                _log.debug("the log stream broke: %s", problem)
            except Exception:  # noqa: BLE001  ended here, this session would never show a log again
                _log.exception("the log stream broke")
            heed_cancellation()
            await asyncio.sleep(wait_s)
            wait_s = min(2 * wait_s, 30.0)


class _Stream:
    """A log stream as the log server takes it."""

    def __init__(self, call: Call) -> None:
        self._call = call

    async def write(self, data: bytes) -> None:
        """Send a frame."""
        await self._call.write(data)

    async def frames(self) -> AsyncIterator[bytes]:
        """Frames until the stream ends."""
        while isinstance(raw := await self._call.read(), bytes):
            yield raw


def _line(problem: grpc.aio.AioRpcError) -> str:
    return " ".join((problem.details() or str(problem.code())).split())[:300]


def _why(ends: list[Any]) -> str:
    for end in ends:
        if isinstance(end, grpc.aio.AioRpcError):
            return _line(end)
        if isinstance(end, Exception):
            return str(end) or type(end).__name__
    return "the broker ended the stream"


__all__ = ["Link", "Parts", "ReportBuffer", "SessionCode"]
