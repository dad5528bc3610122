"""Where etcd is and how to speak to it: endpoints, certificates, time limits."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

DEFAULT_PORT = 2379


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One member's client address.

    `host` is a name or an IPv4 or IPv6 address without brackets; `server_name` the name its
    certificate must bear, empty = `host`; `scheme` "https", "http" or empty = as the client is.
    """

    host: str
    port: int = DEFAULT_PORT
    server_name: str = ""
    scheme: str = ""

    @property
    def target(self) -> str:
        """The address in gRPC's URI form."""
        try:
            version = ipaddress.ip_address(self.host).version
        except ValueError:
            return f"dns:///{self.host}:{self.port}"
        if version == 6:
            return f"ipv6:[{self.host}]:{self.port}"
        return f"ipv4:{self.host}:{self.port}"

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


def parse_endpoint(text: str, *, server_name: str = "") -> Endpoint:
    """Read `host`, `host:port`, `[v6]:port` or the same as an http or https URL.

    Raises ValueError for anything else (user names, paths, ports out of range).
    """
    scheme, separator, rest = text.strip().rpartition("://")
    if separator and scheme not in ("http", "https"):
        raise ValueError(f"endpoint {text!r}: the scheme must be http or https")
    parts = urlsplit(f"//{rest}")
    if parts.path not in ("", "/") or parts.query or parts.fragment or "@" in parts.netloc:
        raise ValueError(f"endpoint {text!r}: only host and port may be given")
    if not parts.hostname:
        raise ValueError(f"endpoint {text!r}: the host is missing")
    if parts.port == 0:
        raise ValueError(f"endpoint {text!r}: port 0")
    return Endpoint(parts.hostname, parts.port or DEFAULT_PORT, server_name, scheme)


@dataclass(frozen=True, slots=True)
class Tls:
    """PEM bytes: the authority that signs members, and our certificate (chain) with its key.

    etcd takes the certificate's common name for the user. Without certificate and key the
    client is anonymous.
    """

    ca: bytes
    certificate: bytes | None = None
    key: bytes | None = None

    @classmethod
    def from_files(cls, ca: Path, certificate: Path, key: Path) -> Tls:
        """Read the three PEM files. Raises OSError."""
        return cls(ca.read_bytes(), certificate.read_bytes(), key.read_bytes())


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Limits in seconds.

    `call_s`: a read with all its tries, and a write once it is sent (finding a member that
    takes it may take `call_s` before). `connect_s`: one connection attempt. `keepalive_s` and
    `keepalive_answer_s`: how often a silent connection is probed and how long for an answer;
    etcd refuses clients that probe more often than every 5 s.
    """

    call_s: float = 5.0
    connect_s: float = 2.0
    keepalive_s: float = 6.0
    keepalive_answer_s: float = 3.0
