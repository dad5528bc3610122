"""The gateway over gRPC: agents dial in with mutual TLS, one stream is one session.

The server takes raw bytes and reads them itself, so that a frame that makes no sense ends its
own session with one line and nothing else.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any

import grpc

from broker.act.backends.grpc_logs import LogStream
from broker.act.backends.grpc_session import Conversation, ServedBy, shown
from broker.act.gateway import Command, GatewayEvent, LogPart, SessionClosed, SiteSilent
from broker.act.session_facts import ReportReaders, SessionFactsSource
from federation.environment import Clock
from federation.handshake.broker_half import judge
from federation.handshake.values import LeavingOffice
from federation.session_tls import SessionCredentials, peer_of
from federation.wire import LOGS_METHOD, SESSION_METHOD

FRAME_BYTES_MAX = 4 * 1024 * 1024
STOP_GRACE_S = 1.0
LOG_STREAM_WAIT_S = 2.0


@dataclass(frozen=True, slots=True)
class Listening:
    """Where the session listener is bound; port 0 takes a free one."""

    address: str
    credentials: SessionCredentials


class GrpcGateway:
    """`Gateway` of one broker replica. `start` before use, `close` at the end."""

    def __init__(
        self,
        listening: Listening,
        facts: SessionFactsSource,
        readers: ReportReaders,
        clock: Clock,
    ) -> None:
        self._listening = listening
        self._served = ServedBy(facts, readers, clock, self)
        self._server: grpc.aio.Server | None = None
        self._sessions: dict[str, Conversation] = {}
        self._everyone: set[Conversation] = set()
        self._logs: dict[str, LogStream] = {}
        self._logs_changed = asyncio.Event()
        self._arrived: list[GatewayEvent] = []
        self._something = asyncio.Event()
        self._last_session = 0
        self._answered_s: dict[str, float] = {}

    async def start(self) -> int:
        """Listen; returns the port. Raises RuntimeError when the address cannot be bound."""
        self._server = grpc.aio.server(
            options=(
                ("grpc.max_receive_message_length", FRAME_BYTES_MAX),
                ("grpc.max_send_message_length", FRAME_BYTES_MAX),
                ("grpc.so_reuseport", 0),
                ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
            )
        )
        self._server.add_generic_rpc_handlers((_Methods(self),))
        port: int = self._server.add_secure_port(
            self._listening.address, self._listening.credentials.server_credentials
        )
        await self._server.start()
        return port

    # The port -------------------------------------------------------------------------------------

    async def inbox(self) -> AsyncIterator[tuple[GatewayEvent, ...]]:
        """See the port. One reader at a time; what nobody has read yet waits."""
        while True:
            await self._something.wait()
            self._something.clear()
            batch, self._arrived = tuple(self._arrived), []
            if batch:
                yield batch

    async def send(self, cluster: str, commands: Sequence[Command]) -> None:
        """See the port."""
        session = self._sessions.get(cluster)
        if session is None:
            raise SiteSilent(f"cluster {cluster} has no session here")
        session.send(commands)

    async def acknowledge(self, cluster: str, event_seq: int) -> None:
        """See the port."""
        session = self._sessions.get(cluster)
        if session is not None:
            session.acknowledge(event_seq)

    async def read_log(
        self, cluster: str, uid: str, stream: str, offset: int, limit: int, *, wait_ms: int = 0
    ) -> LogPart:
        """See the port."""
        logs = await self._log_stream(cluster)
        return await logs.read((uid, stream), offset, limit, wait_ms=wait_ms)

    def answered_s(self, cluster: str) -> float:
        """See the port."""
        return self._answered_s.get(cluster, float("-inf"))

    async def close(self) -> None:
        """See the port: every agent is told that this broker stops."""
        if self._server is None:
            return
        self._leave(LeavingOffice("", stopping=True))
        await self._server.stop(STOP_GRACE_S)
        self._server = None

    # Beyond the port ------------------------------------------------------------------------------

    def leave_office(self, successor: str) -> None:
        """This replica leads no more: send every agent to `successor` (empty: unknown)."""
        self._leave(LeavingOffice(successor, stopping=False))

    def recheck(self) -> None:
        """Look at every certificate again now, for example after a revocation."""
        for conversation in tuple(self._everyone):
            conversation.recheck()

    def connected(self) -> tuple[str, ...]:
        """Clusters with a session here, sorted."""
        return tuple(sorted(self._sessions))

    def _leave(self, leaving: LeavingOffice) -> None:
        for conversation in tuple(self._everyone):
            conversation.take(leaving)

    # What conversations use (`Sessions`) ----------------------------------------------------------

    def deliver(self, event: GatewayEvent) -> None:
        """Into the inbox."""
        self._arrived.append(event)
        self._something.set()

    def current(self, cluster: str) -> Conversation | None:
        """The session of a cluster."""
        return self._sessions.get(cluster)

    def answered(self, cluster: str) -> None:
        """A heartbeat is being answered."""
        self._answered_s[cluster] = self._served.clock.monotonic_s()

    def install(self, cluster: str, conversation: Conversation) -> int:
        """Make this the session of its cluster; returns its number."""
        self._last_session += 1
        self._sessions[cluster] = conversation
        return self._last_session

    def remove(self, cluster: str, conversation: Conversation, why: str) -> None:
        """A session is over; nothing happens if it is not the cluster's any more."""
        if self._sessions.get(cluster) is not conversation:
            return
        del self._sessions[cluster]
        self.deliver(SessionClosed(cluster, conversation.number, why))
        logs = self._logs.pop(cluster, None)
        if logs is not None:
            logs.end("its session is over")

    # Streams --------------------------------------------------------------------------------------

    async def serve_session(self, context: grpc.aio.ServicerContext[bytes, bytes]) -> None:
        """One session stream from its beginning to its end."""
        conversation = Conversation(self._served, context)
        self._everyone.add(conversation)
        try:
            await conversation.run()
        finally:
            self._everyone.discard(conversation)

    async def serve_logs(self, context: grpc.aio.ServicerContext[bytes, bytes]) -> None:
        """One log stream; it lives no longer than the session beside it."""
        peer = peer_of(shown(context))
        facts, clock = self._served.facts, self._served.clock
        verdict = judge(peer, facts.known(peer.cluster), clock.now_ms())
        if verdict is not None or peer.cluster not in self._sessions:
            text = verdict[1] if verdict else "open a session first"
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, text)
        stream = LogStream(peer.cluster, context)
        older = self._logs.get(peer.cluster)
        if older is not None:
            older.end("another log stream took over")
        self._logs[peer.cluster] = stream
        self._logs_changed.set()
        try:
            await stream.run()
        finally:
            if self._logs.get(peer.cluster) is stream:
                del self._logs[peer.cluster]

    async def _log_stream(self, cluster: str) -> LogStream:
        """The log stream of a cluster; one is opened right after its session, so wait a little."""
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + LOG_STREAM_WAIT_S
        while cluster in self._sessions:
            if cluster in self._logs:
                return self._logs[cluster]
            left_s = deadline_s - loop.time()
            if left_s <= 0:
                break
            self._logs_changed.clear()
            try:
                async with asyncio.timeout(left_s):
                    await self._logs_changed.wait()
            except TimeoutError:
                break
        raise SiteSilent(f"cluster {cluster} has no log stream here")


class _Methods(grpc.GenericRpcHandler):
    """The two methods of the service, as raw bytes."""

    def __init__(self, gateway: GrpcGateway) -> None:
        self._gateway = gateway

    def service(self, handler_call_details: Any) -> grpc.RpcMethodHandler[bytes, bytes] | None:
        """Which handler serves a call; None: no such method."""
        if handler_call_details.method == SESSION_METHOD:
            return grpc.stream_stream_rpc_method_handler(self._session)
        if handler_call_details.method == LOGS_METHOD:
            return grpc.stream_stream_rpc_method_handler(self._log)
        return None

    async def _session(
        self, _: AsyncIterator[bytes], context: grpc.aio.ServicerContext[bytes, bytes]
    ) -> None:
        await self._gateway.serve_session(context)

    async def _log(
        self, _: AsyncIterator[bytes], context: grpc.aio.ServicerContext[bytes, bytes]
    ) -> None:
        await self._gateway.serve_logs(context)
