"""The session's TLS with real gRPC: who the broker sees, who never gets that far, and reloading."""

import socket
import ssl

import grpc
import pytest

from federation.certificates import Credential, bundle, facts_of, make_csr, new_key
from federation.handshake.broker_half import judge
from federation.handshake.frames import SessionCode
from federation.handshake.values import KnownCluster
from federation.issuing import issue_agent, issue_client, issue_server, make_ca
from federation.session_tls import (
    ServerIdentity,
    SessionCredentials,
    channel_credentials,
    peer_of,
)
from federation.system import SystemClock

METHOD = "/test/Who"
NOW_MS = SystemClock().now_ms()
CA = make_ca("fed", now_ms=NOW_MS)
FOREIGN = make_ca("fed", now_ms=NOW_MS)


def server(ca: Credential, *trusted: Credential) -> ServerIdentity:
    made = issue_server(ca, ["localhost", "127.0.0.1"], now_ms=NOW_MS)
    return ServerIdentity(made, bundle(*(t.certificate_pem for t in (trusted or (ca,)))))


def agent(ca: Credential, now_ms: int = NOW_MS, **more) -> Credential:
    key = new_key()
    asked = make_csr(key, "agent")
    pem = issue_agent(ca, asked, federation="fed", cluster="eu", now_ms=now_ms, **more)
    return Credential(pem, key)


class Who(grpc.GenericRpcHandler):
    """Keeps the peer of the last call."""

    def __init__(self) -> None:
        self.peer = None

    def service(self, handler_call_details):
        async def answer(request, context):
            self.peer = peer_of(context.auth_context())
            return b"ok"

        return grpc.unary_unary_rpc_method_handler(answer)


@pytest.fixture
async def listener():
    who, credentials = Who(), SessionCredentials(server(CA))
    listening = grpc.aio.server()
    listening.add_generic_rpc_handlers((who,))
    port = listening.add_secure_port("127.0.0.1:0", credentials.server_credentials)
    await listening.start()
    yield who, credentials, port
    await listening.stop(None)


async def call(port: int, credentials: grpc.ChannelCredentials) -> bytes | grpc.StatusCode:
    async with grpc.aio.secure_channel(f"127.0.0.1:{port}", credentials) as channel:
        try:
            return await channel.unary_unary(METHOD)(b"", timeout=5)
        except grpc.aio.AioRpcError as problem:
            return problem.code()


async def test_the_broker_sees_cluster_serial_dates_and_tls_version(listener):
    who, _, port = listener
    mine = agent(CA)
    assert await call(port, channel_credentials(CA.certificate_pem, mine)) == b"ok"
    facts = facts_of(mine.certificate_pem)
    assert (who.peer.tls_version, who.peer.cluster) == ("TLSv1.3", "eu")
    assert who.peer.serial == facts.serial
    assert who.peer.not_after_ms == facts.not_after_ms
    assert who.peer.issued_ms == facts.issued_ms
    assert judge(who.peer, KnownCluster("joined"), NOW_MS) is None


async def test_foreign_expired_and_missing_certificates_do_not_get_through_tls(listener):
    who, _, port = listener
    day_ms = 86_400_000
    expired = agent(CA, NOW_MS - 2 * day_ms, life_ms=day_ms)
    for credentials in (
        channel_credentials(CA.certificate_pem, agent(FOREIGN)),
        channel_credentials(CA.certificate_pem, expired),
        grpc.ssl_channel_credentials(CA.certificate_pem),
    ):
        assert await call(port, credentials) is grpc.StatusCode.UNAVAILABLE
    assert who.peer is None


async def test_an_agent_does_not_speak_to_a_foreign_broker(listener):
    _, _, port = listener
    credentials = channel_credentials(FOREIGN.certificate_pem, agent(CA))
    assert await call(port, credentials) is grpc.StatusCode.UNAVAILABLE


async def test_a_client_that_is_no_agent_has_no_cluster(listener):
    who, _, port = listener
    made = issue_client(CA, "broker", now_ms=NOW_MS)
    assert await call(port, channel_credentials(CA.certificate_pem, made)) == b"ok"
    code, _ = judge(who.peer, KnownCluster("joined"), NOW_MS)
    assert code is SessionCode.CERTIFICATE_MISSING


async def test_old_and_new_ca_serve_side_by_side_without_a_restart(listener):
    _, credentials, port = listener
    new = make_ca("fed", now_ms=NOW_MS)
    both = bundle(CA.certificate_pem, new.certificate_pem)
    old_agent, new_agent = agent(CA), agent(new)
    credentials.replace(server(new, CA, new))
    assert await call(port, channel_credentials(both, old_agent)) == b"ok"
    assert await call(port, channel_credentials(new.certificate_pem, new_agent)) == b"ok"
    only_old = await call(port, channel_credentials(CA.certificate_pem, old_agent))
    assert only_old is grpc.StatusCode.UNAVAILABLE
    credentials.replace(server(new))
    assert await call(port, channel_credentials(both, old_agent)) is grpc.StatusCode.UNAVAILABLE
    assert await call(port, channel_credentials(both, new_agent)) == b"ok"


async def test_a_peer_below_tls_1_3_is_seen_as_such(listener, tmp_path):
    """gRPC lets TLS 1.2 in; the handshake's judgement is what turns it away."""
    _, _, port = listener
    mine = agent(CA)
    pem = tmp_path / "agent.pem"
    pem.write_bytes(mine.certificate_pem + mine.key_pem)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    context.load_verify_locations(cadata=CA.certificate_pem.decode())
    context.load_cert_chain(pem)
    context.set_alpn_protocols(["h2"])
    with (
        socket.create_connection(("127.0.0.1", port)) as raw,
        context.wrap_socket(raw, server_hostname="127.0.0.1") as wrapped,
    ):
        shown = wrapped.version()
    assert shown == "TLSv1.2"
    peer = peer_of({"ssl_tls_version": [b"TLSv1.2"], "x509_pem_cert": [mine.certificate_pem]})
    code, text = judge(peer, KnownCluster("joined"), NOW_MS)
    assert code is SessionCode.TLS_TOO_OLD and "TLSv1.2" in text


@pytest.mark.parametrize("shown", [{}, {"x509_pem_cert": [b"nonsense"]}, {"x509_pem_cert": []}])
def test_an_odd_auth_context_is_a_peer_without_identity(shown):
    assert peer_of(shown).cluster == ""
