"""How a site's Grid Engine is reached and used: settings, not observations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

DEFAULT_PATH = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"


@dataclass(frozen=True, slots=True)
class GridEngineSite:
    """`prefix`: words before every client. `cards`: the resource that counts accelerators.
    `environment`: the parallel environment of jobs with several slots; none: one slot a job."""

    client_env: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    queue: str = ""
    project: str = ""
    cards: str = "gpu"
    environment: str = ""
    max_runtime_s: int = 0
    prefix: tuple[str, ...] = ()
    owner: str = ""
    within_s: float = 30.0
