"""What a cycle leaves behind: its figures, and a receipt for every attempt it placed."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from broker.control.candidate_table import candidate_rows, decision_json
from broker.control.closer import Closer
from broker.control.cycle import CycleRecord
from broker.control.storing import Decision, DecisionKeeper
from broker.feedback.ports import CycleEntry, LedgerBatch, ReceiptEntry
from broker.model.jobs import Attempt
from federation.environment import Clock

RECEIPT_TABLES_MAX = 50
"""Candidate tables made per cycle; jobs of one class share theirs. Receipts of further classes
say what was chosen from no table."""
RECEIPT_ROWS_MAX = 40
"""Rows kept of a table, the cheapest first, beside the chosen one: a receipt is kept for years."""
CYCLES_WAITING_MAX = 10
"""Cycles whose tables are still to be made; of later ones receipts come without."""

log = logging.getLogger("tradewind.recording")


class Recorder:
    """Writes cycles and receipts to the ledger, through the closer, and stores decisions."""

    def __init__(self, clock: Clock, keeper: DecisionKeeper | None = None) -> None:
        self._clock = clock
        self._keeper = keeper
        self._turn = asyncio.Lock()
        self._under_way: set[asyncio.Task[None]] = set()

    def record(self, cycle: CycleRecord, closer: Closer) -> None:
        """Hand a cycle's rows to the ledger: its figures now, receipts as their tables are made,
        one table at a step, since one takes tens of milliseconds in a large fleet."""
        closer.add(LedgerBatch(cycles=(cycle_entry(cycle),)))
        if self._keeper is not None:
            self._keeper.keep(
                Decision(
                    cycle.cycle, cycle.started_ms, cycle.revision, cycle.problem, cycle.decided
                ),
                closer.add,
            )
        if not cycle.applier.placed:
            return
        tables = 0 if len(self._under_way) >= CYCLES_WAITING_MAX else RECEIPT_TABLES_MAX
        task = asyncio.create_task(self._receipts(cycle, closer, tables))
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    async def _receipts(self, cycle: CycleRecord, closer: Closer, tables: int) -> None:
        async with self._turn:
            try:
                for entries in receipts(cycle, tables):
                    closer.add(LedgerBatch(receipts=entries))
                    await asyncio.sleep(0)
            except Exception:  # noqa: BLE001  a receipt that fails must not end a leadership
                log.exception("receipts of cycle %s", cycle.cycle)


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
        considered=cycle.considered,
        placed=len(cycle.applier.placed),
        unplaced=cycle.unplaced,
        refused_by_applier=len(cycle.applier.fallen),
    )


def receipts(cycle: CycleRecord, tables: int) -> Iterator[tuple[ReceiptEntry, ...]]:
    """A receipt per attempt placed, with the table its class was chosen from; class by class."""
    jobs = {job.id: job for job in cycle.problem.jobs}
    classes: dict[Hashable, list[Attempt]] = {}
    keys: dict[str, Hashable] = {}
    stands_for = cycle.applier.stands_for
    for attempt in cycle.applier.placed:
        head = stands_for.get(attempt.job, attempt.job)
        if head not in keys:
            job = jobs[head]  # jobs under the same rules share `excluded`
            alike = repr(replace(job, id="", count=1, excluded={}))
            keys[head] = (alike, id(job.excluded), cycle.policies.get(head, ()))
        classes.setdefault(keys[head], []).append(attempt)
    for number, attempts in enumerate(classes.values()):
        first = stands_for.get(attempts[0].job, attempts[0].job)
        rows: list[dict[str, Any]] = []
        if number < tables:
            wanted, plan = cycle.applier.waiting.get(first), cycle.decided.plan
            spec = wanted.spec if wanted else None
            rows = candidate_rows(cycle.problem, first, plan, cycle.world, spec)
        bodies: dict[tuple[str, str], bytes] = {}
        for attempt in attempts:
            pool = (str(attempt.cluster), attempt.pool)
            if pool not in bodies:
                bodies[pool] = _body(cycle, first, marked(rows, pool))
        yield tuple(
            ReceiptEntry(
                job=attempt.job,
                cycle=cycle.cycle,
                created_ms=attempt.placed_ms,
                body_json=bodies[str(attempt.cluster), attempt.pool],
                attempt=attempt.uid,
            )
            for attempt in attempts
        )


def marked(rows: Sequence[dict[str, Any]], chosen: tuple[str, str]) -> list[dict[str, Any]]:
    """The table of a class as one job of it sees it: its own pool CHOSEN, and the cheapest."""
    table = []
    for number, row in enumerate(rows):
        if (row["cluster"], row["pool"]) == chosen:
            copies = max(row["copies"], 1)
            given = {"feasible": True, "chosen": True, "copies": copies, "why_not": None}
            table.append({**row, **given})
        elif number < RECEIPT_ROWS_MAX:
            table.append({**row, "chosen": False, "copies": 0} if row["chosen"] else row)
    return table


def _body(cycle: CycleRecord, job: str, rows: Sequence[dict[str, Any]]) -> bytes:
    waiting = cycle.applier.waiting.get(job)
    body = {
        "kind": "decision",
        "moved": waiting.job.moves if waiting else "",
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
