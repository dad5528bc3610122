"""The ways in which etcd clients were seen to lie, tried on a real cluster of three with TLS.

Members are killed, stopped and frozen under the client; what must hold is that nothing applied is
called not applied, no event is lost, and no lease is believed in longer than it lives.
"""

import asyncio
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, aclosing
from typing import TypeVar

import pytest

from federation.etcd.admin import Access, EtcdAdmin
from federation.etcd.client import EtcdClient
from federation.etcd.endpoints import Timeouts, Tls, parse_endpoint
from federation.kept_lease import KeptLease
from federation.kv import (
    Absent,
    AmbiguousCommit,
    Compacted,
    Get,
    PermissionDenied,
    Present,
    Put,
    StoreError,
    StoreUnavailable,
    Txn,
    WatchEvent,
)
from federation.once import Once, txn_once
from tests.etcd_server import EtcdServer, Member, require_binary

pytestmark = pytest.mark.etcd

# Members lose patience with each other twice as soon as they would by default.
FAST_ELECTIONS = ("--heartbeat-interval=50", "--election-timeout=500")
KEEPALIVE_OFTEN = "--grpc-keepalive-min-time=500ms"

T = TypeVar("T")
Connect = Callable[..., EtcdClient]


class RealClock:
    """The machine's clocks."""

    def now_ms(self) -> int:
        return int(time.time() * 1000)

    def monotonic_s(self) -> float:
        return time.monotonic()


@pytest.fixture(scope="module")
def cluster() -> Iterator[EtcdServer]:
    server = EtcdServer(
        require_binary(), members=3, tls=True, flags=[KEEPALIVE_OFTEN, *FAST_ELECTIONS]
    )
    try:
        yield server.start()
    finally:
        server.stop()


@pytest.fixture
async def connect(cluster: EtcdServer) -> AsyncIterator[Connect]:
    """Makes clients of the cluster; `members` picks endpoints, in order."""
    async with AsyncExitStack() as stack:

        def make(
            members: Sequence[int] = (0, 1, 2),
            *,
            user: str = "root",
            timeouts: Timeouts | None = None,
        ) -> EtcdClient:
            client = client_of(cluster, members, user=user, timeouts=timeouts)
            stack.push_async_callback(client.close)
            return client

        yield make


@pytest.fixture(autouse=True)
def whole(cluster: EtcdServer) -> Iterator[None]:
    """Every test begins with three members that serve."""
    for member in cluster.members:
        wake(member)
    for member in cluster.members:
        cluster.wait_healthy(member)
    yield


def client_of(
    cluster: EtcdServer,
    members: Sequence[int],
    *,
    user: str = "root",
    timeouts: Timeouts | None = None,
) -> EtcdClient:
    assert cluster.authority is not None
    certificate, key = cluster.authority.issue(user)
    return EtcdClient(
        [parse_endpoint(cluster.members[index].client_url) for index in members],
        Tls.from_files(cluster.authority.ca_file, certificate, key),
        timeouts,
    )


def wake(member: Member) -> None:
    """Start or unfreeze a member, whatever was done to it."""
    if member.process is not None and member.process.poll() is not None:
        member.process = None
    if member.process is None:
        member.start()
    member.send(signal.SIGCONT)


def revive(cluster: EtcdServer, member: Member) -> None:
    wake(member)
    cluster.wait_healthy(member)


async def put(client: EtcdClient, key: str, value: bytes) -> int:
    return (await client.txn(Txn(then=(Put(key, value),)))).revision


async def put_surely(client: EtcdClient, key: str, value: bytes) -> None:
    """Write a key whatever happens; repeating the same value is harmless."""
    for _ in range(50):
        try:
            await put(client, key, value)
        except StoreError:
            await asyncio.sleep(0.1)
        else:
            return
    raise AssertionError(f"{key} could not be written")


# Writes ---------------------------------------------------------------------------------------


async def while_a_member_ends(
    cluster: EtcdServer, index: int, number: int, call: Callable[[int], Awaitable[T]]
) -> list[T]:
    """Results of 400 calls, 24 at a time, with a member ended after 120 of them."""
    numbers = iter(range(400))
    results: list[T] = []
    ending: list[asyncio.Task[None]] = []

    async def work() -> None:
        for each in numbers:
            if each == 120:
                kill = asyncio.to_thread(cluster.members[index].kill, number)
                ending.append(asyncio.create_task(kill))
            results.append(await call(each))

    await asyncio.gather(*(work() for _ in range(24)))
    await asyncio.gather(*ending)
    return results


async def test_an_applied_write_is_never_called_not_applied(
    cluster: EtcdServer, connect: Connect
) -> None:
    """Create-if-absent on fresh keys while members die under the calls."""
    client = connect()
    fates: Counter[str] = Counter()
    for index, number in ((0, signal.SIGKILL), (1, signal.SIGTERM), (2, signal.SIGKILL)):
        base = f"/cas/{index}/"
        client.members.current = index

        async def create(each: int, base: str = base) -> tuple[str, str]:
            key = f"{base}{each}"
            try:
                result = await client.txn(Txn((Absent(key),), (Put(key, b"mine"),)))
            except AmbiguousCommit:
                return key, "ambiguous"
            except StoreUnavailable:
                return key, "unavailable"
            return key, "created" if result.succeeded else "lost"

        said = await while_a_member_ends(cluster, index, number, create)
        await asyncio.to_thread(revive, cluster, cluster.members[index])
        applied = {kv.key for kv in (await client.range(base)).kvs}
        for key, fate in said:
            fates[fate] += 1
            if fate == "created":
                assert key in applied, "called applied and is not there"
            elif fate != "ambiguous":
                assert key not in applied, f"applied and called {fate}"
    assert fates["lost"] == 0, "nobody else creates these keys"
    assert fates["created"] > 1000, fates
    assert fates["ambiguous"] <= 3 * 24 * 2, fates


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM], ids=["kill", "term"])
async def test_once_finds_out_what_became_of_it(
    cluster: EtcdServer, connect: Connect, number: signal.Signals
) -> None:
    """Each key is created exactly once and its creator knows it was."""
    client = connect()
    client.members.current = 1
    base = f"/once/{number.name}/"

    async def create(each: int) -> Once:
        probe = Put(f"{base}probe/{each}", b"nonce %d" % each)
        txn = Txn((Absent(probe.key),), (probe, Put(f"{base}count/{each}", b"")))
        once = await txn_once(client, txn, probe)
        kv = await client.get(probe.key)
        assert kv is not None
        assert once.revision == kv.mod_revision
        return once

    fates = await while_a_member_ends(cluster, 1, number, create)
    assert all(once.succeeded for once in fates)
    counts = (await client.range(f"{base}count/")).kvs
    assert len(counts) == 400
    assert {kv.version for kv in counts} == {1}, "something was applied twice"


async def test_nobody_there_is_unavailable_not_ambiguous(connect: Connect) -> None:
    client = EtcdClient(
        [parse_endpoint("127.0.0.1:1"), parse_endpoint("no-such-host.invalid:1")],
        timeouts=Timeouts(call_s=0.5, connect_s=0.5),
    )
    begun = time.monotonic()
    for call in (client.get("k"), put(client, "k", b""), client.grant(5), client.keep(5)):
        with pytest.raises(StoreUnavailable):
            await call
    assert time.monotonic() - begun < 8
    await client.close()
    with pytest.raises(StoreUnavailable):
        await client.get("k")


async def test_a_frozen_member_makes_a_write_ambiguous_and_the_next_one_work(
    cluster: EtcdServer, connect: Connect
) -> None:
    client = connect(timeouts=Timeouts(call_s=1.5))
    client.members.current = 2
    await put(client, "/frozen", b"before")
    cluster.members[2].send(signal.SIGSTOP)
    # A leader that froze is replaced only after an election.
    with pytest.raises(AmbiguousCommit):
        await put(client, "/frozen", b"perhaps")
    await put_surely(client, "/frozen", b"after")
    kv = await client.get("/frozen")
    assert kv is not None
    assert kv.value == b"after"


async def test_reads_go_on_while_a_member_dies(cluster: EtcdServer, connect: Connect) -> None:
    client = connect()
    client.members.current = 0
    await put(client, "/read", b"1")

    async def read() -> bytes | None:
        result = await client.txn(Txn(then=(Get("/read"),)))
        kv = await client.get("/read")
        assert result.results[0].kv == kv
        return kv.value if kv else None

    calls = [asyncio.create_task(read()) for _ in range(100)]
    await asyncio.sleep(0.005)
    await asyncio.to_thread(cluster.members[0].kill)
    assert set(await asyncio.gather(*calls)) == {b"1"}


async def test_a_member_without_a_leader_refuses_at_once(
    cluster: EtcdServer, connect: Connect
) -> None:
    client = connect([0], timeouts=Timeouts(call_s=1.0))
    await put(client, "/alone", b"1")
    for member in cluster.members[1:]:
        await asyncio.to_thread(member.kill)
    # Until it notices, a write may hang and then is ambiguous; afterwards it is refused unsent.
    async with asyncio.timeout(10):
        while True:
            try:
                await put(client, "/alone", b"2")
            except AmbiguousCommit:
                continue
            except StoreUnavailable:
                break
    with pytest.raises(StoreUnavailable):
        await client.get("/alone")


# Watches --------------------------------------------------------------------------------------


class Watching:
    """Collects events of a prefix in the background."""

    def __init__(self, client: EtcdClient, prefix: str, from_revision: int) -> None:
        self.events: list[WatchEvent] = []
        self.half: list[int] = []
        self._last = 0
        self._task = asyncio.create_task(self._run(client, prefix, from_revision))

    async def _run(self, client: EtcdClient, prefix: str, from_revision: int) -> None:
        stream = client.watch(prefix, from_revision)
        async with aclosing(stream) as batches:  # type: ignore[type-var]
            async for batch in batches:
                if batch.events and batch.events[0].mod_revision <= self._last:
                    self.half.append(batch.events[0].mod_revision)
                self.events += batch.events
                self._last = batch.revision

    async def until(self, count: int, within_s: float = 20) -> None:
        """Wait for `count` events; fails with what the watch failed with."""
        deadline = time.monotonic() + within_s
        while len(self.events) < count and time.monotonic() < deadline:
            if self._task.done():
                self._task.result()
            await asyncio.sleep(0.02)

    async def stop(self) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])


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


# Leases ---------------------------------------------------------------------------------------


async def test_a_kept_lease_outlives_its_ttl_and_is_given_back(connect: Connect) -> None:
    client = connect()
    async with KeptLease(client, 2, RealClock()) as lease:
        await client.txn(Txn(then=(Put("/kept", b"", lease.id),)))
        await asyncio.sleep(4.5)
        assert lease.alive
        assert await client.get("/kept") is not None
    assert not lease.alive
    assert await client.get("/kept") is None


async def test_a_kept_lease_is_given_up_before_it_ends(
    cluster: EtcdServer, connect: Connect
) -> None:
    """Its only member freezes: the holder must stop believing before others see it gone."""
    holder, other = connect([0]), connect([1, 2])
    async with KeptLease(holder, 3, RealClock()) as lease:
        await holder.txn(Txn(then=(Put("/held", b"", lease.id),)))
        await asyncio.sleep(1.5)
        cluster.members[0].send(signal.SIGSTOP)
        given_up = gone = 0.0
        begun = time.monotonic()
        while not (given_up and gone) and time.monotonic() < begun + 15:
            if not lease.alive and not given_up:
                given_up = time.monotonic() - begun
            present = await other.txn(Txn((Present("/held"),)))
            if not present.succeeded and not gone:
                gone = time.monotonic() - begun
                assert given_up, "the key is gone and the holder still believes in it"
            await asyncio.sleep(0.02)
        assert 0 < given_up <= 3.2
        assert gone
        async with asyncio.timeout(2):
            await lease.wait_lost()
        cluster.members[0].send(signal.SIGCONT)
    assert not lease.alive


# Permissions ----------------------------------------------------------------------------------


async def test_a_forbidden_prefix_is_refused_everywhere(connect: Connect) -> None:
    """Users are certificate names; a refused watch must raise instead of waiting for ever."""
    client = connect()
    admin = EtcdAdmin(client.members)
    for name in ("root", "alice"):
        await admin.user_add(name)
        await admin.role_add(name)
        await admin.user_grant_role(name, name)
    await admin.role_grant_prefix("alice", "/alice/", Access.READ_WRITE)
    await admin.auth_enable()
    try:
        alice, nobody = connect(user="alice"), connect(user="nobody")
        revision = await put(alice, "/alice/k", b"1")
        watching = Watching(alice, "/alice/", revision)
        await watching.until(1)
        await watching.stop()
        for denied in (
            alice.get("/bob/k"),
            alice.range("/"),
            put(alice, "/bob/k", b""),
            alice.txn(Txn((Absent("/bob/k"),), (Put("/alice/k", b"2"),))),
            nobody.get("/alice/k"),
            put(nobody, "/alice/k", b"3"),
            EtcdAdmin(alice.members).user_add("mallory"),
        ):
            with pytest.raises(PermissionDenied):
                await denied
        for client_, prefix in ((alice, "/bob/"), (alice, ""), (nobody, "/alice/")):
            with pytest.raises(PermissionDenied):
                await Watching(client_, prefix, 1).until(1, within_s=5)
        kv = await alice.get("/alice/k")
        assert kv is not None
        assert kv.value == b"1"
    finally:
        await admin.auth_disable()
    assert set(await admin.users()) == {"root", "alice"}
