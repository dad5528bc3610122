"""The members of an etcd cluster: a channel to each, and calls that find one that answers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import grpc
import grpc.aio
from google.protobuf.message import Message

from federation.etcd.endpoints import Endpoint, Timeouts, Tls
from federation.etcd.faults import store_error
from federation.kv import AmbiguousCommit, StoreUnavailable

# A member that has lost its leader refuses instead of leaving the caller hanging.
REQUIRE_LEADER = (("hasleader", "true"),)

# Pause after every member was tried once more in vain.
_ROUND_PAUSE_S = 0.05
# How often a connection under way is looked at.
_CONNECT_POLL_S = 0.005
# A read begun at the last moment still gets this long.
_READ_AT_LEAST_S = 0.05

Answer = TypeVar("Answer", bound=Message)
Given = TypeVar("Given")


@dataclass(frozen=True, slots=True)
class Method(Generic[Answer]):
    """A remote method by its full path, and the message it answers with."""

    path: str
    answer: type[Answer]


class Members:
    """Channels to all endpoints, made on first use, and the one in use now.

    All calls go to one member until it fails them; then to the next. Use from one event loop.
    """

    def __init__(
        self,
        endpoints: Sequence[Endpoint],
        tls: Tls | None = None,
        timeouts: Timeouts | None = None,
    ) -> None:
        """Raises ValueError for no endpoint, or one whose scheme contradicts `tls`."""
        if not endpoints:
            raise ValueError("etcd: no endpoint given")
        for endpoint in endpoints:
            if endpoint.scheme and (endpoint.scheme == "https") != (tls is not None):
                raise ValueError(
                    f"etcd endpoint {endpoint}: {endpoint.scheme} "
                    f"{'with' if tls else 'without'} certificates"
                )
        self.endpoints = tuple(endpoints)
        self.timeouts = timeouts or Timeouts()
        self.current = 0
        self.closed = False
        self._tls = tls
        self._channels: dict[int, grpc.aio.Channel] = {}
        self._calls: dict[
            tuple[int, str], grpc.aio.UnaryUnaryMultiCallable[bytes, Message]
        ] = {}
        self._connecting: dict[int, asyncio.Task[bool]] = {}

    # Calling ----------------------------------------------------------------------------------

    async def read(self, method: Method[Answer], request: bytes) -> Answer:
        """Call a method without effects, on further members while time is left.

        Raises what `store_error` gives for a read.
        """

        async def send(index: int, limit_s: float) -> Answer:
            return await self._unary(index, method, request, limit_s)

        return await self.attempt(send, wrote=False)

    async def write(self, method: Method[Answer], request: bytes) -> Answer:
        """Call a method with effects. It is sent again only where it certainly was not applied.

        Raises what `store_error` gives for a write.
        """

        async def send(index: int, limit_s: float) -> Answer:
            return await self._unary(index, method, request, limit_s)

        return await self.attempt(send, wrote=True)

    async def attempt(
        self, send: Callable[[int, float], Awaitable[Given]], *, wrote: bool
    ) -> Given:
        """Run `send(member, seconds)` on one member after the other until it succeeds.

        `send` may raise AioRpcError or TimeoutError.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self.timeouts.call_s
        tried = 0
        while True:
            if self.closed:
                raise StoreUnavailable("the etcd client is closed")
            index = self.current
            try:
                return await self._try(index, send, deadline, wrote=wrote)
            except AmbiguousCommit:
                self.leave(index)
                raise
            except StoreUnavailable:
                self.leave(index)
                if loop.time() >= deadline:
                    raise
            tried += 1
            if tried % len(self.endpoints) == 0:
                await asyncio.sleep(_ROUND_PAUSE_S)

    async def _try(
        self,
        index: int,
        send: Callable[[int, float], Awaitable[Given]],
        deadline: float,
        *,
        wrote: bool,
    ) -> Given:
        where = str(self.endpoints[index])
        if not await self.ready(index):
            raise StoreUnavailable(f"{where}: no connection")
        # A write gets its full time: cut short it would be ambiguous for nothing.
        limit_s = self.timeouts.call_s
        if not wrote:
            left_s = deadline - asyncio.get_running_loop().time()
            limit_s = max(min(limit_s / 2, left_s), _READ_AT_LEAST_S)
        try:
            return await send(index, limit_s)
        except grpc.aio.AioRpcError as failed:
            raise store_error(failed, where, wrote=wrote) from failed
        except TimeoutError as late:
            kind = AmbiguousCommit if wrote else StoreUnavailable
            raise kind(f"{where}: no answer in time") from late
        except asyncio.CancelledError as cancelled:
            self.raise_if_closed(cancelled, wrote=wrote)
            raise

    async def _unary(
        self, index: int, method: Method[Answer], request: bytes, limit_s: float
    ) -> Answer:
        call = self._calls.get((index, method.path))
        if call is None:
            call = self._channel(index).unary_unary(
                method.path,
                request_serializer=None,
                response_deserializer=method.answer.FromString,
            )
            self._calls[index, method.path] = call
        answer: Answer = await call(request, timeout=limit_s, metadata=REQUIRE_LEADER)  # type: ignore[assignment]
        return answer

    def stream(
        self, index: int, method: Method[Answer], *, limit_s: float | None = None
    ) -> grpc.aio.StreamStreamCall[bytes, Answer]:
        """Open a stream to one member; the caller cancels it."""
        stream: grpc.aio.StreamStreamMultiCallable[bytes, Answer]
        stream = self._channel(index).stream_stream(
            method.path,
            request_serializer=None,
            response_deserializer=method.answer.FromString,
        )
        return stream(timeout=limit_s, metadata=REQUIRE_LEADER)

    def leave(self, index: int) -> None:
        """Use the member after `index` from now on, unless another was chosen meanwhile."""
        if self.current == index:
            self.current = (index + 1) % len(self.endpoints)

    def raise_if_closed(self, error: BaseException, *, wrote: bool) -> None:
        """Tell a call that ended because this client was closed from a cancelled task."""
        task = asyncio.current_task()
        if self.closed and (task is None or not task.cancelling()):
            kind = AmbiguousCommit if wrote else StoreUnavailable
            raise kind("the etcd client was closed during the call") from error

    # Connecting -------------------------------------------------------------------------------

    async def ready(self, index: int) -> bool:
        """Whether member `index` is connected, connecting first where needed.

        False at once where it refuses, after `connect_s` where it is silent. Nothing was sent.
        """
        if self._channel(index).get_state(try_to_connect=True) is grpc.ChannelConnectivity.READY:
            return True
        task = self._connecting.get(index)
        if task is None or task.done():
            task = asyncio.create_task(self._connect(index))
            self._connecting[index] = task
        # Shared by all who wait for this member: one of them giving up must not end it.
        return await asyncio.shield(task)

    async def _connect(self, index: int) -> bool:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self.timeouts.connect_s
        while not self.closed and loop.time() < deadline:
            state = self._channel(index).get_state(try_to_connect=True)
            if state is grpc.ChannelConnectivity.READY:
                return True
            if state is grpc.ChannelConnectivity.TRANSIENT_FAILURE:
                return False
            await asyncio.sleep(_CONNECT_POLL_S)
        return False

    def _channel(self, index: int) -> grpc.aio.Channel:
        channel = self._channels.get(index)
        if channel is None:
            channel = self._channels[index] = self._open(self.endpoints[index])
        return channel

    def _open(self, endpoint: Endpoint) -> grpc.aio.Channel:
        options: list[tuple[str, str | int]] = [
            # What was sent is never sent again behind our back.
            ("grpc.enable_retries", 0),
            ("grpc.enable_http_proxy", 0),
            ("grpc.use_local_subchannel_pool", 1),
            ("grpc.max_receive_message_length", -1),
            ("grpc.max_send_message_length", -1),
            ("grpc.keepalive_time_ms", int(self.timeouts.keepalive_s * 1000)),
            ("grpc.keepalive_timeout_ms", int(self.timeouts.keepalive_answer_s * 1000)),
            # In gRPC of today this ends a probe unanswered; the line above no longer does.
            ("grpc.http2.ping_timeout_ms", int(self.timeouts.keepalive_answer_s * 1000)),
            ("grpc.http2.max_pings_without_data", 0),
            ("grpc.initial_reconnect_backoff_ms", 100),
            ("grpc.min_reconnect_backoff_ms", int(self.timeouts.connect_s * 1000)),
            ("grpc.max_reconnect_backoff_ms", 1000),
        ]
        if self._tls is None:
            return grpc.aio.insecure_channel(endpoint.target, options=options)
        if endpoint.server_name:
            options.append(("grpc.ssl_target_name_override", endpoint.server_name))
        credentials = grpc.ssl_channel_credentials(
            self._tls.ca, self._tls.key, self._tls.certificate
        )
        return grpc.aio.secure_channel(endpoint.target, credentials, options=options)

    async def close(self) -> None:
        """End all calls and connections."""
        self.closed = True
        # They see that and end by themselves; cancelled they would look like their callers'
        # own cancellation.
        await asyncio.gather(*self._connecting.values(), return_exceptions=True)
        for channel in self._channels.values():
            await channel.close()
