"""The few requests to a Kubernetes API server that an agent makes, typed by what can go wrong.

Objects are the JSON of https://kubernetes.io/docs/reference/kubernetes-api/. Whatever the server
may not know is asked for strictly, so that an old one refuses instead of leaving it out.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import quote

import aiohttp

from regional_agent.kubernetes.site import KubernetesSite

SAID_CHARS_MAX = 300
LABEL_SITE, LABEL_ATTEMPT = "tradewind.dev/site", "tradewind.dev/attempt"
LABEL_APART = "tradewind.dev/apart"
"""Of pods that share no node with others of the same job, which it names."""
TAG, DIRECTORY, INDICES, REPLICAS = (
    f"tradewind.dev/{each}" for each in ("tag", "directory", "indices", "replicas")
)
"""Annotations of our Jobs: whose it is, where its files lie, which elements it has, and of a gang
(and of its pods) how many members."""
CONTAINER = "job"
"""The name of the container a job runs in, beside which there may be another."""
FOREGROUND = "foregroundDeletion"
"""The finalizer of what is deleted after what belongs to it."""
FINALIZER = "tradewind.dev/end-on-record"
JOB_NAME_OLD = "job-name"
"""Before 1.27."""
JOBSET, JOBSET_NAME = "jobset/", "jobset.sigs.k8s.io/jobset-name"
"""What the local id of a gang that is a JobSet begins with, before its name; and the label that its
controller gives to pods."""
JOB_NAME, INDEX = "batch.kubernetes.io/job-name", "batch.kubernetes.io/job-completion-index"
"""Labels and annotations that the Job controller gives to pods."""
MERGE = "application/merge-patch+json"
Object = Mapping[str, Any]


class KubernetesSilent(Exception):
    """No answer, or not what it should be (5xx, 429, no JSON): nothing is known about the
    effect."""


class KubernetesRefused(Exception):
    """The server answered, and will not do it; the text is its own, shortened."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class Conflict(KubernetesRefused):
    """409: the name is taken, or the object has changed since it was read."""


class NotThere(KubernetesRefused):
    """404."""


class Expired(KubernetesRefused):
    """410: what was asked about is history; ask anew."""


class Invalid(KubernetesRefused):
    """400 or 422: the object itself is wrong."""


_KINDS = {400: Invalid, 404: NotThere, 409: Conflict, 410: Expired, 422: Invalid}
_TOO_MANY, _SERVER, _CLIENT = 429, 500, 400
RESOURCE_VERSIONS = ("v1", "v1beta2", "v1beta1")
WATCH_S = 240
"""After so long the server ends a watch, and the next goes on where it was."""


@dataclass(slots=True)
class KubernetesApi:
    """Asks one API server about one namespace. Every method may raise KubernetesSilent and
    KubernetesRefused."""

    site: KubernetesSite
    _session: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        """Let go of the connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def version(self) -> str:
        """The server's version, such as `v1.33.1`."""
        return str((await self.ask("GET", "/version"))["gitVersion"])

    async def create_job(self, body: Object) -> Object:
        """A Job or a JobSet. Raises Conflict where the name is taken, Invalid for one the server
        does not understand."""
        kind = JOBSET if body.get("kind") == "JobSet" else ""
        return await self.ask("POST", self._jobs(kind) + "?fieldValidation=Strict", body)

    async def job(self, name: str) -> Object | None:
        """One Job by its name, or JobSet by `jobset/` and its name."""
        try:
            return await self.ask("GET", self._jobs(name))
        except NotThere:
            return None

    async def jobs(self) -> list[Object]:
        """This site's Jobs."""
        return await self._list(self._jobs() + self._ours())

    async def create_service(self, body: Object) -> Object:
        """As `create_job`."""
        return await self.ask("POST", f"{self._space()}/services?fieldValidation=Strict", body)

    async def service(self, name: str) -> Object | None:
        """One service by its name."""
        try:
            return await self.ask("GET", f"{self._space()}/services/{quote(name)}")
        except NotThere:
            return None

    async def patch_service(self, name: str, patch: Object) -> None:
        """Merge into a service; nothing if there is none."""
        with contextlib.suppress(NotThere):
            await self.ask("PATCH", f"{self._space()}/services/{quote(name)}", patch, MERGE)

    async def patch_job(self, name: str, patch: Object) -> bool:
        """Merge into a Job; False if there is none, or if it is not any more at the
        `resourceVersion` in the patch."""
        try:
            await self.ask("PATCH", self._jobs(name), patch, MERGE)
        except (NotThere, Conflict):
            return False
        return True

    async def delete_job(self, name: str) -> None:
        """Delete a Job after its pods, which are told to stop and have their grace. Unknown:
        nothing."""
        await self._delete(self._jobs(name), {"propagationPolicy": "Foreground"})

    async def delete_pod(self, name: str, grace_s: int | None = None) -> None:
        """Delete a pod, by default with its own grace. Unknown: nothing."""
        options = {} if grace_s is None else {"gracePeriodSeconds": grace_s}
        await self._delete(f"{self._space()}/pods/{quote(name)}", options)

    async def pods(self) -> list[Object]:
        """Pods of this site's Jobs."""
        return await self._list(f"{self._space()}/pods{self._ours()}")

    def of_jobs(self) -> Collected:
        """This site's Jobs, to be watched."""
        return Collected(self, self._jobs() + self._ours())

    def of_jobsets(self) -> Collected:
        """This site's JobSets, to be watched."""
        return Collected(self, self._jobs(JOBSET) + self._ours(), "JobSet")

    def of_pods(self) -> Collected:
        """Pods of this site's Jobs, to be watched."""
        return Collected(self, f"{self._space()}/pods{self._ours()}")

    async def all_pods(self) -> tuple[list[Object], bool]:
        """Pods that hold something of a node, and whether they are those of all namespaces: the
        site may not let us see others."""
        busy = "?fieldSelector=" + quote("status.phase!=Succeeded,status.phase!=Failed")
        try:
            return await self._list("/api/v1/pods" + busy), True
        except KubernetesRefused as refused:
            if refused.status != 403:  # noqa: PLR2004 - forbidden
                raise
        return await self._list(f"{self._space()}/pods{busy}"), False

    async def resource_version(self) -> str:
        """Which version of resource.k8s.io the server has: v1, or before 1.34 an older one; empty
        if none."""
        found = {str(each["version"]) for each in await self._served("resource.k8s.io")}
        return next((each for each in RESOURCE_VERSIONS if each in found), "")

    async def _served(self, group: str) -> list[Object]:
        try:
            return list((await self.ask("GET", f"/apis/{group}"))["versions"])
        except NotThere:
            return []

    async def resource_slices(self, version: str) -> list[Object]:
        """What drivers offer by dynamic resource allocation, of all nodes."""
        return await self._list(f"/apis/resource.k8s.io/{version}/resourceslices")

    async def resource_claims(self, version: str) -> list[Object]:
        """Who has which devices, in all namespaces."""
        return await self._list(f"/apis/resource.k8s.io/{version}/resourceclaims")

    async def create_template(self, body: Object) -> None:
        """A ResourceClaimTemplate; there may be one of that name, which says the same."""
        path = f"/apis/{body['apiVersion']}/namespaces/{quote(self.site.namespace)}"
        with contextlib.suppress(Conflict):
            await self.ask("POST", f"{path}/resourceclaimtemplates?fieldValidation=Strict", body)

    async def quotas(self) -> list[Object]:
        """ResourceQuotas of the namespace."""
        return await self._list(f"{self._space()}/resourcequotas")

    async def local_queue(self, name: str) -> Object | None:
        """A LocalQueue of Kueue; None if there is none."""
        space = quote(self.site.namespace)
        path = f"/apis/kueue.x-k8s.io/v1beta1/namespaces/{space}/localqueues/{quote(name)}"
        try:
            return await self.ask("GET", path)
        except NotThere:
            return None

    async def cluster_queues(self) -> list[Object]:
        """Every ClusterQueue of Kueue."""
        return await self._list("/apis/kueue.x-k8s.io/v1beta1/clusterqueues")

    async def flavours(self) -> list[Object]:
        """Every ResourceFlavor of Kueue."""
        return await self._list("/apis/kueue.x-k8s.io/v1beta1/resourceflavors")

    async def nodes(self) -> list[Object]:
        """Every node."""
        return await self._list("/api/v1/nodes")

    # Inside -------------------------------------------------------------------------------------

    def _space(self) -> str:
        return f"/api/v1/namespaces/{quote(self.site.namespace)}"

    def _jobs(self, name: str = "") -> str:
        """Where Jobs are, or one of them; `jobset/` alone is where JobSets are."""
        space, set_name = quote(self.site.namespace), name.removeprefix(JOBSET)
        path = f"/apis/batch/v1/namespaces/{space}/jobs"
        if name.startswith(JOBSET):
            path = f"/apis/jobset.x-k8s.io/v1alpha2/namespaces/{space}/jobsets"
        return f"{path}/{quote(set_name)}" if set_name else path

    def _ours(self) -> str:
        return "?labelSelector=" + quote(f"{LABEL_SITE}={self.site.mark()}")

    async def _list(self, path: str) -> list[Object]:
        return (await self.listed(path))[0]

    async def listed(self, path: str) -> tuple[list[Object], str]:
        """What a collection holds, and the version that is of."""
        found = await self.ask("GET", path)
        return list(found.get("items") or ()), str(found["metadata"].get("resourceVersion", ""))

    async def watch(self, path: str, version: str) -> AsyncIterator[Object]:
        """Events of a collection; silence beyond its time ends it like an error."""
        more = f"&watch=1&allowWatchBookmarks=true&timeoutSeconds={WATCH_S}"
        url = f"{self.site.url}{path}{more}&resourceVersion={quote(version)}"
        patience = aiohttp.ClientTimeout(total=None, sock_read=WATCH_S + self.site.within_s)
        session, headers = await self._connected()
        try:
            async with session.get(
                url, headers=headers, timeout=patience, allow_redirects=False
            ) as answer:
                if answer.status >= _CLIENT:
                    self._raise(answer.status, (await answer.read()).decode(errors="replace"))
                async for event in _lines(answer.content):
                    yield event
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as problem:
            why = str(problem) or type(problem).__name__
            raise KubernetesSilent(f"Kubernetes cannot be watched: {why}") from problem

    async def _delete(self, path: str, options: Object) -> None:
        try:
            kind = {"kind": "DeleteOptions", "apiVersion": "v1"}
            await self.ask("DELETE", path, kind | dict(options))
        except NotThere:
            return

    async def ask(
        self, method: str, path: str, body: Object | None = None, kind: str = "application/json"
    ) -> Object:
        """Any request, answered by an object."""
        try:
            status, text = await self._sent(method, path, body, kind)
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as problem:
            why = str(problem) or type(problem).__name__
            raise KubernetesSilent(f"Kubernetes cannot be asked: {why}") from problem
        if status >= _CLIENT:
            self._raise(status, text)
        try:
            found = json.loads(text)
        except ValueError as problem:
            raise KubernetesSilent(f"Kubernetes answers no JSON: {_said(text)}") from problem
        if not isinstance(found, dict):
            raise KubernetesSilent(f"Kubernetes answers no object: {_said(text)}")
        return found

    def _raise(self, status: int, text: str) -> NoReturn:
        if status >= _SERVER or status == _TOO_MANY:
            raise KubernetesSilent(f"Kubernetes answers {status}: {_said(text)}")
        raise _KINDS.get(status, KubernetesRefused)(status, _said(text))

    async def _connected(self) -> tuple[aiohttp.ClientSession, dict[str, str]]:
        """A session, and the headers of a request."""
        if self._session is None:
            trust = ssl.create_default_context(cafile=self.site.ca_file or None)
            if self.site.cert_file:
                trust.load_cert_chain(self.site.cert_file, self.site.key_file or None)
            self._session = aiohttp.ClientSession(
                timeout=aiohttp.ClientTimeout(total=self.site.within_s),
                connector=aiohttp.TCPConnector(ssl=trust),
            )
        headers = {"Accept": "application/json"}
        if self.site.token_file:  # read anew: the cluster replaces it every hour
            token = await asyncio.to_thread(Path(self.site.token_file).read_text)
            headers["Authorization"] = f"Bearer {token.strip()}"
        return self._session, headers

    async def _sent(
        self, method: str, path: str, body: Object | None, kind: str
    ) -> tuple[int, str]:
        session, headers = await self._connected()
        data = None
        if body is not None:
            data, headers["Content-Type"] = json.dumps(body).encode(), kind
        url = self.site.url + path
        async with session.request(
            method, url, data=data, headers=headers, allow_redirects=False
        ) as answer:
            raw = await answer.read()
            return answer.status, raw.decode(errors="replace")


@dataclass(frozen=True, slots=True)
class Collected:
    """A collection by its path, for `Watched`."""

    api: KubernetesApi
    path: str
    kind: str = ""

    async def listed(self) -> tuple[list[Object], str]:
        """Everything, and the version it is of. Items of a list need not say their kind."""
        items, version = await self.api.listed(self.path)
        return [{**each, "kind": self.kind} if self.kind else each for each in items], version

    def watch(self, version: str) -> AsyncIterator[Object]:
        """Events after a version."""
        return self.api.watch(self.path, version)


async def _lines(content: aiohttp.StreamReader) -> AsyncIterator[Object]:
    """A JSON object a line, however long."""
    rest = b""
    async for piece in content.iter_any():
        *whole, rest = (rest + piece).split(b"\n")
        for line in filter(None, whole):
            yield json.loads(line)


def _said(text: str) -> str:
    """The message of a Status object, else what there is."""
    try:
        found = json.loads(text)
        text = str(found.get("message") or text)
    except (ValueError, AttributeError):
        pass
    return " ".join(text.split())[:SAID_CHARS_MAX]
