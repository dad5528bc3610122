"""Jobs and attempts as tests want them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from broker.lifecycle import events as ev
from broker.model.jobs import Attempt, Job, Outcome, OutcomeKind
from federation.ids import AttemptUid, Cluster, JobId, Tenant
from federation.runs import Runs

JOB = JobId("j0123456789abcdef")


def a_job(**changes: Any) -> Job:
    """A queued single job."""
    job = Job(
        id=JOB,
        tenant=Tenant("default"),
        name="train",
        subject="ada",
        priority=100,
        class_key="k",
        created_ms=1_000,
        changed_ms=1_000,
    )
    return replace(job, **changes)


def an_attempt(job: Job, n: int = 1, **changes: Any) -> Attempt:
    """A placed attempt of a job."""
    attempt = Attempt(
        uid=AttemptUid(f"{job.id}-{n}"),
        job=job.id,
        tenant=job.tenant,
        cluster=Cluster("us-east"),
        region="us-east",
        pool="cpu",
        epoch=1,
        dispatch_seq=n,
        placed_seq=n,
        ticket=b"",
        placed_ms=2_000,
        accelerators_per_replica=1,
        price_micro_usd_per_accelerator_hour=3_600_000,
    )
    return replace(attempt, **changes)


def ended(uid: str, seq: int, kind: OutcomeKind = OutcomeKind.SUCCEEDED, code: int = 0) -> ev.Ended:
    """The end of an attempt as a site reports it."""
    return ev.Ended(uid, seq, 9_000, Outcome(kind, code))


def runs(first: int, last: int) -> Runs:
    """One run of tasks."""
    return Runs.of([(first, last)])
