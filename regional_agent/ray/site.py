"""How a site's Ray is reached, and what its cards are: settings, not observations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

DASHBOARD = "http://127.0.0.1:8265"


@dataclass(frozen=True, slots=True)
class RaySite:
    """`url` is that of the dashboard. `accelerator`: the canonical name of the cards of nodes
    that do not say it themselves; empty: such nodes are left out. `types`: what Ray's own names
    for cards mean, where they leave it open."""

    url: str = DASHBOARD
    accelerator: str = ""
    types: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    within_s: float = 30.0
