"""Endpoints by name and address, certificates for different names, full disks, the wire itself."""

import asyncio
from collections.abc import Iterator
from contextlib import aclosing

import pytest

from broker.state.backends.etcd import open_store
from federation.etcd.admin import EtcdAdmin
from federation.etcd.client import EtcdClient
from federation.etcd.endpoints import Endpoint, Timeouts, Tls, parse_endpoint
from federation.kv import (
    AlreadyExists,
    InvalidRequest,
    Put,
    SpaceExhausted,
    StoreError,
    StoreUnavailable,
    Txn,
)
from tests.etcd_server import EtcdServer, free_ports, require_binary

pytestmark = pytest.mark.etcd

NAMES = ("etcd-a.example", "etcd-b.example", "etcd-c.example")
SHORT = Timeouts(call_s=1.0, connect_s=1.0)


@pytest.fixture(scope="module")
def named() -> Iterator[EtcdServer]:
    """Three members, each certified for a DNS name of its own and for no address."""
    server = EtcdServer(require_binary(), members=3, tls=True, server_names=NAMES)
    try:
        yield server.start()
    finally:
        server.stop()


def tls_of(server: EtcdServer, user: str = "client") -> Tls:
    assert server.authority is not None
    return Tls.from_files(server.authority.ca_file, *server.authority.issue(user))


async def works(client: EtcdClient) -> bool:
    try:
        await client.txn(Txn(then=(Put("/k", b""),)))
    except StoreUnavailable:
        return False
    finally:
        await client.close()
    return True


async def test_each_member_under_its_own_name(named: EtcdServer) -> None:
    client = EtcdClient(
        [
            parse_endpoint(url, server_name=name)
            for url, name in zip(named.urls, NAMES, strict=True)
        ],
        tls_of(named),
    )
    for index in range(3):
        client.members.current = index
        await client.txn(Txn(then=(Put("/k", b"%d" % index),)))
        assert client.members.current == index, "that member did not serve"
    await client.close()


async def test_a_member_with_another_name_is_not_trusted(named: EtcdServer) -> None:
    for name in ("", NAMES[1]):
        endpoint = parse_endpoint(named.urls[0], server_name=name)
        assert not await works(EtcdClient([endpoint], tls_of(named), SHORT))


async def test_without_a_certificate_nothing_is_served(named: EtcdServer) -> None:
    endpoint = parse_endpoint(named.urls[0], server_name=NAMES[0])
    client = EtcdClient([endpoint], Tls(tls_of(named).ca), SHORT)
    with pytest.raises(StoreError):
        await client.txn(Txn(then=(Put("/k", b""),)))
    with pytest.raises(StoreUnavailable):
        await client.get("/k")
    await client.close()


@pytest.fixture
def everywhere() -> Iterator[EtcdServer]:
    """One member that listens on IPv4 and IPv6, certified for localhost and both."""
    port = free_ports(1)[0]
    urls = f"https://127.0.0.1:{port},https://[::1]:{port}"
    server = EtcdServer(require_binary(), tls=True, flags=[f"--listen-client-urls={urls}"])
    server.members[0].client_url = f"https://127.0.0.1:{port}"
    try:
        yield server.start()
    finally:
        server.stop()


async def test_names_and_addresses_of_both_families(everywhere: EtcdServer) -> None:
    port = everywhere.members[0].port
    for host in ("localhost", "127.0.0.1", "[::1]"):
        endpoint = parse_endpoint(f"https://{host}:{port}")
        assert await works(EtcdClient([endpoint], tls_of(everywhere), SHORT)), host
    dead_first = [parse_endpoint("https://127.0.0.1:1"), parse_endpoint(f"localhost:{port}")]
    assert await works(EtcdClient(dead_first, tls_of(everywhere)))


def test_endpoints_are_read_strictly() -> None:
    assert parse_endpoint("etcd-1.example") == Endpoint("etcd-1.example", 2379)
    assert parse_endpoint("https://10.0.0.1:1/") == Endpoint("10.0.0.1", 1, "", "https")
    assert str(parse_endpoint("[2001:db8::1]:3")) == "[2001:db8::1]:3"
    targets = [parse_endpoint(text).target for text in ("h:1", "1.2.3.4:5", "[::1]:6")]
    assert targets == ["dns:///h:1", "ipv4:1.2.3.4:5", "ipv6:[::1]:6"]
    for wrong in ("", ":1", "ftp://h:1", "h:x", "h:0", "h:70000", "u@h:1", "h:1/v3", "h:1?x=1"):
        with pytest.raises(ValueError, match=r".+"):
            parse_endpoint(wrong)


async def test_a_scheme_must_fit_the_certificates() -> None:
    with pytest.raises(ValueError, match="without certificates"):
        open_store(["https://127.0.0.1:1"])
    with pytest.raises(ValueError, match="with certificates"):
        open_store(["http://127.0.0.1:1"], tls=Tls(b""))
    with pytest.raises(ValueError, match="no endpoint"):
        open_store([])
    with pytest.raises(ValueError, match="2 server names"):
        open_store(["a", "b", "c"], server_names=["a", "b"])


@pytest.fixture(scope="module")
def small() -> Iterator[EtcdServer]:
    """A member with room for next to nothing that reports progress every 200 ms."""
    server = EtcdServer(
        require_binary(),
        flags=[
            "--quota-backend-bytes=4000000",
            "--experimental-watch-progress-notify-interval=200ms",
        ],
    )
    try:
        yield server.start()
    finally:
        server.stop()


async def test_a_full_store_says_so_and_recovers(small: EtcdServer) -> None:
    client = EtcdClient([parse_endpoint(small.urls[0])])
    admin = EtcdAdmin(client.members)
    # etcd counts its file, which it writes ten times a second: a fast writer gets far over.
    with pytest.raises(SpaceExhausted):
        for number in range(200):
            put = Put("/big", bytes([number]) * 400_000)
            await client.txn(Txn(then=(put,)))
            await asyncio.sleep(0.02)
    async with asyncio.timeout(10):
        while [alarm.kind for alarm in await admin.alarms()] != ["NOSPACE"]:
            await asyncio.sleep(0.02)
    with pytest.raises(SpaceExhausted):
        await client.txn(Txn(then=(Put("/small", b""),)))
    kv = await client.get("/big")
    assert kv is not None, "reading goes on"
    await client.compact(kv.mod_revision)
    async with asyncio.timeout(10):
        # Compaction goes on behind its answer; only what it freed can be given back.
        while (await admin.status()).db_size_bytes > 2_000_000:
            await admin.defragment()
            await asyncio.sleep(0.1)
    await admin.clear_space_alarms()
    await client.txn(Txn(then=(Put("/small", b""),)))
    status = await admin.status()
    assert status.member_id == status.leader_id
    assert 0 < status.db_in_use_bytes <= status.db_size_bytes
    await client.close()


async def test_progress_arrives_without_events(small: EtcdServer) -> None:
    client = EtcdClient([parse_endpoint(small.urls[0])])
    revision = (await client.txn(Txn(then=(Put("/elsewhere", b""),)))).revision
    async with asyncio.timeout(5), aclosing(client.watch("/quiet/", revision)) as stream:  # type: ignore[type-var]
        batch = await anext(aiter(stream))
    assert (batch.revision >= revision, batch.events) == (True, ())
    await client.close()


async def test_closing_ends_what_is_under_way(small: EtcdServer) -> None:
    client = EtcdClient([parse_endpoint(small.urls[0])])
    start = (await client.txn(Txn(then=(Put("/k", b""),)))).revision
    stream = client.watch("/none/", start + 1000)
    step = asyncio.ensure_future(anext(aiter(stream)))
    await asyncio.sleep(0.2)
    await client.close()
    with pytest.raises(StoreUnavailable):
        await asyncio.wait_for(step, 5)


async def test_administration_says_what_is_there(small: EtcdServer) -> None:
    client = EtcdClient([parse_endpoint(small.urls[0])])
    admin = EtcdAdmin(client.members)
    await admin.role_add("r")
    await admin.user_add("u")
    for again in (admin.role_add("r"), admin.user_add("u")):
        with pytest.raises(AlreadyExists):
            await again
    await admin.user_grant_role("u", "r")
    assert await admin.user_roles("u") == ("r",)
    with pytest.raises(InvalidRequest):
        await admin.user_grant_role("nobody", "r")
    await admin.user_delete("u")
    await admin.role_delete("r")
    assert await admin.users() == ()
    await client.close()
