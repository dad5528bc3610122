"""Every local scheduler keeps what the port promises: one suite over all of them."""

import pytest

from regional_agent.conformance.cases import ALL
from regional_agent.conformance.rig import Rig
from regional_agent.conformance.suite import FAILED, NOT_TRIED, Case, try_case


@pytest.mark.parametrize("which", ALL, ids=lambda which: which.name)
async def test_the_port_is_kept(rig: Rig, which: Case) -> None:
    verdict = await try_case(rig, which)
    assert verdict.result != FAILED, verdict.text
    if verdict.result == NOT_TRIED:
        pytest.skip(verdict.text)
