"""The embedded etcd: one member on loopback, for its broker alone.

Clients and peers must show a certificate of the federation's CA. Agents hold such certificates
too, so authentication is on: etcd takes a certificate's common name as the user, and knows
`broker` (which may touch our prefix) and `root` (whose key only we can issue).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from pathlib import Path

from broker.local.layout import Home
from broker.state.keyring import ETCD_USER, Keyring
from broker.state.keys import ROOT as KEY_PREFIX
from federation.certificates import Credential, facts_of, issued_by
from federation.etcd.admin import Access, EtcdAdmin
from federation.etcd.client import EtcdClient
from federation.etcd.endpoints import Timeouts, Tls, parse_endpoint
from federation.issuing import issue_client, issue_server
from federation.kv import AlreadyExists, AmbiguousCommit, StoreUnavailable
from federation.private_files import make_private_directory, write_private

NAMES = ("localhost", "127.0.0.1")
MEMBER = "local"
QUOTA_BYTES = 2 * 1024**3
ROOT, ROLE = "root", "tradewind"
ROOT_LIFE_MS = 3_600_000
CALL_S = 1.0
RETRY_S = 0.05
CERTIFICATE, KEY, CA = "server.pem", "server.key", "ca.pem"


class EtcdNotReady(RuntimeError):
    """etcd ended or does not answer; the text says where to look."""


def command(binary: Path, home: Home, client_port: int, peer_port: int) -> list[str]:
    """The command line of the member."""
    url, peer = f"https://127.0.0.1:{client_port}", f"https://127.0.0.1:{peer_port}"
    tls = home.etcd_tls
    return [
        str(binary),
        f"--name={MEMBER}",
        f"--data-dir={home.etcd_data}",
        f"--listen-client-urls={url}",
        f"--advertise-client-urls={url}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster={MEMBER}={peer}",
        f"--cert-file={tls / CERTIFICATE}",
        f"--key-file={tls / KEY}",
        f"--trusted-ca-file={tls / CA}",
        "--client-cert-auth",
        f"--peer-cert-file={tls / CERTIFICATE}",
        f"--peer-key-file={tls / KEY}",
        f"--peer-trusted-ca-file={tls / CA}",
        "--peer-client-cert-auth",
        "--peer-cert-allowed-cn=etcd",
        # It would speak to etcd as etcd, whoever asks.
        "--enable-grpc-gateway=false",
        f"--quota-backend-bytes={QUOTA_BYTES}",
        "--logger=zap",
        "--log-level=warn",
    ]


def write_certificates(home: Home, keyring: Keyring, *, now_ms: int) -> None:
    """Lay what the member shows and trusts; renewed when due. etcd reads it at each handshake.

    Raises OSError.
    """
    tls = home.etcd_tls
    make_private_directory(tls)
    if not _good(tls / CERTIFICATE, keyring, now_ms):
        fresh = issue_server(keyring.ca, NAMES, now_ms=now_ms, common_name="etcd")
        write_private(tls / KEY, fresh.key_pem)
        write_private(tls / CERTIFICATE, fresh.certificate_pem)
    write_private(tls / CA, keyring.ca_bundle)


def _good(file: Path, keyring: Keyring, now_ms: int) -> bool:
    if not file.exists() or not file.with_name(KEY).exists():
        return False
    pem = file.read_bytes()
    return issued_by(pem, keyring.ca.certificate_pem) and now_ms < facts_of(pem).renewal_due_ms


async def make_ready(
    port: int, keyring: Keyring, alive: Callable[[], bool], *, within_s: float, now_ms: int
) -> str:
    """Wait until the member has a leader, then see that only the broker may use it; its version.

    Raises EtcdNotReady.
    """
    root = issue_client(keyring.ca, ROOT, now_ms=now_ms, life_ms=ROOT_LIFE_MS)
    client = _client(port, keyring, root)
    try:
        async with asyncio.timeout(within_s):
            version = await _leading(EtcdAdmin(client.members), alive)
            await _allow_broker_alone(EtcdAdmin(client.members))
            return version
    except TimeoutError:
        raise EtcdNotReady(f"etcd does not answer within {within_s:g} s") from None
    finally:
        await client.close()


def _client(port: int, keyring: Keyring, who: Credential) -> EtcdClient:
    tls = Tls(keyring.ca_bundle, who.certificate_pem, who.key_pem)
    endpoint = parse_endpoint(f"https://127.0.0.1:{port}")
    return EtcdClient([endpoint], tls, Timeouts(call_s=CALL_S, connect_s=CALL_S))


async def _leading(admin: EtcdAdmin, alive: Callable[[], bool]) -> str:
    while True:
        if not alive():
            raise EtcdNotReady("etcd ended while it started")
        with contextlib.suppress(StoreUnavailable):
            status = await admin.status()
            if status.leader_id:
                return status.version
        await asyncio.sleep(RETRY_S)


async def _allow_broker_alone(admin: EtcdAdmin) -> None:
    """Users, role and permission; every step may have been taken before."""
    while True:
        try:
            if ETCD_USER not in await admin.users():
                await _add_users(admin)
            await admin.auth_enable()
            return
        except (StoreUnavailable, AmbiguousCommit):
            await asyncio.sleep(RETRY_S)


async def _add_users(admin: EtcdAdmin) -> None:
    for user, role in ((ROOT, ROOT), (ETCD_USER, ROLE)):
        with contextlib.suppress(AlreadyExists):
            await admin.role_add(role)
        if role == ROLE:
            await admin.role_grant_prefix(ROLE, KEY_PREFIX, Access.READ_WRITE)
        with contextlib.suppress(AlreadyExists):
            await admin.user_add(user)
        await admin.user_grant_role(user, role)
