"""The embedded etcd serves its broker and nobody else, agents with good certificates included."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from broker.local import etcd_server
from broker.local.etcd_binary import NoEtcd, find_etcd
from broker.local.layout import Home
from broker.local.ports import choose
from broker.state.keyring import Keyring
from federation.certificates import Credential, make_csr, new_key
from federation.etcd.client import EtcdClient
from federation.etcd.endpoints import Timeouts, Tls, parse_endpoint
from federation.issuing import issue_agent, issue_client, make_ca
from federation.kv import PermissionDenied, Put, StoreUnavailable, Txn
from federation.system import SystemClock, SystemIds

KEY = "/tradewind/v1/jobs/j1"


@dataclass
class Served:
    keyring: Keyring
    port: int
    process: subprocess.Popen[bytes]
    now_ms: int

    def client(self, who: Credential, ca: bytes | None = None) -> EtcdClient:
        tls = Tls(ca or self.keyring.ca_bundle, who.certificate_pem, who.key_pem)
        endpoint = parse_endpoint(f"https://127.0.0.1:{self.port}")
        return EtcdClient([endpoint], tls, Timeouts(call_s=2.0))


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    try:
        binary = find_etcd(os.get_exec_path())
    except NoEtcd as error:
        pytest.skip(str(error))
    now_ms = SystemClock().now_ms()
    home = Home(tmp_path)
    keys = Keyring.open(home.broker / "keys", "tradewind", now_ms=now_ms, ids=SystemIds())
    etcd_server.write_certificates(home, keys, now_ms=now_ms)
    ports = choose(home, ())
    command = etcd_server.command(binary.path, home, ports.etcd, ports.etcd_peer)
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    served = Served(keys, ports.etcd, process, now_ms)
    try:
        for _ in range(2):  # a second start finds everything done
            await etcd_server.make_ready(
                ports.etcd, keys, lambda: process.poll() is None, within_s=30, now_ms=now_ms
            )
        yield served
    finally:
        process.kill()
        process.wait(10)


async def _put(client: EtcdClient, key: str) -> None:
    try:
        await client.txn(Txn((), (Put(key, b"x"),)))
    finally:
        await client.close()


async def test_the_broker_has_its_prefix_and_nothing_else(served: Served) -> None:
    broker = served.keyring.etcd_client(now_ms=served.now_ms)
    await _put(served.client(broker), KEY)
    with pytest.raises(PermissionDenied):
        await _put(served.client(broker), "/elsewhere")


async def test_an_agents_certificate_opens_nothing(served: Served) -> None:
    key = new_key()
    request = make_csr(key, "agent")
    issued = issue_agent(
        served.keyring.ca, request, federation="tradewind", cluster="us-east", now_ms=served.now_ms
    )
    agent = Credential(issued, key)
    with pytest.raises(PermissionDenied):
        await _put(served.client(agent), KEY)
    client = served.client(agent)
    with pytest.raises(PermissionDenied):
        await client.get(KEY)
    await client.close()


async def test_a_broker_of_another_federation_is_not_let_in(served: Served) -> None:
    stranger = make_ca("tradewind", now_ms=served.now_ms)
    broker = issue_client(stranger, "broker", now_ms=served.now_ms)
    with pytest.raises(StoreUnavailable):
        await asyncio.wait_for(_put(served.client(broker), KEY), 20)


async def test_one_that_ended_is_not_waited_for(served: Served) -> None:
    served.process.kill()
    served.process.wait(10)
    with pytest.raises(etcd_server.EtcdNotReady, match="ended while it started"):
        await etcd_server.make_ready(
            served.port, served.keyring, lambda: False, within_s=30, now_ms=served.now_ms
        )
