"""Certificates: who issued them, whose they are, when they are due."""

import datetime
import subprocess

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding

from federation.certificates import (
    BACKDATE_MS,
    DAY_MS,
    CertificateError,
    bundle,
    ca_hash,
    ca_hashes,
    cluster_of,
    csr_key_sha256,
    facts_of,
    issued_by,
    key_sha256,
    load_chain,
    make_csr,
    new_key,
    proof_holds,
    prove,
    server_names,
)
from federation.issuing import issue_agent, issue_client, issue_server, make_ca

NOW_MS = 1_800_000_000_000


@pytest.fixture(scope="module")
def ca():
    return make_ca("fed", now_ms=NOW_MS)


def agent(ca, key: bytes, cluster: str = "eu", **more) -> bytes:
    asked = make_csr(key, "whatever the agent likes")
    return issue_agent(ca, asked, federation="fed", cluster=cluster, now_ms=NOW_MS, **more)


def test_an_agents_certificate_says_what_the_broker_knows(ca):
    key = new_key()
    facts = facts_of(agent(ca, key))
    assert (facts.federation, facts.cluster, facts.common_name) == ("fed", "eu", "agent:eu")
    assert facts.public_key_sha256 == key_sha256(key) == csr_key_sha256(make_csr(key, "x"))
    assert facts.not_before_ms == NOW_MS - BACKDATE_MS
    assert facts.not_after_ms == NOW_MS + DAY_MS
    assert facts.renewal_due_ms == NOW_MS + DAY_MS * 2 // 3
    assert int(facts.serial, 16) > 0


def test_renewal_of_a_certificate_shorter_than_the_backdate_is_not_due_at_once(ca):
    facts = facts_of(agent(ca, new_key(), life_ms=60_000))
    assert facts.renewal_due_ms == NOW_MS + 40_000


def test_only_agents_have_a_cluster(ca):
    assert cluster_of(issue_client(ca, "broker", now_ms=NOW_MS).certificate_pem) == ""
    assert cluster_of(issue_server(ca, ["h"], now_ms=NOW_MS).certificate_pem) == ""
    assert cluster_of(ca.certificate_pem) == ""


@pytest.mark.parametrize(
    "uris",
    [
        [],
        ["https://fed/cluster/eu"],
        ["spiffe://fed/cluster/"],
        ["spiffe:///cluster/eu"],
        ["spiffe://fed/cluster/eu/x"],
        ["spiffe://fed/node/eu"],
        ["spiffe://fed/cluster/eu", "spiffe://fed/cluster/us"],
    ],
)
def test_an_odd_identity_is_none(uris):
    key = ec.generate_private_key(ec.SECP256R1())
    assert cluster_of(self_signed(key, uris)) == ""


def self_signed(key, uris=(), names=()) -> bytes:
    name = x509.Name([])
    start = datetime.datetime(2027, 1, 1, tzinfo=datetime.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(7)
        .not_valid_before(start)
        .not_valid_after(start + datetime.timedelta(days=1))
    )
    others = [x509.UniformResourceIdentifier(u) for u in uris]
    if others:
        builder = builder.add_extension(x509.SubjectAlternativeName(others), critical=False)
    digest = None if isinstance(key, ed25519.Ed25519PrivateKey) else hashes.SHA256()
    return builder.sign(key, digest).public_bytes(Encoding.PEM)


def test_old_and_new_ca_are_good_together_and_a_foreign_one_never(ca):
    new, foreign = make_ca("fed", now_ms=NOW_MS), make_ca("fed", now_ms=NOW_MS)
    both = bundle(ca.certificate_pem, new.certificate_pem, ca.certificate_pem)
    assert len(load_chain(both)) == 2
    assert issued_by(agent(ca, new_key()), both)
    assert issued_by(agent(new, new_key()), both)
    assert not issued_by(agent(foreign, new_key()), both)
    assert not issued_by(agent(new, new_key()), ca.certificate_pem)
    assert list(ca_hashes(both)) == [ca_hash(ca.certificate_pem), ca_hash(new.certificate_pem)]
    assert ca_hashes(both)[ca_hash(new.certificate_pem)] == new.certificate_pem


def test_possession_is_proved_by_the_key_of_the_certificate_only(ca):
    key = new_key()
    certificate = agent(ca, key)
    assert proof_holds(certificate, b"message", prove(key, b"message"))
    assert not proof_holds(certificate, b"other", prove(key, b"message"))
    assert not proof_holds(certificate, b"message", prove(new_key(), b"message"))
    assert not proof_holds(certificate, b"message", b"")


def test_server_names_keep_their_kind_and_order(ca):
    names = ["broker.example.org", "127.0.0.1", "::1", "session.broker.example.org"]
    made = issue_server(ca, [*names, "127.0.0.1"], now_ms=NOW_MS)
    assert server_names(made.certificate_pem) == names
    with pytest.raises(CertificateError, match="at least one"):
        issue_server(ca, [], now_ms=NOW_MS)


@pytest.mark.parametrize(
    "key",
    [
        ec.generate_private_key(ec.SECP384R1()),
        ed25519.Ed25519PrivateKey.generate(),
        rsa.generate_private_key(65537, 2048),
    ],
)
def test_requests_and_certificates_of_other_key_kinds_are_refused(ca, key):
    digest = None if isinstance(key, ed25519.Ed25519PrivateKey) else hashes.SHA256()
    request = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([]))
    pem = request.sign(key, digest).public_bytes(Encoding.PEM)
    with pytest.raises(CertificateError, match="P-256"):
        issue_agent(ca, pem, federation="fed", cluster="eu", now_ms=NOW_MS)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        with pytest.raises(CertificateError, match="EC key"):
            facts_of(self_signed(key))


def block(kind: str) -> bytes:
    return f"-----BEGIN {kind}-----\nAAAA\n-----END {kind}-----\n".encode()


@pytest.mark.parametrize(
    "pem",
    [
        b"",
        b"nonsense",
        b"\xff\xfe",
        block("CERTIFICATE"),
        block("CERTIFICATE REQUEST"),
        block("PRIVATE KEY"),
        b"x" * 1_000_000,
    ],
)
def test_nonsense_is_one_kind_of_error(pem):
    for read in (facts_of, csr_key_sha256, load_chain, key_sha256, ca_hash):
        with pytest.raises(CertificateError) as raised:
            read(pem)
        assert "\n" not in str(raised.value)


def test_a_request_changed_after_signing_is_refused():
    pem = make_csr(new_key(), "agent:eu")
    request = x509.load_pem_x509_csr(pem)
    der = bytearray(request.public_bytes(Encoding.DER))
    at = bytes(der).index(b"agent:eu")
    der[at : at + 8] = b"agent:us"
    forged = x509.load_der_x509_csr(bytes(der)).public_bytes(Encoding.PEM)
    with pytest.raises(CertificateError, match="own key"):
        csr_key_sha256(forged)


def test_openssl_agrees_with_the_chain(ca, tmp_path):
    made = issue_server(ca, ["localhost"], now_ms=NOW_MS)
    (tmp_path / "ca.crt").write_bytes(ca.certificate_pem)
    (tmp_path / "s.crt").write_bytes(made.certificate_pem)
    (tmp_path / "a.crt").write_bytes(agent(ca, new_key()))
    at = ["-attime", str(NOW_MS // 1000), "-x509_strict", "-CAfile", str(tmp_path / "ca.crt")]
    for purpose, name in (("sslserver", "s.crt"), ("sslclient", "a.crt")):
        command = ["openssl", "verify", *at, "-purpose", purpose, str(tmp_path / name)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr + done.stdout
