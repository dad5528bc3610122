"""One node, its kubelet, the scheduler and the Job controller of a cluster of the tests' own:
pods run as processes of this host, with the command and the environment of their container."""

from __future__ import annotations

import asyncio
import copy
import itertools
import json
import shutil
import tempfile
import time
from pathlib import Path

from tests.schedulers.kubernetes_pods import (
    GPU,
    TERMINAL,
    Object,
    PodRun,
    ended_as,
    now,
    quantity,
)

TICK_S = 0.03
HOSTNAME = "kubernetes.io/hostname"
SET_LABEL = "jobset.sigs.k8s.io/jobset-name"
JOB_LABEL = "batch.kubernetes.io/job-name"
INDEX_NOTE = "batch.kubernetes.io/job-completion-index"
POD_FINALIZER = "batch.kubernetes.io/job-tracking"


def requests_of(pod: Object) -> dict[str, float]:
    found: dict[str, float] = {"pods": 1}
    for container in pod["spec"]["containers"]:
        for name, said in (container["resources"].get("requests") or {}).items():
            found[name] = found.get(name, 0) + quantity(said)
    return found


Event = tuple[int, str, Object, dict[str, Object]]
"""Version, kind, the object as it was then, and the collection it belongs to."""
EVENTS_KEPT = 5_000


class Store:
    """Objects by kind and name, each with a uid and the version of its last change."""

    def __init__(self) -> None:
        self.jobs: dict[str, Object] = {}
        self.pods: dict[str, Object] = {}
        self.nodes: dict[str, Object] = {}
        self.services: dict[str, Object] = {}
        self.sets: dict[str, Object] = {}
        self.claims: dict[str, Object] = {}
        self.templates: dict[str, Object] = {}
        self.cluster_queues: dict[str, Object] = {}
        self.flavours: dict[str, Object] = {}
        self.slices: dict[str, Object] = {}
        self.quotas: dict[str, Object] = {}
        self.queues: dict[str, Object] = {}
        self.pods_made: list[Object] = []
        self.newest = 0
        self.oldest = 0
        """Events up to this version are forgotten."""
        self._uids = itertools.count(1)
        self._kinds: dict[str, dict[str, Object]] = {}
        self._events: list[Event] = []

    def touch(self, thing: Object, kind: str = "MODIFIED") -> None:
        self.newest += 1
        thing["metadata"]["resourceVersion"] = str(self.newest)
        of = self._kinds[thing["metadata"]["uid"]]
        self._events.append((self.newest, kind, copy.deepcopy(thing), of))
        del self._events[:-EVENTS_KEPT]

    def add(self, kind: dict[str, Object], thing: Object) -> None:
        metadata = thing["metadata"]
        metadata |= {"uid": f"uid-{next(self._uids)}", "creationTimestamp": now()}
        kind[metadata["name"]] = thing
        self._kinds[metadata["uid"]] = kind
        self.touch(thing, "ADDED")

    def remove(self, kind: dict[str, Object], name: str) -> None:
        self.touch(kind.pop(name), "DELETED")

    def events_after(self, version: int) -> list[Event]:
        return [event for event in self._events if event[0] > version]

    def compact(self) -> None:
        """Forget what was; only what is can be listed."""
        self._events.clear()
        self.oldest = self.newest


class Cluster:
    """Everything behind the API."""

    def __init__(self, *, cpus: int = 8, cards: int = 8) -> None:
        self.store = Store()
        self.ran: list[str] = []
        """Every pod whose container was started, in order: what really happened."""
        self.strange = False
        self.has_sets = False
        """JobSets are installed."""
        self.resource_versions: tuple[str, ...] = ("v1", "v1beta1")
        self.set_controller = True
        """It runs."""
        self.scratch = Path(tempfile.mkdtemp(prefix="tw-pods-"))
        """Empty directories of pods, by their name."""
        self._runs: dict[str, PodRun] = {}
        self._deadlines: dict[str, float] = {}
        self._suspended: set[str] = set()
        self._stopping: set[str] = set()
        self._names = itertools.count(1)
        self._task: asyncio.Task[None] | None = None
        self.cpus, self.cards = cpus, cards
        self.add_node()

    def add_node(self, name: str = "node-1", product: str = "NVIDIA-H100-80GB-HBM3") -> None:
        amounts = {"cpu": str(self.cpus), "memory": "64Gi", GPU: str(self.cards), "pods": "110"}
        self.store.add(
            self.store.nodes,
            {
                "metadata": {"name": name, "labels": {
                    f"{GPU}.product": product, HOSTNAME: name,
                }},
                "spec": {},
                "status": {
                    "allocatable": amounts,
                    "conditions": [{"type": "Ready", "status": "True"}],
                },
            },
        )

    async def start(self) -> None:
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        for run in self._runs.values():
            run.kill()
            await run.wait()
        shutil.rmtree(self.scratch, ignore_errors=True)

    async def _run(self) -> None:
        while True:
            for body in list(self.store.sets.values()):
                self._control_set(body)
            for job in list(self.store.jobs.values()):
                self._control(job)
            for pod in list(self.store.pods.values()):
                await self._keep(pod)
            for kind in (self.store.sets, self.store.jobs):
                for body in list(kind.values()):
                    self._collect(body, kind)
            await asyncio.sleep(TICK_S)

    # The JobSet controller ------------------------------------------------------------------

    def child_of(self, body: Object) -> Object | None:
        (job,) = body["spec"]["replicatedJobs"]
        return self.store.jobs.get(f"{body['metadata']['name']}-{job['name']}-0")

    def _control_set(self, body: Object) -> None:
        """https://github.com/kubernetes-sigs/jobset/blob/main/pkg/controllers: the service, then
        the Jobs; how they ended is how it ended."""
        name, spec, job = body["metadata"]["name"], body["spec"], self.child_of(body)
        if body["status"].get("conditions") or "deletionTimestamp" in body["metadata"]:
            return
        if job is None:
            if self.set_controller:
                self._make_child(body)
            return
        job["spec"]["suspend"] = bool(spec.get("suspend"))
        active = int(job["status"].get("active", 0) > 0)
        counted = [{"name": spec["replicatedJobs"][0]["name"], "active": active}]
        if body["status"].get("replicatedJobsStatus") != counted:
            body["status"]["replicatedJobsStatus"] = counted
            self.store.touch(body)
        for each in job["status"].get("conditions") or ():
            done = each["type"] == "Complete"
            reason = "AllJobsCompleted" if done else "FailedJobs"
            body["status"]["conditions"] = [
                {"type": "Completed" if done else "Failed", "status": "True", "reason": reason,
                 "message": f"jobset {name}: {each['message']}"}
            ]  # fmt: skip
            self.store.touch(body)

    def _make_child(self, body: Object) -> None:
        name, (wanted,) = body["metadata"]["name"], body["spec"]["replicatedJobs"]
        owner = [{"uid": body["metadata"]["uid"], "controller": True}]
        if name not in self.store.services:
            service = {"metadata": {"name": name, "ownerReferences": owner}, "spec": {}}
            self.store.add(self.store.services, service)
        spec = copy.deepcopy(wanted["template"]["spec"])
        labels = {SET_LABEL: name, "jobset.sigs.k8s.io/replicatedjob-name": wanted["name"]}
        pod = spec["template"]
        pod["metadata"]["labels"] = (pod["metadata"].get("labels") or {}) | labels
        pod["spec"]["subdomain"] = name
        metadata = {"name": f"{name}-{wanted['name']}-0", "labels": labels, "finalizers": [],
                    "namespace": "tradewind", "ownerReferences": owner}  # fmt: skip
        self.store.add(self.store.jobs, {"metadata": metadata, "spec": spec, "status": {}})

    # The Job controller ---------------------------------------------------------------------

    def pods_of(self, job: Object) -> list[Object]:
        name = job["metadata"]["name"]
        return [p for p in self.store.pods.values() if p["metadata"]["labels"][JOB_LABEL] == name]

    def _control(self, job: Object) -> None:
        """https://github.com/kubernetes/kubernetes/blob/master/pkg/controller/job"""
        status, spec = job["status"], job["spec"]
        before = copy.deepcopy(status)
        pods = self.pods_of(job)
        ended = {p["metadata"]["name"]: p for p in pods if p["status"]["phase"] in TERMINAL}
        for pod in ended.values():
            pod["metadata"]["finalizers"] = []  # it is counted
            if pod["metadata"]["name"] not in self._suspended:  # made anew when it is let go
                self._count(job, pod)
        live = [p for p in pods if p["metadata"]["name"] not in ended]
        finished = bool(status.get("conditions"))
        if not finished and "deletionTimestamp" not in job["metadata"]:
            wanted = 0 if spec.get("suspend") else spec.get("parallelism", 1)
            for pod in live[wanted:]:
                if spec.get("suspend"):
                    self._suspended.add(pod["metadata"]["name"])
                self.delete_pod(pod)
            if spec.get("backoffLimit") == 0 and status.get("failed"):
                for pod in live:  # the limit is reached: what runs is ended
                    self.delete_pod(pod)
            else:
                self._make_pods(job, live, wanted)
            self._conclude(job, live)
        status["active"] = len(live)
        if status != before:
            self.store.touch(job)

    def _count(self, job: Object, pod: Object) -> None:
        status = job["status"]
        which = "completed" if pod["status"]["phase"] == "Succeeded" else "failed"
        index = int(pod["metadata"]["annotations"].get(INDEX_NOTE, 0))
        seen: set[int] = status.setdefault(f"_{which}", set())
        seen.add(index)
        status["succeeded" if which == "completed" else "failed"] = len(seen)
        if job["spec"].get("completionMode") == "Indexed":
            status[f"{which}Indexes"] = _intervals(seen)

    def _make_pods(self, job: Object, live: list[Object], wanted: int) -> None:
        status, spec = job["status"], job["spec"]
        if spec.get("completionMode") != "Indexed" and status.get("failed"):
            return
        taken = {int(p["metadata"]["annotations"].get(INDEX_NOTE, 0)) for p in live}
        taken |= status.get("_completed", set()) | status.get("_failed", set())
        free = (i for i in range(spec.get("completions", 1)) if i not in taken)
        for index in itertools.islice(free, max(0, wanted - len(live))):
            self._make_pod(job, index)

    def _make_pod(self, job: Object, index: int) -> None:
        name = job["metadata"]["name"]
        template = copy.deepcopy(job["spec"]["template"])
        indexed = job["spec"].get("completionMode") == "Indexed"
        notes = {INDEX_NOTE: str(index)} if indexed else {}
        middle = f"-{index}" if indexed else ""
        if indexed:
            source = {"fieldRef": {"fieldPath": f"metadata.annotations['{INDEX_NOTE}']"}}
            for container in template["spec"]["containers"]:
                container["env"].append({"name": "JOB_COMPLETION_INDEX", "valueFrom": source})
        metadata = template.get("metadata") or {}
        metadata |= {
            "name": f"{name}{middle}-{next(self._names):05}",
            "namespace": job["metadata"]["namespace"],
            "annotations": notes,
            "finalizers": [POD_FINALIZER],
            "ownerReferences": [{"uid": job["metadata"]["uid"], "controller": True}],
        }
        metadata["labels"] = (metadata.get("labels") or {}) | {JOB_LABEL: name}
        pod = {"metadata": metadata, "spec": template["spec"], "status": {"phase": "Pending"}}
        self.store.add(self.store.pods, pod)
        self.store.pods_made.append(pod)

    def _conclude(self, job: Object, live: list[Object]) -> None:
        status, spec = job["status"], job["spec"]
        succeeded, failed = status.get("succeeded", 0), status.get("failed", 0)
        count = spec.get("completions", 1)
        if spec.get("completionMode") == "Indexed":
            limited = spec.get("backoffLimit") == 0 and failed > 0
            reason = "BackoffLimitExceeded" if limited else "FailedIndexes"
            done, bad = limited or succeeded + failed >= count, failed > 0
        else:
            done, bad, reason = succeeded + failed > 0, failed > 0, "BackoffLimitExceeded"
        if done and not live:
            kind = {"type": "Failed", "reason": reason} if bad else {"type": "Complete"}
            message = "Job has reached the specified backoff limit" if bad else ""
            status["conditions"] = [{**kind, "status": "True", "message": message}]

    # The scheduler and the kubelet ----------------------------------------------------------

    async def _keep(self, pod: Object) -> None:
        name, phase = pod["metadata"]["name"], pod["status"]["phase"]
        if phase in TERMINAL:
            if "deletionTimestamp" in pod["metadata"] and not pod["metadata"]["finalizers"]:
                self.store.remove(self.store.pods, name)
        elif name in self._runs:
            if "deletionTimestamp" in pod["metadata"] and name not in self._stopping:
                self._stopping.add(name)
                self._runs[name].stop()
            self._watch(pod)
        elif "deletionTimestamp" in pod["metadata"]:
            state = {"terminated": ended_as({"exitCode": 137, "reason": "Error"}, now())}
            self._ended(pod, "Failed", [{"name": "job", "state": state}])
        elif self._bind(pod):
            await self._start(pod)

    def _bind(self, pod: Object) -> bool:
        needs = requests_of(pod)
        for name, node in self.store.nodes.items():
            if node["spec"].get("unschedulable") or not _may_go(pod, node):
                continue
            if self._kept_apart(pod, name):
                continue
            free = {k: quantity(v) for k, v in node["status"]["allocatable"].items()}
            for other in self.store.pods.values():
                holds = other["spec"].get("nodeName") == name
                if holds and other["status"]["phase"] not in TERMINAL:
                    for key, amount in requests_of(other).items():
                        free[key] = free.get(key, 0) - amount
            if all(free.get(key, 0) >= amount for key, amount in needs.items()) and (
                self._claim(pod, name)
            ):
                pod["spec"]["nodeName"] = name
                self.store.touch(pod)
                return True
        if "conditions" not in pod["status"]:
            message = f"0/{len(self.store.nodes)} nodes are available: Insufficient cpu."
            pod["status"]["conditions"] = [
                {"type": "PodScheduled", "status": "False", "reason": "Unschedulable",
                 "message": message}
            ]  # fmt: skip
            self.store.touch(pod)
        return False

    def _kept_apart(self, pod: Object, node: str) -> bool:
        """By pods there that it is not to share a node with."""
        rules = ((pod["spec"].get("affinity") or {}).get("podAntiAffinity") or {}).get(
            "requiredDuringSchedulingIgnoredDuringExecution"
        )
        return any(
            rule["labelSelector"]["matchLabels"].items() <= other["metadata"]["labels"].items()
            for rule in rules or ()
            for other in self.store.pods.values()
            if other["spec"].get("nodeName") == node and other["status"]["phase"] not in TERMINAL
        )

    def _claim(self, pod: Object, node: str) -> bool:
        """Allocate what its claims ask for of the node's devices, if there are enough."""
        for claim in pod["spec"].get("resourceClaims") or ():
            template = self.store.templates.get(claim["resourceClaimTemplateName"])
            if template is None:
                return False  # its controller waits for it
            asked = template["spec"]["spec"]["devices"]["requests"][0]["exactly"]
            (selector,) = asked["selectors"]
            products = json.loads(selector["cel"]["expression"].partition(" in ")[2])
            taken = {
                (r["driver"], r["pool"], r["device"]) for c in self.store.claims.values()
                for r in c["status"]["allocation"]["devices"]["results"]
            }  # fmt: skip
            free = [
                {"request": "cards", "driver": spec["driver"], "pool": spec["pool"]["name"],
                 "device": device["name"]}
                for spec in (each["spec"] for each in self.store.slices.values())
                for device in spec.get("devices") or ()
                if spec.get("nodeName") == node
                and device["attributes"]["productName"]["string"] in products
                and (spec["driver"], spec["pool"]["name"], device["name"]) not in taken
            ]  # fmt: skip
            if len(free) < asked["count"]:
                return False
            allocation = {"devices": {"results": free[: asked["count"]]}}
            name = f"{pod['metadata']['name']}-{claim['name']}"
            self.store.add(self.store.claims, {
                "metadata": {"name": name}, "spec": {}, "status": {"allocation": allocation},
            })  # fmt: skip
        return True

    def _unclaim(self, pod: Object) -> None:
        for claim in pod["spec"].get("resourceClaims") or ():
            name = f"{pod['metadata']['name']}-{claim['name']}"
            if name in self.store.claims:
                self.store.remove(self.store.claims, name)

    async def _start(self, pod: Object) -> None:
        name = pod["metadata"]["name"]
        run = self._runs[name] = PodRun(pod, self.scratch)
        await run.start()
        node = self.store.nodes[pod["spec"]["nodeName"]]
        node["status"].setdefault("images", []).extend(
            {"names": [container["image"]]} for container in pod["spec"]["containers"]
        )
        self.ran.append(name)
        pod["status"] |= {"phase": "Running", "startTime": now(),
                          "containerStatuses": run.statuses}  # fmt: skip
        pod["status"].pop("conditions", None)
        if "activeDeadlineSeconds" in pod["spec"]:
            self._deadlines[name] = time.monotonic() + pod["spec"]["activeDeadlineSeconds"]
        self.store.touch(pod)

    def _watch(self, pod: Object) -> None:
        name = pod["metadata"]["name"]
        run = self._runs[name]
        if time.monotonic() > self._deadlines.get(name, float("inf")):
            run.kill("DeadlineExceeded")
        if not run.look() and run.phase == "Running":
            return
        if run.phase != "Running":
            del self._runs[name]
            if any(each.why == "DeadlineExceeded" for each in run.containers):
                pod["status"]["reason"] = "DeadlineExceeded"
            self._ended(pod, run.phase, run.statuses)
        else:
            pod["status"]["containerStatuses"] = run.statuses
            self.store.touch(pod)

    def _ended(self, pod: Object, phase: str, statuses: list[Object]) -> None:
        pod["status"] |= {"phase": phase, "containerStatuses": statuses}
        self._unclaim(pod)
        self.store.touch(pod)

    # Deleting -------------------------------------------------------------------------------

    def delete_pod(self, pod: Object, grace_s: float | None = None) -> None:
        """The kubelet tells the first process to stop, and kills the container after the
        grace."""
        name = pod["metadata"]["name"]
        usual = pod["spec"]["terminationGracePeriodSeconds"]
        limit = time.monotonic() + (usual if grace_s is None else grace_s)
        if "deletionTimestamp" not in pod["metadata"]:
            pod["metadata"]["deletionTimestamp"] = now()
            self.store.touch(pod)
        asyncio.get_running_loop().call_later(
            max(0.0, limit - time.monotonic()), self._kill_late, name
        )

    def _kill_late(self, name: str) -> None:
        if name in self._runs:
            self._runs[name].kill()

    def delete_job(self, job: Object, policy: str) -> None:
        job["metadata"].setdefault("finalizers", [])
        if "deletionTimestamp" not in job["metadata"]:
            job["metadata"]["deletionTimestamp"] = now()
            if policy == "Foreground":
                job["metadata"]["finalizers"].append("foregroundDeletion")
            self.store.touch(job)

    def _collect(self, job: Object, of: dict[str, Object]) -> None:
        """The garbage collector: what is deleted in the foreground goes after what belongs to it;
        in the background that goes when it is gone, which a finalizer may put off."""
        if "deletionTimestamp" not in job["metadata"]:
            return
        finalizers = job["metadata"]["finalizers"]
        if "foregroundDeletion" in finalizers and not self._without_dependents(job):
            finalizers.remove("foregroundDeletion")
            self.store.touch(job)
        if not finalizers:
            self.store.remove(of, job["metadata"]["name"])
            self._without_dependents(job)

    def _without_dependents(self, owner: Object) -> bool:
        """Delete what belongs to it; whether any of that is still there."""
        uid = owner["metadata"]["uid"]

        def belongs(thing: Object) -> bool:
            return any(o["uid"] == uid for o in thing["metadata"].get("ownerReferences") or ())

        for name in [n for n, s in self.store.services.items() if belongs(s)]:
            self.store.remove(self.store.services, name)
        jobs = [job for job in self.store.jobs.values() if belongs(job)]
        pods = [pod for pod in self.store.pods.values() if belongs(pod)]
        for job in jobs:
            self.delete_job(job, "Foreground")
        for pod in pods:
            self._untrack(pod)
            if "deletionTimestamp" not in pod["metadata"]:
                self.delete_pod(pod)
        return bool(jobs or pods)

    def _untrack(self, pod: Object) -> None:
        kept = [f for f in pod["metadata"]["finalizers"] if f != POD_FINALIZER]
        pod["metadata"]["finalizers"] = kept

    # What may befall it ---------------------------------------------------------------------

    async def node_dies(self, name: str) -> None:
        """Power off and its object deleted: the pod collector fails and deletes its pods."""
        self.store.remove(self.store.nodes, name)
        for pod in list(self.store.pods.values()):
            if pod["spec"].get("nodeName") == name and pod["status"]["phase"] not in TERMINAL:
                pod_name = pod["metadata"]["name"]
                run = self._runs.pop(pod_name, None)
                if run is not None:
                    run.kill()
                    await run.wait()
                pod["metadata"]["deletionTimestamp"] = now()
                pod["status"]["phase"] = "Failed"
                pod["status"].pop("containerStatuses", None)
                pod["status"]["conditions"] = [
                    {"type": "DisruptionTarget", "status": "True", "reason": "DeletionByPodGC",
                     "message": "PodGC: node no longer exists"}
                ]  # fmt: skip
                self.store.touch(pod)


def _intervals(seen: set[int]) -> str:
    parts: list[list[int]] = []
    for each in sorted(seen):
        if parts and parts[-1][1] == each - 1:
            parts[-1][1] = each
        else:
            parts.append([each, each])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in parts)


def _may_go(pod: Object, node: Object) -> bool:
    """By the pod's selector and its affinity to nodes."""
    labels = node["metadata"]["labels"]
    if any(labels.get(k) != v for k, v in (pod["spec"].get("nodeSelector") or {}).items()):
        return False
    where = ((pod["spec"].get("affinity") or {}).get("nodeAffinity") or {}).get(
        "requiredDuringSchedulingIgnoredDuringExecution"
    )
    for rule in (r for t in (where or {}).get("nodeSelectorTerms", ()) for r in
                 t["matchExpressions"]):  # fmt: skip
        there = labels.get(rule["key"])
        if rule["operator"] == "DoesNotExist" and there is not None:
            return False
        if rule["operator"] == "In" and there not in rule["values"]:
            return False
    return True
