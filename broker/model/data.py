"""Where data lies, and what the ways between regions cost. Values only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

Pair = tuple[str, str]
"""From a region, to a region."""


@dataclass(frozen=True, slots=True)
class Link:
    """The way of data between two regions as an operator stated it. `gbps` are 10^9 bits a
    second, 0 = nobody said."""

    egress_usd_per_gb: float
    gbps: float = 0.0
    source: str = ""
    as_of_ms: int = 0


Links = Mapping[Pair, Link]


@dataclass(frozen=True, slots=True)
class Dataset:
    """Data that is known by name: its size, the regions that have all of it, and those it may be
    read in (empty: everywhere)."""

    name: str
    size_bytes: int
    regions: tuple[str, ...]
    residency: tuple[str, ...] = ()
    changed_ms: int = 0
    subject: str = ""


Datasets = Mapping[str, Dataset]
