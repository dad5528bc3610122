"""Gangs where JobSets are installed: one JobSet each, whose end is the gang's."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from regional_agent.act.schedulers.port import Outcome, OutcomeKind, Phase
from regional_agent.kubernetes.api import FINALIZER
from tests.conformance.schedulers.kubernetes_rig import KubernetesRig
from tests.integration.kubernetes.test_gangs import UNTIL_S, Site


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    rig = KubernetesRig(tmp_path / "state")
    rig.server.cluster.has_sets = True
    yield Site(rig, await rig.open())
    await rig.close()


async def test_a_gang_is_a_jobset_and_meets_by_its_service(site: Site) -> None:
    assert await site.submit("echo $MASTER_ADDR; sleep 0.5") == "jobset/gang-1"
    state = await site.until(Phase.ENDED)
    assert state.outcome == Outcome(OutcomeKind.SUCCEEDED), state
    for rank in range(3):
        assert await site.log(rank) == "gang-1-g-0-0.gang-1\n"
    assert list(site.store.jobs) == ["gang-1-g-0"], "made by its controller"
    assert FINALIZER in site.store.sets["gang-1"]["metadata"]["finalizers"]
    async with asyncio.timeout(UNTIL_S):
        while not site.store.sets["gang-1"]["status"].get("conditions"):  # after the pods' own end
            await asyncio.sleep(0.05)
    await site.scheduler.forget("gang-1")
    async with asyncio.timeout(UNTIL_S):
        while FINALIZER in site.store.sets["gang-1"]["metadata"]["finalizers"]:
            await site.rig.system.release()
            await asyncio.sleep(0.05)
    assert site.store.sets["gang-1"]["spec"]["ttlSecondsAfterFinished"] == 600


async def test_one_that_fails_ends_the_gang_which_is_not_started_anew(site: Site) -> None:
    await site.submit('[ "$RANK" != 1 ] || exit 7; sleep 60')
    state = await site.until(Phase.ENDED)
    assert state.outcome == Outcome(OutcomeKind.FAILED, exit_code=7), state
    assert set((await site.rig.begun("gang-1")).values()) == {1}


async def test_a_cancel_and_somebody_elses_deletion_end_it(site: Site) -> None:
    await site.submit("trap 'echo saved; exit 0' TERM; while :; do sleep 0.1; done")
    await site.all_begun()
    site.rig.server.cluster.delete_job(site.store.sets["gang-1"], "Background")
    assert (await site.until(Phase.ENDED)).outcome == Outcome(OutcomeKind.CANCELLED)
    for rank in range(3):
        assert "saved" in await site.log(rank)


async def test_while_its_controller_is_away_it_waits_and_is_not_lost(site: Site) -> None:
    """Guards that what has no Job yet is not taken for gone and started elsewhere."""
    site.rig.server.cluster.set_controller = False
    await site.submit("sleep 0.2")
    await asyncio.sleep(10)  # longer than the site's patience with what it does not see
    assert (await site.until(Phase.QUEUED, Phase.ENDED)).phase is Phase.QUEUED
    site.rig.server.cluster.set_controller = True
    assert (await site.until(Phase.ENDED)).outcome == Outcome(OutcomeKind.SUCCEEDED)


async def test_one_that_was_submitted_is_found_and_a_name_that_is_taken_left_alone(
    site: Site,
) -> None:
    theirs = {"metadata": {"name": "gang-1", "finalizers": []}, "status": {"conditions": []},
              "spec": {"replicatedJobs": [{"name": "x"}], "suspend": True}}  # fmt: skip
    theirs["status"]["conditions"] = [{"type": "Suspended"}]
    site.store.add(site.store.sets, theirs)
    assert await site.submit("true") == "jobset/gang-1-tw2"
    found = await site.rig.system.look("gang-1", "tradewind:gang-1:0", Path("/"))
    assert found == "jobset/gang-1-tw2"
    assert (await site.until(Phase.ENDED)).outcome == Outcome(OutcomeKind.SUCCEEDED)
    assert "deletionTimestamp" not in theirs["metadata"]
