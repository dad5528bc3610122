"""Certificates of the federation: what they say, and whose they are. `issuing` makes them.

All keys are EC P-256, all text is PEM, all times are milliseconds since the epoch passed in by
the caller. An agent is known by a SPIFFE URI, `spiffe://<federation>/cluster/<name>`, which the
broker writes itself: nothing an agent asks for in its request is taken over but its public key.

Certificates begin a little in the past (`BACKDATE_MS`), so that a site whose clock is behind
can use one at once, and are due for renewal at two thirds of their life. While a CA is
replaced, both the old and the new one lie in one bundle, and a certificate of either is good.
"""

from __future__ import annotations

import datetime
import hashlib
from dataclasses import dataclass

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import NameOID

BACKDATE_MS = 300_000
DAY_MS = 86_400_000
PEM_BYTES_MAX = 16_384

_HASH = hashes.SHA256()
# What the parser raises for bytes that look like a certificate and are none of ours.
_UNREADABLE = (
    ValueError,
    TypeError,
    UnsupportedAlgorithm,
    x509.InvalidVersion,
    x509.DuplicateExtension,
    x509.UnsupportedGeneralNameType,
)


class CertificateError(ValueError):
    """A certificate, key or request that cannot be used; the text is one line for people."""


@dataclass(frozen=True, slots=True)
class Credential:
    """A certificate and the private key it belongs to, both PEM."""

    certificate_pem: bytes
    key_pem: bytes


@dataclass(frozen=True, slots=True)
class CertificateFacts:
    """What a certificate says. `cluster` and `federation` are empty unless it is an agent's."""

    cluster: str
    federation: str
    common_name: str
    serial: str
    not_before_ms: int
    not_after_ms: int
    public_key_sha256: str

    @property
    def issued_ms(self) -> int:
        """When it was issued, to the second before."""
        return min(self.not_before_ms + BACKDATE_MS, self.not_after_ms)

    @property
    def renewal_due_ms(self) -> int:
        """When two thirds of its life, counted from its issue, are over."""
        return self.issued_ms + (self.not_after_ms - self.issued_ms) * 2 // 3


# Making ---------------------------------------------------------------------------------------


def new_key() -> bytes:
    """A fresh P-256 private key, PEM (PKCS 8, not encrypted)."""
    return ec.generate_private_key(ec.SECP256R1()).private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()
    )


def make_csr(key_pem: bytes, common_name: str) -> bytes:
    """A certificate request (PEM) signed by the key: proof that the asker holds it."""
    builder = x509.CertificateSigningRequestBuilder().subject_name(common_name_of(common_name))
    return builder.sign(load_key(key_pem), _HASH).public_bytes(Encoding.PEM)


def prove(key_pem: bytes, message: bytes) -> bytes:
    """Sign `message` with a private key: ECDSA over SHA-256, DER."""
    return load_key(key_pem).sign(message, ec.ECDSA(_HASH))


# Reading --------------------------------------------------------------------------------------


def facts_of(certificate_pem: bytes) -> CertificateFacts:
    """What the first certificate of a PEM text says. Raises CertificateError."""
    certificate = load_chain(certificate_pem)[0]
    try:
        federation, cluster = _spiffe(certificate)
        names = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
        return CertificateFacts(
            cluster=cluster,
            federation=federation,
            common_name=str(names[0].value) if names else "",
            serial=f"{certificate.serial_number:x}",
            not_before_ms=_ms(certificate.not_valid_before_utc),
            not_after_ms=_ms(certificate.not_valid_after_utc),
            public_key_sha256=_key_sha256(_ec_key(certificate)),
        )
    except CertificateError:
        raise
    except _UNREADABLE as problem:
        raise CertificateError("this certificate cannot be read") from problem


def cluster_of(certificate_pem: bytes) -> str:
    """Name of the cluster whose agent this certificate is; empty when it is no agent's.

    Raises CertificateError for what is no certificate.
    """
    return facts_of(certificate_pem).cluster


def issued_by(certificate_pem: bytes, bundle_pem: bytes) -> bool:
    """Whether one of the CAs of `bundle_pem` signed the certificate, whatever its dates.

    Raises CertificateError for what is no certificate.
    """
    certificate = load_chain(certificate_pem)[0]
    for ca in load_chain(bundle_pem):
        try:
            certificate.verify_directly_issued_by(ca)
        except (InvalidSignature, *_UNREADABLE):
            continue
        return True
    return False


def csr_key_sha256(csr_pem: bytes) -> str:
    """SHA-256 (hex) of the public key of a request.

    Raises CertificateError for a request that is malformed, not signed by its own key, or whose
    key is not P-256.
    """
    return _key_sha256(load_request(csr_pem))


def key_sha256(key_pem: bytes) -> str:
    """SHA-256 (hex) of the public half of a private key, as `csr_key_sha256` gives it."""
    return _key_sha256(load_key(key_pem).public_key())


def proof_holds(certificate_pem: bytes, message: bytes, proof: bytes) -> bool:
    """Whether `proof` is `prove(key, message)` by the key of the certificate."""
    try:
        key = _ec_key(load_chain(certificate_pem)[0])
        key.verify(proof, message, ec.ECDSA(_HASH))
    except (InvalidSignature, CertificateError):
        return False
    return True


def ca_hashes(bundle_pem: bytes) -> dict[str, bytes]:
    """Each CA alone as PEM, in the bundle's order, by SHA-256 (hex) of its public key."""
    return {_key_sha256(_ec_key(c)): c.public_bytes(Encoding.PEM) for c in load_chain(bundle_pem)}


def ca_hash(ca_pem: bytes) -> str:
    """SHA-256 (hex) of the public key of the first CA: what `--ca-hash` pins."""
    return next(iter(ca_hashes(ca_pem)))


def server_names(certificate_pem: bytes) -> list[str]:
    """Host names and addresses a server certificate is good for, in its order."""
    try:
        names = load_chain(certificate_pem)[0].extensions.get_extension_for_class(
            x509.SubjectAlternativeName
        )
    except (x509.ExtensionNotFound, *_UNREADABLE):
        return []
    return [str(n.value) for n in names.value if isinstance(n, x509.DNSName | x509.IPAddress)]


def bundle(*certificates_pem: bytes) -> bytes:
    """CAs that are good at the same time, one PEM text, each once."""
    merged: dict[str, bytes] = {}
    for pem in certificates_pem:
        for certificate in load_chain(pem):
            text = certificate.public_bytes(Encoding.PEM)
            merged.setdefault(hashlib.sha256(text).hexdigest(), text)
    return b"".join(merged.values())


def load_chain(pem: bytes) -> list[x509.Certificate]:
    """All certificates of a PEM text, at least one. Raises CertificateError."""
    if len(pem) > PEM_BYTES_MAX:
        raise CertificateError(f"{len(pem)} bytes are too many for certificates")
    try:
        return x509.load_pem_x509_certificates(pem)
    except _UNREADABLE as problem:
        raise CertificateError("this is no PEM certificate") from problem


def load_request(csr_pem: bytes) -> ec.EllipticCurvePublicKey:
    """The P-256 public key of a request that is signed by it. Raises CertificateError."""
    if len(csr_pem) > PEM_BYTES_MAX:
        raise CertificateError(f"{len(csr_pem)} bytes are too many for a certificate request")
    try:
        request = x509.load_pem_x509_csr(csr_pem)
        signed = request.is_signature_valid
        key = request.public_key()
    except _UNREADABLE as problem:
        raise CertificateError("this is no PEM certificate request") from problem
    if not signed:
        raise CertificateError("the certificate request is not signed by its own key")
    if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, ec.SECP256R1):
        raise CertificateError("the key of the certificate request is not EC P-256")
    return key


def load_key(key_pem: bytes) -> ec.EllipticCurvePrivateKey:
    """A private key. Raises CertificateError."""
    try:
        key = load_pem_private_key(key_pem, password=None)
    except _UNREADABLE as problem:
        raise CertificateError("this is no unencrypted PEM private key") from problem
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise CertificateError("this private key is not an EC key")
    return key


def _spiffe(certificate: x509.Certificate) -> tuple[str, str]:
    """(federation, cluster) of an agent's certificate; two empty texts for any other."""
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except x509.ExtensionNotFound:
        return "", ""
    uris = names.value.get_values_for_type(x509.UniformResourceIdentifier)
    if len(uris) != 1 or not uris[0].startswith("spiffe://"):
        return "", ""
    federation, _, path = uris[0].removeprefix("spiffe://").partition("/")
    kind, _, cluster = path.partition("/")
    if kind != "cluster" or not federation or not cluster or "/" in cluster:
        return "", ""
    return federation, cluster


def _ec_key(certificate: x509.Certificate) -> ec.EllipticCurvePublicKey:
    try:
        key = certificate.public_key()
    except _UNREADABLE as problem:
        raise CertificateError("the key of this certificate cannot be read") from problem
    if not isinstance(key, ec.EllipticCurvePublicKey):
        raise CertificateError("this certificate is not for an EC key: not of a federation")
    return key


def _key_sha256(key: ec.EllipticCurvePublicKey) -> str:
    der = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return hashlib.sha256(der).hexdigest()


def common_name_of(common_name: str) -> x509.Name:
    """The distinguished name that holds a common name only."""
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _ms(moment: datetime.datetime) -> int:
    return int(moment.timestamp()) * 1000
