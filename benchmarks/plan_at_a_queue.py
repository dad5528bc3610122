"""What a person waits for `tradewind plan` and `submit --dry-run`, where a queue is long.

    python benchmarks/plan_at_a_queue.py [CLUSTERS [JOBS [RUNS]]]

A federation of its own (etcd, a broker, so many stub sites, all full), so many waiting jobs of 200
kinds; then whole commands, as processes, and the request by itself over a kept connection.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from broker.cli.commands.up import surroundings
from broker.local.bench.stage import Stage
from broker.local.bench.stub_site import Stub

KINDS = 200
SLOTS = 32


def main() -> None:
    """Measure, and print one line for each."""
    clusters, jobs, runs = (int(word) for word in [*sys.argv[1:], "20", "1000", "9"][:3])
    asyncio.run(measure(clusters, jobs, runs))


async def measure(clusters: int, jobs: int, runs: int) -> None:
    """Set the scene, and measure."""
    stubs = [Stub(f"stub-{n}", "", SLOTS, hold=True) for n in range(clusters)]
    async with Stage.open(surroundings(lambda text: None), stubs=stubs) as stage:
        async with stage.federation.client() as client:
            body = {"run": "true", "max_runtime": "2h"}
            await client.submit_batch([body] * (clusters * SLOTS))
            wanted = clusters * SLOTS
            await stage.until_stubs(lambda c: sum(x["dispatched"] for x in c) >= wanted, 120)
            kinds = [body | {"max_runtime": f"{60 + n}m"} for n in range(KINDS)]
            await client.submit_batch([kinds[n % KINDS] for n in range(jobs)])
            await asyncio.sleep(10)
            took = []
            for _ in range(runs):
                began_s = time.perf_counter()
                told = await client.plan(kinds[0])
                took.append(time.perf_counter() - began_s)
            print(f"places looked at: {len(told['candidates'])}, {told['summary'][:70]}")
            say("the request by itself", took, [])
        home = str(stage.federation.home.root)
        with tempfile.TemporaryDirectory() as directory:
            file = Path(directory) / "job.yaml"
            file.write_text('run: "true"\nmax_runtime: 1h\n')
            for words in (["plan"], ["submit", "--dry-run"], ["version"], ["jobs"]):
                given = [] if words[0] in ("version", "jobs") else [str(file)]
                walls, cpus = [], []
                for _ in range(runs):
                    wall_s, cpu_s = await asyncio.to_thread(
                        run_one, [*words, *given], {**os.environ, "TRADEWIND_HOME": home}
                    )
                    walls.append(wall_s)
                    cpus.append(cpu_s)
                say(f"tradewind {' '.join(words)}", walls, cpus)


def run_one(words: list[str], environ: dict[str, str]) -> tuple[float, float]:
    """Seconds on the wall, and of CPU, of one command."""
    began_s = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-m", "broker", *words], env=environ,
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
    )  # fmt: skip
    _, status, used = os.wait4(process.pid, 0)
    wall_s = time.perf_counter() - began_s
    if status:
        assert process.stderr is not None
        raise SystemExit(f"{words}: {process.stderr.read().decode()}")
    return wall_s, used.ru_utime + used.ru_stime


def say(what: str, walls: list[float], cpus: list[float]) -> None:
    """The least, the middle and the most."""
    three = [min(walls), statistics.median(walls), max(walls)]
    line = f"{what:26} wall " + " ".join(f"{x:.3f}" for x in three) + " s"
    if cpus:
        line += f"   CPU {min(cpus):.3f} {statistics.median(cpus):.3f} {max(cpus):.3f} s"
    print(line, flush=True)


if __name__ == "__main__":
    main()
