"""Three Slurm clusters, asked in four ways: sbatch, sbatch --clusters, federated sbatch, Tradewind.

    python -m benchmarks.slurm_federation [--jobs 200] [--tasks 1000] [--json]

All on the same clusters, one way after the other, in one run; needs what `make services` installs,
and root. Every job notes the time at which it starts, so what is measured is what happened. Each
way submits eight at a time (sbatch by eight processes, Tradewind by eight connections).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.chaos.federation import RealFederation, until
from tests.schedulers.slurm_cluster import SlurmSite, missing

NAMES = ("alpha", "beta", "gamma")
AT_ONCE = 8
CARD = "--gres=gpu:1"
WITHIN_S = 900.0


@dataclass(frozen=True, slots=True)
class Singles:
    """One way to run single jobs. Seconds; `all_started_s` from the first submission."""

    way: str
    jobs: int
    submits_per_s: float
    start_p50_s: float
    start_p95_s: float
    all_started_s: float


class Sites(RealFederation):
    """Tradewind over the three clusters."""

    slurm: SlurmSite

    def join(self, cluster: str, slots: int) -> None:
        super().join(cluster, slots)
        said = {
            "scheduler": "slurm",
            "slurm": {"conf": str(self.slurm.clusters[cluster].conf), "poll": "2s"},
            "prices": [
                {"pool": "main-h100", "kind": "owned", "usd_per_accelerator_hour": 1,
                 "as_of": "2026-11-01T00:00:00Z", "source": "typed for a benchmark"}
            ],
        }  # fmt: skip
        (self.agent_dir(cluster) / "agent.yaml").write_text(yaml.safe_dump(said))


def singles(way: str, jobs: int, notes: Path, submit: Callable[[int, str], None]) -> Singles:
    """Submit jobs by `submit(number, file to note the start in)`; wait until all have started."""
    folder = notes / way.replace(" ", "-")
    folder.mkdir(parents=True)
    asked: dict[int, float] = {}

    def one(number: int) -> None:
        asked[number] = time.time()
        submit(number, str(folder / str(number)))

    began = time.time()
    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(one, range(jobs)))
    submitted_s = time.time() - began
    until(lambda: len(os.listdir(folder)) == jobs, WITHIN_S, f"{way}: all jobs start")
    time.sleep(0.5)  # the last ones write
    starts = {int(path.name): int(path.read_text()) / 1e9 for path in folder.iterdir()}
    waits = sorted(starts[number] - asked[number] for number in starts)
    return Singles(
        way,
        jobs,
        round(jobs / submitted_s, 1),
        round(waits[len(waits) // 2], 3),
        round(waits[int(len(waits) * 0.95)], 3),
        round(max(starts.values()) - began, 2),
    )


def by_sbatch(slurm: SlurmSite, *words: str) -> Callable[[int, str], None]:
    """Submission by one sbatch of the first cluster."""
    env = slurm.clusters[NAMES[0]].env

    def submit(_: int, note: str) -> None:
        argv = ["sbatch", "--parsable", "--output=/dev/null", "--time=5", CARD, "--chdir=/tmp"]
        argv += [*words, f"--wrap=date +%s%N > {note}"]
        subprocess.run(argv, env=env, check=True, capture_output=True, timeout=120)

    return submit


def by_tradewind(sites: Sites) -> Callable[[int, str], None]:
    """One request a job."""

    def submit(number: int, note: str) -> None:
        spec = {
            "run": f"date +%s%N > {note}", "max_runtime": "5m",
            "resources": {"accelerators": "H100:1", "cpus": 1, "memory": "100MiB"},
        }  # fmt: skip
        sites.patiently("POST", "/v1/jobs", spec, f"{Path(note).parent.name}-{number}")

    return submit


def idle(slurm: SlurmSite) -> None:
    """Wait until nothing is left in any queue."""
    for name in NAMES:
        cluster = slurm.clusters[name]
        until(lambda c=cluster: not c.run("squeue", "-h"), WITHIN_S, f"{name} is idle")  # type: ignore[misc]


def array_by_sbatch(slurm: SlurmSite, tasks: int, notes: Path) -> float:
    """Seconds until every task of one bare array on one cluster has started."""
    folder = notes / "array-sbatch"
    folder.mkdir()
    began = time.time()
    argv = ["sbatch", "--parsable", "--output=/dev/null", "--time=5", CARD, "--chdir=/tmp",
            f"--array=0-{tasks - 1}", f"--wrap=: > {folder}/$SLURM_ARRAY_TASK_ID"]  # fmt: skip
    subprocess.run(argv, env=slurm.clusters[NAMES[0]].env, check=True, capture_output=True)
    until(lambda: len(os.listdir(folder)) == tasks, WITHIN_S, "all tasks start")
    return time.time() - began


def array_by_tradewind(sites: Sites, tasks: int, notes: Path) -> float:
    """The same array through Tradewind, which may spread it."""
    folder = notes / "array-tradewind"
    folder.mkdir()
    began = time.time()
    spec = {
        "run": f": > {folder}/$TRADEWIND_TASK", "array": f"0-{tasks - 1}", "max_runtime": "5m",
        "resources": {"accelerators": "H100:1", "cpus": 1, "memory": "100MiB"},
    }  # fmt: skip
    sites.patiently("POST", "/v1/jobs", spec, "array")
    until(lambda: len(os.listdir(folder)) == tasks, WITHIN_S, "all tasks start")
    return time.time() - began


def measure(jobs: int, tasks: int) -> dict[str, Any]:
    """Everything, on three clusters of two nodes with eight cards each."""
    slurm = SlurmSite(NAMES, nodes=2).start()
    directory = slurm.scratch / "federation"
    directory.mkdir(mode=0o700)
    notes = slurm.scratch / "notes"
    notes.mkdir()
    sites = Sites(directory)
    sites.slurm = slurm
    found: list[Singles] = []
    try:
        found.append(singles("sbatch, one cluster", jobs, notes, by_sbatch(slurm)))
        idle(slurm)
        every = f"--clusters={','.join(NAMES)}"
        found.append(singles("sbatch --clusters", jobs, notes, by_sbatch(slurm, every)))
        idle(slurm)
        bare_s = array_by_sbatch(slurm, tasks, notes)
        idle(slurm)
        sites.start(*NAMES)
        found.append(singles("Tradewind", jobs, notes, by_tradewind(sites)))
        idle(slurm)
        through_s = array_by_tradewind(sites, tasks, notes)
        idle(slurm)
        sites.stop()
        slurm.clusters[NAMES[0]].run(
            "sacctmgr", "-i", "add", "federation", "fed", f"clusters={','.join(NAMES)}"
        )
        time.sleep(5)
        found.append(singles("sbatch, federated", jobs, notes, by_sbatch(slurm)))
    finally:
        sites.stop()
        slurm.stop()
    return {
        "singles": [asdict(each) for each in found],
        "array": {
            "tasks": tasks, "sbatch_s": round(bare_s, 2), "tradewind_s": round(through_s, 2),
            "ratio": round(through_s / bare_s, 2),
        },
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--jobs", type=int, default=200)
    parser.add_argument("--tasks", type=int, default=1000)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    if why := missing():
        sys.exit(f"Slurm {why}")
    result = measure(given.jobs, given.tasks)
    if given.json:
        print(json.dumps(result, indent=2))
        return
    print(f"{'WAY':<20}  {'SUBMITS/S':>9}  {'START P50':>9}  {'P95':>8}  {'ALL STARTED':>11}")
    for row in result["singles"]:
        print(
            f"{row['way']:<20}  {row['submits_per_s']:>9}  {row['start_p50_s']:>8}s"
            f"  {row['start_p95_s']:>7}s  {row['all_started_s']:>10}s"
        )
    array = result["array"]
    print(
        f"array of {array['tasks']}: sbatch --array {array['sbatch_s']} s,"
        f" Tradewind {array['tradewind_s']} s, ratio {array['ratio']}"
    )


if __name__ == "__main__":
    main()
