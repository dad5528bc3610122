"""What the sites of a local federation say they have: made up, and labelled so; priced by facts.

A laptop has no H100. The cards here are *simulated*: they are counted, priced and handed out like
real ones, and a job on them runs on the machine's own processors. Prices are list prices of real
instances, each with the day and the source it was typed from; what is an assumption says so.
"""

from __future__ import annotations

from dataclasses import dataclass

AS_OF = "2025-03-01T00:00:00Z"
_AWS = "AWS on-demand list price"
_ASSUMED = "assumed for this federation on one machine"


@dataclass(frozen=True, slots=True)
class PoolFacts:
    """Alike nodes and what an accelerator hour of them costs. `cpus` and `memory_gib` per node."""

    name: str
    accelerator: str
    nodes: int
    per_node: int
    cpus: int
    memory_gib: int
    usd_per_hour: float
    source: str
    kind: str = "on-demand"


@dataclass(frozen=True, slots=True)
class Site:
    """One cluster, which is its own region here."""

    name: str
    pools: tuple[PoolFacts, ...]


def _slots(usd_per_hour: float) -> PoolFacts:
    return PoolFacts(
        "cpu", "CPU", 1, 16, 16, 64, usd_per_hour, f"{_ASSUMED}: a slot is one cpu", "owned"
    )


SITES: dict[str, Site] = {
    site.name: site
    for site in (
        Site(
            "us-east",
            (
                PoolFacts(
                    "h100", "H100", 2, 8, 192, 2048, 12.29,
                    f"{_AWS}, p5.48xlarge in us-east-1: 98.32 USD/h for 8",
                ),
                _slots(0.043),
            ),
        ),
        Site(
            "eu-west",
            (
                PoolFacts(
                    "a100", "A100-80GB", 2, 8, 96, 1152, 7.041,
                    f"{_AWS}, p4de.24xlarge in eu-central-1: 56.32803 USD/h for 8",
                ),
                _slots(0.046),
            ),
        ),
        Site(
            "ap-southeast",
            (
                PoolFacts(
                    "l40s", "L40S", 4, 4, 48, 384, 2.185,
                    f"{_ASSUMED}: 40 % of the {_AWS}, g6e.48xlarge in ap-northeast-1: "
                    "43.69912 USD/h for 8",
                    "spot",
                ),
                _slots(0.049),
            ),
        ),
    )
}  # fmt: skip

RTT_SOURCE = "Azure inter-region round trips, P50, as published by Microsoft"
RTT_AS_OF = "2026-01-01T00:00:00Z"
RTT_MS: dict[tuple[str, str], float] = {
    ("us-east", "eu-west"): 70.0,  # East US - North Europe
    ("eu-west", "us-east"): 74.0,
    ("us-east", "ap-southeast"): 222.0,  # East US - Southeast Asia
    ("ap-southeast", "us-east"): 224.0,
    ("eu-west", "ap-southeast"): 166.0,  # North Europe - Southeast Asia
    ("ap-southeast", "eu-west"): 166.0,
}


class UnknownRegion(ValueError):
    """A region for which there is no inventory here; the text names those there are."""


def sites(names: tuple[str, ...]) -> tuple[Site, ...]:
    """The sites of these regions, each once, in this order. Raises UnknownRegion."""
    unknown = [name for name in names if name not in SITES]
    if unknown or not names:
        named = f"no region {unknown[0]!r} here" if unknown else "no region is named"
        raise UnknownRegion(f"{named}; there are {', '.join(SITES)}")
    return tuple(SITES[name] for name in dict.fromkeys(names))
