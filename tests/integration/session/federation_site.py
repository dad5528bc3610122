"""A broker's session listener and agents beside it, all real: mutual TLS over loopback, the
process scheduler with its keeper, an HTTPS door for blobs. The leader is played by `Broker`."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import signal
import ssl
import tempfile
from collections import defaultdict
from pathlib import Path

from aiohttp import web

from broker.act import gateway as gw
from broker.act.backends.grpc import GrpcGateway, Listening
from broker.act.session_facts import ReportReaders
from broker.lifecycle import events as ev
from broker.sense.reports import cache_from, capacity_from, prices_from, round_trips_from
from federation.certificates import Credential, bundle, make_csr
from federation.handshake.frames import TicketKey
from federation.handshake.values import KnownCluster, Offer
from federation.issuing import issue_agent, issue_server, make_ca
from federation.jobs import canonical_bytes, parse_job_spec, spec_digest
from federation.runs import Runs
from federation.session_tls import ServerIdentity, SessionCredentials
from federation.system import SystemClock
from federation.tickets import (
    Ticket,
    TicketSigner,
    parse_ticket_header,
    read_ticket,
    sign_ticket,
)
from regional_agent.app import Agent, Backends, build
from regional_agent.identity import Issued, install, requested_key
from regional_agent.session.ledger import Pool
from regional_agent.settings import AgentSettings

CLOCK = SystemClock()
GIB = 2**30
WAIT_S = 20.0


class Facts:
    """The broker's books, as far as sessions ask."""

    def __init__(self, signer: TicketSigner) -> None:
        self.clusters: dict[str, KnownCluster] = {}
        self.event_seqs: dict[str, int] = {}
        self.is_leading = True
        self.epoch_now = 1
        self.successor = ""
        self.signers = [signer]
        self.api_url = "https://127.0.0.1:1"
        self.addresses: tuple[str, ...] = ()
        self.heartbeat_ms = 1_000

    def known(self, cluster: str) -> KnownCluster | None:
        found = self.clusters.get(cluster)
        if found is None:
            return None
        return KnownCluster(
            found.state,
            found.journal,
            self.event_seqs.get(cluster, 0),
            found.revoked_serials,
            found.joined_ms,
        )

    def ready(self) -> bool:
        return True

    def leading(self) -> bool:
        return self.is_leading

    def epoch(self) -> int:
        return self.epoch_now

    def offer(self) -> Offer:
        keys = tuple(TicketKey(s.kid, s.public_key) for s in self.signers)
        return Offer(self.addresses, keys, self.api_url, heartbeat_ms=self.heartbeat_ms)

    def leader_address(self) -> str:
        return self.successor


class Broker:
    """Plays the leader: keeps what arrives, acknowledges it (unless told not to)."""

    def __init__(self, ca: Credential | None = None, signer: TicketSigner | None = None) -> None:
        self.ca = ca or make_ca("fed", now_ms=CLOCK.now_ms())
        self.signer = signer or TicketSigner.from_seed(os.urandom(32))
        self.facts = Facts(self.signer)
        self.port = 0
        self.reached_at = ""
        self.acknowledges = True
        self.events: dict[str, list[ev.SiteEvent]] = defaultdict(list)
        self.sessions: list[gw.SessionOpened] = []
        self.closed: list[gw.SessionClosed] = []
        self.capacities: list[gw.CapacityArrived] = []
        self.prices: list[gw.PricesArrived] = []
        self.round_trips: list[gw.RoundTripsArrived] = []
        self.caches: list[gw.CacheArrived] = []
        self.blobs: dict[str, bytes] = {}
        self.fetched: list[tuple[str, str]] = []
        self.blobs_open = asyncio.Event()
        self.blobs_open.set()
        self.verdict = {"ok": True, "code": "ok", "reason": "good"}
        self._arrived = asyncio.Condition()
        self._task: asyncio.Task[None] | None = None
        self._site: web.AppRunner | None = None
        self._seq = 0
        self.gateway: GrpcGateway | None = None

    async def start(self) -> None:
        names = ["localhost", "session.localhost", "127.0.0.1"]
        server = issue_server(self.ca, names, now_ms=CLOCK.now_ms())
        identity = ServerIdentity(server, self.ca.certificate_pem)
        self.gateway = GrpcGateway(
            Listening(f"127.0.0.1:{self.port}", SessionCredentials(identity)),
            self.facts,
            ReportReaders(capacity_from, prices_from, round_trips_from, cache_from),
            CLOCK,
        )
        self.port = await self.gateway.start()
        self.facts.addresses = () if self.reached_at else (self.address,)
        if self._site is None:
            await self._serve_api(server)
        self._task = asyncio.create_task(self._lead(self.gateway))

    @property
    def address(self) -> str:
        return self.reached_at or f"127.0.0.1:{self.port}"

    async def stop(self) -> None:
        assert self.gateway is not None
        await self.gateway.close()
        await asyncio.sleep(0.05)  # the last events are read
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def close(self) -> None:
        await self.stop()
        if self._site is not None:
            await self._site.cleanup()

    async def _lead(self, gateway: GrpcGateway) -> None:
        async for batch in gateway.inbox():
            async with self._arrived:
                for event in batch:
                    await self._take(gateway, event)
                self._arrived.notify_all()

    async def _take(self, gateway: GrpcGateway, event: gw.GatewayEvent) -> None:
        if isinstance(event, gw.EventsArrived):
            for one in event.events:
                self.events[one.uid].append(one)
            if self.acknowledges:
                self.facts.event_seqs[event.cluster] = event.last_seq
                await gateway.acknowledge(event.cluster, event.last_seq)
        elif isinstance(event, gw.SessionOpened):
            self.sessions.append(event)
            known = self.facts.clusters[event.cluster]
            self.facts.clusters[event.cluster] = KnownCluster(
                known.state, event.journal, 0, known.revoked_serials, known.joined_ms
            )
        elif isinstance(event, gw.SessionClosed):
            self.closed.append(event)
        elif isinstance(event, gw.CapacityArrived):
            self.capacities.append(event)
        elif isinstance(event, gw.PricesArrived):
            self.prices.append(event)
        elif isinstance(event, gw.CacheArrived):
            self.caches.append(event)
        else:
            self.round_trips.append(event)

    # Waiting ----------------------------------------------------------------------------------

    async def until(self, holds, what="it", wait_s: float = WAIT_S) -> None:
        async with self._arrived:
            try:
                async with asyncio.timeout(wait_s):
                    await self._arrived.wait_for(holds)
            except TimeoutError:
                said = {uid: [type(e).__name__ for e in es] for uid, es in self.events.items()}
                raise AssertionError(f"{what} did not come; events: {said}") from None

    def of(self, uid: str, kind: type) -> list:
        return [e for e in self.events[uid] if isinstance(e, kind)]

    async def event(self, uid: str, kind: type, count: int = 1, wait_s: float = WAIT_S):
        await self.until(
            lambda: len(self.of(uid, kind)) >= count, f"{kind.__name__} of {uid}", wait_s
        )
        return self.of(uid, kind)[count - 1]

    async def connected(self, cluster: str, count: int = 1) -> gw.SessionOpened:
        def opened():
            return [s for s in self.sessions if s.cluster == cluster]

        await self.until(lambda: len(opened()) >= count, f"session {count} of {cluster}")
        return opened()[count - 1]

    # Commands ---------------------------------------------------------------------------------

    def next_seq(self) -> int:
        self._seq += 1
        return self._seq

    def ticket(self, attempt: str, spec: bytes, at: str, **changes) -> bytes:
        fields = {
            "uid": attempt,
            "job": attempt.rpartition("-")[0],
            "epoch": self.facts.epoch_now,
            "cluster": at,
            "tenant": "lab",
            "subject": "user:ann",
            "spec_sha256": spec_digest(spec),
            "not_after_ms": CLOCK.now_ms() + 600_000,
        }
        signer = changes.pop("signer", self.signer)
        return sign_ticket(Ticket(**(fields | changes)), signer)

    def dispatch(self, uid: str, job: dict, cluster: str = "eu", **changes) -> gw.Dispatch:
        raw = canonical_bytes(parse_job_spec(job))
        fields = {
            "dispatch_seq": self.next_seq(),
            "uid": uid,
            "ticket": self.ticket(uid, raw, cluster, **changes.pop("in_ticket", {})),
            "spec": raw,
            "pool": "cpu",
            "accelerator": "CPU",
            "replicas": 1,
            "accelerators_per_replica": 1,
            "cpus_milli_per_replica": 100,
            "memory_bytes_per_replica": GIB // 8,
            "max_runtime_s": 60,
            "stop_grace_s": 2,
            "max_start_delay_s": 0,
            "tasks": Runs(),
            "width": 0,
        }
        return gw.Dispatch(**(fields | changes))

    async def send(self, *commands: gw.Command, cluster: str = "eu") -> None:
        assert self.gateway is not None
        await self.gateway.send(cluster, commands)

    async def run(self, uid: str, job: dict, **changes) -> gw.Dispatch:
        command = self.dispatch(uid, job, **changes)
        await self.send(command)
        return command

    # Identity and HTTPS -----------------------------------------------------------------------

    def admit(self, cluster: str, state: Path, ca: Credential | None = None, **more) -> None:
        """Give an agent its identity, as enrolment does."""
        state.mkdir(mode=0o700, parents=True, exist_ok=True)
        key = requested_key(state)
        now_ms = more.pop("now_ms", CLOCK.now_ms())
        by = ca or self.ca
        pem = issue_agent(
            by, make_csr(key, "agent"), federation="fed", cluster=cluster, now_ms=now_ms, **more
        )
        # With a foreign CA it trusts the true federation, which does not trust it.
        trusted = bundle(self.ca.certificate_pem, by.certificate_pem)
        issued = Issued(pem, trusted, cluster, "eu-west", (self.address,), self.facts.api_url)
        install(state, key, issued)
        self.facts.clusters.setdefault(cluster, KnownCluster("joined"))

    async def _serve_api(self, server: Credential) -> None:
        app = web.Application(client_max_size=64 * 2**20)
        app.router.add_get("/v1/blobs/{sha}", self._get_blob)
        app.router.add_put("/v1/blobs/{sha}", self._put_blob)
        app.router.add_post("/v1/session-check", self._check)
        with tempfile.NamedTemporaryFile(suffix=".pem") as file:
            file.write(server.certificate_pem + server.key_pem)
            file.flush()
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(file.name)
        self._site = web.AppRunner(app)
        await self._site.setup()
        site = web.TCPSite(self._site, "127.0.0.1", 0, ssl_context=context)
        await site.start()
        port = self._site.addresses[0][1]
        self.facts.api_url = f"https://127.0.0.1:{port}"

    def _ticket_of(self, request: web.Request) -> Ticket:
        raw = parse_ticket_header(request.headers.get("Authorization", ""))
        keys = {s.kid: s.public_key for s in self.facts.signers}
        ticket = read_ticket(raw, keys) if raw else None
        if not isinstance(ticket, Ticket):
            raise web.HTTPForbidden(text="no ticket")
        return ticket

    async def _get_blob(self, request: web.Request) -> web.Response:
        ticket = self._ticket_of(request)
        self.fetched.append((ticket.uid, request.match_info["sha"]))
        await self.blobs_open.wait()
        data = self.blobs.get(request.match_info["sha"])
        if data is None:
            raise web.HTTPNotFound(text="no such blob")
        return web.Response(body=data)

    async def _put_blob(self, request: web.Request) -> web.Response:
        self._ticket_of(request)
        data = await request.read()
        sha = request.match_info["sha"]
        if hashlib.sha256(data).hexdigest() != sha:
            raise web.HTTPBadRequest(text="another hash")
        self.blobs[sha] = data
        return web.Response(status=201)

    async def _check(self, request: web.Request) -> web.Response:
        await request.read()
        return web.json_response(self.verdict)

    def blob(self, data: bytes) -> str:
        sha = hashlib.sha256(data).hexdigest()
        self.blobs[sha] = data
        return sha


def pool(name: str = "cpu", slots: int = 8) -> Pool:
    return Pool(name, "CPU", 1, slots, slots * 1000, 8 * GIB)


def settings(state: Path, **changes) -> AgentSettings:
    fields = {"state_dir": state, "pools": (pool(),)}
    return AgentSettings(**(fields | changes))


class Running:
    """An agent in this process; `stop` leaves keeper and jobs alone."""

    def __init__(self, agent: Agent) -> None:
        self.agent = agent
        self._task = asyncio.create_task(agent.run())

    @property
    def task(self) -> asyncio.Task[None]:
        return self._task

    async def stop(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def link(self, holds) -> str:
        """Wait until the state of the link is so; returns its reason."""
        async with asyncio.timeout(WAIT_S):
            while not holds(self.agent.dialler.state):
                await asyncio.sleep(0.02)
        return self.agent.dialler.state.reason

    async def refused(self, code: str) -> str:
        return await self.link(lambda link: link.code == code)


@contextlib.asynccontextmanager
async def running(state: Path, **changes):
    """An agent and, at the end, neither agent nor keeper nor jobs."""
    agent = Running(build(settings(state, **changes), Backends.system()))
    try:
        yield agent
    finally:
        await agent.stop()


async def end_keeper(state: Path) -> None:
    """End the keeper of a state directory and everything it runs."""
    from regional_agent.act.keeper.client import KeeperConnection, KeeperGone

    try:
        connection = await KeeperConnection.open(state)
        hello = await connection.request("hello")
        with contextlib.suppress(KeeperGone):
            await connection.request("shutdown", kill=True)
        await connection.close()
    except KeeperGone:
        return
    for _ in range(100):
        try:
            os.kill(hello["pid"], 0)
        except ProcessLookupError:
            return
        await asyncio.sleep(0.05)
    os.kill(hello["pid"], signal.SIGKILL)


def lines(file: Path) -> list[str]:
    return file.read_text().splitlines() if file.exists() else []


def decoded(data: bytes) -> dict:
    return json.loads(data)
