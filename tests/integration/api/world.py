"""An API server over the memory store, with a control shell that answers from a script."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

from broker.api.application import build_api, serve
from broker.api.services import ApiSettings, Services
from broker.control.enrolment import Enrolment, Reach
from broker.control.policy_text import read_policy
from broker.control.sides import comparison, side
from broker.control.tokens import Grant, create_token, ensure_operator_token
from broker.control.trial_rows import Compared, summary
from broker.control.viewing import LogRequest, LogSlice, Viewer
from broker.control.waitlist import UNTOLD, Reason
from broker.control.whatif import WhatIfAsk
from broker.decide.decision import decide_floor
from broker.decide.whatif import changed
from broker.feedback.backends.memory import MemoryBlobs, MemoryDecisions, MemoryLedger
from broker.model.fleet import (
    Capacity,
    ClusterIdentity,
    ClusterState,
    ClusterView,
    DataRate,
    Fleet,
    NodeGroup,
    PoolCapacity,
    PoolPrice,
    RoundTrip,
)
from broker.model.jobs import Job
from broker.model.policies import Ruling
from broker.model.problem import Problem
from broker.state.backends.memory import MemoryStore
from broker.state.group_commit import GroupCommitter
from broker.state.keyring import Keyring
from broker.state.projection import Projection
from federation.ids import Cluster, Region
from federation.jobs import JobSpec
from federation.system import SystemClock, SystemIds


def fleet_of_two(now_ms: int) -> Fleet:
    """One cluster with cards and prices, one silent."""
    group = NodeGroup(2, "H100-80GB", 8, 5, 64_000, 32_000, 1 << 39, 1 << 38)
    east = ClusterView(
        ClusterIdentity(Cluster("east-1"), Region("us-east"), ClusterState.JOINED, "process"),
        capacity=Capacity(now_ms - 3_000, now_ms - 3_000, 7, 0, 0, (PoolCapacity("h", (group,)),)),
        prices={"h": PoolPrice("h", "owned", 2_490_000, 3_000_000, now_ms - 60_000, "contract")},
        round_trips=(RoundTrip(Region("eu-west"), "h:1", 81_500, now_ms),),
        data_rates=(
            DataRate(Region("eu-west"), "h:443", 5_000_000, False, 9, now_ms - 60_000),
            DataRate(Region("asia"), "i:443", -1, False, 0, now_ms),
        ),
        connected_since_ms=now_ms - 60_000,
        handshake_ms=4,
    )
    west = ClusterView(
        ClusterIdentity(Cluster("west-1"), Region("eu-west"), ClusterState.JOINED, "process"),
        silent_since_ms=now_ms - 90_000,
    )
    return Fleet({Cluster("east-1"): east, Cluster("west-1"): west})


@dataclass
class ScriptedControl:
    """Answers as the control shell would, from what the test put here."""

    clock: SystemClock
    logs: dict[tuple[str, str], bytes] = field(default_factory=dict)
    complete: set[tuple[str, str]] = field(default_factory=set)
    broken: Exception | None = None

    def fleet(self) -> Fleet:
        if self.broken is not None:
            raise self.broken
        return fleet_of_two(self.clock.now_ms())

    def _told(self, spec: JobSpec) -> dict[str, Any]:
        return {
            "summary": f"{spec.resources.cpus_milli} thousandths of a cpu",
            "chosen": None,
            "candidates": [{"cluster": "east-1", "pool": "h", "feasible": True}],
            "waiting": [],
            "smallest_change": None,
            "decision": None,
            "others": None,
        }

    async def explain(self, job: Job, spec: JobSpec, viewer: Viewer) -> dict[str, Any]:
        return self._told(spec)

    async def dry_run(self, spec: JobSpec, tenant: str, viewer: Viewer) -> dict[str, Any]:
        return self._told(spec)

    async def test_policy(self, source: str) -> dict[str, Any]:
        policy = read_policy(source)
        nothing = summary(Compared())
        return {
            "policy": {"name": policy.name, "version": 1, "replaces": None},
            "queued": nothing,
            "recent": nothing,
            "moves": [],
            "notes": [],
        }

    async def whatif(self, ask: WhatIfAsk, viewer: Viewer) -> dict[str, Any]:
        empty = Problem((), (), (), ())
        changed(empty, ask.changes)
        for source in ask.policies:
            read_policy(source)
        today = side(empty, decide_floor(empty))
        running = {"stay": 0, "displaced": 0}
        return {**comparison(today, today, []), "running": running, "notes": []}

    def told(self, job: Job, ruling: Ruling) -> Reason:
        return UNTOLD

    def held_by(self, tenant: str) -> int:
        return 0

    def share_of(self, tenant: str) -> float | None:
        return None

    async def read_log(self, job: Job, ask: LogRequest) -> LogSlice:
        data = self.logs.get((ask.uid, ask.stream), b"")
        done = (ask.uid, ask.stream) in self.complete
        piece = data[ask.offset : ask.offset + ask.limit_bytes]
        if not piece and not done:
            await asyncio.sleep(min(ask.wait_ms, 50) / 1000)
        total = len(data) if done else None
        complete = done and ask.offset + len(piece) >= len(data)
        return LogSlice(piece, ask.offset, total, complete, "" if piece else "no output yet")

    def status(self) -> dict[str, Any]:
        return {
            "queued": 3,
            "running": 1,
            "clusters": {"connected": 1, "silent": 1},
            "oldest_wait": None,
            "cycle": None,
            "notes": [],
        }

    async def changes(self, viewer: Viewer) -> dict[str, Any]:
        return {"jobs": {"succeeded": 2}, "alarms": [] if viewer.operator else None}

    def leader(self) -> dict[str, Any]:
        return {"name": "broker-1", "epoch": 4, "here": True}


@dataclass
class World:
    """Everything a test may look into, and the tokens it may use."""

    url: str
    services: Services
    store: MemoryStore
    control: ScriptedControl
    operator: str
    session: aiohttp.ClientSession

    async def token(self, *tenants: str, subject: str = "ada") -> str:
        grant = Grant(subject, tenants)
        ids, clock = self.services.ids, self.services.clock
        return (await create_token(self.store, ids, clock, grant))[0]

    async def call(
        self, method: str, path: str, *, token: str | None = None, **more: Any
    ) -> tuple[int, Any, aiohttp.ClientResponse]:
        """(status, JSON or bytes, response); the operator's token unless another is given."""
        headers = dict(more.pop("headers", {}))
        text = self.operator if token is None else token
        if text:
            headers.setdefault("Authorization", f"Bearer {text}")
        async with self.session.request(
            method, self.url + path, headers=headers, **more
        ) as response:
            body = await response.read()
            if "json" in response.headers.get("Content-Type", ""):
                return response.status, await response.json(content_type=None), response
            return response.status, body, response


@asynccontextmanager
async def running(
    tmp: Path,
    settings: ApiSettings | None = None,
    store: Any = None,
    *,
    tls: bool = False,
    operator: str = "",
) -> AsyncIterator[World]:
    """A server on a free port, over the memory store or the one given. With `tls` its CA is
    in `ca.pem` under `tmp`, and the session of the world cannot be used."""
    clock, ids = SystemClock(), SystemIds()
    store = store or MemoryStore(clock)
    projection = Projection(store, on_unreadable=lambda text: None)
    keyring = Keyring.open(tmp / "keys", "test", now_ms=clock.now_ms(), ids=ids)
    control = ScriptedControl(clock)
    services = Services(
        store=store,
        projection=projection,
        lanes=(GroupCommitter(store), GroupCommitter(store)),
        ledger=MemoryLedger(),
        blobs=MemoryBlobs(),
        enrolment=Enrolment(
            store, keyring, clock, ids, lambda: Reach(("h:1",), "https://broker.test")
        ),
        keyring=keyring,
        clock=clock,
        ids=ids,
        control=control,
        settings=settings or ApiSettings(sse_keepalive_s=0.2, log_poll_ms=50),
        decisions=MemoryDecisions(),
    )
    operator = await ensure_operator_token(store, ids, clock) or operator
    follow = asyncio.create_task(projection.run())
    await projection.ready.wait()
    context = _tls(tmp, keyring, clock) if tls else None
    runner = await serve(build_api(services), "127.0.0.1", 0, context)
    try:
        async with aiohttp.ClientSession() as session:
            url = f"http{'s' if tls else ''}://127.0.0.1:{runner.addresses[0][1]}"
            yield World(url, services, store, control, operator, session)
    finally:
        await runner.cleanup()
        follow.cancel()
        await store.close()


def _tls(tmp: Path, keyring: Keyring, clock: SystemClock) -> ssl.SSLContext:
    credential = keyring.server(["127.0.0.1"], now_ms=clock.now_ms())
    (tmp / "ca.pem").write_bytes(keyring.ca_bundle)
    (tmp / "server.pem").write_bytes(credential.certificate_pem + credential.key_pem)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(tmp / "server.pem")
    return context
