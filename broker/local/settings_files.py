"""The settings of broker and agents, written anew at each start from what was chosen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from broker.local.inventory import AS_OF, RTT_AS_OF, RTT_MS, RTT_SOURCE, PoolFacts, Site
from broker.local.layout import Home
from broker.local.ports import LOOPBACK, Ports
from federation.private_files import write_private

LEADER_TTL_S = 3.0
"""A single broker waits this long before it takes over from itself, killed and started again."""


def write_broker_settings(
    home: Home, ports: Ports, regions: Sequence[str], more: Mapping[str, Any]
) -> None:
    """Lay broker.yaml; `more` goes over what is chosen here. Raises OSError."""
    settings = broker_settings(home, ports, regions) | dict(more)
    text = yaml.safe_dump(settings, sort_keys=False, allow_unicode=True)
    write_private(home.broker_settings, text.encode())


def broker_settings(home: Home, ports: Ports, regions: Sequence[str]) -> dict[str, Any]:
    """Settings of a broker on loopback.

    Round trips are typed for the regions' names, as between real places; agents also measure
    theirs, and what is measured goes before what is typed. On loopback that is a tenth of a
    millisecond: true of this machine, and shown as measured.
    """
    return {
        "state_dir": str(home.broker),
        "etcd_endpoints": [f"https://{LOOPBACK}:{ports.etcd}"],
        "api_listen": f"{LOOPBACK}:{ports.api}",
        "session_listen": f"{LOOPBACK}:{ports.session}",
        "leader_ttl_s": LEADER_TTL_S,
        "log_format": "text",
        "typed_rtt": [
            {"a": a, "b": b, "rtt_ms": rtt_ms, "source": RTT_SOURCE, "as_of": RTT_AS_OF}
            for (a, b), rtt_ms in RTT_MS.items()
            if a in regions and b in regions
        ],
    }


def write_agent_settings(home: Home, site: Site, sites: Sequence[Site], ports: Ports) -> None:
    """Lay agent.yaml over what joining wrote there.

    Raises OSError, and ValueError where the file is no mapping.
    """
    file = home.agent_settings(site.name)
    written = yaml.safe_load(file.read_text(encoding="utf-8")) if file.exists() else None
    if written is not None and not isinstance(written, dict):
        raise ValueError(f"{file} is no mapping of settings")
    settings = (written or {}) | agent_settings(site, sites, ports)
    text = yaml.safe_dump(settings, sort_keys=False, allow_unicode=True)
    write_private(file, text.encode())


def agent_settings(site: Site, sites: Sequence[Site], ports: Ports) -> dict[str, Any]:
    """What one site says of itself: made-up cards, typed prices, where the others are."""
    return {
        "inventory": [_pool(pool) for pool in site.pools],
        "prices": [_price(pool) for pool in site.pools],
        "latency_responder": f"{LOOPBACK}:{ports.responders[site.name]}",
        "latency_targets": [
            {"region": other.name, "address": f"{LOOPBACK}:{ports.responders[other.name]}"}
            for other in sites
            if other.name != site.name
        ],
        "latency_every": "15s",
        "isolation": "shared-uid",  # one person on one machine: nobody to be kept apart
        "log_format": "text",
    }


def _pool(pool: PoolFacts) -> dict[str, Any]:
    return {
        "name": pool.name,
        "accelerator": pool.accelerator,
        "nodes": pool.nodes,
        "accelerators_per_node": pool.per_node,
        "cpus": pool.cpus,
        "memory": f"{pool.memory_gib}GiB",
        "simulated": True,
    }


def _price(pool: PoolFacts) -> dict[str, Any]:
    return {
        "pool": pool.name,
        "kind": pool.kind,
        "usd_per_accelerator_hour": pool.usd_per_hour,
        "as_of": AS_OF,
        "source": pool.source,
    }
