"""The local scheduler of this site, as the settings name it, and how its site is looked at."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from federation.environment import Clock
from regional_agent.act.images import find_images
from regional_agent.act.isolation import (
    AUTO,
    SANDBOXED,
    Isolation,
    IsolationMissing,
    find_isolation,
)
from regional_agent.act.schedulers.batch.following import Pace
from regional_agent.act.schedulers.batch.scheduler import BatchScheduler, BatchSettings
from regional_agent.act.schedulers.batch.system import BatchSystem
from regional_agent.act.schedulers.gridengine import GridEngine
from regional_agent.act.schedulers.kubernetes import Kubernetes
from regional_agent.act.schedulers.port import (
    LocalScheduler,
    LocalState,
    SchedulerUnavailable,
)
from regional_agent.act.schedulers.process import ProcessScheduler, ProcessSettings
from regional_agent.act.schedulers.ray import Ray
from regional_agent.act.schedulers.slurm import Slurm
from regional_agent.act.schedulers.slurm_rest import RestSlurm
from regional_agent.gridengine.client import GridEngineSilent
from regional_agent.gridengine.site import GridEngineSite
from regional_agent.kubernetes.api import KubernetesApi, KubernetesRefused, KubernetesSilent
from regional_agent.kubernetes.site import KubernetesSite
from regional_agent.ray.api import RayApi, RaySilent
from regional_agent.ray.site import RaySite
from regional_agent.sense.backends.nvml import nvml_cards
from regional_agent.sense.gridengine import GridEngineSense
from regional_agent.sense.host import found_pools, read_host, with_cards
from regional_agent.sense.kubernetes import KubernetesSense
from regional_agent.sense.ray import RaySense
from regional_agent.sense.slurm import SlurmSense, SlurmSilent
from regional_agent.session.inputs import Sensed
from regional_agent.session.ledger import Pool
from regional_agent.session.resettle import SiteSeen
from regional_agent.settings import AgentSettings, SettingsError, job_path, load_settings
from regional_agent.slurm.rest import SlurmRest

_log = logging.getLogger(__name__)


class SiteScheduler(LocalScheduler, Protocol):
    """A local scheduler that an agent starts and leaves."""

    async def shut_down(self, *, kill: bool) -> None:
        """End what it keeps running for us. Raises ValueError if attempts run, unless `kill`."""

    async def close(self) -> None:
        """Leave everything running."""


class Sense(Protocol):
    """Looks at the site of a batch system."""

    async def look(self, ours: Collection[str]) -> SiteSeen:
        """The site now. Raises SchedulerUnavailable."""


@dataclass(frozen=True, slots=True)
class LocalSite:
    """`sense` None: the site is what the settings or this host say, and nobody else uses it."""

    scheduler: SiteScheduler
    pools: tuple[Pool, ...]
    sense: Sense | None = None
    isolation: Isolation = field(default_factory=Isolation)


def local_site(
    settings: AgentSettings,
    clock: Clock,
    *,
    follow: bool = True,
    reached: Callable[[str], None] = lambda point: None,
) -> LocalSite:
    """The site as its settings say.

    `follow` False: to look at what is there or to stop it, beside an agent that may run.
    `reached` hears of the steps of a submission. Raises IsolationMissing where more was demanded
    than is there.
    """
    env = (("PATH", job_path()), ("LANG", "C.UTF-8"), *settings.env)
    if settings.isolation.mode == SANDBOXED and settings.batch:
        raise IsolationMissing("isolation: sandboxed is nothing an agent can see to on nodes")
    pace = Pace(poll_s=settings.poll_s, soon_s=min(2.0, settings.poll_s))
    batch = BatchSettings(settings.state_dir, env, pace, follow)
    if settings.gridengine is not None:
        engine = GridEngine(settings.gridengine)
        looked = _GridEngineSite(settings.gridengine, engine)
        return LocalSite(BatchScheduler(batch, engine, clock, reached), (), looked)
    if settings.slurm is not None:
        return _slurm_site(batch, settings, clock, reached)
    if settings.ray is not None:
        return _ray_site(settings, clock, reached, follow=follow)
    if settings.kubernetes is not None:
        api = KubernetesApi(settings.kubernetes)
        carry = settings.kubernetes.carry if follow else None
        carrying = None
        if carry is not None:
            from regional_agent.act.carry.server import CarryServer  # a web server, else not needed

            carrying = CarryServer(settings.state_dir, carry, clock)
        cluster = Kubernetes(api, carrying)
        jobs_find = replace(batch, env=settings.env)  # and the PATH of the image they run in
        scheduler = _OfPods(jobs_find, cluster, clock, reached, cluster.close)
        cluster.news = scheduler.look_soon
        return LocalSite(scheduler, (), _KubernetesSite(settings.kubernetes, cluster))
    pools = site_pools(settings)
    isolation = _found_isolation(settings, pools) if follow else Isolation()
    wishes = settings.images if follow else None
    images = find_images(wishes, settings.isolation, settings.state_dir, clock)
    if isinstance(images, str) and wishes is not None:
        _log.info("jobs that name an image are not taken: %s", images)
    process = _process_settings(settings, pools, env, isolation)
    process = replace(process, images=None if isinstance(images, str) else images)
    return LocalSite(ProcessScheduler(process), pools, isolation=isolation)


def _slurm_site(
    batch: BatchSettings,
    settings: AgentSettings,
    clock: Clock,
    reached: Callable[[str], None],
) -> LocalSite:
    """By its clients, or by slurmrestd where the settings name one."""
    assert settings.slurm is not None, "made for a site with Slurm"
    if settings.slurm.rest:
        by_rest = RestSlurm(settings.slurm)
        over_http = _OverHttp(batch, by_rest, clock, reached, by_rest.close)
        return LocalSite(over_http, (), _SlurmSite(by_rest, settings, clock, by_rest.rest))
    system = Slurm(settings.slurm)
    by_clients = BatchScheduler(batch, system, clock, reached)
    return LocalSite(by_clients, (), _SlurmSite(system, settings, clock))


def site_pools(settings: AgentSettings) -> tuple[Pool, ...]:
    """The inventory; without one, what this host has. Empty where a batch system tells."""
    if settings.batch:
        return ()
    cards = nvml_cards().cards()
    return with_cards(settings.pools, cards) or found_pools(read_host(), cards)


def _found_isolation(settings: AgentSettings, pools: tuple[Pool, ...]) -> Isolation:
    """How far jobs are kept apart here. What the inventory has on paper only binds no real
    program."""
    real = not any(pool.simulated for pool in pools)
    found = find_isolation(settings.isolation, settings.state_dir, limits=real)
    if settings.isolation.mode == AUTO and found.sandbox is None:
        _log.warning("jobs are not kept apart: %s", found.reason)
    return found


def _process_settings(
    settings: AgentSettings,
    pools: tuple[Pool, ...],
    env: tuple[tuple[str, str], ...],
    isolation: Isolation,
) -> ProcessSettings:
    """Simulated pools are larger than this host: then nothing bounds their cpus together."""
    simulated = any(pool.simulated for pool in pools)
    cpus_milli = 0 if simulated else sum(pool.nodes * pool.cpus_milli for pool in pools)
    return ProcessSettings(
        settings.state_dir, cpus_milli, env, settings.keeper_arguments, isolation
    )


def _ray_site(
    settings: AgentSettings, clock: Clock, reached: Callable[[str], None], *, follow: bool
) -> LocalSite:
    """Jobs find the Python of the cluster on their PATH, so none is set for them."""
    assert settings.ray is not None, "made for a site with Ray"
    if settings.isolation.mode == SANDBOXED:
        raise IsolationMissing("isolation: sandboxed is nothing an agent can see to on nodes")
    api = RayApi(settings.ray.url, settings.ray.within_s)
    pace = Pace(poll_s=settings.poll_s, soon_s=min(2.0, settings.poll_s))
    batch = BatchSettings(settings.state_dir, settings.env, pace, follow)
    system = Ray(api)
    scheduler = _OverHttp(batch, system, clock, reached, api.close)
    return LocalSite(scheduler, (), _RaySite(settings.ray, system))


class _OverHttp(BatchScheduler):
    """Lets go of its connections in the end."""

    def __init__(
        self,
        settings: BatchSettings,
        system: BatchSystem,
        clock: Clock,
        reached: Callable[[str], None],
        let_go: Callable[[], Awaitable[None]],
    ) -> None:
        super().__init__(settings, system, clock, reached)
        self._let_go = let_go

    async def close(self) -> None:
        await super().close()
        await self._let_go()


class _OfPods(_OverHttp):
    """Its nodes can be had to fetch an image."""

    async def prefetch(self, image: str) -> str:
        """See `Prefetching`."""
        assert isinstance(self._system, Kubernetes), "made for a site with Kubernetes"
        return await self._system.prefetch(image)


class _KubernetesSite:
    """Looks, tells the scheduler what cards are called, and lets go of Jobs whose end is on
    record."""

    def __init__(self, site: KubernetesSite, system: Kubernetes) -> None:
        self._sense = KubernetesSense(site, system.api)
        self._system = system
        self._noted: tuple[str, ...] = ()

    async def look(self, ours: Collection[str]) -> SiteSeen:
        """See Sense."""
        try:
            found = await self._sense.look(ours)
        except (KubernetesSilent, KubernetesRefused) as problem:
            raise SchedulerUnavailable(str(problem)) from problem
        self._system.products = found.products
        self._system.claimed = found.claimed
        await self._system.release()
        self._noted = _note(self._noted, found.notes)
        return found.seen


class _RaySite:
    """Looks, and tells the scheduler how nodes with other cards are kept out."""

    def __init__(self, site: RaySite, system: Ray) -> None:
        self._system = system
        self._sense = RaySense(site, system.api)
        self._noted: tuple[str, ...] = ()

    async def look(self, ours: Collection[str]) -> SiteSeen:
        """See Sense."""
        try:
            found = await self._sense.look(ours)
        except RaySilent as problem:
            raise SchedulerUnavailable(str(problem)) from problem
        self._system.models = found.models
        self._noted = _note(self._noted, found.notes)
        return found.seen


class _SlurmSite:
    """Looks, and tells the scheduler where the jobs of each pool go."""

    def __init__(
        self,
        system: Slurm,
        settings: AgentSettings,
        clock: Clock,
        rest: SlurmRest | None = None,
    ) -> None:
        assert settings.slurm is not None, "made for a site with Slurm"
        self._system = system
        self._clock = clock
        self._sense = SlurmSense(settings.slurm, lambda: system.rows(settings.poll_s), rest)
        self._noted: tuple[str, ...] = ()

    async def look(self, ours: Collection[str]) -> SiteSeen:
        """See Sense."""
        try:
            found = await self._sense.look(ours, self._clock.now_ms())
        except SlurmSilent as problem:
            raise SchedulerUnavailable(str(problem)) from problem
        self._system.pools, self._system.features = found.sources, found.features
        self._noted = _note(self._noted, found.notes)
        return found.seen


class _GridEngineSite:
    """Looks, and tells the scheduler where the jobs of each pool go."""

    def __init__(self, site: GridEngineSite, system: GridEngine) -> None:
        self._system = system
        self._sense = GridEngineSense(site, system.client)
        self._noted: tuple[str, ...] = ()

    async def look(self, ours: Collection[str]) -> SiteSeen:
        """See Sense."""
        try:
            found = await self._sense.look(ours)
        except GridEngineSilent as problem:
            raise SchedulerUnavailable(str(problem)) from problem
        self._system.pools = found.sources
        self._noted = _note(self._noted, found.notes)
        return found.seen


def _note(before: tuple[str, ...], notes: tuple[str, ...]) -> tuple[str, ...]:
    """Warn of what cannot be used, when it changes."""
    if notes != before:
        for note in notes:
            _log.warning("%s", note)
    return notes


async def keep_looking(
    sense: Sense, ours: Callable[[], Collection[str]], put: Callable[[Sensed], None], every_s: float
) -> None:
    """Look at the site for ever; while it does not answer what was seen last stands, with its
    age in every report."""
    silent = False
    while True:
        await asyncio.sleep(every_s)
        try:
            put(Sensed(await sense.look(ours())))
            silent = False
        except SchedulerUnavailable as problem:
            if not silent:
                _log.warning("the site cannot be looked at: %s", problem)
            silent = True


def has_batch_system(state: Path) -> bool:
    """Whether jobs here are those of a batch system, not of a keeper."""
    with contextlib.suppress(SettingsError):
        settings = load_settings(state)
        return bool(settings.batch) or settings.ray is not None
    return False


def as_told(state: LocalState) -> dict[str, Any]:
    """A state in the form in which the keeper tells one."""
    end = state.outcome
    return {
        "phase": str(state.phase),
        "outcome": [str(end.kind), end.exit_code or end.signal] if end else None,
        "times": (state.submitted_ms, state.started_ms, state.ended_ms),
        "running": state.tasks.running.runs,
        "unstarted": state.tasks.unstarted.runs,
    }
