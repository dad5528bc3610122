"""Jobs as a replica sees them at one instant: for questions that decide on a snapshot."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable

from broker.model.jobs import Job
from broker.state import keys
from broker.state.codec import RecordUnreadable
from broker.state.projection import Projection
from federation.jobs import InvalidJob, JobSpec, parse_job_spec
from federation.wire import records as pb

_YIELD_EVERY = 50


async def live_jobs(projection: Projection, wanted: Callable[[Job], bool]) -> list[Job]:
    """The jobs in etcd that are wanted, the oldest first, in steps that let the event loop turn."""
    jobs = []
    for index, job_id in enumerate(projection.job_ids()):
        if index % _YIELD_EVERY == _YIELD_EVERY - 1:
            await asyncio.sleep(0)
        try:
            job = projection.job(job_id)
        except RecordUnreadable:
            continue
        if job is not None and wanted(job):
            jobs.append(job)
    return jobs


def spec_bytes(projection: Projection, job: str) -> bytes:
    """The spec of a job as stored; empty where it is not there."""
    raw = projection.value(keys.spec(job))
    return pb.SpecRecord.FromString(raw).spec if raw else b""


class Specs:
    """Specs of jobs, each text read once."""

    def __init__(self, projection: Projection) -> None:
        self._projection = projection
        self._read: dict[bytes, JobSpec | None] = {}

    def of(self, job: str) -> JobSpec | None:
        """The spec of a job; None where it is not there, or makes no sense."""
        raw = spec_bytes(self._projection, job)
        if raw not in self._read:
            try:
                self._read[raw] = parse_job_spec(json.loads(raw))
            except (InvalidJob, ValueError, RecursionError):
                self._read[raw] = None
        return self._read[raw]

    def expected_runtime_s(self, job: str) -> int | None:
        """How long a job said it takes."""
        spec = self.of(job)
        return spec.expected_runtime_s if spec else None
