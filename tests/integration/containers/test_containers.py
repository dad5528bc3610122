"""Jobs that name an image, at a real keeper: what they see, what they do not, which images can be
had. Starts, ends, kills and restarts of containers are in the conformance suite."""

import asyncio
import io
import os
import tarfile
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from federation.refusals import Refusal, RefusalCode
from federation.system import SystemClock
from regional_agent.act.images import Images, ImageWishes, find_images, images_dir, images_missing
from regional_agent.act.isolation import SANDBOXED, SHARED, Isolation, Wanted
from regional_agent.act.keeper.groups import find_groups
from regional_agent.act.schedulers.port import Feature, LaunchOrder, Outcome, OutcomeKind
from regional_agent.act.schedulers.process import ProcessScheduler
from tests.image_store import NAME, ImageStore, busybox_tree, image_store_missing
from tests.keeper_site import Site, array, order, wait_for_file

GROUPS = find_groups("tradewind-test")
IMAGE = ImageStore.image


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> ImageStore:
    if why := image_store_missing():
        pytest.skip(why)
    return ImageStore(tmp_path_factory.mktemp("images"))


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    made = Site(tmp_path / "state")
    yield made
    await made.close()


def contained(site: Site, store: ImageStore, mode: str = SANDBOXED, **wanted: object) -> Site:
    """The site, now with images."""
    wishes = Wanted(mode, **wanted)  # type: ignore[arg-type]
    images = find_images(store.wishes, wishes, site.state, SystemClock())
    assert isinstance(images, Images), images
    site.settings = replace(site.settings, images=images, isolation=Isolation(limits=True))
    site.scheduler = ProcessScheduler(site.settings)
    return site


def in_image(uid: str = "job-1", run: str = "true", **changes: object) -> LaunchOrder:
    return order(uid, run, **{"image": IMAGE} | changes)


async def refusal(site: Site, image: str) -> str:
    answer = await site.scheduler.submit(in_image(image=image))
    assert isinstance(answer, Refusal) and answer.code is RefusalCode.STAGE_FAILED, answer
    return answer.text


async def test_a_job_runs_in_the_files_and_the_environment_of_its_image(site, store) -> None:
    run = "cat /etc/made-of; echo $COLOUR $PATH; id -un; echo x > here; cat here; ls /usr/bin; pwd"
    state = await contained(site, store).run(in_image(run=run))
    said = (await site.log("job-1")).splitlines()
    assert state.outcome == Outcome(OutcomeKind.SUCCEEDED), said
    assert said[:2] == ["busybox", "green /opt/own:/bin:/usr/bin"]
    assert said[-2] != "" and said[-1] == str(site.work("job-1"))
    assert (site.work("job-1") / "here").read_text() == "x\n"


async def test_what_the_job_sets_wins_over_its_image(site, store) -> None:
    await contained(site, store).run(in_image(run="echo $COLOUR", env=(("COLOUR", "red"),)))
    assert await site.log("job-1") == "red\n"


async def test_a_container_sees_neither_host_nor_agent_nor_another_job(site, store) -> None:
    contained(site, store)
    await site.scheduler.submit(in_image("other-1", "echo secret > mine; sleep 61.75"))
    await wait_for_file(site.work("other-1") / "mine")
    look = (f"cat {site.work('other-1')}/mine {site.state}/keeper.lock; find {site.state} -type f;"
            "ps; echo x > /etc/x; echo x > /new; ls /etc; cat /proc/self/status")  # fmt: skip
    await site.run(in_image(run=look))
    said = await site.log("job-1")
    assert "secret" not in said and "61.75" not in said and "debian" not in said
    shown = [w for w in said.split() if w.startswith(str(site.state)) and not w.endswith(":")]
    assert set(shown) == {str(site.state / "attempts/job-1/run")}
    assert "CapEff:\t0000000000000000" in said and said.count("Read-only file system") == 2
    await site.scheduler.cancel("other-1", 0)


@pytest.mark.parametrize(
    "mode, changes, sees",
    [(SANDBOXED, {}, False), (SANDBOXED, {"network": True}, True),
     (SANDBOXED, {"replicas": 2}, True), (SHARED, {}, True)],
)  # fmt: skip
async def test_the_network_is_for_those_that_would_have_it_without_an_image(
    site, store, mode, changes, sees
) -> None:
    lines = Path("/proc/net/dev").read_text().splitlines()[2:]
    host = {line.split(":")[0].strip() for line in lines} - {"lo"}
    if not host:
        pytest.skip("this machine has no network but loopback")
    await contained(site, store, mode).run(in_image(run="cat /proc/net/dev", **changes))
    said = (await site.log("job-1")).splitlines()
    there = {line.split(":")[0].strip() for line in said if ":" in line}
    assert "lo" in there and bool(there & host) == sees


async def test_directories_of_the_site_are_open_as_without_an_image(site, store, tmp_path) -> None:
    scratch, data = tmp_path / "scratch", tmp_path / "data"
    for each in (scratch, data):
        each.mkdir()
    (data / "set").write_text("rows\n")
    contained(site, store, writable=(str(scratch),), readable=(str(data),))
    await site.run(in_image(run=f"cat {data}/set > {scratch}/copy; echo x > {data}/set"))
    assert (scratch / "copy").read_text() == "rows\n" == (data / "set").read_text()


async def test_an_image_without_a_shell_runs_a_program(site, store) -> None:
    tree = busybox_tree()
    store.imported("tradewind-test/bare:1", without(tree, "bin/sh"))
    contained(site, store)
    bare = {"image": "tradewind-test/bare:1"}
    state = await site.run(order(argv=("/bin/busybox", "echo", "hello"), **bare))
    assert state.outcome == Outcome(OutcomeKind.SUCCEEDED)
    assert await site.log("job-1") == "hello\n"
    state = await site.run(order("job-2", argv=("/bin/busybox", "false"), **bare))
    assert state.outcome == Outcome(OutcomeKind.FAILED, exit_code=1)


def without(tree: bytes, name: str) -> bytes:
    made = io.BytesIO()
    with (
        tarfile.open(fileobj=io.BytesIO(tree)) as old,
        tarfile.open(fileobj=made, mode="w") as new,
    ):
        for member in old.getmembers():
            if member.name != name:
                new.addfile(member, old.extractfile(member) if member.isfile() else None)
    return made.getvalue()


async def test_an_image_that_cannot_be_had_is_refused_by_its_name(site, store) -> None:
    contained(site, store)
    assert "image docker://nowhere.invalid/x:1: it is not here" in await refusal(
        site, "docker://nowhere.invalid/x:1"
    )
    assert "not the name of an image" in await refusal(site, "s3://bucket/image")
    assert "not the name of an image" in await refusal(site, "--root=/x")
    assert await site.scheduler.find("job-1") is None


async def test_an_archive_is_of_the_job_or_of_a_directory_the_site_opened(site, store) -> None:
    """Guards that no job reads a file of the agent's user by naming it as its image."""
    contained(site, store)
    (store.directory / "shared").mkdir(exist_ok=True)
    archive = store.directory / "shared" / "image.tar"
    if not archive.exists():
        store.run("save", "--format", "docker-archive", "--output", str(archive), NAME)
    for uid, image in (("job-1", f"docker-archive:{archive}"), ("job-2", "docker-archive:own.tar")):
        site.work(uid).mkdir(parents=True)
        os.link(archive, site.work(uid) / "own.tar")
        state = await site.run(in_image(uid, "cat /etc/made-of", image=image))
        assert state.outcome == Outcome(OutcomeKind.SUCCEEDED)
        assert await site.log(uid) == "busybox\n"
    outside = site.state / "image.tar"
    os.link(archive, outside)
    site.work("job-3").mkdir(parents=True)
    (site.work("job-3") / "link.tar").symlink_to(outside)
    for image in (f"docker-archive:{outside}", "docker-archive:link.tar", "oci-archive:../x"):
        answer = await site.scheduler.submit(in_image("job-3", image=image))
        assert isinstance(answer, Refusal) and "neither in the job's files" in answer.text


async def test_links_in_an_image_do_not_lead_out_of_it(site, store, tmp_path) -> None:
    """Guards that an image cannot have the agent write where its links point."""
    outside = tmp_path / "outside"
    outside.mkdir()
    first = str(site.state).split("/")[1]
    links = {"tmp": str(outside), first: str(outside), "etc__hosts": str(outside / "hosts"),
             "var__tmp": str(outside)}  # fmt: skip
    store.imported("tradewind-test/links:1", busybox_tree(**links))
    contained(site, store, SHARED)
    run = "echo x > /tmp/x; cat /tmp/x"
    state = await site.run(in_image(run=run, image="tradewind-test/links:1"))
    assert state.outcome == Outcome(OutcomeKind.SUCCEEDED) and await site.log("job-1") == "x\n"
    assert not list(outside.iterdir())


async def test_an_image_is_unpacked_once_however_many_ask(site, store) -> None:
    contained(site, store)
    images = site.settings.images
    assert images is not None
    had = await asyncio.gather(*(images.have(f"job-{n}", IMAGE) for n in range(5)))
    assert len({each.root for each in had}) == 1  # type: ignore[union-attr]
    assert len(list(images_dir(site.state).iterdir())) == 1
    state = await site.run(array("many-1", "cat /etc/made-of", 5, 5, image=IMAGE))
    assert state.tasks.with_outcome(OutcomeKind.SUCCEEDED).count == 5


@pytest.mark.skipif(isinstance(GROUPS, str), reason=f"control groups: {GROUPS}")
async def test_nothing_escapes_a_kill_of_a_container(site, store) -> None:
    contained(site, store)
    hide = "setsid env -i sh -c 'trap \"\" TERM; echo up > up; sleep 71.75' & sleep 60"
    await site.scheduler.submit(in_image(run=hide))
    await wait_for_file(site.work("job-1") / "up")
    await site.scheduler.cancel("job-1", grace_s=0)
    assert (await site.ended("job-1")).outcome == Outcome(OutcomeKind.CANCELLED)
    await asyncio.sleep(0.1)
    lines = [p.read_bytes() for p in Path("/proc").glob("[0-9]*/cmdline") if p.exists()]
    assert not [line for line in lines if b"71.75" in line]


async def test_what_a_site_lacks_for_images_is_told(site, store, monkeypatch, tmp_path) -> None:
    assert Feature.IMAGES not in (await site.scheduler.capabilities()).features
    answer = await site.scheduler.submit(in_image())
    assert isinstance(answer, Refusal) and answer.code is RefusalCode.UNSUPPORTED
    assert Feature.IMAGES in (await contained(site, store).scheduler.capabilities()).features
    broken = ImageWishes(("podman", "--storage-driver", "none"))
    found = find_images(broken, Wanted(), site.state, SystemClock())
    assert isinstance(found, str) and found.startswith("podman: ")
    why = images_missing(ImageWishes(("podman-not-here",)), site.state)
    assert why == "podman-not-here is not installed (package podman)"
    assert images_missing(None, site.state) == "not asked for (containers: {enabled: no})"
