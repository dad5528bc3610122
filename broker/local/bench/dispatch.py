"""How fast jobs get to work: through the whole path to real agents, and to stub sites."""

from __future__ import annotations

import asyncio
import subprocess
from dataclasses import dataclass

from broker.client import Client, wait_for_jobs
from broker.local.bench.figures import Figure, Target, percentile
from broker.local.bench.stage import Stage
from broker.local.bench.stub_site import Stub
from broker.local.bench.submit import SPEC
from broker.local.federation import Surroundings
from federation.system import SystemClock
from federation.units import parse_rfc3339_ms

SITE = "us-east"
WITHIN_S = 240.0
PROBE_S = 5.0
LOOK_EVERY_S = 0.2


@dataclass(frozen=True, slots=True)
class DispatchSize:
    """How much is dispatched in a run."""

    runs: int = 3
    starts: int = 60
    processes: int = 200
    jobs: int = 10_000
    stubs: int = 4
    slots: int = 5_000


async def bench_dispatch(size: DispatchSize, given: Surroundings) -> list[Figure]:
    """All figures of `tradewind bench dispatch`. Raises what `Stage.open` does."""
    started = (
        Figure("submit to started, p50", "ms", Target(100.0, at_most=True), "bare start, p50"),
        Figure("submit to started, p95", "ms", None, "bare start, p95"),
    )
    processes = Figure("jobs through a process site", "jobs/s", None, "bare starts/s")
    stubs = Figure("jobs through stub sites", "jobs/s", Target(500.0), "bare starts/s")
    meanwhile = (
        Figure("jobs reach stub sites", "jobs/s"),
        Figure("a bystander's answer, p99", "ms", None, "idle, p99"),
        Figure("a bystander's answer, longest", "ms", None, "idle, longest"),
        Figure("the ledger is behind, longest", "s", Target(1.0, at_most=True)),
    )
    for run in range(size.runs):
        given.tell(f"run {run + 1} of {size.runs}: a process site")
        bare_ms = await asyncio.to_thread(_bare_starts, size.processes)
        await _one_real(size, given, bare_ms, started, processes)
        given.tell(f"run {run + 1} of {size.runs}: {size.stubs} stub sites")
        await _one_stub(size, given, _per_s(bare_ms), stubs, meanwhile)
    return [*started, processes, stubs, *meanwhile]


def _bare_starts(count: int) -> list[float]:
    """Milliseconds of starting a shell that ends at once, one after the other."""
    clock = SystemClock()
    found = []
    for _ in range(count):
        began_s = clock.monotonic_s()
        subprocess.run(["/bin/sh", "-c", "true"], check=True)
        found.append((clock.monotonic_s() - began_s) * 1000)
    return found


def _per_s(bare_ms: list[float]) -> float:
    return 1000 * len(bare_ms) / sum(bare_ms)


async def _one_real(
    size: DispatchSize,
    given: Surroundings,
    bare_ms: list[float],
    started: tuple[Figure, Figure],
    rate: Figure,
) -> None:
    async with Stage.open(given, real=(SITE,)) as stage, stage.federation.client() as client:
        await _submit_to_started(stage, client, 5)
        waits_ms = await _submit_to_started(stage, client, size.starts)
        for figure, share in zip(started, (0.5, 0.95), strict=True):
            figure.add(percentile(waits_ms, share), percentile(bare_ms, share))
        began_s = stage.clock.monotonic_s()
        ids = await client.submit_batch([SPEC] * size.processes)
        await wait_for_jobs(client, ids, timeout_s=WITHIN_S)
        took_s = stage.clock.monotonic_s() - began_s
        rate.add(size.processes / took_s, _per_s(bare_ms))


async def _submit_to_started(stage: Stage, client: Client, count: int) -> list[float]:
    """Milliseconds from sending a submission until the site's own time of the start."""
    found = []
    for _ in range(count):
        sent_ms = stage.clock.now_ms()
        job = await client.submit(SPEC)
        await wait_for_jobs(client, [job.id], timeout_s=WITHIN_S)
        attempt = (await client.job(job.id))["attempts"][0]
        found.append(float(parse_rfc3339_ms(attempt["started_at"]) - sent_ms))
    return found


async def _one_stub(
    size: DispatchSize,
    given: Surroundings,
    bare: float,
    rate: Figure,
    meanwhile: tuple[Figure, Figure, Figure, Figure],
) -> None:
    reached, bystander_p99, bystander_max, behind = meanwhile
    stubs = tuple(Stub(f"stub-{n}", "", size.slots) for n in range(size.stubs))
    async with Stage.open(given, stubs=stubs) as stage:
        idle = await stage.probe(PROBE_S)
        probing = asyncio.create_task(stage.probe(PROBE_S))
        over = asyncio.Event()
        lagging = asyncio.create_task(_longest(stage, "tradewind_ledger_lag_seconds", over))
        began_s = stage.clock.monotonic_s()
        await stage.submit(SPEC, -(-size.jobs // 1000), connections=2, batch=1000)
        counts = await stage.until_stubs(
            lambda c: sum(each["ended_acked"] for each in c) >= size.jobs, WITHIN_S
        )
        ended_s = max(each["last_ack_s"] for each in counts)
        arrived_s = max(each["last_dispatch_s"] for each in counts)
        rate.add(size.jobs / (ended_s - began_s), bare)
        reached.add(size.jobs / (arrived_s - began_s))
        over.set()
        behind.add(await lagging)
        busy = await probing
        bystander_p99.add(busy["p99_ms"], idle["p99_ms"])
        bystander_max.add(busy["max_ms"], idle["max_ms"])


async def _longest(stage: Stage, metric: str, over: asyncio.Event) -> float:
    """The most that a figure of /metrics showed, looked at now and then until it is over."""
    most = 0.0
    while not over.is_set():
        most = max(most, await stage.metric(metric))
        await asyncio.sleep(LOOK_EVERY_S)
    return most
