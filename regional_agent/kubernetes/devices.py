"""Cards offered by dynamic resource allocation: counted from ResourceSlices, asked for by a
ResourceClaimTemplate. Pure.

https://kubernetes.io/docs/concepts/scheduling-eviction/dynamic-resource-allocation/. Only slices of
a pool's highest generation count, and only where all of that are there; devices of a node alone.
"""

from __future__ import annotations

import copy
import hashlib
import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from federation.accelerators import InvalidAccelerator, identify
from regional_agent.kubernetes.api import Object
from regional_agent.kubernetes.cards import GPU, PRODUCT
from regional_agent.kubernetes.site import KubernetesSite

WHOLE = "gpu"
"""What the attribute `type` says of a whole card, where a driver has it."""
CLAIM = "cards"


@dataclass(frozen=True, slots=True)
class Device:
    """A card on a node; `key` is driver, pool and name."""

    key: tuple[str, str, str]
    node: str
    product: str


@dataclass(frozen=True, slots=True)
class Offered:
    """Nodes as they would be with a device plugin, what of their cards is taken as pods would hold
    it, the products that can be had by claims only, and what was left out, in sentences."""

    nodes: tuple[Object, ...]
    holders: tuple[Object, ...] = ()
    products: frozenset[str] = frozenset()
    notes: tuple[str, ...] = ()


def offered(
    site: KubernetesSite,
    nodes: Sequence[Object],
    slices: Iterable[Object],
    claims: Iterable[Object],
) -> Offered:
    """Nodes with the cards that claims get there. What a device plugin offers goes before."""
    notes: list[str] = []
    by_node: dict[str, list[Device]] = defaultdict(list)
    for device in _devices(site, slices, notes):
        by_node[device.node].append(device)
    plugged = {_model(site, _product_of(node)) for node in nodes if _has_plugin(node)}
    found, holders, products = [], [], set()
    held = set(_allocated(claims))
    for node in nodes:
        name = str(node["metadata"]["name"])
        devices = by_node.get(name, [])
        names = {device.product for device in devices}
        if not devices or _has_plugin(node):
            found.append(node)
        elif why := _trouble({_model(site, each) for each in names}, plugged):
            notes.append(f"the cards that claims get on {name} are left out: {why}")
            found.append(node)
        else:
            products |= names
            found.append(_with_cards(node, devices))
            holders.append(_holder(name, sum(device.key in held for device in devices)))
    return Offered(
        tuple(found), tuple(holders), frozenset(products), tuple(dict.fromkeys(notes))
    )


def template(site: KubernetesSite, products: Sequence[str], count: int, version: str) -> Object:
    """The ResourceClaimTemplate of so many cards of these products; the same for all jobs that
    want the same, and named by what it says."""
    assert site.devices is not None, "asked for only where claims are configured"
    wanted = site.devices
    domain, _, attribute = wanted.product.rpartition("/")
    known = f'device.attributes["{domain or wanted.driver}"].{attribute}'
    rule = f"{known} in {json.dumps([*products])}"
    exactly: dict[str, Any] = {
        "deviceClassName": wanted.device_class,
        "allocationMode": "ExactCount",
        "count": count,
        "selectors": [{"cel": {"expression": rule}}],
    }
    asked = exactly if version == "v1beta1" else {"exactly": exactly}
    spec = {"spec": {"devices": {"requests": [{"name": CLAIM, **asked}]}}}
    digest = hashlib.sha256(json.dumps(spec, sort_keys=True).encode()).hexdigest()[:12]
    labels = {"app.kubernetes.io/managed-by": "tradewind"}
    return {
        "apiVersion": f"resource.k8s.io/{version}",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": f"tradewind-cards-{digest}", "labels": labels},
        "spec": spec,
    }


def _devices(
    site: KubernetesSite, slices: Iterable[Object], notes: list[str]
) -> Iterator[Device]:
    """Whole cards of the driver, of pools that are known completely."""
    assert site.devices is not None, "asked for only where claims are configured"
    pools: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for each in slices:
        if each["spec"]["driver"] == site.devices.driver:
            pools[str(each["spec"]["pool"]["name"])].append(each["spec"])
    for pool, specs in sorted(pools.items()):
        newest = max(int(spec["pool"]["generation"]) for spec in specs)
        current = [spec for spec in specs if int(spec["pool"]["generation"]) == newest]
        if len(current) < int(current[0]["pool"]["resourceSliceCount"]):
            notes.append(f"the devices of {pool} are not told completely, and not counted")
            continue
        for spec in current:
            yield from _of_slice(site, pool, spec, notes)


def _of_slice(
    site: KubernetesSite, pool: str, spec: Mapping[str, Any], notes: list[str]
) -> Iterator[Device]:
    assert site.devices is not None, "asked for only where claims are configured"
    driver, product = site.devices.driver, site.devices.product
    node = str(spec.get("nodeName") or "")
    for device in spec.get("devices") or ():
        body = device.get("basic") or device  # v1beta1 has it one deeper
        said = body.get("attributes") or {}
        if not node or body.get("taints") or _text(said, driver, "type") not in ("", WHOLE):
            notes.append(f"devices of {driver} that are no whole, untainted cards of a node are "
                         "not counted")  # fmt: skip
            continue
        yield Device((driver, pool, str(device["name"])), node, _text(said, driver, product))


def _text(attributes: Mapping[str, Any], driver: str, name: str) -> str:
    """An attribute by its name, with or without the domain, which is the driver's by default."""
    domain, _, short = name.rpartition("/")
    domain = domain or driver
    names = (f"{domain}/{short}", short) if domain == driver else (name,)
    for each in names:
        if each in attributes:
            return str(attributes[each].get("string", ""))
    return ""


def _allocated(claims: Iterable[Object]) -> Iterator[tuple[str, str, str]]:
    """Devices that claims have; access for administrators takes nothing."""
    for claim in claims:
        allocation = (claim.get("status") or {}).get("allocation") or {}
        for each in (allocation.get("devices") or {}).get("results") or ():
            if not each.get("adminAccess"):
                yield str(each["driver"]), str(each["pool"]), str(each["device"])


def _with_cards(node: Object, devices: Sequence[Device]) -> Object:
    changed = copy.deepcopy(dict(node))
    labels = changed["metadata"].get("labels") or {}
    changed["metadata"]["labels"] = {**labels, PRODUCT: devices[0].product}
    status = changed.setdefault("status", {})
    status["allocatable"] = {**(status.get("allocatable") or {}), GPU: str(len(devices))}
    return changed


def _holder(node: str, cards: int) -> Object:
    resources = {"resources": {"requests": {GPU: str(cards)}}}
    return {
        "metadata": {"name": f"claims-{node}"},
        "spec": {"nodeName": node, "containers": [resources]},
    }


def _has_plugin(node: Object) -> bool:
    said = ((node.get("status") or {}).get("allocatable") or {}).get(GPU, "0")
    return str(said) not in ("0", "")


def _product_of(node: Object) -> str:
    return str((node["metadata"].get("labels") or {}).get(PRODUCT, ""))


def _model(site: KubernetesSite, product: str) -> str:
    """The canonical name, else what it is called: jobs ask for models, however they are had."""
    try:
        return identify(site.types.get(product, product)).name
    except InvalidAccelerator:
        return product


def _trouble(models: set[str], plugged: set[str]) -> str:
    if models & plugged:
        return f"a device plugin offers {', '.join(sorted(models & plugged))} elsewhere"
    return f"there are several models: {', '.join(sorted(models))}" if len(models) > 1 else ""
