"""How a site's Grid Engine is reached and used: settings, not observations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from regional_agent.gridengine.configuration import Environment

DEFAULT_PATH = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"


@dataclass(frozen=True, slots=True)
class GridEngineSite:
    """`prefix`: words before every client. `queues`: those used, the first is the usual one;
    empty: all that take batch jobs. `cards`: the resource that counts accelerators; `model`: one
    that names what they are, by `types` where that is not their name; `accelerator`: what all are
    where none does. `memory`: the resource that counts memory, if one does. `environments`: the
    parallel environments jobs may use; empty: those of their queue. `owner`: whose the jobs are."""

    client_env: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    queues: tuple[str, ...] = ()
    project: str = ""
    cards: str = "gpu"
    model: str = ""
    types: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    accelerator: str = ""
    memory: str = ""
    environments: tuple[str, ...] = ()
    max_runtime_s: int = 0
    prefix: tuple[str, ...] = ()
    owner: str = ""
    within_s: float = 30.0


@dataclass(frozen=True, slots=True)
class PoolSource:
    """What a pool is at the site: where its jobs go, and what they may ask for there. `value`: what
    the resource that names models says of its nodes. `per_node`, `slots`: accelerators and slots of
    a node."""

    queue: str = ""
    value: str = ""
    per_node: int = 1
    slots: int = 1
    nodes: int = 1
    walltime_max_s: int = 0
    environments: tuple[Environment, ...] = ()
