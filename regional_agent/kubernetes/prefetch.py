"""Having an image fetched by nodes before a job needs it: one short Job, a pod a node. Pure.

A pod that names an image has its node fetch it: https://kubernetes.io/docs/concepts/containers/images/.
What the pod then does is nothing, and whether it can does not matter.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any

from regional_agent.kubernetes.api import Object
from regional_agent.kubernetes.cards import GPU, HOSTNAME, no_node_with
from regional_agent.kubernetes.site import KubernetesSite

NODES_MAX = 8
WITHIN_S, KEPT_S = 1_800, 30
LABEL_IMAGE = "tradewind.dev/image"


def nodes_without(site: KubernetesSite, nodes: Iterable[Object], image: str) -> list[str]:
    """Host names of nodes that take jobs and do not say that they have the image, the first few. A
    node says so of 50 images at most, so that one may be asked in vain."""
    found = []
    for node in nodes:
        labels = node["metadata"].get("labels") or {}
        for_us = all(labels.get(key) == value for key, value in site.node_selector.items())
        taints = {t["key"] for t in node["spec"].get("taints") or ()} - {GPU}
        shut = node["spec"].get("unschedulable") or taints
        if for_us and not shut and HOSTNAME in labels and not _has(node, image):
            found.append(str(labels[HOSTNAME]))
    return sorted(found)[:NODES_MAX]


def prefetching(
    site: KubernetesSite, image: str, hosts: Sequence[str], user: tuple[int, int]
) -> dict[str, Any]:
    """The Job, which ends with its last pod or its time and goes by itself."""
    digest = hashlib.sha256(f"{site.mark()} {image}".encode()).hexdigest()[:16]
    labels = {"app.kubernetes.io/managed-by": "tradewind", LABEL_IMAGE: digest}
    rule = {"key": HOSTNAME, "operator": "In", "values": list(hosts)}
    where = {"nodeSelectorTerms": [{"matchExpressions": [rule]}]}
    container = {
        "name": "image",
        "image": image,
        "command": ["/bin/sh", "-c", "exit 0"],
        "env": [],
        "resources": {"requests": {"cpu": "1m", "memory": "8Mi"}, "limits": {"memory": "64Mi"}},
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }
    pod = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 1,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": {
            "runAsUser": user[0],
            "runAsGroup": user[1],
            "runAsNonRoot": user[0] != 0,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "tolerations": [{"key": GPU, "operator": "Exists", "effect": "NoSchedule"}],
        "affinity": {
            "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": where},
            "podAntiAffinity": no_node_with({LABEL_IMAGE: digest}),
        },
        "containers": [container],
    }
    spec = {
        "backoffLimitPerIndex": 0,
        "maxFailedIndexes": len(hosts),
        "completionMode": "Indexed",
        "completions": len(hosts),
        "parallelism": len(hosts),
        "podReplacementPolicy": "Failed",
        "activeDeadlineSeconds": WITHIN_S,
        "ttlSecondsAfterFinished": KEPT_S,
        "template": {"metadata": {"labels": labels}, "spec": pod},
    }
    metadata = {"name": f"tradewind-image-{digest}", "labels": labels}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}


def _has(node: Object, image: str) -> bool:
    images = (node.get("status") or {}).get("images") or ()
    names = [name for each in images for name in each.get("names") or ()]
    return any(name == image or name.endswith(f"/{image}") for name in names)
