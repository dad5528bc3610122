"""How a site's Slurm is reached, and what its pools are: settings, not observations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

DEFAULT_PATH = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"


@dataclass(frozen=True, slots=True)
class SlurmSite:
    """`account`, `qos` go with every job where given; `accounts` maps tenants to accounts of
    their own, and then a tenant that is not in it runs nothing. `partitions`: those used, the
    first is the usual one; empty: all, the site's default one first. `gres` says which
    accelerator a GRES type means where its name leaves that open. `client_env`: what the clients
    run with. `rest`: where slurmrestd is asked instead of clients, `unix:PATH` or a URL with the
    file of a token."""

    client_env: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    account: str = ""
    qos: str = ""
    accounts: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    partitions: tuple[str, ...] = ()
    gres: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    max_runtime_s: int = 0
    within_s: float = 30.0
    rest: str = ""
    rest_token_file: str = ""


@dataclass(frozen=True, slots=True)
class PoolSource:
    """What a pool is at the site: where its jobs go, how its cards are asked for, and the limits of
    one job there."""

    partition: str
    gres: str = ""
    per_node: int = 1
    nodes: int = 1
    walltime_max_s: int = 0
    cards_per_job_max: int | None = None
