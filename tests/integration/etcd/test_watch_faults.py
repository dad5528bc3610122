"""Watches whose member is killed, stopped, frozen or left behind by compaction."""

import asyncio
import signal

import pytest

from federation.etcd.endpoints import Timeouts
from federation.kv import (
    Compacted,
)
from tests.etcd_faults import Connect, Watching, put, put_surely, revive
from tests.etcd_server import EtcdServer

pytestmark = [pytest.mark.etcd, pytest.mark.usefixtures("whole")]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM], ids=["kill", "term"])
async def test_a_watch_outlives_its_member(
    cluster: EtcdServer, connect: Connect, number: signal.Signals
) -> None:
    """Its member ends, roughly or politely, while others go on writing."""
    base = f"/live/{number.name}/"
    watcher, writer = connect([0, 1]), connect([1, 2])
    start = await put(writer, base + "start", b"")
    watching = Watching(watcher, base, start + 1)
    for count in range(200):
        await put_surely(writer, f"{base}{count:03}", b"")
        if count == 60:
            await watching.until(60)
            ending = asyncio.create_task(asyncio.to_thread(cluster.members[0].kill, number))
    await watching.until(200)
    await ending
    await watching.stop()
    keys = [event.key for event in watching.events]
    # A write repeated after an uncertain answer may show twice; none may be missing.
    assert sorted(set(keys)) == [f"{base}{count:03}" for count in range(200)]
    revisions = [event.mod_revision for event in watching.events]
    assert revisions == sorted(set(revisions))
    assert watching.half == []


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM], ids=["kill", "term"])
async def test_a_watch_broken_while_catching_up_loses_nothing(
    cluster: EtcdServer, connect: Connect, number: signal.Signals
) -> None:
    """5,000 revisions behind, its only member ends after the first answer and comes back."""
    base = f"/behind/{number.name}/"
    writer = connect([1, 2])
    start = await put(writer, base + "start", b"")
    for first in range(0, 5000, 500):
        writes = (put(writer, f"{base}{n:04}", bytes(300)) for n in range(first, first + 500))
        await asyncio.gather(*writes)
    watching = Watching(connect([0]), base, start + 1)
    await watching.until(1)
    await asyncio.to_thread(cluster.members[0].kill, number)
    assert len(watching.events) < 5000, "the member ended too late to show anything"
    await asyncio.to_thread(revive, cluster, cluster.members[0])
    await watching.until(5000)
    await watching.stop()
    revisions = [event.mod_revision for event in watching.events]
    assert revisions == sorted(set(revisions)), "out of order or twice"
    assert len({event.key for event in watching.events}) == len(watching.events) == 5000
    assert watching.half == []


async def test_a_watch_leaves_a_frozen_member(cluster: EtcdServer, connect: Connect) -> None:
    """Nothing is ever closed by a frozen process: only unanswered probes tell."""
    probing = Timeouts(call_s=1.0, keepalive_s=1.0, keepalive_answer_s=1.0)
    watcher, writer = connect([0, 1], timeouts=probing), connect([1, 2])
    start = await put(writer, "/ice/start", b"")
    watching = Watching(watcher, "/ice/", start + 1)
    await put_surely(writer, "/ice/1", b"")
    await watching.until(1)
    cluster.members[0].send(signal.SIGSTOP)
    await put_surely(writer, "/ice/2", b"")
    await watching.until(2, within_s=15)
    await watching.stop()
    assert [event.key for event in watching.events][:2] == ["/ice/1", "/ice/2"]


async def test_a_watch_compacted_while_it_was_away(
    cluster: EtcdServer, connect: Connect
) -> None:
    watcher, writer = connect([0]), connect([1, 2])
    start = await put(writer, "/gone/1", b"")
    watching = Watching(watcher, "/gone/", start)
    await watching.until(1)
    await asyncio.to_thread(cluster.members[0].kill)
    await put_surely(writer, "/gone/2", b"")
    revision = await put(writer, "/gone/3", b"")
    await writer.compact(revision)
    await asyncio.to_thread(revive, cluster, cluster.members[0])
    with pytest.raises(Compacted) as caught:
        await watching.until(4)
    assert caught.value.revision == revision
