"""A Kubernetes cluster as a `BatchSystem`: a Job for each part of an attempt.

A Job's name is its part's, and an annotation says whose it is: a name that is taken is looked at
before it is used. The cluster tries nothing again. A Job stays, by a finalizer, until how it ended
is on the agent's record, whoever deletes it.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import os
import re
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from federation.refusals import Refusal, RefusalCode
from federation.runs import Runs
from regional_agent.act.keeper.layout import AttemptDir
from regional_agent.act.schedulers.batch.attempt import restore
from regional_agent.act.schedulers.batch.system import (
    Account,
    Queued,
    Submission,
    Traits,
)
from regional_agent.act.schedulers.kubernetes_rows import accounts, rows
from regional_agent.act.schedulers.kubernetes_scripts import HEADER, LAUNCHER
from regional_agent.act.schedulers.kubernetes_wanted import job_wanted, names_of
from regional_agent.act.schedulers.port import Feature, SchedulerUnavailable
from regional_agent.kubernetes import told
from regional_agent.kubernetes.api import (
    DIRECTORY,
    FINALIZER,
    FOREGROUND,
    JOBSET,
    LABEL_SITE,
    REPLICAS,
    TAG,
    Conflict,
    KubernetesApi,
    KubernetesRefused,
    KubernetesSilent,
    NotThere,
    Object,
)
from regional_agent.kubernetes.cards import CPU, products
from regional_agent.kubernetes.devices import template
from regional_agent.kubernetes.manifest import (
    BEFORE_CLAIM,
    JobWanted,
    manifest,
    owned_by,
    service,
)
from regional_agent.kubernetes.prefetch import nodes_without, prefetching
from regional_agent.kubernetes.told import JobTold, jobs_told
from regional_agent.kubernetes.watched import Watched

if TYPE_CHECKING:
    from regional_agent.act.carry.server import CarryServer

_log = logging.getLogger(__name__)
P = ParamSpec("P")
T = TypeVar("T")
FEATURES = frozenset({Feature.ARRAY, Feature.GANG, Feature.MAX_RUNTIME, Feature.MEMORY_LIMIT,
                      Feature.LIVE_LOGS, Feature.ADOPT, Feature.IMAGES, Feature.QUEUE,
                      Feature.FENCE, Feature.SINGLE_GANGS, Feature.MEMBERS_APART,
                      Feature.TASKS_APART})  # fmt: skip
INDEXED_SINCE = (1, 29)
"""Indexed Jobs whose elements fail one by one: backoffLimitPerIndex."""
_VERSION = re.compile(r"v(\d+)\.(\d+)")
ARRAY_MAX = 10_000
"""Elements of one Job, well within what `maxFailedIndexes` allows."""
FORBIDDEN = 403
KEPT_S = 600
"""How long the cluster keeps a Job whose end is on record, for people to look at."""


def _asking(
    ask: Callable[Concatenate[Kubernetes, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Kubernetes, P], Coroutine[Any, Any, T]]:
    """The cluster's silence as that of a scheduler; also where it forbids what it must allow."""

    @functools.wraps(ask)
    async def asked(system: Kubernetes, /, *args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return await ask(system, *args, **kwargs)
        except (KubernetesSilent, KubernetesRefused) as problem:
            raise SchedulerUnavailable(str(problem)) from problem

    return asked


class Kubernetes:
    """See the module."""

    def __init__(self, api: KubernetesApi, carrying: CarryServer | None = None) -> None:
        """`carrying`: serves the pods, where the site has files carried."""
        self.api = api
        self._carrying = carrying
        self.news: Callable[[], None] = lambda: None
        """Called when Jobs or their pods changed, as far as may be seen."""
        self._jobs = Watched(api.of_jobs(), lambda: self.news())
        self._pods = Watched(api.of_pods(), lambda: self.news())
        self._sets = Watched(api.of_jobsets(), lambda: self.news())
        self.old = False
        """It does not know Indexed Jobs whose elements fail one by one."""
        self.has_sets = False
        """Gangs are JobSets: the cluster has them, and we may make some."""
        self._may_watch = True
        self.products: Mapping[str, tuple[str, ...]] = {}
        """By model what nodes call it, as they were last looked at."""
        self.claimed: frozenset[str] = frozenset()
        """Of those names the ones whose cards are had by claims."""

    @_asking
    async def traits(self) -> Traits:
        """What every cluster can do. Tasks are not added to what Kueue has admitted: it would
        stop the Job to weigh it anew."""
        if self._carrying is not None:
            try:
                await self._carrying.start()
            except OSError as problem:
                raise SchedulerUnavailable(f"kubernetes.carry: {problem}") from problem
        found = _VERSION.match(await self.api.version())
        features = FEATURES if self.api.site.queue else FEATURES | {Feature.SET_SLICE}
        if self._carrying is not None:  # pods do not see the record of contact
            features -= {Feature.FENCE}
        self.old = found is None or tuple(map(int, found.groups())) < INDEXED_SINCE
        if self.old:
            # It would leave out fields it does not know, and run something else.
            features -= {Feature.ARRAY, Feature.GANG, Feature.SET_SLICE}
        self.has_sets = Feature.GANG in features and await self._may_make_sets()
        return Traits(
            kind="kubernetes",
            header=HEADER,
            features=features,
            array_max=ARRAY_MAX,
            one_run=True,
            launcher=LAUNCHER,
            stop_ranks=': > "$TW_DIR/marks/stop"',
            before_claim=BEFORE_CLAIM if self.api.site.carry else ":",
        )

    async def _may_make_sets(self) -> bool:
        try:
            await self.api.of_jobsets().listed()
        except NotThere:
            return False
        except KubernetesRefused as refused:
            if refused.status != FORBIDDEN:
                raise
            _log.info("the agent's Role does not allow JobSets: gangs are Indexed Jobs")
            return False
        return True

    # Submitting ---------------------------------------------------------------------------------

    @_asking
    async def submit(self, job: Submission) -> str | Refusal:
        """Under the first name that is not taken by somebody else. Refuses submit_failed."""
        if job.order.replicas > 1 and job.indices is not None:
            needed = "an array whose tasks are gangs"
            return Refusal(RefusalCode.UNSUPPORTED, job.order.uid, needed=needed)
        if job.order.image and not job.order.image.startswith("docker://"):
            needed = f"the image {job.order.image}; nodes fetch by name only"
            return Refusal(RefusalCode.UNSUPPORTED, job.order.uid, needed=needed)
        model = job.order.accelerator
        if model not in ("", CPU, *self.products):
            self.products = products(self.api.site, await self.api.nodes())
            if model not in self.products:
                none = f"no node of the cluster has {model}"
                return Refusal(RefusalCode.SUBMIT_FAILED, job.order.uid, available=none)
        called = self.products.get(model, ())
        for name in names_of(job.name):
            try:
                made = await self._create(await self._wanted(job, name, called))
            except KubernetesRefused as refused:
                return Refusal(RefusalCode.SUBMIT_FAILED, job.order.uid, available=str(refused))
            if made:
                return made
        taken = f"{job.name} is taken at Kubernetes"
        return Refusal(RefusalCode.SUBMIT_FAILED, job.order.uid, available=taken)

    async def _create(self, wanted: JobWanted) -> str:
        """The local id of the Job or JobSet that is there and ours; empty where its name is
        somebody else's. The service of a gang that is a Job comes first, because pods look for it,
        and then goes with the Job."""
        site, api = self.api.site, self.api
        meets = wanted.replicas > 1 and not wanted.as_set
        if meets and not await self._made(
            api.create_service, api.service, service(site, wanted), wanted.tag
        ):
            return ""
        job = manifest(site, wanted)
        if not await self._made(api.create_job, api.job, job, wanted.tag):
            return ""
        if meets:
            await self._tie_service(wanted.name)
        return told.local_id(job)

    async def _made(
        self,
        create: Callable[[Object], Coroutine[Any, Any, Object]],
        find: Callable[[str], Coroutine[Any, Any, Object | None]],
        body: Object,
        tag: str,
    ) -> bool:
        try:
            await create(body)
        except Conflict:
            name = told.local_id(body)
            there = await find(name)
            if there is None:
                raise SchedulerUnavailable(f"{name} is taken and not there") from None
            return self._is_ours(there, tag)
        return True

    async def _wanted(self, job: Submission, name: str, called: tuple[str, ...]) -> JobWanted:
        wanted = job_wanted(job, name, called)
        wanted = replace(wanted, as_set=self.has_sets and wanted.replicas > 1)
        if wanted.cards and called and self.claimed.issuperset(called):
            version = await self.api.resource_version()
            claim = template(self.api.site, called, wanted.cards, version)
            await self.api.create_template(claim)
            wanted = replace(wanted, claim=str(claim["metadata"]["name"]))
        if self._carrying is None:
            return wanted
        token = self._carrying.token(wanted.uid)
        return replace(wanted, token=token, ca_pem=self._carrying.ca_pem)

    def _is_ours(self, there: Object, tag: str) -> bool:
        """Of this attempt and this agent: another one may have had an attempt of that name."""
        metadata = there["metadata"]
        mine = (metadata.get("labels") or {}).get(LABEL_SITE) == self.api.site.mark()
        return mine and (metadata.get("annotations") or {}).get(TAG, "") == tag

    async def _tie_service(self, name: str) -> None:
        job = await self.api.job(name)
        if job is not None:
            await self.api.patch_service(name, owned_by(job))

    @_asking
    async def look(self, name: str, tag: str, work: Path) -> str | None:
        """See the port."""
        for each in names_of(name):
            taken = False
            kinds = ("", JOBSET) if self.has_sets else ("",)
            for local_id in (kind + each for kind in kinds):
                there = await self.api.job(local_id)
                if there is not None and self._is_ours(there, tag):
                    if local_id == each and REPLICAS in there["metadata"]["annotations"]:
                        await self._tie_service(each)
                    return local_id
                taken |= there is not None
            if not taken:
                return None
        return None

    @_asking
    async def prefetch(self, image: str) -> str:
        """See `Prefetching`. A Job of that image may be at it already."""
        name = image.removeprefix("docker://")
        hosts = nodes_without(self.api.site, await self.api.nodes(), name)
        if hosts and not self.old:
            user = os.getuid(), os.getgid()
            with contextlib.suppress(Conflict):
                await self.api.create_job(prefetching(self.api.site, name, hosts, user))
        return "this server is too old for that" if self.old else ""

    # Looking ------------------------------------------------------------------------------------

    @_asking
    async def queue(self) -> tuple[Queued, ...]:
        """See the port: no request, but what two watches have told. An older Role may not allow
        them: then it is two lists."""
        told = await self._watched() if self._may_watch else None
        if told is None:
            told = await self._told()
        await self._follow_deletions(told)
        return tuple(row for job in told for row in rows(job))

    @_asking
    async def books(self, local_ids: Collection[str]) -> tuple[Account, ...]:
        """What Jobs and their pods still say; the finalizer keeps them until it is on record.
        Asked for anew, because an end follows from it."""
        wanted = set(local_ids)
        return tuple(
            account for job in await self._told() if job.name in wanted for account in accounts(job)
        )

    async def _watched(self) -> list[JobTold] | None:
        try:
            jobs = await self._jobs.items()
            jobs += await self._sets.items() if self.has_sets else []
            return jobs_told(jobs, await self._pods.items())
        except KubernetesRefused as refused:
            if refused.status != FORBIDDEN:
                raise
        self._may_watch = False
        _log.warning("the agent's Role lacks the verb watch: lists are asked for instead")
        await self._unwatch()
        return None

    async def _unwatch(self) -> None:
        for each in (self._jobs, self._sets, self._pods):
            await each.close()

    async def close(self) -> None:
        """End the watches and let go of the connections."""
        await self._unwatch()
        await self.api.close()
        if self._carrying is not None:
            await self._carrying.close()

    async def _told(self) -> list[JobTold]:
        jobs = await self.api.jobs()  # before the pods: of what is listed they are there then
        jobs += (await self.api.of_jobsets().listed())[0] if self.has_sets else []
        return jobs_told(jobs, await self.api.pods())

    async def _follow_deletions(self, jobs: Iterable[JobTold]) -> None:
        """Pods of what somebody deleted in the background, as kubectl does: our finalizer holds
        their owner, and while it is there they run on."""
        for job in jobs:
            if job.deleted and FOREGROUND not in (job.body["metadata"].get("finalizers") or ()):
                for pod in job.pods.values():
                    if "deletionTimestamp" not in pod["metadata"]:
                        await self.api.delete_pod(pod["metadata"]["name"])

    # Acting -------------------------------------------------------------------------------------

    @_asking
    async def stop(self, local_ids: Collection[str]) -> None:
        """See the port: a Job that is deleted starts nothing, and its pods are told to stop."""
        for name in local_ids:
            await self._delete(name)

    @_asking
    async def remove(self, local_id: str, indices: Runs | None = None) -> None:
        """See the port. Elements that have no pod yet find their claims taken."""
        for job in await self._told():
            if job.name == local_id:
                for index, pod in job.pods.items():
                    if told.phase(pod) not in told.TERMINAL and (
                        indices is None or index in indices
                    ):
                        await self.api.delete_pod(pod["metadata"]["name"], 1)
        if indices is None:
            await self._delete(local_id)

    @_asking
    async def widen(self, local_id: str, width: int) -> None:
        """More at once. Never fewer: Kubernetes would end what runs; elements that are taken
        back find their claims taken."""
        job = await self.api.job(local_id)
        if job is not None and int(job["spec"].get("parallelism", 1)) < width:
            await self.api.patch_job(local_id, {"spec": {"parallelism": width}})

    @_asking
    async def release(self) -> None:
        """Let go of Jobs whose end is on record, or whose attempt was forgotten; what is left of
        them at the cluster is deleted."""
        for job in await self._told():
            if await asyncio.to_thread(_on_record, Path(job.note[DIRECTORY])):
                if job.over:
                    await self._let_go(job.body, {"spec": {"ttlSecondsAfterFinished": KEPT_S}})
                elif any(True for _ in rows(job)):  # else the controller is about to say so
                    await self._delete(job.name)

    async def _delete(self, name: str) -> None:
        """Its end needs no witness: it was called off, which is on record."""
        job = await self.api.job(name)
        if job is not None:
            await self.api.delete_job(name)
            job = await self.api.job(name)
        if job is not None:
            await self._let_go(job, {})

    async def _let_go(self, job: Object, patch: dict[str, Any]) -> None:
        metadata = job["metadata"]
        kept = [each for each in metadata.get("finalizers") or () if each != FINALIZER]
        if FINALIZER in (metadata.get("finalizers") or ()):
            seen = {"finalizers": kept, "resourceVersion": metadata["resourceVersion"]}
            await self.api.patch_job(told.local_id(job), patch | {"metadata": seen})


def _on_record(root: Path) -> bool:
    """Whether nothing more has to be learned for the attempt whose files lie there."""
    if not root.exists():
        return True
    attempt = restore(AttemptDir(root.parent.parent, root.name))
    return attempt is not None and attempt.outcome is not None
