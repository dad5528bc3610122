"""The ways in which etcd clients were seen to lie, tried on a real cluster of three with TLS.

Members are killed, stopped and frozen under the client; what must hold is that nothing applied is
called not applied, no event is lost, and no lease is believed in longer than it lives.
"""

import asyncio
import signal
import time
from collections import Counter
from collections.abc import Awaitable, Callable

import pytest

from federation.etcd.admin import Access, EtcdAdmin
from federation.etcd.client import EtcdClient
from federation.etcd.endpoints import Timeouts, parse_endpoint
from federation.kept_lease import KeptLease
from federation.kv import (
    Absent,
    AmbiguousCommit,
    Get,
    PermissionDenied,
    Present,
    Put,
    StoreUnavailable,
    Txn,
)
from federation.once import Once, txn_once
from tests.etcd_faults import Connect, T, Watching, put, put_surely, revive
from tests.etcd_server import EtcdServer
from tests.store_steps import RealClock

pytestmark = [pytest.mark.etcd, pytest.mark.usefixtures("whole")]


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
