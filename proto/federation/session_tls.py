"""TLS of the gRPC session: mutual, reloaded without a restart, and what it shows of the peer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from threading import Lock

import grpc

from federation.certificates import CertificateError, Credential, facts_of
from federation.handshake.values import Peer


@dataclass(frozen=True, slots=True)
class ServerIdentity:
    """What a session listener shows, and whose clients it lets in."""

    credential: Credential
    client_ca_pem: bytes


class SessionCredentials:
    """Credentials of a session listener that follow a changed identity.

    gRPC asks at every handshake, from a thread of its own; connections that are open are kept,
    so what a revoked CA let in is ended by the recheck of each minute, not by this.
    """

    def __init__(self, identity: ServerIdentity) -> None:
        self._lock = Lock()
        self._identity = identity
        self._changed = False
        self.server_credentials: grpc.ServerCredentials = grpc.dynamic_ssl_server_credentials(
            _configuration(identity),
            self._next,  # type: ignore[arg-type]  # None means unchanged, the stub forgets it
            require_client_authentication=True,
        )

    def replace(self, identity: ServerIdentity) -> None:
        """Show this one from the next handshake on; the same one again changes nothing."""
        with self._lock:
            self._changed = self._changed or identity != self._identity
            self._identity = identity

    def _next(self) -> grpc.ServerCertificateConfiguration | None:
        with self._lock:
            if not self._changed:
                return None
            self._changed = False
            return _configuration(self._identity)


def channel_credentials(ca_pem: bytes, credential: Credential) -> grpc.ChannelCredentials:
    """How an agent dials: its own certificate, and only this CA trusted."""
    return grpc.ssl_channel_credentials(ca_pem, credential.key_pem, credential.certificate_pem)


def peer_of(auth_context: Mapping[str, Sequence[bytes]]) -> Peer:
    """Who TLS says is on the other side, from a call's `auth_context()`.

    A missing or odd certificate gives a peer without a cluster, which the handshake refuses.
    """
    tls_version = _first(auth_context, "ssl_tls_version").decode("ascii", "replace")
    try:
        facts = facts_of(_first(auth_context, "x509_pem_cert"))
    except CertificateError:
        return Peer(tls_version, "", "", 0, 0, 0)
    return Peer(
        tls_version=tls_version,
        cluster=facts.cluster,
        serial=facts.serial,
        not_before_ms=facts.not_before_ms,
        not_after_ms=facts.not_after_ms,
        issued_ms=facts.issued_ms,
    )


def _first(auth_context: Mapping[str, Sequence[bytes]], name: str) -> bytes:
    values = auth_context.get(name) or (b"",)
    return values[0]


def _configuration(identity: ServerIdentity) -> grpc.ServerCertificateConfiguration:
    pair = (identity.credential.key_pem, identity.credential.certificate_pem)
    return grpc.ssl_server_certificate_configuration([pair], identity.client_ca_pem)
