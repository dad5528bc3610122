"""Three Slurm clusters asked by sbatch, sbatch --clusters, federated sbatch, and Tradewind.

    python -m benchmarks.slurm_federation [--jobs 200] [--tasks 1000] [--rounds 1] [--json]

All on the same clusters, one way after the other, in one run; needs what `make services` installs,
and root. Every job notes the time at which it starts, so what is measured is what happened. Each
way submits eight at a time (sbatch by eight processes, Tradewind by eight connections that are
kept). Rounds alternate the ways, so that ratios can be told from what else the machine does.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import resource
import ssl
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.chaos.federation import RealFederation, until
from tests.schedulers.slurm_cluster import SlurmSite, missing

NAMES = ("alpha", "beta", "gamma")
AT_ONCE = 8
BATCH = 50
CARD = "--gres=gpu:1"
WITHIN_S = 900.0
CLUSTERS, TRADEWIND, BATCHES = "sbatch --clusters", "Tradewind", "Tradewind, batches"
Submit = Callable[[Sequence[tuple[int, str]]], None]
"""Submits jobs: a number, and the file in which each notes its start."""


@dataclass(frozen=True, slots=True)
class Singles:
    """One way to run single jobs. Seconds; `all_started_s` from the first submission. CPU in ms
    for each job until all queues are empty again: of whoever submits, of the broker with its etcd,
    of the agents with the clients of Slurm they call."""

    way: str
    jobs: int
    submits_per_s: float
    start_p50_s: float
    start_p95_s: float
    all_started_s: float
    client_cpu_ms: float
    broker_cpu_ms: float
    agents_cpu_ms: float


class Sites(RealFederation):
    """Tradewind over the three clusters."""

    slurm: SlurmSite

    def join(self, cluster: str, slots: int) -> None:
        super().join(cluster, slots)
        said = {
            "scheduler": "slurm",
            "slurm": {"conf": str(self.slurm.clusters[cluster].conf)},
            "prices": [
                {"pool": "main-h100", "kind": "owned", "usd_per_accelerator_hour": 1,
                 "as_of": "2026-11-01T00:00:00Z", "source": "typed for a benchmark"}
            ],
        }  # fmt: skip
        (self.agent_dir(cluster) / "agent.yaml").write_text(yaml.safe_dump(said))


def cpu_s(roots: Sequence[int]) -> float:
    """CPU seconds of these processes and all below them, those that ended too."""
    children: dict[int, list[int]] = {}
    spent: dict[int, float] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        children.setdefault(int(fields[1]), []).append(int(entry.name))
        spent[int(entry.name)] = sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    found, todo = 0.0, list(roots)
    while todo:
        pid = todo.pop()
        found += spent.get(pid, 0.0)
        todo += children.get(pid, [])
    return found


def own_cpu_s() -> float:
    """CPU seconds of this process and the children it has waited for."""
    some = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(each.ru_utime + each.ru_stime for each in some)


def pids_of(sites: RealFederation, *names: str) -> list[int]:
    """The processes of a federation that go by these names, as far as they run."""
    return [sites.processes[name].pid for name in names if name in sites.processes]


@dataclass(frozen=True, slots=True)
class Bench:
    """The clusters, the federation over them, and where starts are noted."""

    slurm: SlurmSite
    sites: Sites
    notes: Path

    def spent_s(self) -> tuple[float, float]:
        """CPU seconds of the broker with etcd, and of the agents."""
        broker, agents = pids_of(self.sites, "broker", "etcd"), pids_of(self.sites, *NAMES)
        return cpu_s(broker), cpu_s(agents)

    def singles(self, way: str, jobs: int, submit: Submit, together: int = 1) -> Singles:
        """Submit jobs, so many in one call; wait until all have started, and for idle queues."""
        folder = self.notes / f"{len(os.listdir(self.notes))}-{way.replace(' ', '-')}"
        folder.mkdir()
        asked: dict[int, float] = {}

        def some(numbers: range) -> None:
            asked.update(dict.fromkeys(numbers, time.time()))
            submit([(number, str(folder / str(number))) for number in numbers])

        before, own_s, began = self.spent_s(), own_cpu_s(), time.time()
        with ThreadPoolExecutor(AT_ONCE) as pool:
            list(pool.map(some, (range(jobs)[n : n + together] for n in range(0, jobs, together))))
        submitted_s, own_s = time.time() - began, own_cpu_s() - own_s
        until(lambda: len(os.listdir(folder)) == jobs, WITHIN_S, f"{way}: all jobs start")
        time.sleep(0.5)  # the last ones write
        starts = {int(path.name): int(path.read_text()) / 1e9 for path in folder.iterdir()}
        waits = sorted(starts[number] - asked[number] for number in starts)
        idle(self.slurm)
        broker_s, agents_s = (
            now - then for now, then in zip(self.spent_s(), before, strict=True)
        )
        return Singles(
            way,
            jobs,
            round(jobs / submitted_s, 1),
            round(waits[len(waits) // 2], 3),
            round(waits[int(len(waits) * 0.95)], 3),
            round(max(starts.values()) - began, 2),
            round(own_s / jobs * 1000, 1),
            round(broker_s / jobs * 1000, 1),
            round(agents_s / jobs * 1000, 1),
        )


def by_sbatch(slurm: SlurmSite, *words: str) -> Submit:
    """Submission by one sbatch of the first cluster."""
    env = slurm.clusters[NAMES[0]].env

    def submit(some: Sequence[tuple[int, str]]) -> None:
        for _, note in some:
            argv = ["sbatch", "--parsable", "--output=/dev/null", "--time=5", CARD, "--chdir=/tmp"]
            argv += [*words, f"--wrap=date +%s%N > {note}"]
            subprocess.run(argv, env=env, check=True, capture_output=True, timeout=120)

    return submit


class Door:
    """The API over one connection a thread, kept."""

    def __init__(self, sites: RealFederation) -> None:
        self._sites = sites
        self._kept = threading.local()

    def post(self, path: str, body: object, key: str) -> None:
        """Submit; fails unless that is taken."""
        if not hasattr(self._kept, "line"):
            context = ssl._create_unverified_context()  # noqa: S323  a benchmark on loopback
            self._kept.line = http.client.HTTPSConnection(
                "127.0.0.1", self._sites.api_port, timeout=60, context=context
            )
        headers = {
            "Authorization": f"Bearer {self._sites.token}", "Content-Type": "application/json",
            "Idempotency-Key": key,
        }  # fmt: skip
        self._kept.line.request("POST", path, json.dumps(body), headers)
        answer = self._kept.line.getresponse()
        said = answer.read()
        assert answer.status == 201, f"{answer.status}: {said!r}"


def by_tradewind(sites: Sites) -> Submit:
    """One request for a job, or for a batch of them."""
    door = Door(sites)

    def submit(some: Sequence[tuple[int, str]]) -> None:
        specs = [
            {
                "run": f"date +%s%N > {note}", "max_runtime": "5m",
                "resources": {"accelerators": "H100:1", "cpus": 1, "memory": "100MiB"},
            }
            for _, note in some
        ]  # fmt: skip
        number, note = some[0]
        key = f"{Path(note).parent.name}-{number}"
        if len(specs) == 1:
            door.post("/v1/jobs", specs[0], key)
        else:
            door.post("/v1/jobs/batch", {"jobs": specs}, key)

    return submit


def idle(slurm: SlurmSite) -> None:
    """Wait until nothing is left in any queue."""
    for name in NAMES:
        cluster = slurm.clusters[name]
        until(lambda c=cluster: not c.run("squeue", "-h"), WITHIN_S, f"{name} is idle")  # type: ignore[misc]


def array_by_sbatch(bench: Bench, tasks: int) -> float:
    """Seconds until every task of one bare array on one cluster has started."""
    folder = bench.notes / f"{len(os.listdir(bench.notes))}-array-sbatch"
    folder.mkdir()
    began = time.time()
    argv = ["sbatch", "--parsable", "--output=/dev/null", "--time=5", CARD, "--chdir=/tmp",
            f"--array=0-{tasks - 1}", f"--wrap=: > {folder}/$SLURM_ARRAY_TASK_ID"]  # fmt: skip
    env = bench.slurm.clusters[NAMES[0]].env
    subprocess.run(argv, env=env, check=True, capture_output=True)
    until(lambda: len(os.listdir(folder)) == tasks, WITHIN_S, "all tasks start")
    took_s = time.time() - began
    idle(bench.slurm)
    return took_s


def array_by_tradewind(bench: Bench, tasks: int) -> float:
    """The same array through Tradewind, which may spread it."""
    folder = bench.notes / f"{len(os.listdir(bench.notes))}-array-tradewind"
    folder.mkdir()
    began = time.time()
    spec = {
        "run": f": > {folder}/$TRADEWIND_TASK", "array": f"0-{tasks - 1}", "max_runtime": "5m",
        "resources": {"accelerators": "H100:1", "cpus": 1, "memory": "100MiB"},
    }  # fmt: skip
    bench.sites.patiently("POST", "/v1/jobs", spec, folder.name)
    until(lambda: len(os.listdir(folder)) == tasks, WITHIN_S, "all tasks start")
    took_s = time.time() - began
    idle(bench.slurm)
    return took_s


def one_round(bench: Bench, jobs: int, tasks: int) -> tuple[list[Singles], dict[str, float]]:
    """Each way once."""
    slurm, tradewind = bench.slurm, by_tradewind(bench.sites)
    every = f"--clusters={','.join(NAMES)}"
    found = [
        bench.singles("sbatch, one cluster", jobs, by_sbatch(slurm)),
        bench.singles(CLUSTERS, jobs, by_sbatch(slurm, every)),
        bench.singles(TRADEWIND, jobs, tradewind),
        bench.singles(BATCHES, jobs, tradewind, BATCH),
    ]
    if not tasks:
        return found, {}
    bare_s, through_s = array_by_sbatch(bench, tasks), array_by_tradewind(bench, tasks)
    return found, {
        "tasks": tasks, "sbatch_s": round(bare_s, 2), "tradewind_s": round(through_s, 2),
        "ratio": round(through_s / bare_s, 2),
    }  # fmt: skip


def measure(jobs: int, tasks: int, rounds: int) -> dict[str, Any]:
    """Everything, on three clusters of two nodes with eight cards each."""
    load = os.getloadavg()[0]
    slurm = SlurmSite(NAMES, nodes=2).start()
    directory, notes = slurm.scratch / "federation", slurm.scratch / "notes"
    directory.mkdir(mode=0o700)
    notes.mkdir()
    sites = Sites(directory, ttl_s=6.0)  # as it is where nothing is said
    sites.slurm = slurm
    bench = Bench(slurm, sites, notes)
    found: list[Singles] = []
    arrays: list[dict[str, float]] = []
    try:
        sites.start(*NAMES)
        for _ in range(rounds):
            some, array = one_round(bench, jobs, tasks)
            found += some
            arrays += [array] if array else []
        sites.stop()
        slurm.clusters[NAMES[0]].run(
            "sacctmgr", "-i", "add", "federation", "fed", f"clusters={','.join(NAMES)}"
        )
        time.sleep(5)
        found.append(bench.singles("sbatch, federated", jobs, by_sbatch(slurm)))
    finally:
        sites.stop()
        slurm.stop()
    return {
        "load_before": round(load, 2),
        "singles": [asdict(each) for each in found],
        "arrays": arrays,
        "started_beside_clusters": {way: beside(found, way) for way in (TRADEWIND, BATCHES)},
    }


def beside(found: Sequence[Singles], way: str) -> float:
    """How long until all have started, as a part of what `--clusters` takes in the same round: the
    median of the rounds."""
    took = [[each.all_started_s for each in found if each.way == w] for w in (way, CLUSTERS)]
    return float(round(statistics.median(a / b for a, b in zip(*took, strict=True)), 2))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--jobs", type=int, default=200)
    parser.add_argument("--tasks", type=int, default=1000, help="of the array; 0: no array")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    if why := missing():
        sys.exit(f"Slurm {why}")
    result = measure(given.jobs, given.tasks, given.rounds)
    if given.json:
        print(json.dumps(result, indent=2))
        return
    print(f"load before: {result['load_before']}; CPU in ms a job")
    print(f"{'WAY':<20}  {'SUBMITS/S':>9}  {'START P50':>9}  {'P95':>8}  {'ALL STARTED':>11}"
          f"  {'CLIENT':>6}  {'BROKER':>6}  {'AGENTS':>6}")  # fmt: skip
    for row in result["singles"]:
        print(
            f"{row['way']:<20}  {row['submits_per_s']:>9}  {row['start_p50_s']:>8}s"
            f"  {row['start_p95_s']:>7}s  {row['all_started_s']:>10}s"
            f"  {row['client_cpu_ms']:>6}  {row['broker_cpu_ms']:>6}  {row['agents_cpu_ms']:>6}"
        )
    for way, ratio in result["started_beside_clusters"].items():
        print(f"{way}: all started after {ratio} of the time of {CLUSTERS} (median of rounds)")
    for array in result["arrays"]:
        print(
            f"array of {array['tasks']}: sbatch --array {array['sbatch_s']} s,"
            f" Tradewind {array['tradewind_s']} s, ratio {array['ratio']}"
        )


if __name__ == "__main__":
    main()
