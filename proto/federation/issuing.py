"""Issuing: the federation's CA and what it signs.

Every certificate says only what the broker knows: names are the caller's, and of a certificate
request nothing is taken over but its public key.
"""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Sequence

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID

from federation.certificates import (
    BACKDATE_MS,
    DAY_MS,
    CertificateError,
    Credential,
    common_name_of,
    load_chain,
    load_key,
    load_request,
    new_key,
)

AGENT_LIFE_MS = DAY_MS
SERVER_LIFE_MS = 90 * DAY_MS
CA_LIFE_MS = 3_650 * DAY_MS

_HASH = hashes.SHA256()
_CLIENT = ExtendedKeyUsageOID.CLIENT_AUTH
_SERVER = ExtendedKeyUsageOID.SERVER_AUTH


def make_ca(federation: str, *, now_ms: int, life_ms: int = CA_LIFE_MS) -> Credential:
    """A self-signed CA for the federation of this name."""
    key_pem = new_key()
    key = load_key(key_pem)
    name = common_name_of(f"{federation} federation CA")
    builder = _builder(name, key.public_key(), now_ms, life_ms).issuer_name(name)
    builder = builder.add_extension(
        x509.BasicConstraints(ca=True, path_length=0), critical=True
    ).add_extension(_usage(signs_certificates=True), critical=True)
    certificate = builder.sign(key, _HASH)
    return Credential(certificate.public_bytes(Encoding.PEM), key_pem)


def issue_server(
    ca: Credential,
    names: Sequence[str],
    *,
    now_ms: int,
    common_name: str = "server",
    life_ms: int = SERVER_LIFE_MS,
) -> Credential:
    """A server certificate good for these host names and addresses; the first few suffice.

    It may also be shown as a client (etcd members speak to each other with one certificate).
    Raises CertificateError when `names` is empty.
    """
    if not names:
        raise CertificateError("a server certificate needs at least one host name or address")
    key_pem = new_key()
    alternatives = x509.SubjectAlternativeName([_host(n) for n in dict.fromkeys(names)])
    pem = _issue(
        ca,
        _builder(common_name_of(common_name), load_key(key_pem).public_key(), now_ms, life_ms)
        .add_extension(alternatives, critical=False)
        .add_extension(x509.ExtendedKeyUsage([_SERVER, _CLIENT]), critical=False),
    )
    return Credential(pem, key_pem)


def issue_client(
    ca: Credential, common_name: str, *, now_ms: int, life_ms: int = SERVER_LIFE_MS
) -> Credential:
    """A client certificate; etcd takes its common name as the user's name."""
    key_pem = new_key()
    pem = _issue(
        ca,
        _builder(
            common_name_of(common_name), load_key(key_pem).public_key(), now_ms, life_ms
        ).add_extension(x509.ExtendedKeyUsage([_CLIENT]), critical=False),
    )
    return Credential(pem, key_pem)


def issue_agent(
    ca: Credential,
    csr_pem: bytes,
    *,
    federation: str,
    cluster: str,
    now_ms: int,
    life_ms: int = AGENT_LIFE_MS,
) -> bytes:
    """The certificate (PEM) of the agent of `cluster`, for the key of its request.

    Only the public key is taken from the request. Raises CertificateError (see
    `csr_key_sha256`).
    """
    key = load_request(csr_pem)
    uri = x509.UniformResourceIdentifier(f"spiffe://{federation}/cluster/{cluster}")
    builder = _builder(common_name_of(f"agent:{cluster}"), key, now_ms, life_ms)
    return _issue(
        ca,
        builder.add_extension(x509.SubjectAlternativeName([uri]), critical=False).add_extension(
            x509.ExtendedKeyUsage([_CLIENT]), critical=False
        ),
    )


def _issue(ca: Credential, builder: x509.CertificateBuilder) -> bytes:
    issuer = load_chain(ca.certificate_pem)[0]
    issuer_key = x509.SubjectKeyIdentifier.from_public_key(issuer.public_key())
    certificate = (
        builder.issuer_name(issuer.subject)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(issuer_key),
            critical=False,
        )
        .sign(load_key(ca.key_pem), _HASH)
    )
    return certificate.public_bytes(Encoding.PEM)


def _builder(
    subject: x509.Name, key: ec.EllipticCurvePublicKey, now_ms: int, life_ms: int
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(_moment(now_ms - BACKDATE_MS))
        .not_valid_after(_moment(now_ms + life_ms))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _host(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _moment(at_ms: int) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(at_ms // 1000, datetime.UTC)
