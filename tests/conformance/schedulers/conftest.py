"""The schedulers under the conformance suite: one rig a kind, for all its cases."""

import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from regional_agent.conformance.rig import Rig
from tests.conformance.schedulers.gridengine_rig import GridEngineRig
from tests.conformance.schedulers.kubernetes_rig import CarriedKubernetesRig, KubernetesRig
from tests.conformance.schedulers.ray_rig import RayRig
from tests.conformance.schedulers.real_kubernetes_rig import RealKubernetesRig
from tests.conformance.schedulers.rigs import ContainerRig, ProcessRig, SimulatedRig
from tests.conformance.schedulers.slurm_rig import SlurmRestRig, SlurmRig
from tests.image_store import ImageStore, image_store_missing
from tests.schedulers import gridengine_cluster, ray_head
from tests.schedulers.kubernetes_pods import empty_directories_missing
from tests.schedulers.slurm_cluster import SlurmSite, missing, rest_missing

MakeRig = Callable[[Path, pytest.FixtureRequest], Rig]


@pytest.fixture(scope="session")
def slurm_site() -> Iterator[SlurmSite]:
    if why := missing():
        pytest.skip(f"Slurm {why}")
    site = SlurmSite(["alpha"]).start()
    yield site
    site.stop()


def _slurm(scratch: Path, request: pytest.FixtureRequest) -> Rig:
    site: SlurmSite = request.getfixturevalue("slurm_site")
    return SlurmRig(site.clusters["alpha"], site.scratch / "agents" / scratch.name)


@pytest.fixture(scope="session")
def rest_site(slurm_site: SlurmSite) -> SlurmSite:
    if why := rest_missing():
        pytest.skip(f"Slurm {why}")
    slurm_site.clusters["alpha"].start_rest()
    return slurm_site


def _slurmrestd(scratch: Path, request: pytest.FixtureRequest) -> Rig:
    site: SlurmSite = request.getfixturevalue("rest_site")
    return SlurmRestRig(site.clusters["alpha"], site.scratch / "agents" / scratch.name)


@pytest.fixture(scope="session")
def ray_site() -> Iterator[ray_head.RayHead]:
    if why := ray_head.missing():
        pytest.skip(why)
    scratch = Path(tempfile.mkdtemp(prefix="twray"))  # short: sockets lie deep below it
    head = ray_head.RayHead(scratch)
    try:
        head.start()
        yield head
    finally:
        head.stop()
        shutil.rmtree(scratch, ignore_errors=True)


def _ray(scratch: Path, request: pytest.FixtureRequest) -> Rig:
    head: ray_head.RayHead = request.getfixturevalue("ray_site")
    return RayRig(head, head.scratch / "agents" / scratch.name)


@pytest.fixture(scope="session")
def gridengine_cell() -> Iterator[gridengine_cluster.GridEngine]:
    if why := gridengine_cluster.missing():
        pytest.skip(f"Grid Engine {why}")
    cell = gridengine_cluster.GridEngine(hosts=2).start()
    yield cell
    cell.stop()


def _gridengine(scratch: Path, request: pytest.FixtureRequest) -> Rig:
    cell: gridengine_cluster.GridEngine = request.getfixturevalue("gridengine_cell")
    return GridEngineRig(cell, cell.scratch / "agents" / scratch.name)


@pytest.fixture(scope="session")
def image_store(tmp_path_factory: pytest.TempPathFactory) -> ImageStore:
    if why := image_store_missing():
        pytest.skip(why)
    return ImageStore(tmp_path_factory.mktemp("images"))


def _containers(scratch: Path, request: pytest.FixtureRequest) -> Rig:
    return ContainerRig(scratch / "state", request.getfixturevalue("image_store"))


def _carried(scratch: Path, request: pytest.FixtureRequest) -> Rig:
    if why := empty_directories_missing():
        pytest.skip(why)
    return CarriedKubernetesRig(scratch / "state")


def _real_kubernetes(scratch: Path, request: pytest.FixtureRequest) -> Rig:
    kubeconfig = os.environ.get("TRADEWIND_TEST_KUBECONFIG", "")
    if not kubeconfig:
        pytest.skip("a Kubernetes API server: TRADEWIND_TEST_KUBECONFIG names none")
    return RealKubernetesRig(scratch / "state", Path(kubeconfig))


RIGS: dict[str, MakeRig] = {
    "process": lambda scratch, _: ProcessRig(scratch / "state"),
    "containers": _containers,
    "simulated": lambda scratch, _: SimulatedRig(),
    "slurm": _slurm,
    "slurmrestd": _slurmrestd,
    "ray": _ray,
    "gridengine": _gridengine,
    "kubernetes": lambda scratch, _: KubernetesRig(scratch / "state"),
    "kubernetes-carried": _carried,
    "kubernetes-server": _real_kubernetes,
}


@pytest.fixture(params=RIGS)
async def rig(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Rig]:
    made = RIGS[request.param](tmp_path, request)
    yield made
    await made.close()  # type: ignore[attr-defined]
