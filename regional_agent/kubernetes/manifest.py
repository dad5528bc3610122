"""A part of an attempt as a Job: https://kubernetes.io/docs/concepts/workloads/controllers/job/

Nothing is ever tried again by the cluster: an attempt is the broker's to repeat. A pod mounts the
attempt's directory, and nothing beside it, under the agent's own path, and runs a script there.
Where no volume is shared it has an empty one in that place, and a container that carries files.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from federation.runs import Runs
from regional_agent.kubernetes.api import (
    CONTAINER,
    DIRECTORY,
    FINALIZER,
    INDICES,
    LABEL_APART,
    LABEL_ATTEMPT,
    LABEL_SITE,
    REPLICAS,
    TAG,
    Object,
)
from regional_agent.kubernetes.cards import GPU, affinity, no_node_with
from regional_agent.kubernetes.devices import CLAIM
from regional_agent.kubernetes.site import KubernetesSite

STOPPING_S = 310
"""The script ends its program when the grace it is told is over; this is for a script that does
not, at least."""
STARTING_S = 600
"""What may go by between a pod's start and its program's: images, volumes."""
CARRYING_S = 86_400
"""What may go by beside that where an agent that is away has to be waited for."""
VOLUME, CARRIER = "tradewind", "carry"
GANG = "g"
"""The one Job of a JobSet; its pods are named `<set>-g-0-<rank>`."""
WAITS = """trap 'exit 143' TERM; while [ ! -e ready ]; do sleep 0.1; done; \
exec 9> alive; exec /bin/sh "$0\""""
BEFORE_CLAIM = """echo "${tw_claim##*/}" >&9 || exit 99
while [ ! -e "$TW_DIR/told" ]; do sleep 0.1; done"""
"""Of the script of a job whose files are carried: see `act/carry/pod.py`."""


_TIGHT: dict[str, Any] = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
}


@dataclass(frozen=True, slots=True)
class JobWanted:
    """What a Job is made of. `indices` None: no array. Amounts are per pod, 0 = none asked for;
    `user` and `group` own the files of the agent. `products`: what nodes call the cards of
    `accelerator`. `token` and `ca_pem`: how its files are asked for, where they are carried.
    `as_set`: a gang that becomes a JobSet. `claim`: the ResourceClaimTemplate by which cards are
    had, where no device plugin offers them. `apart`: the job whose pods share no node."""

    name: str
    tag: str
    uid: str
    script: Path
    work: Path
    user: int
    group: int
    indices: Runs | None = None
    replicas: int = 1
    image: str = ""
    width: int = 1
    accelerator: str = ""
    products: tuple[str, ...] = ()
    cards: int = 0
    cpus_milli: int = 0
    memory_bytes: int = 0
    max_runtime_s: int = 0
    grace_s: int = 30
    token: str = ""
    ca_pem: str = ""
    as_set: bool = False
    claim: str = ""
    apart: str = ""


def manifest(site: KubernetesSite, wanted: JobWanted) -> dict[str, Any]:
    """The Job. The time limit is a pod's, because that of a Job counts the wait for a node too
    and is one for all elements of an array."""
    labels = {
        "app.kubernetes.io/managed-by": "tradewind",
        LABEL_SITE: site.mark(),
        LABEL_ATTEMPT: wanted.uid,
    }
    notes = {TAG: wanted.tag, DIRECTORY: str(wanted.script.parent)}
    template: dict[str, Any] = {"metadata": {"labels": labels}, "spec": _pod(site, wanted)}
    if wanted.apart:
        template["metadata"]["labels"] = labels | {LABEL_APART: wanted.apart}
    spec: dict[str, Any] = {
        "backoffLimit": 0,
        "podReplacementPolicy": "Failed",
        "template": template,
    }
    if wanted.replicas > 1:  # one member that fails ends the others: backoffLimit
        spec |= {"completionMode": "Indexed"}
        spec |= dict.fromkeys(("completions", "parallelism"), wanted.replicas)
        notes[REPLICAS] = str(wanted.replicas)
        template["metadata"]["annotations"] = {REPLICAS: notes[REPLICAS]}
        if not wanted.as_set:  # whose controller says it
            template["spec"]["subdomain"] = wanted.name
    if wanted.indices is not None:
        notes[INDICES] = str(wanted.indices)
        del spec["backoffLimit"]  # of the whole: one that fails would end the others
        spec |= {
            "completionMode": "Indexed",
            "completions": wanted.indices.count,
            "parallelism": wanted.width,
            "backoffLimitPerIndex": 0,
            "maxFailedIndexes": wanted.indices.count,
        }
    metadata: dict[str, Any] = {
        "name": wanted.name,
        "labels": dict(labels),
        "annotations": notes,
        "finalizers": [FINALIZER],
    }
    if site.queue:
        metadata["labels"]["kueue.x-k8s.io/queue-name"] = site.queue
        spec["suspend"] = True  # until Kueue lets it go, also where its webhook is away
    if wanted.as_set:
        return _job_set(metadata, spec)
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}


def _job_set(metadata: dict[str, Any], job: dict[str, Any]) -> dict[str, Any]:
    """A gang as the one Job of a JobSet, which makes the service its members meet by; not started
    anew: https://jobset.sigs.k8s.io/docs/reference/jobset.v1alpha2/"""
    spec: dict[str, Any] = {
        "network": {"enableDNSHostnames": True, "publishNotReadyAddresses": True},
        "failurePolicy": {"maxRestarts": 0},
    }
    if job.pop("suspend", None):
        spec["suspend"] = True
    spec["replicatedJobs"] = [{"name": GANG, "replicas": 1, "template": {"spec": job}}]
    kind = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet"}
    return {**kind, "metadata": metadata, "spec": spec}


def service(site: KubernetesSite, wanted: JobWanted) -> dict[str, Any]:
    """The headless service by which members of a gang find each other, ready or not:
    https://kubernetes.io/docs/tasks/job/job-with-pod-to-pod-communication/"""
    labels = {
        "app.kubernetes.io/managed-by": "tradewind",
        LABEL_SITE: site.mark(),
        LABEL_ATTEMPT: wanted.uid,
    }
    metadata = {"name": wanted.name, "labels": labels, "annotations": {TAG: wanted.tag}}
    selector = {LABEL_SITE: site.mark(), LABEL_ATTEMPT: wanted.uid}
    spec = {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": selector}
    return {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec}


def owned_by(job: Object) -> dict[str, Any]:
    """The patch by which something goes when its Job does."""
    owner = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "name": job["metadata"]["name"],
        "uid": job["metadata"]["uid"],
    }
    return {"metadata": {"ownerReferences": [owner]}}


def _pod(site: KubernetesSite, wanted: JobWanted) -> dict[str, Any]:
    pod: dict[str, Any] = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": max(wanted.grace_s, STOPPING_S) + 10,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": {
            "runAsUser": wanted.user,
            "runAsGroup": wanted.group,
            "runAsNonRoot": wanted.user != 0,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [_container(site, wanted), *_carrier(site, wanted)],
        "volumes": [{"name": VOLUME, **_volume(site)}],
    }
    if wanted.max_runtime_s:
        limit_s = wanted.max_runtime_s + wanted.grace_s + STARTING_S
        limit_s += CARRYING_S if site.carry else 0
        pod["activeDeadlineSeconds"] = limit_s
    if site.node_selector:
        pod["nodeSelector"] = dict(site.node_selector)
    where = affinity(wanted.accelerator, wanted.products)
    if wanted.claim:  # which says what cards, and so where
        pod["resourceClaims"] = [{"name": CLAIM, "resourceClaimTemplateName": wanted.claim}]
    elif where is not None:
        pod["affinity"] = dict(where)
    if wanted.apart:
        labels = {LABEL_SITE: site.mark(), LABEL_APART: wanted.apart}
        pod.setdefault("affinity", {})["podAntiAffinity"] = no_node_with(labels)
    if wanted.cards:
        pod["tolerations"] = [{"key": GPU, "operator": "Exists", "effect": "NoSchedule"}]
    return pod


def _container(site: KubernetesSite, wanted: JobWanted) -> dict[str, Any]:
    root = wanted.script.parent
    env = [_of_pod("TW_POD", "metadata.name"), _of_pod("TW_NODE", "spec.nodeName")]
    if wanted.indices is not None:
        env.append({"name": "TW_OFFSET", "value": str(wanted.indices.runs[0][0])})
    if wanted.replicas > 1:
        env.append({"name": "TW_SERVICE", "value": wanted.name})
        if wanted.as_set:
            env.append({"name": "TW_FIRST_HOST", "value": f"{wanted.name}-{GANG}-0-0"})
    requests = {"cpu": f"{max(wanted.cpus_milli, 1)}m"}
    limits: dict[str, str] = {}
    claims = {"claims": [{"name": CLAIM}]} if wanted.claim else {}
    if wanted.memory_bytes:
        requests["memory"] = limits["memory"] = str(wanted.memory_bytes)
    if wanted.cards:  # a pod's own cards are numbered from 0
        if not wanted.claim:
            requests[GPU] = limits[GPU] = str(wanted.cards)
        shown = ",".join(map(str, range(wanted.cards)))
        env.append({"name": "CUDA_VISIBLE_DEVICES", "value": shown})
    return {
        "name": CONTAINER,
        "image": wanted.image or site.image,
        "command": ["/bin/sh", *(("-c", WAITS) if site.carry else ()), str(wanted.script)],
        "workingDir": str(root if site.carry else wanted.work),
        "env": env,
        "resources": {"requests": requests, "limits": limits, **claims},
        "securityContext": _TIGHT,
        "volumeMounts": [_mounted(site, wanted)],
    }


def _carrier(site: KubernetesSite, wanted: JobWanted) -> list[dict[str, Any]]:
    """What carries files, where no volume is shared. Only this container has the token."""
    if site.carry is None:
        return []
    said = {
        "TW_DIR": str(wanted.script.parent),
        "TW_ATTEMPT": wanted.uid,
        "TW_PART": wanted.script.stem.rpartition("-")[2],
        "TW_CARRY_URL": site.carry.url,
        "TW_CARRY_CA": wanted.ca_pem,
        "TW_CARRY_TOKEN": wanted.token,
    }
    if wanted.replicas > 1:
        said["TW_SERVICE"] = wanted.name
    env = [{"name": name, "value": value} for name, value in said.items()]
    return [
        {
            "name": CARRIER,
            "image": site.carry.image,
            "command": ["python", "-m", "regional_agent.act.carry.pod"],
            "env": [_of_pod("TW_POD", "metadata.name"), *env],
            "resources": {
                "requests": {"cpu": "10m", "memory": "48Mi"},
                "limits": {"memory": "256Mi"},
            },
            "securityContext": _TIGHT | {"readOnlyRootFilesystem": True},
            "volumeMounts": [_mounted(site, wanted)],
        }
    ]


def _of_pod(name: str, path: str) -> dict[str, Any]:
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}


def _mounted(site: KubernetesSite, wanted: JobWanted) -> dict[str, Any]:
    """The attempt's directory: no key, no journal, no foreign file."""
    root = wanted.script.parent
    mounted = {"name": VOLUME, "mountPath": str(root)}
    return mounted if site.carry else mounted | {"subPath": str(root.relative_to(site.mount))}


def _volume(site: KubernetesSite) -> dict[str, Any]:
    if site.carry:
        return {"emptyDir": {}}
    if site.host_path:
        return {"hostPath": {"path": site.host_path, "type": "Directory"}}
    return {"persistentVolumeClaim": {"claimName": site.volume_claim}}
