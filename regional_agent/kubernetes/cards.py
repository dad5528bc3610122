"""What nodes' cards are, and where pods that ask for some are to go. Pure."""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from federation.accelerators import InvalidAccelerator, identify
from regional_agent.kubernetes.api import Object
from regional_agent.kubernetes.site import KubernetesSite

CPU = "CPU"
GPU = "nvidia.com/gpu"
PRODUCT = "nvidia.com/gpu.product"
HOSTNAME = "kubernetes.io/hostname"


def model_of(site: KubernetesSite, node: Object) -> str:
    """The canonical name of a node's cards. Raises InvalidAccelerator."""
    reported = _product(node)
    return identify(site.types.get(reported, reported)).name


def products(site: KubernetesSite, nodes: Iterable[Object]) -> dict[str, tuple[str, ...]]:
    """By model what nodes call it; an empty name is that of nodes that say nothing."""
    found: dict[str, set[str]] = defaultdict(set)
    for node in nodes:
        with contextlib.suppress(InvalidAccelerator):
            found[model_of(site, node)].add(_product(node))
    return {model: tuple(sorted(names)) for model, names in found.items()}


def affinity(accelerator: str, names: Collection[str]) -> Mapping[str, Any] | None:
    """Nodes whose cards are called one of `names`, or for jobs without cards those that have
    none; None where any will do."""
    rule: dict[str, Any] = {"key": PRODUCT, "operator": "In", "values": list(names)}
    if accelerator == CPU:
        rule = {"key": PRODUCT, "operator": "DoesNotExist"}
    elif not names or "" in names:
        return None
    terms = {"nodeSelectorTerms": [{"matchExpressions": [rule]}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}


def no_node_with(labels: Mapping[str, str]) -> Mapping[str, Any]:
    """No node where a pod with all of these labels is, its own kin included; those that have ended
    do not count."""
    apart = {"labelSelector": {"matchLabels": dict(labels)}, "topologyKey": HOSTNAME}
    return {"requiredDuringSchedulingIgnoredDuringExecution": [apart]}


def _product(node: Object) -> str:
    return str((node["metadata"].get("labels") or {}).get(PRODUCT, ""))
