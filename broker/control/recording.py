"""What a cycle leaves behind: its figures, and a receipt for every attempt it placed."""

from __future__ import annotations

import json

from broker.control.closer import Closer
from broker.control.cycle import CycleRecord
from broker.control.explaining import candidate_rows, decision_json
from broker.feedback.ports import CycleEntry, LedgerBatch, ReceiptEntry
from federation.environment import Clock

RECEIPT_TABLES_MAX = 50
"""Candidate tables made per cycle; jobs of one class share theirs."""


class Recorder:
    """Writes cycles and receipts to the ledger, through the closer."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def record(self, cycle: CycleRecord, closer: Closer) -> None:
        """Hand a cycle's rows to the ledger."""
        closer.add(LedgerBatch(cycles=(cycle_entry(cycle),), receipts=receipts(cycle)))


def cycle_entry(cycle: CycleRecord) -> CycleEntry:
    """The figures of a cycle."""
    plan = cycle.decided.plan
    bound = plan.bound_usd
    return CycleEntry(
        cycle=cycle.cycle,
        revision=cycle.revision,
        at_ms=cycle.started_ms,
        wall_s=cycle.wall_s,
        cpu_s=cycle.decided.cpu_s,
        status=plan.status.value,
        objective_micro_usd=round(plan.objective_usd * 1e6),
        bound_micro_usd=None if bound is None else round(bound * 1e6),
        gap=plan.gap,
        considered=len(cycle.problem.jobs),
        placed=len(cycle.applier.placed),
        unplaced=len(plan.unplaced),
        refused_by_applier=len(cycle.applier.fallen),
    )


def receipts(cycle: CycleRecord) -> tuple[ReceiptEntry, ...]:
    """One receipt per attempt placed, with the table its class was chosen from."""
    entries: list[ReceiptEntry] = []
    tables: dict[tuple[str, str], bytes] = {}
    jobs = {job.id: job for job in cycle.problem.jobs}
    for attempt in cycle.applier.placed:
        pool = f"{attempt.cluster}/{attempt.pool}"
        policies = cycle.policies.get(attempt.job, ())
        job = jobs[attempt.job]
        key = (pool, repr((job.tenant, job.accelerators, job.runtime_h, job.regions, *policies)))
        if key not in tables:
            if len(tables) >= RECEIPT_TABLES_MAX:
                continue
            tables[key] = _body(cycle, attempt.job)
        entries.append(
            ReceiptEntry(
                job=attempt.job,
                cycle=cycle.cycle,
                created_ms=attempt.placed_ms,
                body_json=tables[key],
                attempt=attempt.uid,
            )
        )
    return tuple(entries)


def _body(cycle: CycleRecord, job: str) -> bytes:
    rows = candidate_rows(cycle.problem, job, cycle.decided.plan, cycle.world.fleet)
    body = {
        "kind": "decision",
        "chosen": next((row for row in rows if row["chosen"]), None),
        "candidates": rows,
        "waiting": [],
        "smallest_change": None,
        "policies": list(cycle.policies.get(job, ())),
        "decision": decision_json(
            cycle.cycle, cycle.decided.plan, cycle.started_ms, cycle.decided.cpu_s
        ),
    }
    return json.dumps(body, separators=(",", ":")).encode()
