"""Jobs and pods are watched, not polled: what is cut goes on, what is forgotten is listed anew."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from regional_agent.kubernetes.api import KubernetesApi, KubernetesSilent, Object
from regional_agent.kubernetes.manifest import JobWanted, manifest
from regional_agent.kubernetes.watched import Watched
from tests.conformance.schedulers.kubernetes_rig import contract_site
from tests.schedulers.kubernetes_server import NAMESPACE, Cluster, KubernetesServer

LISTS = f"GET /apis/batch/v1/namespaces/{NAMESPACE}/jobs"
UNTIL_S = 20.0


class Site:
    """A server, and a watch over its Jobs."""

    def __init__(self, state: Path) -> None:
        self.state = state
        self.server = KubernetesServer(Cluster())
        self.news = 0

    async def open(self) -> None:
        await self.server.start()
        self.api = KubernetesApi(contract_site(self.state, self.server.url))
        self.watched = Watched(self.api.of_jobs(), self._told)

    def _told(self) -> None:
        self.news += 1

    async def job(self, name: str) -> None:
        script = self.state / "run.sh"
        script.write_text("sleep 60\n")
        wanted = JobWanted(name, "tag", "uid", script, self.state, 0, 0)
        await self.api.create_job(manifest(self.api.site, wanted))

    async def until(self, holds: Callable[[dict[str, Object]], bool]) -> None:
        async with asyncio.timeout(UNTIL_S):
            while True:
                with contextlib.suppress(KubernetesSilent):
                    found = {j["metadata"]["name"]: j for j in await self.watched.items()}
                    if holds(found):
                        return
                await asyncio.sleep(0.02)

    @property
    def lists(self) -> int:
        return self.server.requests.count(LISTS) - self.server.watch_requests


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    site = Site(tmp_path)
    await site.open()
    yield site
    await site.watched.close()
    await site.api.close()
    await site.server.stop()
    assert not site.server.refused, site.server.refused


async def test_what_changes_is_told_by_one_list_and_one_watch(site: Site) -> None:
    await site.job("a")
    await site.until(lambda jobs: set(jobs) == {"a"})
    await site.job("b")
    await site.until(lambda jobs: set(jobs) == {"a", "b"} and jobs["b"]["status"].get("active"))
    for name in ("a", "b"):
        job = site.server.cluster.store.jobs[name]
        job["metadata"]["finalizers"] = []
        site.server.cluster.delete_job(job, "Background")
    await site.until(lambda jobs: not jobs)
    assert (site.lists, site.server.watches) == (1, 1)
    assert site.news >= 5


async def test_a_watch_that_is_cut_goes_on_from_where_it_was(site: Site) -> None:
    """Guards that no event is lost and nothing is listed again when a connection ends."""
    await site.job("a")
    await site.until(lambda jobs: "a" in jobs)
    for name in ("b", "c", "d"):
        site.server.cut_watches()
        await site.job(name)  # while nobody watches
        await site.until(lambda jobs, name=name: name in jobs)
    assert site.server.watches >= 3  # the first may have begun after the first cut
    assert site.lists == 1


@pytest.mark.parametrize("how", ["event", "status"])
async def test_a_version_the_server_forgot_is_listed_anew(site: Site, how: str) -> None:
    """410 Gone, within the stream or instead of it."""
    site.server.gone_in_stream = how
    site.server.bookmarks = False
    for name in ("a", "b"):
        await site.job(name)
    await site.until(lambda jobs: set(jobs) == {"a", "b"})
    job = site.server.cluster.store.jobs["a"]
    job["metadata"]["finalizers"] = []
    site.server.cluster.delete_job(job, "Background")
    site.server.busy = True
    site.server.cut_watches()
    while "a" in site.server.cluster.store.jobs:
        await asyncio.sleep(0.01)
    site.server.cluster.store.compact()
    site.server.busy = False
    await site.until(lambda jobs: set(jobs) == {"b"})
    assert site.lists > 1


async def test_bookmarks_keep_a_quiet_watch_fresh(site: Site) -> None:
    """Guards that a namespace where nothing happens needs no new list after every compaction."""
    await site.job("a")
    await site.until(lambda jobs: bool(jobs) and bool(jobs["a"]["status"].get("active")))
    store = site.server.cluster.store
    for _ in range(3):
        store.touch(store.nodes["node-1"])  # news of somebody else
        await asyncio.sleep(0.2)
        store.compact()
        site.server.cut_watches()
        await asyncio.sleep(0.3)
    await site.job("b")
    await site.until(lambda jobs: "b" in jobs)
    assert site.lists == 1


async def test_while_there_is_no_watch_nothing_is_said(site: Site) -> None:
    """Guards that what was told long ago is not taken for what is."""
    await site.job("a")
    await site.until(lambda jobs: "a" in jobs)
    await site.server.stop()
    async with asyncio.timeout(UNTIL_S):
        with pytest.raises(KubernetesSilent):
            while True:
                await site.watched.items()
                await asyncio.sleep(0.05)
