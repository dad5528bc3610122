"""Sink `etcd`: an agent writes its own reports straight into a real etcd, and nothing else."""

import asyncio

import pytest

from federation.etcd.admin import Access, EtcdAdmin
from federation.etcd.client import EtcdClient
from federation.etcd.endpoints import Tls, parse_endpoint
from federation.wire import records as rec
from regional_agent.feedback.direct_reports import etcd_sink
from regional_agent.sense.prices import DeclaredPrice, PriceKind
from tests.etcd_server import EtcdServer, require_binary
from tests.integration.session.federation_site import running

pytestmark = pytest.mark.etcd
PREFIX = "/tradewind/v1/reports/eu/"


@pytest.fixture
async def etcd(broker):
    """An etcd that knows users by certificate: `root`, and `agent:eu` who may write its prefix."""
    server = EtcdServer(require_binary(), tls=True)
    with server.authority.ca_file.open("ab") as file:
        file.write(broker.ca.certificate_pem)
    server.start()
    tls = Tls.from_files(server.authority.ca_file, *server.authority.issue("root"))
    root = EtcdClient([parse_endpoint(url) for url in server.urls], tls)
    admin = EtcdAdmin(root.members)
    for name in ("root", "agent:eu"):
        await admin.user_add(name)
        await admin.role_add(name)
        await admin.user_grant_role(name, name)
    await admin.role_grant_prefix("agent:eu", PREFIX, Access.WRITE)
    await admin.auth_enable()
    yield server, root
    await root.close()
    server.stop()


async def test_an_agent_writes_its_reports_itself(broker, state, etcd):
    server, root = etcd
    broker.admit("eu", state)
    with (state / "identity" / "ca.crt").open("ab") as file:
        file.write(server.authority.ca_file.read_bytes())
    price = DeclaredPrice("cpu", PriceKind.OWNED, 0, 20_000, 1, "the test")
    changes = {"report_sink": "etcd", "etcd_endpoints": tuple(server.urls), "prices": (price,)}
    async with running(state, **changes):
        await broker.connected("eu")
        await broker.run("j1-1", {"run": "sleep 2"})
        async with asyncio.timeout(20):
            while not await self_reported(root, 7):
                await asyncio.sleep(0.1)
        kv = await root.get(PREFIX + "price")
        kept = rec.ReportEnvelope.FromString(kv.value)
        assert kept.price.pools[0].full_micro_usd == 20_000
        assert broker.capacities == [] and broker.prices == []


async def self_reported(root: EtcdClient, free: int) -> bool:
    kv = await root.get(PREFIX + "capacity")
    if kv is None:
        return False
    kept = rec.ReportEnvelope.FromString(kv.value)
    assert kept.received_ms == 0 and kept.schema == 1
    return kept.capacity.pools[0].groups[0].free == free


async def test_an_agent_cannot_write_the_reports_of_another(broker, state, etcd, caplog):
    server, root = etcd
    tls = Tls.from_files(server.authority.ca_file, *server.authority.issue("agent:eu"))
    sink = etcd_sink("us", server.urls, tls)
    from federation.wire import session as pb

    await sink.put(pb.Report(price=rec.PriceReport(generation=1)))
    await sink.close()
    assert "do not reach etcd" in caplog.text
    assert await root.get("/tradewind/v1/reports/us/price") is None
