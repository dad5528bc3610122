"""How fast jobs are taken on: single submissions, batches, one array of a million tasks."""

from __future__ import annotations

from dataclasses import dataclass

from broker.local.bench.figures import Figure, Target
from broker.local.bench.stage import Stage
from broker.local.bench.stub_site import Stub
from broker.local.federation import Surroundings

SPEC = {
    "name": "bench",
    "run": "true",
    "resources": {"cpus": 1, "memory": "256MiB"},
    "max_runtime": "10m",
}
RECORD_BYTES = 900
"""About what a job's records take in etcd, so that the floor writes as much."""
WATCH_ARRAY_S = 5.0


@dataclass(frozen=True, slots=True)
class SubmitSize:
    """How much is submitted in a run."""

    runs: int = 3
    connections: int = 64
    singles: int = 4_000
    batches: int = 20
    batch: int = 1_000
    array: int = 1_000_000
    slots: int = 64


async def bench_submit(size: SubmitSize, given: Surroundings) -> list[Figure]:
    """All figures of `tradewind bench submit`. Raises what `Stage.open` does."""
    puts = "puts/s"
    singles = Figure(
        "single submissions", "jobs/s", Target(0.6, of_floor=True), f"plain etcd {puts}"
    )
    latency = Figure("single submission, p95", "ms", None, "plain etcd put, p95")
    batches = Figure("batch submissions", "jobs/s", Target(5_000), f"plain etcd {puts}")
    array = ArrayFigures.new()
    for run in range(size.runs):
        given.tell(f"run {run + 1} of {size.runs}: singles and batches")
        await _one_run(size, given, (singles, latency, batches))
        given.tell(f"run {run + 1} of {size.runs}: an array of {size.array:,} tasks")
        await _one_array(size, given, array)
    return [singles, latency, batches, *array.all]


async def _one_run(
    size: SubmitSize, given: Surroundings, figures: tuple[Figure, Figure, Figure]
) -> None:
    """On a federation whose only site is full, so that what is submitted waits."""
    singles, latency, batches = figures
    stub = Stub("stub-full", "", size.slots, hold=True)
    async with Stage.open(given, stubs=(stub,)) as stage:
        await stage.stop_broker()  # or it would follow the floor's records
        floor = await stage.puts(
            size.singles, connections=size.connections, value_bytes=RECORD_BYTES
        )
        await stage.start_broker()
        await stage.connected([stub.cluster])
        await stage.submit(SPEC, size.connections, connections=size.connections)  # warm
        one = await stage.submit(SPEC, size.singles, connections=size.connections)
        singles.add(one["per_s"], floor["per_s"])
        latency.add(one["p95_ms"], floor["p95_ms"])
        many = await stage.submit(SPEC, size.batches, connections=4, batch=size.batch)
        batches.add(many["per_s"], floor["per_s"])


@dataclass(frozen=True, slots=True)
class ArrayFigures:
    """What is told of the array."""

    accepted: Figure
    first_task: Figure
    tasks: Figure
    decisions: Figure

    @staticmethod
    def new() -> ArrayFigures:
        """Without values."""
        return ArrayFigures(
            Figure("array accepted after", "s", Target(1.0, at_most=True)),
            Figure("array's first task after", "s"),
            Figure("array tasks run", "tasks/s"),
            Figure("placements while they ran", "a 1,000 tasks", Target(1.0, at_most=True)),
        )

    @property
    def all(self) -> tuple[Figure, ...]:
        """In order."""
        return self.accepted, self.first_task, self.tasks, self.decisions


async def _one_array(size: SubmitSize, given: Surroundings, figures: ArrayFigures) -> None:
    stub = Stub("stub-array", "", size.slots, task_s=0.1)
    async with Stage.open(given, stubs=(stub,)) as stage:
        clock = stage.clock
        spec = SPEC | {"array": f"0-{size.array - 1}"}
        async with stage.federation.client() as client:
            began_s = clock.monotonic_s()
            await client.submit(spec)
            figures.accepted.add(clock.monotonic_s() - began_s)
        count = await stage.until_stubs(lambda c: c[0]["tasks_running"] > 0, 30.0)
        figures.first_task.add(count[0]["first_dispatch_s"] - began_s)
        placed, done = await stage.metric("tradewind_placements_total"), count[0]["tasks_done"]
        count = await stage.stubs_after(WATCH_ARRAY_S)
        ran = count[0]["tasks_done"] - done
        again = await stage.metric("tradewind_placements_total") - placed
        figures.tasks.add(ran / WATCH_ARRAY_S)
        figures.decisions.add(again * 1000 / max(ran, 1))
