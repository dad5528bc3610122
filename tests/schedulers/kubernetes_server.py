"""A contract server for the part of the Kubernetes API that the agent uses: strict about paths,
verbs, content types, fields, versions and finalizers, over a cluster of the tests' own."""

from __future__ import annotations

import asyncio
import copy
import json
import re
import threading
from typing import Any

from aiohttp import web

from tests.schedulers.kubernetes_cluster import TICK_S, Cluster, Object

TOKEN = "contract-token"  # noqa: S105
NAMESPACE = "tradewind"
LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
JOB_FIELDS = {
    "": {"apiVersion", "kind", "metadata", "spec"},
    "metadata": {"name", "namespace", "labels", "annotations", "finalizers"},
    "spec": {
        "backoffLimit", "backoffLimitPerIndex", "maxFailedIndexes", "completions", "parallelism",
        "completionMode", "podReplacementPolicy", "suspend", "template",
        "ttlSecondsAfterFinished", "activeDeadlineSeconds",
    },
    "spec.template": {"metadata", "spec"},
    "spec.template.spec": {
        "restartPolicy", "terminationGracePeriodSeconds", "activeDeadlineSeconds",
        "automountServiceAccountToken", "enableServiceLinks", "securityContext", "containers",
        "volumes", "nodeSelector", "tolerations", "affinity", "subdomain", "resourceClaims",
    },
    "spec.template.spec.securityContext": {
        "runAsUser", "runAsGroup", "runAsNonRoot", "seccompProfile",
    },
    "spec.template.spec.affinity.nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution",
    },
    "spec.template.spec.containers": {
        "name", "image", "command", "workingDir", "env", "resources", "securityContext",
        "volumeMounts",
    },
}  # fmt: skip
MUTABLE = {"parallelism", "suspend", "ttlSecondsAfterFinished"}


class Refused(Exception):
    """An answer that is a Status."""

    def __init__(self, code: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.code, self.reason = code, reason


class KubernetesServer:
    """Serves one namespace on loopback."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.url = ""
        self.refused: list[str] = []
        """Requests no server would take: the agent is to make none."""
        self.requests: list[str] = []
        self.watches = self.watch_requests = 0
        self.bookmarks = True
        self.gone_in_stream = "event"
        """How a version that is history is refused: `event` within the stream, or `status`."""
        self.cut = asyncio.Event()
        self.busy = False
        """Takes no watch for now."""
        self._runner: web.AppRunner | None = None

    async def start(self, port: int = 0) -> None:
        app = web.Application()
        jobs = f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs"
        pods = f"/api/v1/namespaces/{NAMESPACE}/pods"
        queues = f"/apis/kueue.x-k8s.io/v1beta1/namespaces/{NAMESPACE}/localqueues"
        services = f"/api/v1/namespaces/{NAMESPACE}/services"
        sets = f"/apis/jobset.x-k8s.io/v1alpha2/namespaces/{NAMESPACE}/jobsets"
        for verb, path, answer in (
            ("GET", "/version", self._version),
            ("GET", jobs, self._jobs),
            ("POST", jobs, self._create),
            ("GET", jobs + "/{name}", self._job),
            ("PATCH", jobs + "/{name}", self._patch),
            ("DELETE", jobs + "/{name}", self._delete_job),
            ("GET", pods, self._pods),
            ("GET", "/api/v1/pods", self._pods),
            ("DELETE", pods + "/{name}", self._delete_pod),
            ("GET", "/api/v1/nodes", self._nodes),
            ("GET", f"/api/v1/namespaces/{NAMESPACE}/resourcequotas", self._quotas),
            ("GET", "/apis/resource.k8s.io", self._resource_group),
            ("GET", "/apis/resource.k8s.io/{version}/resourceslices", self._slices),
            ("GET", "/apis/resource.k8s.io/{version}/resourceclaims", self._claims),
            ("POST", "/apis/resource.k8s.io/{version}/namespaces/" + NAMESPACE
             + "/resourceclaimtemplates", self._create_template),
            ("GET", "/apis/kueue.x-k8s.io/v1beta1/clusterqueues", self._cluster_queues),
            ("GET", "/apis/kueue.x-k8s.io/v1beta1/resourceflavors", self._flavours),
            ("GET", queues + "/{name}", self._queue),
            ("POST", services, self._create_service),
            ("GET", services + "/{name}", self._service),
            ("GET", sets, self._list_sets),
            ("POST", sets, self._create_set),
            ("GET", sets + "/{name}", self._set),
            ("PATCH", sets + "/{name}", self._patch_set),
            ("DELETE", sets + "/{name}", self._delete_set),
            ("PATCH", services + "/{name}", self._patch_service),
        ):
            app.router.add_route(verb, path, self._checked(answer))
        app.router.add_route("*", "/{any:.*}", self._checked(self._nowhere))
        self._runner = web.AppRunner(app)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", port)
        await site.start()
        host, port = self._runner.addresses[0][:2]
        self.url = f"http://{host}:{port}"
        await self.cluster.start()

    async def stop(self) -> None:
        self.busy = True
        self.cut_watches()
        await self.cluster.stop()
        if self._runner is not None:
            await self._runner.cleanup()

    def _checked(self, answer: Any) -> Any:
        async def handle(request: web.Request) -> web.StreamResponse:
            self.requests.append(f"{request.method} {request.path}")
            try:
                if request.headers.get("Authorization") != f"Bearer {TOKEN}":
                    raise Refused(401, "Unauthorized", "Unauthorized")
                found = await answer(request)
                if isinstance(found, web.StreamResponse):
                    return found
                code, body = found
            except Refused as refused:
                if refused.code not in (404, 409, 410, 503) or request.path.startswith("/apis/x"):
                    self.refused.append(f"{request.method} {request.path_qs}: {refused}")
                code = refused.code
                body = {
                    "kind": "Status", "status": "Failure", "code": refused.code,
                    "reason": refused.reason, "message": str(refused),
                }  # fmt: skip
            return web.json_response(body, status=code)

        return handle

    async def _nowhere(self, request: web.Request) -> tuple[int, Object]:
        self.refused.append(f"{request.method} {request.path}: no such path")
        raise Refused(404, "NotFound", "the server could not find the requested resource")

    async def _version(self, request: web.Request) -> tuple[int, Object]:
        return 200, {"major": "1", "minor": "33", "gitVersion": "v1.33.0"}

    # Reading --------------------------------------------------------------------------------

    async def _jobs(self, request: web.Request) -> tuple[int, Object] | web.StreamResponse:
        if "watch" in request.query:
            return await self._watch(request, self.cluster.store.jobs)
        return 200, self._list("JobList", self.cluster.store.jobs, request)

    async def _pods(self, request: web.Request) -> tuple[int, Object] | web.StreamResponse:
        if "watch" in request.query:
            return await self._watch(request, self.cluster.store.pods)
        found = self._list("PodList", self.cluster.store.pods, request)
        if self.cluster.strange:
            for pod in found["items"]:
                if pod["status"]["phase"] == "Running":
                    pod["status"]["phase"] = "Hovering"
        return 200, found

    async def _quotas(self, request: web.Request) -> tuple[int, Object]:
        return 200, self._list("ResourceQuotaList", self.cluster.store.quotas, request)

    async def _resource_group(self, request: web.Request) -> tuple[int, Object]:
        versions = [{"groupVersion": f"resource.k8s.io/{v}", "version": v}
                    for v in self.cluster.resource_versions]  # fmt: skip
        if not versions:
            raise Refused(404, "NotFound", "the server could not find the requested resource")
        return 200, {"kind": "APIGroup", "name": "resource.k8s.io", "versions": versions}

    def _known_version(self, request: web.Request) -> str:
        version = request.match_info["version"]
        if version not in self.cluster.resource_versions:
            raise Refused(404, "NotFound", "the server could not find the requested resource")
        return version

    async def _slices(self, request: web.Request) -> tuple[int, Object]:
        """In the form of the version asked for."""
        version = self._known_version(request)
        found = self._list("ResourceSliceList", self.cluster.store.slices, request)
        if version == "v1beta1":
            for each in found["items"]:
                devices = each["spec"].get("devices") or ()
                each["spec"]["devices"] = [
                    {"name": d["name"], "basic": {k: v for k, v in d.items() if k != "name"}}
                    for d in devices
                ]
        return 200, found

    async def _claims(self, request: web.Request) -> tuple[int, Object]:
        self._known_version(request)
        return 200, self._list("ResourceClaimList", self.cluster.store.claims, request)

    async def _create_template(self, request: web.Request) -> tuple[int, Object]:
        version = self._known_version(request)
        body = await _body(request, "application/json")
        (asked,) = body["spec"]["spec"]["devices"]["requests"]
        if version == "v1beta1":
            asked = {"name": asked.pop("name"), "exactly": asked}
        known = {"deviceClassName", "allocationMode", "count", "selectors"}
        if set(asked) != {"name", "exactly"} or set(asked["exactly"]) != known:
            raise Refused(400, "BadRequest", f"strict decoding error: unknown field in {asked}")
        name = body["metadata"]["name"]
        if name in self.cluster.store.templates:
            raise Refused(409, "AlreadyExists", f'resourceclaimtemplates "{name}" already exists')
        body["spec"]["spec"]["devices"]["requests"] = [asked]
        self.cluster.store.add(self.cluster.store.templates, body)
        return 201, body

    async def _cluster_queues(self, request: web.Request) -> tuple[int, Object]:
        return 200, self._list("ClusterQueueList", self.cluster.store.cluster_queues, request)

    async def _flavours(self, request: web.Request) -> tuple[int, Object]:
        return 200, self._list("ResourceFlavorList", self.cluster.store.flavours, request)

    async def _queue(self, request: web.Request) -> tuple[int, Object]:
        return 200, self._one(self.cluster.store.queues, request)

    async def _nodes(self, request: web.Request) -> tuple[int, Object]:
        return 200, self._list("NodeList", self.cluster.store.nodes, request)

    async def _job(self, request: web.Request) -> tuple[int, Object]:
        return 200, _shown(self._one(self.cluster.store.jobs, request))

    async def _watch(self, request: web.Request, of: dict[str, Object]) -> web.StreamResponse:
        """Events after a version, until the time is over or a test cuts the line."""
        if request.query.get("allowWatchBookmarks") != "true" or "timeoutSeconds" not in (
            request.query
        ):
            raise Refused(400, "BadRequest", "the agent asks for bookmarks and an end")
        self.watch_requests += 1
        if self.busy:
            raise Refused(503, "ServiceUnavailable", "the apiserver is starting")
        at = told = int(request.query["resourceVersion"])
        if self.gone_in_stream == "status" and at < self.cluster.store.oldest:
            raise Refused(410, "Expired", "too old resource version")
        answer = web.StreamResponse(headers={"Content-Type": "application/json"})
        await answer.prepare(request)
        self.watches += 1
        cut = self.cut
        while not cut.is_set() and request.transport is not None:
            if at < self.cluster.store.oldest:
                status = {"kind": "Status", "code": 410, "message": "too old resource version"}
                await _tell(answer, "ERROR", status)
                break
            for version, kind, thing, owner in self.cluster.store.events_after(at):
                at = version
                if owner is of and _matches(thing, request):
                    told = version
                    await _tell(answer, kind, _shown(thing))
            at = max(at, self.cluster.store.newest)
            if self.bookmarks and at > told:
                told = at
                await _tell(answer, "BOOKMARK", {"metadata": {"resourceVersion": str(at)}})
            await asyncio.sleep(TICK_S)
        return answer

    def cut_watches(self) -> None:
        """As a proxy or a restart does."""
        self.cut.set()
        self.cut = asyncio.Event()

    def _one(self, kind: dict[str, Object], request: web.Request) -> Object:
        name = request.match_info["name"]
        if name not in kind:
            raise Refused(404, "NotFound", f'"{name}" not found')
        return kind[name]

    def _list(self, kind: str, of: dict[str, Object], request: web.Request) -> Object:
        unknown = set(request.query) - {"labelSelector", "fieldSelector"}
        if unknown:
            raise Refused(400, "BadRequest", f"unknown parameters {unknown}")
        items = [_shown(each) for each in of.values()]
        for term in filter(None, request.query.get("labelSelector", "").split(",")):
            key, sign, value = term.partition("=")
            if not sign:
                raise Refused(400, "BadRequest", f"unable to parse requirement: {term}")
            items = [i for i in items if (i["metadata"].get("labels") or {}).get(key) == value]
        for term in filter(None, request.query.get("fieldSelector", "").split(",")):
            key, sign, value = term.partition("!=")
            if not sign or key != "status.phase" or kind != "PodList":
                raise Refused(400, "BadRequest", f"field label not supported: {term}")
            items = [i for i in items if i["status"]["phase"] != value]
        version = str(self.cluster.store.newest)
        return {"kind": kind, "metadata": {"resourceVersion": version}, "items": items}

    # Writing --------------------------------------------------------------------------------

    async def _create(self, request: web.Request) -> tuple[int, Object]:
        if request.query.get("fieldValidation") != "Strict":
            raise Refused(400, "BadRequest", "the agent asks strictly")
        job = await _body(request, "application/json")
        _check_fields(job)
        name = job["metadata"]["name"]
        if name in self.cluster.store.jobs:
            raise Refused(409, "AlreadyExists", f'jobs.batch "{name}" already exists')
        self._check_job(job)
        job["metadata"]["namespace"] = NAMESPACE
        job["status"] = {}
        self.cluster.store.add(self.cluster.store.jobs, job)
        return 201, _shown(job)

    # JobSets ------------------------------------------------------------------------------------

    def _sets(self, request: web.Request) -> dict[str, Object]:
        """Of a cluster without the definition there is no such path."""
        if not self.cluster.has_sets:
            raise Refused(404, "NotFound", "the server could not find the requested resource")
        return self.cluster.store.sets

    async def _list_sets(self, request: web.Request) -> tuple[int, Object] | web.StreamResponse:
        if "watch" in request.query:
            return await self._watch(request, self._sets(request))
        return 200, self._list("JobSetList", self._sets(request), request)

    async def _set(self, request: web.Request) -> tuple[int, Object]:
        return 200, _shown(self._one(self._sets(request), request))

    async def _create_set(self, request: web.Request) -> tuple[int, Object]:
        """What its definition and its webhook refuse."""
        if request.query.get("fieldValidation") != "Strict":
            raise Refused(400, "BadRequest", "the agent asks strictly")
        body = await _body(request, "application/json")
        name, spec = body["metadata"]["name"], body["spec"]
        unknown = set(spec) - {"network", "failurePolicy", "suspend", "replicatedJobs"}
        if unknown or body["apiVersion"] != "jobset.x-k8s.io/v1alpha2":
            raise Refused(400, "BadRequest", f"strict decoding error: unknown field {unknown}")
        if name in self._sets(request):
            raise Refused(409, "AlreadyExists", f'jobsets "{name}" already exists')
        (job,) = spec["replicatedJobs"]
        if set(job) != {"name", "replicas", "template"} or set(job["template"]) != {"spec"}:
            raise Refused(400, "BadRequest", f"strict decoding error: unknown field in {job}")
        if spec["failurePolicy"] != {"maxRestarts": 0}:
            raise Refused(422, "Invalid", "the agent has nothing started anew")
        child = {"metadata": {"name": f"{name}-{job['name']}-0"}, **job["template"]}
        _check_fields(child)
        self._check_job(child)
        self.cluster.store.add(self.cluster.store.sets, body | {"status": {}})
        return 201, _shown(self.cluster.store.sets[name])

    async def _patch_set(self, request: web.Request) -> tuple[int, Object]:
        return await self._patched(request, self._sets(request), {"ttlSecondsAfterFinished"})

    async def _delete_set(self, request: web.Request) -> tuple[int, Object]:
        return await self._deleted(request, self._sets(request))

    async def _service(self, request: web.Request) -> tuple[int, Object]:
        return 200, self._one(self.cluster.store.services, request)

    async def _create_service(self, request: web.Request) -> tuple[int, Object]:
        if request.query.get("fieldValidation") != "Strict":
            raise Refused(400, "BadRequest", "the agent asks strictly")
        service = await _body(request, "application/json")
        name, spec = service["metadata"]["name"], service["spec"]
        if set(spec) != {"clusterIP", "publishNotReadyAddresses", "selector"}:
            raise Refused(400, "BadRequest", f"strict decoding error: unknown field {spec}")
        if not re.fullmatch(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?", name):
            raise Refused(422, "Invalid", f"metadata.name: {name} is no RFC 1035 label")
        if spec["clusterIP"] != "None" or not spec["publishNotReadyAddresses"]:
            raise Refused(422, "Invalid", "members could not find each other before all are ready")
        if name in self.cluster.store.services:
            raise Refused(409, "AlreadyExists", f'services "{name}" already exists')
        self.cluster.store.add(self.cluster.store.services, service)
        return 201, service

    async def _patch_service(self, request: web.Request) -> tuple[int, Object]:
        change = await _body(request, "application/merge-patch+json")
        service = self._one(self.cluster.store.services, request)
        (owner,) = change["metadata"]["ownerReferences"]
        if set(owner) != {"apiVersion", "kind", "name", "uid"}:
            raise Refused(422, "Invalid", f"ownerReferences: {owner}")
        service["metadata"] |= change["metadata"]
        self.cluster.store.touch(service)
        return 200, service

    def _check_job(self, job: Object) -> None:
        """What validation of Jobs refuses."""
        spec, name = job["spec"], job["metadata"]["name"]
        pod = spec["template"]["spec"]
        indexed = spec.get("completionMode") == "Indexed"
        host = f"{name}-{spec.get('completions', 1) - 1}" if indexed else name
        faults = {
            "metadata.name: not a DNS label": not LABEL.fullmatch(host),
            "restartPolicy: Never or OnFailure": pod.get("restartPolicy") != "Never",
            "backoffLimitPerIndex: needs Indexed": "backoffLimitPerIndex" in spec and not indexed,
            "maxFailedIndexes: needs backoffLimitPerIndex": "maxFailedIndexes" in spec
            and "backoffLimitPerIndex" not in spec,
            "subdomain: no such service, members would not be found": pod.get("subdomain", name)
            != name
            or ("subdomain" in pod and name not in self.cluster.store.services),
            "maxFailedIndexes: more than completions": spec.get("maxFailedIndexes", 0)
            > spec.get("completions", 1),
            "podReplacementPolicy": spec.get("podReplacementPolicy") != "Failed",
            "parallelism: below 0": spec.get("parallelism", 1) < 0,
            "the agent tries nothing twice": spec.get("backoffLimit", 0 if indexed else 6) != 0
            or (indexed and "backoffLimit" not in spec and spec.get("backoffLimitPerIndex") != 0),
        }
        for label in (job["metadata"].get("labels") or {}).values():
            faults[f"label {label}"] = not re.fullmatch(r"[\w.-]{0,63}", label)
        for each in job["metadata"].get("finalizers") or ():
            faults[f"finalizer {each}: no domain"] = "/" not in each
        mounts = [m for c in pod["containers"] for m in c.get("volumeMounts") or ()]
        mounted = {m["name"] for m in mounts}
        paths = [m.get("subPath", "") for m in mounts]
        faults["subPath: relative, without .."] = any(
            path.startswith("/") or ".." in path.split("/") for path in paths
        )
        named = {c["name"] for c in pod.get("resourceClaims") or ()}
        used = {u["name"] for c in pod["containers"] for u in c["resources"].get("claims") or ()}
        faults["resources.claims: not of the pod"] = named != used
        faults["containers: a name twice"] = len({c["name"] for c in pod["containers"]}) != len(
            pod["containers"]
        )
        volumes = {v["name"] for v in pod.get("volumes") or ()}
        faults["volumeMounts: no such volume"] = mounted != volumes
        wrong = [fault for fault, holds in faults.items() if holds]
        if wrong:
            raise Refused(422, "Invalid", f'Job.batch "{name}" is invalid: {"; ".join(wrong)}')

    async def _patch(self, request: web.Request) -> tuple[int, Object]:
        return await self._patched(request, self.cluster.store.jobs, MUTABLE)

    async def _patched(
        self, request: web.Request, of: dict[str, Object], mutable: set[str]
    ) -> tuple[int, Object]:
        change = await _body(request, "application/merge-patch+json")
        job = self._one(of, request)
        metadata = change.get("metadata") or {}
        wanted = metadata.pop("resourceVersion", None)
        if wanted is not None and wanted != job["metadata"]["resourceVersion"]:
            raise Refused(409, "Conflict", "the object has been modified")
        if set(change) - {"metadata", "spec"} or set(metadata) - {"finalizers", "annotations"}:
            raise Refused(422, "Invalid", f"the agent changes no {sorted(change)}")
        fixed = set(change.get("spec") or ()) - mutable
        if fixed:
            raise Refused(422, "Invalid", f"spec.{fixed}: field is immutable")
        job["spec"] |= change.get("spec") or {}
        job["metadata"] |= metadata
        self.cluster.store.touch(job)
        return 200, _shown(job)

    async def _delete_job(self, request: web.Request) -> tuple[int, Object]:
        return await self._deleted(request, self.cluster.store.jobs)

    async def _deleted(self, request: web.Request, of: dict[str, Object]) -> tuple[int, Object]:
        options = await _body(request, "application/json")
        if options.get("propagationPolicy") not in ("Foreground", "Background"):
            raise Refused(400, "BadRequest", "propagationPolicy: its pods would be left")
        job = self._one(of, request)
        self.cluster.delete_job(job, options["propagationPolicy"])
        return 200, _shown(job)

    async def _delete_pod(self, request: web.Request) -> tuple[int, Object]:
        options = await _body(request, "application/json")
        pod = self._one(self.cluster.store.pods, request)
        self.cluster.delete_pod(pod, options.get("gracePeriodSeconds"))
        return 200, _shown(pod)


class ServerThread:
    """The contract server beside a test that waits."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.server = KubernetesServer(Cluster())
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)

    def start(self) -> None:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self.server.start(), self.loop).result(20)

    def stop(self) -> None:
        asyncio.run_coroutine_threadsafe(self.server.stop(), self.loop).result(20)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(20)
        self.loop.close()


def _shown(thing: Object) -> Object:
    """An object as the API tells it: without what the controllers keep for themselves."""
    shown = copy.deepcopy(thing)
    if "status" in shown:
        shown["status"] = {k: v for k, v in shown["status"].items() if not k.startswith("_")}
    return shown


async def _tell(answer: web.StreamResponse, kind: str, thing: Object) -> None:
    await answer.write(json.dumps({"type": kind, "object": thing}).encode() + b"\n")


def _matches(thing: Object, request: web.Request) -> bool:
    labels = thing["metadata"].get("labels") or {}
    terms = (t.partition("=") for t in request.query.get("labelSelector", "").split(",") if t)
    return all(labels.get(key) == value for key, _, value in terms)


async def _body(request: web.Request, kind: str) -> Object:
    if request.content_type != kind:
        raise Refused(415, "UnsupportedMediaType", f"{request.content_type}, not {kind}")
    try:
        found = json.loads(await request.text())
    except ValueError as problem:
        raise Refused(400, "BadRequest", str(problem)) from problem
    assert isinstance(found, dict)
    return found


def _check_fields(job: Object) -> None:
    for path, known in JOB_FIELDS.items():
        found: Any = job
        for part in filter(None, path.split(".")):
            found = found.get(part) or {}
        for each in found if isinstance(found, list) else [found]:
            unknown = set(each) - known
            if unknown:
                message = f"strict decoding error: unknown field {path}.{sorted(unknown)}"
                raise Refused(400, "BadRequest", message)


__all__ = ["NAMESPACE", "TOKEN", "Cluster", "KubernetesServer", "ServerThread"]
