"""Where things lie under the directory of a local federation."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Home:
    """The directory of one local federation; `root` is absolute, private, and nobody else's."""

    root: Path

    @property
    def lock(self) -> Path:
        """Held by the one supervisor for as long as it lives."""
        return self.root / "up.lock"

    @property
    def record(self) -> Path:
        """What runs now: who supervises, which processes, where the API is."""
        return self.root / "up.json"

    @property
    def setup(self) -> Path:
        """What was chosen when the federation was made: ports and regions."""
        return self.root / "setup.json"

    @property
    def client(self) -> Path:
        """How the command line finds this federation while it is up."""
        return self.root / "client.json"

    @property
    def ca(self) -> Path:
        """The federation's CA certificates."""
        return self.root / "ca.pem"

    @property
    def etcd_data(self) -> Path:
        """etcd's data."""
        return self.root / "etcd" / "data"

    @property
    def etcd_tls(self) -> Path:
        """etcd's certificates and keys."""
        return self.root / "etcd" / "tls"

    @property
    def broker(self) -> Path:
        """The broker's state: keys, ledger, blobs, logs."""
        return self.root / "broker"

    @property
    def broker_settings(self) -> Path:
        """The broker's settings."""
        return self.root / "broker.yaml"

    @property
    def agents(self) -> Path:
        """The agents' state directories."""
        return self.root / "agents"

    def agent(self, cluster: str) -> Path:
        """The state of one agent."""
        return self.agents / cluster

    def agent_settings(self, cluster: str) -> Path:
        """What one agent was told about its site."""
        return self.agent(cluster) / "agent.yaml"

    @property
    def logs(self) -> Path:
        """What the processes print, one file each."""
        return self.root / "logs"

    def log(self, name: str) -> Path:
        """What one process printed."""
        return self.logs / f"{name}.log"
