"""Watching a prefix across restarts of members, without loss and without halves of a revision."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

import grpc
import grpc.aio

from federation.etcd import etcdwire_pb2 as pb
from federation.etcd.convert import prefix_range, watch_events
from federation.etcd.faults import store_error
from federation.etcd.members import Members, Method
from federation.heeding import heed_cancellation
from federation.kv import (
    Compacted,
    InvalidRequest,
    PermissionDenied,
    StoreUnavailable,
    WatchBatch,
    WatchEvent,
)

_WATCH = Method("/etcdserverpb.Watch/Watch", pb.WatchResponse)

_PAUSE_FIRST_S = 0.02
_PAUSE_MAX_S = 1.0
# etcd refuses a watch with "permission denied" also while its list of permissions changes.
_DENIALS_BELIEVED = 3
_DENIAL_WORDS = ("permission denied", "invalid auth token", "user name is empty")


async def watch(
    members: Members, prefix: str, from_revision: int
) -> AsyncGenerator[WatchBatch, None]:
    """Yield changes under `prefix` from `from_revision` on, for ever; see `Store.watch`.

    After a broken stream it goes on at the revision after the last one yielded, on the next
    member. Raises `Compacted`, `PermissionDenied`, `InvalidRequest`; `StoreUnavailable` only
    once the client is closed.
    """
    if from_revision < 1:
        raise InvalidRequest("a watch starts at revision 1 or later")
    failures = denials = 0
    while True:
        index = members.current
        try:
            async with aclosing(_one_stream(members, index, prefix, from_revision)) as stream:
                async for batch in stream:
                    failures = denials = 0
                    # Progress may be older than what was asked for: nothing new then.
                    if batch.events or batch.revision >= from_revision:
                        from_revision = batch.revision + 1
                        yield batch
        except StoreUnavailable:
            if members.closed:
                raise
        except PermissionDenied:
            denials += 1
            if denials >= _DENIALS_BELIEVED:
                raise
        heed_cancellation()
        members.leave(index)
        await asyncio.sleep(min(_PAUSE_FIRST_S * 2**failures, _PAUSE_MAX_S))
        failures = min(failures + 1, 10)


async def _one_stream(
    members: Members, index: int, prefix: str, from_revision: int
) -> AsyncGenerator[WatchBatch, None]:
    """Watch through one member until its stream breaks: then `StoreUnavailable`."""
    if members.closed:
        raise StoreUnavailable("the etcd client is closed")
    where = str(members.endpoints[index])
    if not await members.ready(index):
        raise StoreUnavailable(f"{where}: no connection")
    call = members.stream(index, _WATCH)
    try:
        # A member frozen since it was connected answers nothing; a later silence is found by
        # the connection's own probes.
        async with asyncio.timeout(members.timeouts.call_s):
            await call.write(_create_request(prefix, from_revision))
            answer = await _next_answer(call, where)
        parts: list[WatchEvent] = []
        while True:
            _check_canceled(answer, where)
            parts.extend(watch_events(answer.events))
            if not answer.fragment:
                batch = _batch(answer, parts, from_revision)
                if batch is not None:
                    yield batch
                parts = []
            answer = await _next_answer(call, where)
    except grpc.aio.AioRpcError as failed:
        raise store_error(failed, where, wrote=False) from failed
    except (TimeoutError, asyncio.InvalidStateError, grpc.aio.UsageError) as failed:
        raise StoreUnavailable(f"{where}: the watch's stream broke") from failed
    except asyncio.CancelledError as cancelled:
        members.raise_if_closed(cancelled, wrote=False)
        raise
    finally:
        call.cancel()


def _create_request(prefix: str, from_revision: int) -> bytes:
    """One revision more than asked for is requested.

    etcd accepts a start at the very revision it was compacted to, where it no longer knows what
    was deleted. Asking from the one before makes it check, in the same step in which it reads,
    that `from_revision` is whole; that one more is dropped in `_batch`.
    """
    request = pb.WatchRequest()
    create = request.create_request
    create.key, create.range_end = prefix_range(prefix)
    create.start_revision = max(from_revision - 1, 1)
    create.progress_notify = True
    create.fragment = True
    return request.SerializeToString()


async def _next_answer(
    call: grpc.aio.StreamStreamCall[bytes, pb.WatchResponse], where: str
) -> pb.WatchResponse:
    answer = await call.read()
    if isinstance(answer, pb.WatchResponse):
        return answer
    raise StoreUnavailable(f"{where}: the member ended the watch")


def _check_canceled(answer: pb.WatchResponse, where: str) -> None:
    if answer.compact_revision:
        raise Compacted(answer.compact_revision)
    if not answer.canceled:
        return
    reason = answer.cancel_reason
    if any(words in reason for words in _DENIAL_WORDS):
        raise PermissionDenied(f"{where}: watch refused: {reason}")
    raise StoreUnavailable(f"{where}: watch canceled: {reason}")


def _batch(
    answer: pb.WatchResponse, events: list[WatchEvent], from_revision: int
) -> WatchBatch | None:
    """What an answer, whole with its fragments, says; None for nothing.

    With events the revision is the last event's: the header's may be far ahead of them.
    """
    if answer.created:
        return None
    if not events:
        # Progress of our own watch; one for the whole stream (id -1) may overtake events.
        return WatchBatch(answer.header.revision, ()) if answer.watch_id >= 0 else None
    if events[0].mod_revision < from_revision:
        events = [event for event in events if event.mod_revision >= from_revision]
    return WatchBatch(events[-1].mod_revision, events) if events else None
