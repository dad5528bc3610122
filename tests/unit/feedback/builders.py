"""Builders of ledger entries and blob contents: every field has a plain default."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

from broker.feedback.ports import (
    AttemptEntry,
    AuditEntry,
    CycleEntry,
    GainEntry,
    JobEntry,
    PredictionEntry,
    ReceiptEntry,
    UsageEntry,
)

NOW_MS = 1_790_000_000_000
JOB = "j0123456789abcdef"


def a_job(job: str = JOB, **changes: Any) -> JobEntry:
    entry = JobEntry(
        job=job,
        tenant="acme",
        name="train",
        created_ms=NOW_MS,
        started_ms=NOW_MS + 400,
        ended_ms=NOW_MS + 5_000,
        outcome="succeeded",
        exit_code=0,
        spec_json=b'{"name":"train"}',
        labels=(("team", "vision"),),
        cost_micro_usd=1_250_000,
    )
    return replace(entry, **changes)


def an_attempt(uid: str = f"{JOB}-1", **changes: Any) -> AttemptEntry:
    entry = AttemptEntry(
        uid=uid,
        job=uid.rsplit("-", 1)[0],
        tenant="acme",
        cluster="us-east-1",
        pool="h100",
        region="us-east",
        placed_ms=NOW_MS,
        ended_ms=NOW_MS + 5_000,
        started_ms=NOW_MS + 400,
        outcome="succeeded",
        exit_code=0,
        accelerator="H100",
        accelerators=8,
        price_micro_usd_per_accelerator_hour=2_990_000,
    )
    return replace(entry, **changes)


def a_receipt(**changes: Any) -> ReceiptEntry:
    entry = ReceiptEntry(
        job=JOB, attempt=f"{JOB}-1", cycle="1-1", created_ms=NOW_MS, body_json=b'{"chosen":0}'
    )
    return replace(entry, **changes)


def a_usage(**changes: Any) -> UsageEntry:
    entry = UsageEntry(
        attempt=f"{JOB}-1",
        seq=0,
        job=JOB,
        tenant="acme",
        cluster="us-east-1",
        pool="h100",
        accelerator="H100",
        from_ms=NOW_MS,
        to_ms=NOW_MS + 1_000,
        accelerator_ms=8_000,
        cpu_ms=500,
        memory_mib_s=64,
        cost_micro_usd=6_644,
    )
    return replace(entry, **changes)


def a_cycle(cycle: str = "1-1", **changes: Any) -> CycleEntry:
    entry = CycleEntry(
        cycle=cycle,
        revision=42,
        at_ms=NOW_MS,
        wall_s=0.25,
        cpu_s=0.2,
        status="optimal",
        objective_micro_usd=-9_000_000,
        bound_micro_usd=-9_000_000,
        gap=0.0,
    )
    return replace(entry, **changes)


def a_gain(cycle: str = "1-1", **changes: Any) -> GainEntry:
    entry = GainEntry(
        cycle=cycle,
        at_ms=NOW_MS,
        copies=5,
        floor_copies=4,
        accelerators=40,
        floor_accelerators=32,
        more_copies=1,
        fewer_copies=0,
        cost_micro_usd=9_000_000,
        floor_cost_micro_usd=10_000_000,
        saved_micro_usd=2_500_000,
        sooner_ms=-300,
        wait_saved_ms=700,
    )
    return replace(entry, **changes)


def a_prediction(subject: str = f"{JOB}-1", **changes: Any) -> PredictionEntry:
    entry = PredictionEntry(
        subject=subject, kind="start", at_ms=NOW_MS, p50_ms=400, p90_ms=900, actual_ms=500
    )
    return replace(entry, **changes)


def an_audit(key: str = "42.0", **changes: Any) -> AuditEntry:
    entry = AuditEntry(
        subject=JOB, key=key, at_ms=NOW_MS, who="leader", what="queued -> placed", why="cheapest"
    )
    return replace(entry, **changes)


def sha256_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


async def chunks_of(data: bytes, size: int = 100_000) -> AsyncIterator[bytes]:
    for start in range(0, len(data), size):
        yield data[start : start + size]
