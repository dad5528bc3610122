"""Jobs of every kind of file (sbatch, Kubernetes, SkyPilot, native) over sites of every kind: three
Slurm clusters, Ray, Grid Engine and two plain hosts behind one broker, whose agents are all killed
in the middle. Kubernetes manifests name an image, and run as containers on the hosts.

Every job appends a line where each of its tasks and ranks begins; Slurm's own books are looked at
too. Sites whose service is absent are left out, and named.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.chaos.federation import RealFederation, until
from tests.image_store import NAME as IMAGE
from tests.image_store import ImageStore, image_store_missing
from tests.schedulers import gridengine_cluster, ray_head, slurm_cluster

SLURM = ("alpha", "beta", "gamma")
HOSTS = ("host1", "host2")
WITHIN_S = 240.0
PRICE = {
    "kind": "owned", "usd_per_accelerator_hour": 0.05, "as_of": "2026-11-01T00:00:00Z",
    "source": "typed for a test",
}  # fmt: skip


@dataclass
class MixedFederation(RealFederation):
    """The sites that could be started here, and what their agents say in agent.yaml."""

    slurm: slurm_cluster.SlurmSite | None = None
    ray: ray_head.RayHead | None = None
    grid: gridengine_cluster.GridEngine | None = None
    images: ImageStore | None = None
    kinds: dict[str, str] = field(default_factory=dict)

    def start_sites(self) -> list[str]:
        """Names of the clusters, by what is there."""
        self.kinds = dict.fromkeys(HOSTS, "process")
        if self.slurm is not None:
            self.kinds |= dict.fromkeys(SLURM, "slurm")
        if self.ray is not None:
            self.kinds["rays"] = "ray"
        if self.grid is not None:
            self.kinds["grid"] = "gridengine"
        return sorted(self.kinds)

    def join(self, cluster: str, slots: int) -> None:
        super().join(cluster, slots)
        kind = self.kinds[cluster]
        if kind == "process":
            return self._open_images(cluster)
        pool = {"slurm": "main-h100", "ray": "h100", "gridengine": "main-q-cpu"}[kind]
        said: dict[str, Any] = {"scheduler": kind, "prices": [{"pool": pool, **PRICE}]}
        if kind == "slurm":
            assert self.slurm is not None
            said["slurm"] = {"conf": str(self.slurm.clusters[cluster].conf), "poll": "1s"}
        elif kind == "ray":
            assert self.ray is not None
            said["ray"] = {"url": self.ray.url, "accelerator": "H100", "poll": "1s"}
        else:
            said["gridengine"] = {"poll": "1s", "cards": "none"}  # for jobs that ask for none
        (self.agent_dir(cluster) / "agent.yaml").write_text(yaml.safe_dump(said))

    def _open_images(self, cluster: str) -> None:
        """A host runs images, in which the marks are there to be written."""
        if self.images is None:
            return
        path = self.agent_dir(cluster) / "agent.yaml"
        said = yaml.safe_load(path.read_text())
        said["containers"] = {"podman": list(self.images.podman), "pull": False}
        said["writable"] = [str(self.directory / "marks")]
        path.write_text(yaml.safe_dump(said))

    def _spawn(self, name: str, command: list[str]) -> None:
        """The agent of Grid Engine finds clients that reach into its network."""
        if self.kinds.get(name) != "gridengine":
            return super()._spawn(name, command)
        assert self.grid is not None
        clients = self.directory / "grid-clients"
        clients.mkdir(exist_ok=True)
        for client in ("qsub", "qstat", "qacct", "qdel", "qconf", "qhold", "qrls", "qalter",
                       "qhost", "qselect"):  # fmt: skip
            path = clients / client
            words = " ".join(self.grid.inside)
            path.write_text(f'#!/bin/sh\nexec {words} /usr/bin/{client} "$@"\n')
            path.chmod(0o755)
        env = self.grid.env | {"PATH": f"{clients}:{os.environ['PATH']}"}
        log = (self.directory / f"{name}.log").open("ab")
        self.processes[name] = subprocess.Popen(
            command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, cwd=self.directory, env=env
        )
        return None

    def tradewind(self, *words: str) -> str:
        """A command of somebody who submits."""
        authority = self.directory / "ca.pem"
        authority.write_text(self.call("GET", "/v1/ca")["ca_pem"])
        env = os.environ | {
            "TRADEWIND_URL": self.url, "TRADEWIND_TOKEN": self.token,
            "TRADEWIND_CA": str(authority), "TRADEWIND_SEND_DIRECTORY": "no",
        }  # fmt: skip
        program = str(Path(sys.executable).parent / "tradewind")
        done = subprocess.run(
            [program, *words], env=env, capture_output=True, text=True, timeout=60, check=False,
            cwd=self.directory / "files",
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture(scope="module")
def federation() -> Iterator[MixedFederation]:
    why = {
        "Slurm": slurm_cluster.missing(),
        "Ray": ray_head.missing(),
        "Grid Engine": gridengine_cluster.missing(),
        "containers": image_store_missing(),
    }
    if why["Slurm"]:  # whose scratch directory all nodes see
        pytest.skip(f"Slurm {why['Slurm']}")
    for name, text in why.items():
        if text:
            warnings.warn(f"without {name}: {text}", stacklevel=1)
    slurm = slurm_cluster.SlurmSite(SLURM, nodes=2).start()
    directory = slurm.scratch / "federation"
    directory.mkdir(mode=0o700)
    for each in ("files", "marks", "images"):
        (directory / each).mkdir()
    made = MixedFederation(directory)
    made.slurm = slurm
    try:
        if not why["Ray"]:
            short = Path("/tmp") / f"twray{os.getpid()}"  # noqa: S108  sockets lie deep below it
            short.mkdir()
            made.ray = ray_head.RayHead(short)
            made.ray.start()
        if not why["Grid Engine"]:
            made.grid = gridengine_cluster.GridEngine().start()
        if not why["containers"]:
            made.images = ImageStore(directory / "images")
        made.start(*made.start_sites())
        yield made
    finally:
        made.stop()
        if made.ray is not None:
            made.ray.stop()
        if made.grid is not None:
            made.grid.stop()
        slurm.stop()


def _begin(made: MixedFederation) -> str:
    """The line by which a task or rank says that it begins."""
    marks = made.directory / "marks"
    which = '"$TRADEWIND_JOB/${TRADEWIND_TASK:-0}/${TRADEWIND_RANK:-0}"'
    return f"echo start {which} >> {marks}/$TRADEWIND_JOB"


def _files(made: MixedFederation) -> dict[str, tuple[str, int]]:
    """Job files by name: their text, and how many lines each must write."""
    begin = _begin(made)
    found = _manifests(begin) if made.images is not None else {}
    plain = [name for name, kind in made.kinds.items() if kind in ("process", "gridengine")]
    carded = [name for name, kind in made.kinds.items() if kind in ("slurm", "ray")]
    for n in range(8 if found else 12):
        found[f"single-{n}.sbatch"] = (
            f"#!/bin/sh\n#SBATCH -J single{n} --time=5 --mem=64M\n{begin}\nsleep 1\n", 1
        )  # fmt: skip
        head = f"name: sky{n}\nnum_nodes: 1\nresources: {{cpus: 1, memory: 1}}\n"
        found[f"sky-{n}.yaml"] = f"{head}run: |\n  {begin}\n  sleep 1\n", 1
        native: dict[str, Any] = {
            "name": f"native{n}", "run": f"{begin}\nsleep 1\n", "max_runtime": "5m",
            "placement": {"clusters": [plain[n % len(plain)]]},
        }  # fmt: skip
        found[f"native-{n}.yaml"] = (yaml.safe_dump(native), 1)
    for n in range(8):
        found[f"array-{n}.sbatch"] = (
            f"#!/bin/sh\n#SBATCH --array=0-4%2 --time=5 --mem=64M\n{begin}\nsleep 0.5\n", 5
        )  # fmt: skip
        card = {"accelerators": "H100:1", "cpus": 1, "memory": "64MiB"}
        native = {"name": f"cards{n}", "run": f"{begin}\nsleep 1\n", "max_runtime": "5m",
                  "resources": card, "placement": {"clusters": [carded[n % len(carded)]]}}
        found[f"cards-{n}.yaml"] = (yaml.safe_dump(native), 1)
        gang = native | {"name": f"gang{n}", "resources": card | {"replicas": 3}}
        found[f"gang-{n}.yaml"] = (yaml.safe_dump(gang), 3)
    return found


def _manifests(begin: str) -> dict[str, tuple[str, int]]:
    """Kubernetes' own files: single, indexed, of a JobSet, and the ranks of a PyTorchJob."""
    container = {
        "name": "main", "image": IMAGE, "command": ["sh", "-c", f"{begin}; sleep 1"],
        "resources": {"limits": {"cpu": "500m", "memory": "64Mi"}},
    }  # fmt: skip
    pod: dict[str, Any] = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    indexed = {"completionMode": "Indexed", "completions": 4, "parallelism": 2, "template": pod}
    workers = {"name": "workers", "replicas": 1, "template": {
        "spec": {"completions": 2, "parallelism": 2, "completionMode": "Indexed", "template": pod}}}
    torch = {"Master": {"replicas": 1, "template": pod}, "Worker": {"replicas": 2, "template": pod}}
    kinds: tuple[tuple[str, str, dict[str, Any], int], ...] = (
        ("batch/v1", "Job", {"backoffLimit": 0, "template": pod}, 1),
        ("batch/v1", "Job", {"backoffLimit": 0, **indexed}, 4),
        ("jobset.x-k8s.io/v1alpha2", "JobSet", {"replicatedJobs": [workers]}, 2),
        ("kubeflow.org/v1", "PyTorchJob", {"pytorchReplicaSpecs": torch}, 3),
    )
    found = {}
    for n in range(3):
        for nth, (version, kind, spec, lines) in enumerate(kinds):
            body = {"apiVersion": version, "kind": kind, "spec": spec,
                    "metadata": {"name": f"{kind.lower()}-{nth}-{n}"}}  # fmt: skip
            found[f"{kind}-{nth}-{n}.yaml"] = json.dumps(body, indent=1), lines  # YAML too
    return found


def _submit(made: MixedFederation, files: dict[str, tuple[str, int]]) -> dict[str, int]:
    """Lines to be written, by job."""
    lines: dict[str, int] = {}
    for name, (text, count) in files.items():
        (made.directory / "files" / name).write_text(text)
        answer = json.loads(made.tradewind("submit", name, "--json"))
        lines[str(answer["id"])] = count
    return lines


def test_sixty_jobs_of_every_kind_end_right_though_every_agent_is_killed(
    federation: MixedFederation,
) -> None:
    """Guards exactly-once hand-off over every kind of scheduler."""
    jobs = _submit(federation, _files(federation))
    assert len(jobs) == 60  # noqa: PLR2004
    until(lambda: sum(federation.marks().values()) >= 5, WITHIN_S, "some have begun")
    for cluster in federation.kinds:
        federation.kill(cluster)
        time.sleep(0.2)
        federation.start_agent(cluster)
    done = federation.wait(list(jobs), WITHIN_S)
    bodies = {job: body.get("job", body) for job, body in done.items()}
    ends = {job: body["outcome"] for job, body in bodies.items()}
    assert {end["kind"] for end in ends.values()} == {"succeeded"}, ends
    _ran_once(federation, jobs)
    used = Counter(
        federation.kinds[attempt["cluster"]]
        for body in bodies.values()
        for attempt in body["attempts"]
        if attempt["outcome"]["kind"] == "succeeded"
    )
    assert set(used) == set(federation.kinds.values()), used
    _manifests_ran_in_their_image(federation, bodies)


def _manifests_ran_in_their_image(made: MixedFederation, bodies: dict[str, Any]) -> None:
    named = [body for body in bodies.values() if body["spec"].get("image")]
    assert len(named) == (12 if made.images is not None else 0)  # noqa: PLR2004
    for body in named:
        won = [a for a in body["attempts"] if a["outcome"]["kind"] == "succeeded"]
        assert len(won) == 1 or body["spec"].get("array"), won  # an array may end in two slices
        assert won and {attempt["cluster"] for attempt in won} <= set(HOSTS), won


def _ran_once(made: MixedFederation, jobs: dict[str, int]) -> None:
    marks = made.marks()
    assert set(marks.values()) == {1}, [line for line, times in marks.items() if times > 1]
    of_job = Counter(line.split()[1].split("/")[0] for line in marks)
    assert dict(of_job) == jobs
    assert made.slurm is not None
    for name in SLURM:
        copies = made.slurm.clusters[name].copies()
        assert set(copies.values()) <= {1}, copies
