"""The only wiring: backends in, a running broker out. Read `build` for what holds what.

`build` takes every source of nondeterminism as a value, so a simulation runs the same wiring with
other backends; `serve` is production: etcd, gRPC, SQL, files, the real clock.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import signal
import ssl
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from aiohttp import web

from broker.act.backends.grpc import GrpcGateway, Listening
from broker.act.gateway import Gateway
from broker.act.session_facts import ReportReaders
from broker.api.application import build_api
from broker.api.application import serve as serve_api
from broker.api.front import Behind, serve_front
from broker.api.health import figures_app
from broker.api.services import ApiSettings, Services, TypedRoundTrip
from broker.control.cycle import Decider
from broker.control.decider_process import Limits, ProcessDecider
from broker.control.enrolment import Enrolment, Reach
from broker.control.explaining import Explainer
from broker.control.figures import NamedFigures, OpenFigures
from broker.control.housekeeping import Housekeeping
from broker.control.leadership import Candidate
from broker.control.observing import Observer
from broker.control.office import Office, OfficePorts
from broker.control.policy_trial import PolicyTrial, TrialPorts
from broker.control.preemption_records import read_preemptions
from broker.control.recording import Recorder
from broker.control.replicas import Replicas
from broker.control.service import ControlService
from broker.control.sites import Sites
from broker.control.standing import Standing
from broker.control.start_book import StartBook
from broker.control.storing import DecisionKeeper
from broker.control.tokens import ensure_operator_token
from broker.control.whatif import WhatIf
from broker.feedback.backends.directory_blobs import DirectoryBlobs
from broker.feedback.backends.directory_decisions import DirectoryDecisions
from broker.feedback.backends.directory_logs import DirectoryLogs
from broker.feedback.backends.sql_ledger import SqlLedger
from broker.feedback.decisions import DecisionLimits, DecisionStore
from broker.feedback.ports import BlobStore, Ledger, LogStore
from broker.sense.fleet import read_identities
from broker.sense.reports import cache_from, capacity_from, prices_from, round_trips_from
from broker.settings import BrokerSettings, otel_environ, split_address
from broker.state.backends.etcd import open_store
from broker.state.group_commit import GroupCommitter
from broker.state.keyring import Keyring
from broker.state.projection import Projection
from broker.state.store import Store
from federation.environment import Clock, Ids
from federation.etcd.endpoints import Tls
from federation.kv import StoreUnavailable
from federation.otlp import open_spans
from federation.private_files import write_private
from federation.session_tls import ServerIdentity, SessionCredentials
from federation.system import SystemClock, SystemIds
from federation.task_group import TaskGroup
from federation.tls import renew_server_context, server_context
from federation.traces import NoSpans, SpanSink
from federation.units import parse_rfc3339_ms

log = logging.getLogger("tradewind.app")

YOUNG_MAX, MIDDLE_MAX, OLD_MAX = 20_000, 10, 1_000
"""A broker lives with a million small records that are in no cycle. With the interpreter's own
thresholds, looking through them for cycles took a third of its time."""

API_LANES = 3
"""Group-commit lanes of the API: while one waits for etcd's disk, the others fill."""
RENEW_CHECK_S = 3600.0
OPERATOR_TOKEN_FILE = "operator.token"


@dataclass(frozen=True, slots=True)
class Backends:
    """Everything that touches the world."""

    store: Store
    ledger: Ledger
    blobs: BlobStore
    logs: LogStore
    keyring: Keyring
    decider: Decider
    clock: Clock
    ids: Ids
    spans: SpanSink = field(default_factory=NoSpans)
    decisions: DecisionStore | None = None
    """None: no decision is stored."""
    aside: Decider | None = None
    """Decides what is not applied; None = the decider of the cycles."""


@dataclass(frozen=True, slots=True)
class ControlPlane:
    """A wired broker. `run` never returns; `services` is what the API stands on."""

    office: Office
    services: Services
    background: tuple[Callable[[], Coroutine[None, None, None]], ...]

    async def run(self) -> None:
        """Follow etcd, stand for office, write reports."""
        async with TaskGroup() as tasks:
            for work in self.background:
                tasks.create_task(work())


def build(
    settings: BrokerSettings, backends: Backends, gateway: Callable[[Office], Gateway]
) -> ControlPlane:
    """Wire a broker. `gateway` is made once the office exists, which answers its questions."""
    projection = Projection(backends.store, lambda text: log.error("unreadable: %s", text))
    observer = Observer(spans=backends.spans)
    alarms: list[Callable[[str], None]] = []
    sites = Sites(
        projection,
        GroupCommitter(backends.store, meter=observer.metrics.commits("reports", backends.clock)),
        backends.clock,
        lambda text: alarms[0](text),
    )
    candidate = Candidate(
        settings.name, (settings.public_api_url,), settings.public_session_addresses
    )
    replicas = Replicas(backends.store, projection, candidate)
    ports = OfficePorts(
        store=backends.store,
        projection=projection,
        keyring=backends.keyring,
        ledger=backends.ledger,
        logs=backends.logs,
        decider=backends.decider,
        clock=backends.clock,
        candidate=candidate,
        sites=sites,
        replicas=replicas,
        starts=_starts(backends.ledger, projection),
        api_url=settings.public_api_url,
        ttl_s=settings.leader_ttl_s,
        heartbeat_ms=settings.heartbeat_ms,
        keep_ended_s=settings.keep_ended_s,
        typed_rtt_ms=settings.typed_rtt_ms(),
        links=settings.data_links(),
        observer=observer,
        aside=backends.aside,
        rules=settings.admission_rules(),
    )
    held: list[Gateway] = []
    office = Office(ports, lambda: held[0])
    alarms.append(office.alarm)
    held.append(gateway(office))
    kept = backends.decisions
    keeper = DecisionKeeper(kept, backends.clock) if kept is not None else None
    office.on_cycle = Recorder(backends.clock, keeper).record
    control = _control(ports, office, lambda: held[0])
    services = _services(settings, backends, projection, control, observer)
    tidying = Housekeeping(services.submissions(), backends.ledger, backends.clock)
    work = (
        projection.run,
        sites.run,
        replicas.run,
        office.run,
        lambda: ports.starts.follow(office.leading),
        tidying.run,
    )
    return ControlPlane(office, services, work)


def _starts(ledger: Ledger, projection: Projection) -> StartBook:
    return StartBook(
        ledger, partial(read_identities, projection), partial(read_preemptions, projection)
    )


def _services(
    settings: BrokerSettings,
    backends: Backends,
    projection: Projection,
    control: ControlService,
    observer: Observer,
) -> Services:
    return Services(
        store=backends.store,
        projection=projection,
        lanes=tuple(
            GroupCommitter(backends.store, meter=observer.metrics.commits("api", backends.clock))
            for _ in range(API_LANES)
        ),
        ledger=backends.ledger,
        blobs=backends.blobs,
        enrolment=_enrolment(settings, backends),
        keyring=backends.keyring,
        clock=backends.clock,
        ids=backends.ids,
        control=control,
        settings=ApiSettings(
            public_url=settings.public_api_url,
            typed_round_trips=_typed(settings),
            links=settings.data_links(),
        ),
        observer=observer,
        decisions=backends.decisions,
    )


def _control(ports: OfficePorts, office: Office, gateway: Callable[[], Gateway]) -> ControlService:
    projection, sites, ledger, clock = ports.projection, ports.sites, ports.ledger, ports.clock
    explainer = Explainer(office, projection, sites, ledger, clock, ports.typed_rtt_ms)
    trying = TrialPorts(projection, ledger, explainer.world, office.decide)
    standing = Standing(office, sites, projection, ledger, clock)
    ports.observer.metrics.watch(OpenFigures(standing), NamedFigures(standing))
    return ControlService(
        office, sites, projection, ports.logs, gateway, clock, explainer, PolicyTrial(trying),
        standing, WhatIf(trying),
    )  # fmt: skip


def _enrolment(settings: BrokerSettings, backends: Backends) -> Enrolment:
    reach = Reach(settings.public_session_addresses, settings.public_api_url)
    return Enrolment(backends.store, backends.keyring, backends.clock, backends.ids, lambda: reach)


def _typed(settings: BrokerSettings) -> dict[tuple[str, str], TypedRoundTrip]:
    return {
        (entry.a, entry.b): TypedRoundTrip(
            entry.rtt_ms, entry.source, parse_rfc3339_ms(entry.as_of)
        )
        for entry in settings.typed_rtt
    }


# Production ---------------------------------------------------------------------------------------


async def serve(settings: BrokerSettings) -> None:
    """Run a broker until SIGTERM or SIGINT. Raises KeyringError, OSError, SettingsError."""
    gc.freeze()  # modules and classes stay as long as the process
    gc.set_threshold(YOUNG_MAX, MIDDLE_MAX, OLD_MAX)
    clock, ids = SystemClock(), SystemIds()
    settings.state_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    keyring = Keyring.open(settings.keys_dir, settings.federation, now_ms=clock.now_ms(), ids=ids)
    store = _open_store(settings, keyring, clock)
    ledger = await SqlLedger.open(settings.database_url, now_ms=clock.now_ms())
    blobs = DirectoryBlobs(settings.state_dir / "blobs")
    logs = DirectoryLogs(settings.state_dir / "logs")
    decider = ProcessDecider(Limits(settings.decide_cpu_s, settings.price_cpu_s))
    decider.start()
    backends = Backends(
        store, ledger, blobs, logs, keyring, decider, clock, ids,
        open_spans(otel_environ(), "tradewind-broker", {"service.instance.id": settings.name}),
        _decisions(settings), decider.aside,
    )  # fmt: skip
    identity = _identity(settings, keyring, clock)
    credentials = SessionCredentials(identity)
    gateways: list[GrpcGateway] = []

    def gateway(office: Office) -> Gateway:
        readers = ReportReaders(capacity_from, prices_from, round_trips_from, cache_from)
        gateways.append(
            GrpcGateway(Listening(settings.session_listen, credentials), office, readers, clock)
        )
        return gateways[0]

    plane = build(settings, backends, gateway)
    await _first_start(settings, backends)
    context = server_context(settings.keys_dir / "server.pem")
    runners = await _listen(settings, plane.services, context)
    await gateways[0].start()
    front = await _front(settings)
    log.info("serving the API on %s", settings.public_api_url)
    try:
        await _until_signalled(
            [plane.run(), _renew(settings, keyring, clock, credentials, context)]
        )
    finally:
        if front is not None:
            front.close()
        for runner in runners:
            await runner.cleanup()
        await gateways[0].close()
        closings = (decider.close(), blobs.close(), logs.close(), ledger.close(), store.close())
        for closing in closings:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(closing, 5.0)
        await asyncio.to_thread(backends.spans.close)


async def _listen(
    settings: BrokerSettings, services: Services, context: ssl.SSLContext
) -> list[web.AppRunner]:
    """The API, and figures on loopback where they are wanted. Raises OSError."""
    host, port = split_address(settings.api_listen)
    runners = [await serve_api(build_api(services), host, port, context)]
    if settings.metrics_listen:
        host, port = split_address(settings.metrics_listen)
        app = figures_app(services.observer.metrics)
        runners.append(await serve_api(app, host, port, None))
    return runners


async def _front(settings: BrokerSettings) -> asyncio.Server | None:
    """One port for both listeners, where that is wanted. Raises OSError."""
    if not settings.front_listen:
        return None
    behind = Behind(split_address(settings.api_listen), split_address(settings.session_listen))
    return await serve_front(*split_address(settings.front_listen), behind)


def _decisions(settings: BrokerSettings) -> DecisionStore | None:
    if not settings.decisions_kept:
        return None
    limits = DecisionLimits(settings.decisions_kept, settings.decisions_mib * 1024 * 1024)
    return DirectoryDecisions(settings.state_dir / "decisions", limits)


def _open_store(settings: BrokerSettings, keyring: Keyring, clock: Clock) -> Store:
    if settings.etcd_endpoints[0].startswith("http://"):
        return open_store(settings.etcd_endpoints)
    own = keyring.etcd_client(now_ms=clock.now_ms())
    ca = settings.etcd_ca() or keyring.ca_bundle
    return open_store(
        settings.etcd_endpoints,
        tls=Tls(ca, own.certificate_pem, own.key_pem),
        server_names=(settings.etcd_server_name,),
    )


def _identity(settings: BrokerSettings, keyring: Keyring, clock: Clock) -> ServerIdentity:
    credential = keyring.server(settings.certificate_names, now_ms=clock.now_ms())
    return ServerIdentity(credential, keyring.ca_bundle)


async def _first_start(settings: BrokerSettings, backends: Backends) -> None:
    """Wait for etcd; on the federation's very first start leave the operator's token in a file."""
    while True:
        try:
            token = await ensure_operator_token(backends.store, backends.ids, backends.clock)
            break
        except StoreUnavailable as error:
            log.warning("waiting for etcd: %s", error)
            await asyncio.sleep(error.retry_after_s)
    if token is not None:
        write_private(settings.state_dir / OPERATOR_TOKEN_FILE, token.encode())


async def _renew(
    settings: BrokerSettings,
    keyring: Keyring,
    clock: Clock,
    credentials: SessionCredentials,
    context: object,
) -> None:
    """Show renewed certificates before the old ones run out."""
    while True:
        await asyncio.sleep(RENEW_CHECK_S)
        credentials.replace(_identity(settings, keyring, clock))
        renew_server_context(context, Path(settings.keys_dir / "server.pem"))  # type: ignore[arg-type]


async def _until_signalled(work: Sequence[Awaitable[None]]) -> None:
    """Run until one part fails or the process is told to stop."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    tasks = [asyncio.ensure_future(part) for part in work]
    stopped = asyncio.ensure_future(stop.wait())
    try:
        done, _ = await asyncio.wait([*tasks, stopped], return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            if task is not stopped:
                await task
    finally:
        for task in (*tasks, stopped):
            task.cancel()
        await asyncio.gather(*tasks, stopped, return_exceptions=True)
