"""Ways to a broker other than its own ports: one port for both listeners, and an HTTP proxy."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest

from broker.api.front import Behind, serve_front
from broker.lifecycle import events as ev
from regional_agent.enrol import Door, session_check
from regional_agent.identity import load_identity
from regional_agent.proxying import Proxies, proxies
from tests.integration.session.federation_site import Broker, running

JOB = {"run": "true"}


def api_port(broker: Broker) -> int:
    return int(broker.facts.api_url.rpartition(":")[2])


@contextlib.asynccontextmanager
async def a_front(broker: Broker) -> AsyncIterator[int]:
    """One port before both listeners of a broker; agents are told of it alone."""
    behind = Behind(("127.0.0.1", api_port(broker)), ("127.0.0.1", broker.port))
    server = await serve_front("127.0.0.1", 0, behind)
    port = server.sockets[0].getsockname()[1]
    broker.reached_at = f"session.localhost:{port}"
    broker.facts.addresses = (broker.reached_at,)
    broker.facts.api_url = f"https://localhost:{port}"
    try:
        yield port
    finally:
        server.close()


async def test_sessions_and_api_share_a_port(broker, state):
    async with a_front(broker):
        broker.admit("eu", state)
        async with running(state) as agent:
            await agent.link(lambda link: link.connected)
            assert agent.agent.dialler.state.address == broker.reached_at
            await broker.run("j1-1", JOB)
            await broker.event("j1-1", ev.Ended)
        verdict = await session_check(load_identity(state), door=Door(broker.facts.api_url))
        assert verdict.ok, "the API answers on the same port"


async def test_tls_is_not_ended_at_the_front(broker, state):
    """The session listener sees the client certificate, and its own is what the agent sees."""
    async with a_front(broker) as port:
        broker.admit("eu", state)
        identity = load_identity(state)
        context = ssl.create_default_context(cadata=identity.ca_pem.decode())
        _, writer = await asyncio.open_connection(
            "127.0.0.1", port, ssl=context, server_hostname="localhost"
        )
        shown = writer.get_extra_info("peercert")
        assert ("DNS", "session.localhost") in shown["subjectAltName"]
        writer.close()


@pytest.mark.parametrize("said", [b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x00\x00", b""])
async def test_what_is_no_tls_is_hung_up_on(broker, said):
    async with a_front(broker) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(said)
        writer.write_eof()
        async with asyncio.timeout(5):
            assert await reader.read() == b""
        writer.close()


async def test_a_front_whose_listener_is_away_hangs_up(broker, state):
    async with a_front(broker):
        broker.admit("eu", state)
        await broker.stop()
        async with running(state) as agent:
            await agent.link(lambda link: link.code == "stream_lost")
            await broker.start()
            await broker.connected("eu")


# Through an HTTP proxy ----------------------------------------------------------------------------


@dataclass
class ConnectProxy:
    """A proxy that speaks CONNECT and nothing else; `asked` are the targets it was given."""

    asked: list[str] = field(default_factory=list)
    refuses: bool = False
    url: str = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        method, target, _ = head.split(b"\r\n")[0].decode().split(" ")
        self.asked.append(f"{method} {target}")
        if method != "CONNECT" or self.refuses:
            writer.write(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n")
            writer.close()
            return
        host, _, port = target.rpartition(":")
        far = await asyncio.open_connection(host, int(port))
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        await asyncio.gather(copy(reader, far[1]), copy(far[0], writer), return_exceptions=True)
        far[1].close()
        writer.close()


async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while piece := await reader.read(65_536):
        writer.write(piece)
        await writer.drain()
    writer.write_eof()


@pytest.fixture
async def proxy() -> AsyncIterator[ConnectProxy]:
    made = ConnectProxy()
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0)
    made.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    yield made
    server.close()


async def test_an_agent_reaches_its_broker_through_a_proxy_alone(broker, state, proxy):
    broker.admit("eu", state)
    file = {"path": "run.sh", "sha256": broker.blob(b"echo from a file"), "bytes": 16}
    job = {"run": "sh run.sh", "files": [file]}
    async with running(state, proxies=Proxies(proxy.url, always=True)):
        await broker.connected("eu")
        await broker.run("j1-1", job)
        ended = await broker.event("j1-1", ev.Ended)
    assert ended.outcome.exit_code == 0
    assert f"CONNECT {broker.address}" in proxy.asked, "the session"
    assert f"CONNECT 127.0.0.1:{api_port(broker)}" in proxy.asked, "the blob"


async def test_an_agent_reaches_one_port_through_a_proxy(broker, state, proxy):
    async with a_front(broker) as port:
        broker.admit("eu", state)
        async with running(state, proxies=Proxies(proxy.url, always=True)):
            await broker.connected("eu")
    assert f"CONNECT localhost:{port}" in proxy.asked, "session.localhost needs no DNS entry"


async def test_a_proxy_that_refuses_is_no_way_in_and_is_tried_again(broker, state, proxy):
    broker.admit("eu", state)
    proxy.refuses = True
    async with running(state, proxies=Proxies(proxy.url, always=True)) as agent:
        await agent.link(lambda link: link.code == "stream_lost")
        assert not broker.sessions
        proxy.refuses = False
        await broker.connected("eu")


async def test_the_setting_reaches_https_too(broker, state, proxy):
    broker.admit("eu", state)
    door = Door(broker.facts.api_url, Proxies(proxy.url, always=True).to_url(broker.facts.api_url))
    assert (await session_check(load_identity(state), door=door)).ok
    assert proxy.asked == [f"CONNECT 127.0.0.1:{api_port(broker)}"]


ENVIRON = {"HTTPS_PROXY": "proxy.example:3128", "NO_PROXY": ".inside.example, exact.example:443"}


@pytest.mark.parametrize(
    ("setting", "environ", "host", "expected"),
    [
        (None, {}, "broker.example", ""),
        (None, ENVIRON, "broker.example", "http://proxy.example:3128"),
        (None, {**ENVIRON, "https_proxy": "http://own:1"}, "broker.example", "http://own:1"),
        (None, ENVIRON, "a.inside.example", ""),
        (None, ENVIRON, "outinside.example", "http://proxy.example:3128"),
        (None, ENVIRON, "exact.example", ""),
        (None, {**ENVIRON, "no_proxy": "*"}, "broker.example", ""),
        (None, ENVIRON, "localhost", ""),
        (None, ENVIRON, "127.0.0.1", ""),
        (None, ENVIRON, "[::1]", ""),
        ("", ENVIRON, "broker.example", ""),
        ("http://set:1", ENVIRON, "a.inside.example", "http://set:1"),
        ("http://set:1", {}, "127.0.0.1", "http://set:1"),
    ],
)
def test_which_proxy_leads_to_a_host(setting, environ, host, expected):
    assert proxies(setting, environ).to(host) == expected


def test_the_proxy_of_a_url_is_that_of_its_host():
    assert proxies(None, ENVIRON).to_url("https://a.inside.example:8443/v1") == ""
