"""Copies that join the queue of a pool: not more than may, and none that the pool could not hold
even with nothing running."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from broker.decide.constraints.constraint import (
    Beside,
    Change,
    Placed,
    SharedConstraint,
    raised,
)
from broker.decide.pairs import Floats, PairFigures, integers
from broker.decide.shapes import places
from broker.decide.tallies import Tally
from broker.decide.terms import rounded_up, within
from broker.decide.violations import ViolationKind
from broker.model.problem import Problem
from federation.refusals import Refusal, RefusalCode


def _most(pairs: PairFigures) -> Floats:
    if not pairs.pools.pending.any():
        return np.full(1, np.inf)
    rows = pairs.rows
    fits = rows.room.empty_slots >= rows.column("replicas")[:, None]
    fits &= pairs.pools.queue_s <= rows.limits("max_queue_s")[:, None]
    fits |= ~pairs.pools.pending
    most = np.where(pairs.pools.pending, pairs.pools.max_pending, np.inf)
    return np.where(fits[pairs.row, pairs.pool], most[pairs.pool], 0.0)


def _tallies(pairs: PairFigures) -> Iterator[Tally]:
    if not pairs.pools.pending.any():
        return
    of_pool = np.where(pairs.pools.pending, np.cumsum(pairs.pools.pending) - 1, -1)
    limit = [pool.queue.max_pending for pool in pairs.pools.pools if pool.place[1] and pool.queue]
    row = of_pool[pairs.pool]
    yield Tally(QUEUE.name, tuple(limit), row, integers([1]).repeat(len(row)))


def _check(placed: Placed) -> Iterator[str]:
    pending: dict[str, int] = defaultdict(int)
    limits: dict[str, int] = {}
    for share in placed.shares:
        pool = share.pool
        if not pool.place[1]:
            continue
        if pool.queue is None or not within(pool.queue.start_s, share.job.max_queue_s):
            yield f"{share.text}: {'it has none' if pool.queue is None else 'it is too long'}"
            continue
        limits[pool.name] = pool.queue.max_pending
        pending[pool.name] += share.copies
        if pool.when_empty and places(share.job, pool.when_empty) < share.job.replicas:
            yield f"{share.text}: the pool could not hold it empty"
    for name, copies in pending.items():
        if copies > limits[name]:
            yield f"{name}: {copies} copies in a queue of {limits[name]}"


def _refusals(beside: Beside) -> Iterator[Refusal]:
    queue = beside.pool.queue
    if not beside.pool.place[1] or queue is None or beside.too_large:
        return
    longest_s = beside.job.max_queue_s
    if not within(queue.start_s, longest_s):
        wants = f"a queue of {longest_s:g} s at most" if longest_s else "no queue"
        takes = rounded_up(queue.start_s)
        advice = f"max_start_delay {takes:g}s" if longest_s else ""
        yield Refusal(RefusalCode.NO_QUEUE, beside.pool.name, wants, f"{takes:g} s", advice)
        return
    left = beside.left.get(QUEUE.name, queue.max_pending)
    if left < 1:
        has = f"{queue.max_pending} pending, as many as may"
        advice = f"max_pending {queue.max_pending + 1}"
        yield Refusal(RefusalCode.QUEUE_FULL, beside.pool.name, "a place in it", has, advice)


def _undo(problem: Problem, refusal: Refusal) -> tuple[Problem, Change] | None:
    pool = problem.pools[0]
    if pool.queue is None:
        return None
    if refusal.code is RefusalCode.NO_QUEUE:
        job, wait_s = problem.jobs[0], rounded_up(pool.queue.start_s)
        if not job.max_queue_s:
            return None
        change = raised(refusal, "max_start_delay", job.max_queue_s, wait_s)
        return replace(problem, jobs=(replace(job, max_queue_s=wait_s),)), change
    before = pool.queue.max_pending
    wider = replace(pool, queue=replace(pool.queue, max_pending=before + 1))
    change = raised(refusal, "max_pending", before, before + 1)
    return replace(problem, pools=(wider, *problem.pools[1:])), change


QUEUE = SharedConstraint(
    "queue",
    frozenset({RefusalCode.QUEUE_FULL, RefusalCode.NO_QUEUE}),
    ViolationKind.CAPACITY,
    _most,
    _check,
    _refusals,
    _undo,
    _tallies,
)
