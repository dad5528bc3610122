"""Ports of loopback, chosen once and kept: agents and clients remember where the broker is."""

from __future__ import annotations

import json
import secrets
import socket
from dataclasses import asdict, dataclass

from broker.local.layout import Home
from federation.private_files import write_private

LOOPBACK = "127.0.0.1"
FIRST, LAST = 20_000, 31_999
"""Below the ports that outgoing connections get, which could take ours while we are down."""


class PortTaken(RuntimeError):
    """Another program listens where this federation did; the text says where."""


@dataclass(frozen=True, slots=True)
class Ports:
    """Where things listen. `responders`: of each agent, for the others to time connections to."""

    etcd: int
    etcd_peer: int
    api: int
    session: int
    responders: dict[str, int]

    @property
    def url(self) -> str:
        """The API."""
        return f"https://{LOOPBACK}:{self.api}"


def choose(home: Home, clusters: tuple[str, ...]) -> Ports:
    """The ports of this federation, chosen on the first start. Raises OSError."""
    known = _read(home)
    missing = [name for name in clusters if known is None or name not in known.responders]
    if known is not None and not missing:
        return known
    fresh = iter(_free(4 + len(missing)))
    first = known or Ports(next(fresh), next(fresh), next(fresh), next(fresh), {})
    responders = first.responders | {name: next(fresh) for name in missing}
    ports = Ports(first.etcd, first.etcd_peer, first.api, first.session, responders)
    write_private(home.setup, json.dumps(asdict(ports), indent=1).encode())
    return ports


def check_free(ports: Ports) -> None:
    """Raises PortTaken when another program listens on one of them."""
    for port in (ports.etcd, ports.etcd_peer, ports.api, ports.session):
        if not _is_free(port):
            raise PortTaken(
                f"port {port} of {LOOPBACK}, which this federation uses, is taken by another "
                "program; end that, or start anew with another --home"
            )


def _read(home: Home) -> Ports | None:
    try:
        value = json.loads(home.setup.read_text(encoding="utf-8"))
        responders = {str(name): int(port) for name, port in value["responders"].items()}
        etcd, peer, api, session = (
            int(value[name]) for name in ("etcd", "etcd_peer", "api", "session")
        )
        return Ports(etcd, peer, api, session, responders)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _free(count: int) -> list[int]:
    found: list[int] = []
    tries = LAST - FIRST + 1
    start = secrets.randbelow(tries)
    for step in range(tries):
        port = FIRST + (start + step) % tries
        if _is_free(port):
            found.append(port)
            if len(found) == count:
                return found
    raise OSError(f"no {count} free ports between {FIRST} and {LAST}")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True
