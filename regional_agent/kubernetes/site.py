"""How a site's Kubernetes is reached, and what its jobs run in: settings, not observations."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType


@dataclass(frozen=True, slots=True)
class Carry:
    """How files come to pods and back where no volume is shared: `image` has the agent's own
    programs and runs beside each job, `url` is where pods find the agent, and `listen` the
    address (`host:port`) it serves them at."""

    image: str
    url: str
    listen: str


@dataclass(frozen=True, slots=True)
class Devices:
    """How cards are had by resource claims: the DeviceClass, the driver whose ResourceSlices offer
    them, and the attribute that names their model."""

    device_class: str
    driver: str
    product: str


@dataclass(frozen=True, slots=True)
class KubernetesSite:
    """`url` of the API server; empty files: no token is asked for, the system's authorities.

    Exactly one of `volume_claim`, `host_path` and `carry` says how the nodes come by what the agent
    has at `mount`, at or above its state directory; pods find their attempt's under the same path.
    `cert_file`, `key_file`: a client certificate, where one is used.
    `queue`: a LocalQueue of Kueue, empty for none. `types`: what the label
    `nvidia.com/gpu.product` means where it leaves that open."""

    url: str
    namespace: str
    image: str
    mount: Path
    volume_claim: str = ""
    host_path: str = ""
    carry: Carry | None = None
    devices: Devices | None = None
    token_file: str = ""
    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""
    queue: str = ""
    node_selector: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    types: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    within_s: float = 30.0

    def mark(self) -> str:
        """What tells this agent's objects from those of others in the namespace: where its files
        lie."""
        where = self.volume_claim or (self.carry.url if self.carry else "")
        said = "\0".join((where, self.host_path, str(self.mount)))
        return hashlib.sha256(said.encode()).hexdigest()[:16]
