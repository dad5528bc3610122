"""The schedulers under the conformance suite: one rig a kind, for all its cases."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from regional_agent.conformance.rig import Rig
from tests.conformance.schedulers.rigs import ProcessRig, SimulatedRig

RIGS: dict[str, Callable[[Path], Rig]] = {
    "process": lambda scratch: ProcessRig(scratch / "state"),
    "simulated": lambda scratch: SimulatedRig(),
}


@pytest.fixture(params=RIGS)
async def rig(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Rig]:
    made = RIGS[request.param](tmp_path)
    yield made
    await made.close()  # type: ignore[attr-defined]
