"""A full disk is weather, not an accident: the keeper waits it out and loses nothing."""

import asyncio
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from federation.refusals import Refusal
from regional_agent.act.schedulers.port import Outcome, OutcomeKind
from regional_agent.contact import since_boot_s
from tests.keeper_site import Site, array, order, wait_for_file, wait_gone


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of four megabytes."""
    if os.geteuid() != 0:
        pytest.skip("mounting a small tmpfs needs root")
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(disk)], capture_output=True
    )
    if mounted.returncode:
        pytest.skip("no tmpfs can be mounted here")
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)


async def test_jobs_live_through_a_full_disk(small_disk: Path) -> None:
    site = Site(small_disk / "state")
    run = "echo $TRADEWIND_TASK >> ran; until [ -e go ]; do sleep 0.02; done; exit 3"
    await site.scheduler.submit(array("job-1", run, 3, 1))
    await wait_for_file(site.work("job-1") / "ran")
    filler = small_disk / "filler"
    with pytest.raises(OSError), filler.open("wb", buffering=0) as file:  # noqa: PT011
        while True:
            file.write(b"x" * 4096)
    keeper = site.keeper_pid()
    refused = await site.scheduler.submit(order("job-2"))
    assert isinstance(refused, Refusal) and refused.code == "disk_full"
    # A page of the journal may still have room; many ends have not.
    (site.work("job-1") / "go").touch()
    await asyncio.sleep(1.0)
    filler.unlink()
    state = await site.ended("job-1")
    assert site.keeper_pid() == keeper
    assert state.outcome == Outcome(OutcomeKind.FAILED, exit_code=3)
    ran = (site.work("job-1") / "ran").read_text().split()
    assert len(ran) == len(set(ran))
    assert (await site.run(order("job-2"))).outcome == Outcome(OutcomeKind.SUCCEEDED)
    await site.close()


async def test_nothing_is_started_that_cannot_be_remembered(small_disk: Path) -> None:
    site = Site(small_disk / "state")
    tasks = 1000 if site.isolated else 4000  # about as long
    await site.scheduler.submit(array("job-1", "echo $TRADEWIND_TASK >> /dev/null", tasks, 4))
    filler = small_disk / "filler"
    with pytest.raises(OSError), filler.open("wb", buffering=0) as file:  # noqa: PT011
        while True:
            file.write(b"x" * 4096)
    keeper = site.keeper_pid()
    await asyncio.sleep(1.5)
    filler.unlink()
    state = await site.ended("job-1", timeout_s=60)
    assert site.keeper_pid() == keeper
    # A task whose log could not be opened has failed; none was lost, and none is missing.
    done = state.tasks.with_outcome(OutcomeKind.SUCCEEDED).count
    assert done + state.tasks.with_outcome(OutcomeKind.FAILED).count == tasks
    await site.close()


async def test_a_contact_deadline_is_kept_on_a_full_disk(small_disk: Path) -> None:
    """Records and starts wait for room; the stop that another site relies on does not."""
    site = Site(small_disk / "state")
    run = "trap '' TERM; echo $$ > ran; while :; do sleep 0.1; done"
    await site.scheduler.submit(
        order(run=run, fence_after_s=3, grace_s=1, contact_s=since_boot_s())
    )
    pid = site.pid("job-1", await wait_for_file(site.work("job-1") / "ran"))
    filler = small_disk / "filler"
    with pytest.raises(OSError), filler.open("wb", buffering=0) as file:  # noqa: PT011
        while True:
            file.write(b"x" * 4096)
    wait_gone(pid, timeout_s=8)
    filler.unlink()
    assert (await site.ended("job-1")).outcome == Outcome(OutcomeKind.FENCED)
    await site.close()
