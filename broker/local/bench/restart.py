"""What a broker full of live work weighs, and how soon a killed one serves again."""

from __future__ import annotations

from dataclasses import dataclass

from broker.local.bench.figures import Figure, Target
from broker.local.bench.stage import Stage
from broker.local.bench.stub_site import Stub
from broker.local.bench.submit import SPEC
from broker.local.federation import Surroundings

MIB = 1024**2
WITHIN_S = 240.0


@dataclass(frozen=True, slots=True)
class RestartSize:
    """How much is live when the broker is killed."""

    runs: int = 3
    jobs: int = 5_000
    tasks: int = 100_000


async def bench_restart(size: RestartSize, given: Surroundings) -> list[Figure]:
    """All figures of `tradewind bench restart`. Raises what `Stage.open` does."""
    before = Figure("memory with live work", "MiB", Target(600.0, at_most=True))
    after = Figure("memory after the restart", "MiB", Target(600.0, at_most=True))
    serves = Figure("API serves after", "s", Target(5.0, at_most=True), "restart without work")
    leads = Figure("leads after", "s", None, "restart without work")
    places = Figure("starts a new job after", "s")
    for run in range(size.runs):
        given.tell(f"run {run + 1} of {size.runs}")
        stub = Stub("stub-live", "", size.jobs + size.tasks + 64, hold=True)
        async with Stage.open(given, stubs=(stub,)) as stage:
            await stage.stop_broker()
            empty_s = await stage.start_broker()
            await stage.connected([stub.cluster])
            await _fill(stage, size)
            before.add(stage.broker_rss_bytes() / MIB)
            await stage.stop_broker()
            began_s = stage.clock.monotonic_s()
            for figure, floor_s, value_s in zip(
                (serves, leads), empty_s, await stage.start_broker(), strict=True
            ):
                figure.add(value_s, floor_s)
            await _one_more(stage)
            places.add(stage.clock.monotonic_s() - began_s)
            after.add(stage.broker_rss_bytes() / MIB)
    return [before, after, serves, leads, places]


async def _fill(stage: Stage, size: RestartSize) -> None:
    """Until all of it runs."""
    await stage.submit(SPEC, -(-size.jobs // 1000), connections=2, batch=1000)
    async with stage.federation.client() as client:
        await client.submit(SPEC | {"array": f"0-{size.tasks - 1}"})
    await stage.until_stubs(
        lambda c: c[0]["dispatched"] > size.jobs and c[0]["tasks_running"] >= size.tasks, WITHIN_S
    )


async def _one_more(stage: Stage) -> None:
    """A new job, until it reached the site."""
    here = (await stage.stub_counts())[0]["dispatched"]
    await stage.submit(SPEC, 1, connections=1)
    await stage.until_stubs(lambda c: c[0]["dispatched"] > here, WITHIN_S)
