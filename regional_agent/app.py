"""The agent as one program: everything is put together here, and nowhere else.

An agent ends without ending anything at its site: the keeper holds the jobs, the journal what
was promised. `build` makes the parts, `Agent.run` runs them until it is stopped.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
import socket
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from importlib import metadata

from federation.environment import Clock, Rng
from federation.etcd.endpoints import Tls
from federation.handshake.frames import Hello
from federation.private_files import make_private_directory
from federation.system import SystemClock, SystemRng
from federation.task_group import TaskGroup
from regional_agent.act.backends.https_blobs import BlobDoor, HttpsBlobs
from regional_agent.act.cache import BlobCache
from regional_agent.act.isolation import IsolationMissing
from regional_agent.act.schedulers.port import Capabilities, SchedulerUnavailable
from regional_agent.act.stage import Stager
from regional_agent.contact import Contact
from regional_agent.dialling import Dialler
from regional_agent.effects import Effects, Means, follow, keep_contact
from regional_agent.enrol import Door, EnrolError, IdentityError, Verdict, renew, session_check
from regional_agent.feedback.direct_reports import EtcdSink, ReportSink, etcd_sink
from regional_agent.identity import Identity, load_identity
from regional_agent.link import Parts, ReportBuffer
from regional_agent.log_server import LogServer
from regional_agent.reporting import Reporter, SessionSink
from regional_agent.restoring import open_journal, pending, restored
from regional_agent.sense.latency import LatencyResponder
from regional_agent.session.actions import Actions
from regional_agent.session.admission import SiteRules
from regional_agent.session.conversation import Conversation
from regional_agent.session.inputs import LocalView, Sensed, TimePassed
from regional_agent.session.ledger import Ledger
from regional_agent.session.resettle import SiteSeen
from regional_agent.settings import AgentSettings
from regional_agent.site_control import SiteControl
from regional_agent.site_scheduler import keep_looking, local_site
from regional_agent.status import Status, write_status
from regional_agent.translate import view_of
from regional_agent.warming import CAPABILITY
from regional_agent.watching import Watching
from regional_agent.worker import BrokerTime, Outbox, Worker

JOURNAL = "journal.db"
STATUS_EVERY_S = 15.0
STATUS_APART_S = 0.2
TOMBSTONES_EVERY_S = 600.0
RENEW_LOOK_S = 30.0
RECOVER_RETRY_S = 0.2
_log = logging.getLogger(__name__)


class AgentError(Exception):
    """The agent cannot run; the text is one line with the remedy."""


@dataclass(frozen=True, slots=True)
class Backends:
    """What of the world an agent stands on; tests hand in their own clock and dice."""

    clock: Clock
    rng: Rng

    @classmethod
    def system(cls) -> Backends:
        """The real ones."""
        return cls(SystemClock(), SystemRng())


class Agent:
    """A running agent. Made by `build`."""

    def __init__(self, settings: AgentSettings, identity: Identity, backends: Backends) -> None:
        self.settings = settings
        self._clock = backends.clock
        self._identity = identity
        self._instance = secrets.token_hex(8)
        state = settings.state_dir
        site = local_site(settings, self._clock)
        self.pools, self.scheduler, self._sense = site.pools, site.scheduler, site.sense
        self.isolation = site.isolation
        self.journal = open_journal(state / JOURNAL)
        self.time = BrokerTime(self._clock)
        self.contact = Contact()
        self.outbox = Outbox()
        self.blobs = HttpsBlobs(self._door)
        self._capabilities: Capabilities | None = None
        self.conversation = Conversation(
            SiteRules(
                identity.cluster, tenants=settings.tenants, isolation=self.isolation.grade
            ),
            Ledger(self.pools),
            restored(self.journal),
        )
        self.outbox.add(pending(self.journal))
        self.worker = Worker(self.conversation, self.journal, self.time, self.outbox)
        reports = ReportBuffer(self.outbox.wake)
        self._etcd: EtcdSink | None = None
        if settings.report_sink == "etcd":
            self._etcd = etcd_sink(identity.cluster, settings.etcd_endpoints, _tls(identity))
        sink: ReportSink = self._etcd or SessionSink(reports)
        self.cache = BlobCache(state, self.blobs, self._clock, settings.cache_bytes)
        self.reporter = Reporter(settings, self.worker, self.time, self._clock, sink, self.cache)
        parts = Parts(
            worker=self.worker,
            outbox=self.outbox,
            reports=reports,
            logs=LogServer(self.scheduler),
            time=self.time,
            clock=self._clock,
            contact=self.contact,
            hello=self._hello,
            proxies=settings.proxies,
        )
        self.dialler = Dialler(parts, identity, backends.rng, self._why)
        self.dialler.know(self.journal.position.addresses)
        means = Means(
            scheduler=self.scheduler,
            stager=Stager(state, self.cache),
            blobs=self.blobs,
            clock=self._clock,
            connected=lambda: self.dialler.connected,
            contact=self.contact,
            env=_job_env(identity),
        )
        self.control = SiteControl(settings, self.worker, self._clock)
        self.effects = Effects(means, self.worker.put)
        self.worker.carry_out(self.effects.start)
        self.watching = Watching(settings, identity.cluster, self.conversation.held, self._status)
        self.worker.tell_also(self.watching.told)

    # Running ----------------------------------------------------------------------------------

    async def run(self) -> None:
        """Until cancelled. Jobs and keeper stay, unless the settings say `stop_jobs`."""
        responder = await self._responder()
        try:
            await self._watched()
            await self._recover()
            async with TaskGroup() as tasks:
                for work in (
                    self.worker.run,
                    self.control.run,
                    self._follow,
                    self.dialler.run,
                    self._renewals,
                    self._tombstones,
                    self._statuses,
                ):
                    tasks.create_task(_named(work), name=work.__name__)
                tasks.create_task(self.reporter.run(self.dialler.session_opened))
                if self._sense is not None:
                    looking = keep_looking(
                        self._sense,
                        lambda: self.conversation.asked,
                        self.worker.put,
                        self.settings.poll_s,
                    )
                    tasks.create_task(looking)
                tasks.create_task(keep_contact(self.scheduler, self.contact))
        finally:
            await self._close(responder)

    async def _close(self, responder: LatencyResponder | None) -> None:
        with contextlib.suppress(OSError):
            self._write_status(stopped=True)
        await self.effects.close()
        if self.settings.stop_jobs:
            with contextlib.suppress(SchedulerUnavailable, ValueError):
                await self.scheduler.shut_down(kill=True)
        await self.scheduler.close()
        await self.blobs.close()
        await self.cache.close()
        if self._etcd is not None:
            await self._etcd.close()
        if responder is not None:
            await responder.stop()
        await self.watching.close()
        self.journal.close()

    async def _watched(self) -> None:
        try:
            await self.watching.start()
        except OSError as problem:
            raise AgentError(f"metrics_listen: {problem}") from problem

    async def _recover(self) -> None:
        """Before anything new: what the scheduler says of what was accepted before."""
        first: SiteSeen | None = None
        while True:
            try:
                capabilities = await self.scheduler.capabilities()
                states = await self.scheduler.status(self.conversation.asked)
                if self._sense is not None:
                    first = await self._sense.look(self.conversation.asked)
                break
            except SchedulerUnavailable as problem:
                _log.warning("waiting for the local scheduler: %s", problem)
                await asyncio.sleep(RECOVER_RETRY_S)
        self._capabilities = capabilities
        self.conversation.set_features(frozenset(str(f) for f in capabilities.features))
        views: dict[str, LocalView] = {uid: view_of(s) for uid, s in states.items()}
        if views:
            _log.info("taking up %d attempts of an earlier life", len(views))
        if first is not None:  # nothing of it is written down, so it needs no commit
            self.conversation.take(Sensed(first), self.time.now(), Actions())
        await self.worker.recover(views, self.control.begin())

    async def _follow(self) -> None:
        await follow(self.scheduler, self.worker.put)

    async def _responder(self) -> LatencyResponder | None:
        if not self.settings.latency_responder:
            return None
        host, _, port = self.settings.latency_responder.rpartition(":")
        responder = LatencyResponder(host.strip("[]") or "127.0.0.1", int(port))
        try:
            await responder.start()
        except OSError as problem:
            raise AgentError(
                f"latency_responder {self.settings.latency_responder}: {problem}"
            ) from problem
        return responder

    async def _tombstones(self) -> None:
        while True:
            await asyncio.sleep(TOMBSTONES_EVERY_S)
            self.worker.put(TimePassed())

    async def _renewals(self) -> None:
        """Renew at two thirds of the certificate's life; ask again until it works."""
        while True:
            now_ms = self._clock.now_ms()
            if now_ms >= self._identity.facts.renewal_due_ms:
                try:
                    self._identity = await renew(self.settings.state_dir, door=self._api())
                except (EnrolError, IdentityError) as problem:
                    _log.warning("the certificate is not renewed: %s", problem)
                else:
                    _log.info("the certificate is renewed")
                    self.dialler.renewed(self._identity)
                    if self._etcd is not None:
                        await self._etcd.renewed(_tls(self._identity))
            await asyncio.sleep(RENEW_LOOK_S)

    async def _statuses(self) -> None:
        """On news, and now and then."""
        news = self.control.news = self.dialler.news
        while True:
            news.clear()
            with contextlib.suppress(OSError):
                self._write_status(stopped=False)
            await asyncio.sleep(STATUS_APART_S)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(STATUS_EVERY_S):
                    await news.wait()

    # Facts ------------------------------------------------------------------------------------

    def _write_status(self, *, stopped: bool) -> None:
        write_status(self.settings.state_dir, self._status(stopped=stopped))

    def _status(self, *, stopped: bool = False) -> Status:
        link, position = self.dialler.state, self.journal.position
        capacity = self.reporter.last_capacity
        pools = capacity.pools if capacity else ()
        return Status(
            pid=0 if stopped else os.getpid(),
            version=version(),
            cluster=self._identity.cluster,
            region=self._identity.region,
            connected=link.connected and not stopped,
            broker=link.address,
            since_ms=link.since_ms,
            code=link.code,
            reason="stopped" if stopped else link.reason,
            epoch=position.epoch,
            event_seq=position.event_seq,
            unacknowledged=len(self.outbox),
            dispatch_seq=position.dispatch_seq,
            live_attempts=len(self.conversation.asked),
            certificate_expires_ms=self._identity.facts.not_after_ms,
            pools=tuple(
                (
                    p.pool,
                    p.groups[0].accelerator if p.groups else "",
                    sum(g.free * g.count for g in p.groups),
                    sum(g.total * g.count for g in p.groups),
                )
                for p in pools
            ),
            updated_ms=self._clock.now_ms(),
            site_state=capacity.site.state if capacity else self.control.state.state,
            site_reason=capacity.site.state_reason if capacity else self.control.state.text,
            site_fault=self.control.fault,
        )

    def _hello(self, connect_ms: int) -> Hello:
        position, known = self.journal.position, self._capabilities
        return Hello(
            cluster=self._identity.cluster,
            instance=self._instance,
            journal=position.journal_id,
            event_seq=position.event_seq,
            event_seq_acked=position.event_seq_acked,
            dispatch_seq=position.dispatch_seq,
            epoch=position.epoch,
            capabilities=tuple(sorted({*map(str, known.features), CAPABILITY})) if known else (),
            scheduler=known.kind if known else "",
            isolation=self.isolation.grade,
            version=version(),
            connect_ms=connect_ms,
            live_attempts=len(self.conversation.asked),
        )

    def _api(self) -> Door:
        url = self.settings.broker or self._identity.api_url
        return Door(url, self.settings.proxies.to_url(url))

    def _door(self) -> BlobDoor:
        api = self._api()
        return BlobDoor(api.url, self._identity.ca_pem.decode("ascii"), api.proxy)

    async def _why(self, identity: Identity) -> Verdict:
        return await session_check(identity, door=self._api())


async def _named(work: Callable[[], Awaitable[None]]) -> None:
    await work()


def build(settings: AgentSettings, backends: Backends | None = None) -> Agent:
    """An agent of these settings. Raises AgentError, JournalInUse."""
    try:
        make_private_directory(settings.state_dir)
        identity = load_identity(settings.state_dir)
    except (IdentityError, OSError) as problem:
        raise AgentError(str(problem)) from problem
    try:
        return Agent(settings, identity, backends or Backends.system())
    except IsolationMissing as problem:
        raise AgentError(str(problem)) from problem


def version() -> str:
    """The installed version."""
    try:
        return metadata.version("tradewind")
    except metadata.PackageNotFoundError:
        return "unknown"


def _tls(identity: Identity) -> Tls:
    own = identity.credential
    return Tls(identity.ca_pem, own.certificate_pem, own.key_pem)


def _job_env(identity: Identity) -> tuple[tuple[str, str], ...]:
    own: Mapping[str, str] = {
        "TRADEWIND_CLUSTER": identity.cluster,
        "TRADEWIND_REGION": identity.region,
        "TRADEWIND_HOST": socket.gethostname(),
    }
    return tuple(own.items())
