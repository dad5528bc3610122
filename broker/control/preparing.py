"""Preparing ahead: while a job waits for room, its files go to the one place it is expected in.

One place only: a job is prepared in a second one only after the first has stopped taking jobs.
Nothing is reserved and nothing depends on it. Each site has few such requests and few bytes on
their way at a time; what came of one is seen in the site's next cache report.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from broker.act.gateway import Gateway, SiteSilent
from broker.control.books import Admitted, Books
from broker.control.cycle import CycleRecord
from broker.control.ends import ends_of
from broker.control.forecast import Expected, Forecast, merely_full
from broker.control.orders import Orders
from broker.model.fleet import ClusterView, Fleet
from broker.model.jobs import Job, JobPhase
from broker.sense.fleet import unusable
from broker.sense.start_delay import missing_bytes
from federation.environment import Clock
from federation.ids import Cluster

CAPABILITY = "prepare"
"""What an agent that can do this says of itself."""
LEAST_BYTES = 64 * 1024
"""Less is fetched in no time when the job comes."""
REGISTRY, IMAGES = "docker://", "images"
IMAGE_AGAIN_MS = 600_000
"""For so long a site that was asked for an image is not asked for it again."""
SITE_REQUESTS_MAX = 4
SITE_BYTES_MAX = 256 * 2**20
UNDER_WAY_MS = 120_000
"""How long a request counts as under way where no report says that it is done."""
JOBS_MAX = 256
LOOK_GAP_S = 2.0
log = logging.getLogger("tradewind.preparing")


@dataclass(frozen=True, slots=True)
class Asked:
    """A job that a cluster was asked to prepare."""

    cluster: str
    at_ms: int
    blobs: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class PreparerPorts:
    """What preparing needs."""

    books: Books
    orders: Orders
    gateway: Gateway
    fleet: Callable[[], Fleet]
    clock: Clock


class Preparer:
    """Prepares for the waiting jobs of one leadership."""

    def __init__(self, ports: PreparerPorts) -> None:
        self._ports = ports
        self._asked: dict[str, Asked] = {}
        self._images: dict[tuple[str, str], int] = {}
        """When a site was last asked to have an image."""
        self._newest: CycleRecord | None = None
        self._bell = asyncio.Event()

    def consider(self, cycle: CycleRecord) -> None:
        """Look at what a cycle left waiting, soon."""
        self._newest = cycle
        self._bell.set()

    def place_of(self, job_id: str) -> str | None:
        """Where a waiting job is being prepared."""
        asked, job = self._asked.get(job_id), self._ports.books.job(job_id)
        return asked.cluster if asked and job is not None and _waits(job) else None

    async def run(self) -> None:
        """For ever. A look that fails costs time, never a leadership."""
        while True:
            await self._bell.wait()
            self._bell.clear()
            cycle, self._newest = self._newest, None
            if cycle is not None:
                try:
                    await self._look(cycle)
                except Exception:  # noqa: BLE001  whatever is wrong, jobs start without it
                    log.exception("nothing is prepared after cycle %s", cycle.cycle)
            await asyncio.sleep(LOOK_GAP_S)

    async def _look(self, cycle: CycleRecord) -> None:
        fleet, now_ms = self._ports.fleet(), self._ports.clock.now_ms()
        self._forget(fleet, now_ms)
        wanted = self._wanted(cycle)
        if not wanted:
            return
        ends = await self._ends(fleet, now_ms)
        forecast = Forecast(cycle.problem, cycle.decided.plan, ends, now_ms, wanted)
        for _ in forecast.steps():
            await asyncio.sleep(0)
        for expected in forecast.expected:
            await self._ask(expected, cycle.blobs[expected.job], fleet, now_ms)

    def _forget(self, fleet: Fleet, now_ms: int) -> None:
        """Drop what is over: jobs that wait no more, and places that take nothing now."""
        self._images = {
            key: at for key, at in self._images.items() if now_ms - at <= IMAGE_AGAIN_MS
        }
        for job_id, asked in list(self._asked.items()):
            job, view = self._ports.books.job(job_id), fleet.clusters.get(Cluster(asked.cluster))
            closed = view is None or unusable(view, now_ms) is not None
            if job is None or not _waits(job) or closed:
                del self._asked[job_id]

    def _wanted(self, cycle: CycleRecord) -> frozenset[str]:
        """Jobs with something to fetch, waiting for room alone, asked of nobody yet."""
        full = merely_full(cycle.decided.plan)
        found: list[str] = []
        for job_id, blobs in cycle.blobs.items():
            little = sum(blobs.values()) < LEAST_BYTES and not self._image_of(job_id)
            if job_id not in full or job_id in self._asked or little:
                continue
            job = self._ports.books.job(job_id)
            if job is not None and _waits(job) and len(found) < JOBS_MAX:
                found.append(job_id)
        return frozenset(found)

    async def _ends(self, fleet: Fleet, now_ms: int) -> dict[str, list[tuple[int, int]]]:
        """By pool when what runs there ends, as far as anybody said."""
        ends: dict[str, list[tuple[int, int]]] = {}
        for name in fleet.clusters:
            ends |= ends_of(self._ports.books.live_in(name), self._said_s, now_ms)
            await asyncio.sleep(0)
        return ends

    def _said_s(self, job: str) -> int | None:
        admitted: Admitted | None = self._ports.books.admitted(job)
        return admitted.rules.spec.expected_runtime_s if admitted else None

    async def _ask(
        self, expected: Expected, blobs: Mapping[str, int], fleet: Fleet, now_ms: int
    ) -> None:
        view = fleet.clusters.get(Cluster(expected.cluster))
        job = self._ports.books.job(expected.job)
        if view is None or job is None or not _waits(job):
            return
        needed_bytes = missing_bytes(view, blobs, now_ms)
        if needed_bytes >= LEAST_BYTES or self._is_new(view, self._image_of(job.id), now_ms):
            if not self._may_ask(view, needed_bytes, now_ms):
                return
            command = self._ports.orders.prepare(job, expected.cluster)
            if command is None:
                return
            try:
                await self._ports.gateway.send(expected.cluster, [command])
            except SiteSilent:
                return
            self._images[expected.cluster, self._image_of(job.id)] = now_ms
            log.info("%s: %d bytes ahead to %s", job.id, needed_bytes, expected.cluster)
        self._asked[expected.job] = Asked(expected.cluster, now_ms, blobs)

    def _image_of(self, job_id: str) -> str:
        """The image of a registry that a job names; it comes with the spec that goes ahead."""
        admitted: Admitted | None = self._ports.books.admitted(job_id)
        image = (admitted.rules.spec.image or "") if admitted else ""
        return image if image.startswith(REGISTRY) else ""

    def _is_new(self, view: ClusterView, image: str, now_ms: int) -> bool:
        """Whether a site that runs images was not asked for this one lately: thousands of jobs may
        name the same."""
        asked_ms = self._images.get((view.identity.name, image))
        able = bool(image) and IMAGES in view.identity.capabilities
        return able and (asked_ms is None or now_ms - asked_ms > IMAGE_AGAIN_MS)

    def _may_ask(self, view: ClusterView, needed_bytes: int, now_ms: int) -> bool:
        if CAPABILITY not in view.identity.capabilities or unusable(view, now_ms) is not None:
            return False
        under_way = [
            left
            for asked in self._asked.values()
            if asked.cluster == view.identity.name
            and now_ms - asked.at_ms < UNDER_WAY_MS
            and (left := missing_bytes(view, asked.blobs, now_ms))
        ]
        room = SITE_BYTES_MAX - sum(under_way)
        return len(under_way) < SITE_REQUESTS_MAX and (not under_way or needed_bytes <= room)


def _waits(job: Job) -> bool:
    return job.phase is JobPhase.QUEUED and not job.counting_attempts and not job.cancel
