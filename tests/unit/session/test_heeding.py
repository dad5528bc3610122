"""A cancellation that a stream swallows ends the loop over streams all the same."""

from __future__ import annotations

import asyncio
import contextlib
from types import SimpleNamespace
from typing import Any

import grpc.aio
import pytest

from federation.etcd import watch as etcd_watch
from federation.handshake.frames import SessionCode
from federation.handshake.values import Over
from federation.heeding import heed_cancellation
from federation.kv import StoreUnavailable
from regional_agent.dialling import Dialler
from regional_agent.link import Link
from regional_agent.log_server import LogServer

WITHIN_S = 5.0


class Deaf:
    """A stream that takes a cancellation for its own and says that the peer has ended it."""

    def __init__(self) -> None:
        self.waits = asyncio.Event()

    async def write(self, data: bytes) -> None:
        """Sent."""

    async def read(self) -> Any:
        """Nothing, once cancelled."""
        self.waits.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return grpc.aio.EOF


async def ends_when_told(task: asyncio.Task[Any], waits: asyncio.Event) -> None:
    await asyncio.wait_for(waits.wait(), WITHIN_S)
    task.cancel()
    await asyncio.wait({task}, timeout=WITHIN_S)
    ended = task.cancelled()
    while not task.done():  # or the end of the test would wait for it
        task.cancel()
        await asyncio.sleep(0)
    assert ended


async def test_the_log_streams_of_a_session_end_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    deaf = Deaf()
    scheduler: Any = None
    parts: Any = SimpleNamespace(logs=LogServer(scheduler))
    identity: Any = SimpleNamespace(cluster="eu")
    link = Link(parts, "127.0.0.1:1", identity)
    channel = SimpleNamespace(stream_stream=lambda _method: lambda: deaf)
    monkeypatch.setattr(link, "_channel_of", lambda: channel)
    await ends_when_told(asyncio.create_task(link._serve_logs()), deaf.waits)


async def test_a_dialler_ends_while_it_dials(monkeypatch: pytest.MonkeyPatch) -> None:
    waits = asyncio.Event()

    async def deaf_open(_link: Link) -> Over:
        waits.set()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        return Over(SessionCode.STREAM_LOST, "the stream was lost", retry=True)

    async def check(_identity: object) -> Any:
        return SimpleNamespace(ok=True)

    monkeypatch.setattr(Link, "open", deaf_open)
    clock = SimpleNamespace(now_ms=lambda: 0, monotonic_s=lambda: 0.0)
    identity = SimpleNamespace(session_addresses=("127.0.0.1:1",))
    given: list[Any] = [SimpleNamespace(clock=clock), identity, None, check]
    await ends_when_told(asyncio.create_task(Dialler(*given).run()), waits)


async def test_a_watch_of_etcd_ends_while_its_stream_is_set_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waits = asyncio.Event()

    async def deaf_stream(*_given: object) -> Any:
        waits.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError as swallowed:
            raise StoreUnavailable("the watch's stream broke") from swallowed
        yield None

    async def follow() -> None:
        members: Any = SimpleNamespace(current=0, closed=False, leave=lambda _index: None)
        async for _ in etcd_watch.watch(members, "/", 1):
            pass

    monkeypatch.setattr(etcd_watch, "_one_stream", deaf_stream)
    await ends_when_told(asyncio.create_task(follow()), waits)


async def test_who_was_not_told_to_end_goes_on() -> None:
    heed_cancellation()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await asyncio.sleep(1)
    heed_cancellation()
