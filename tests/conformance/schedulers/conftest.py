"""The schedulers under the conformance suite: one rig a kind, for all its cases."""

from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from regional_agent.conformance.rig import Rig
from tests.conformance.schedulers.rigs import ProcessRig, SimulatedRig
from tests.conformance.schedulers.slurm_rig import SlurmRig
from tests.schedulers.slurm_cluster import SlurmSite, missing

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


RIGS: dict[str, MakeRig] = {
    "process": lambda scratch, _: ProcessRig(scratch / "state"),
    "simulated": lambda scratch, _: SimulatedRig(),
    "slurm": _slurm,
}


@pytest.fixture(params=RIGS)
async def rig(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Rig]:
    made = RIGS[request.param](tmp_path, request)
    yield made
    await made.close()  # type: ignore[attr-defined]
