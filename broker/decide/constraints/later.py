"""Copies put off to a start to come: no longer than the job allows, and not more of them than the
pool is expected to have room for then, beside what still runs there."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from broker.decide.constraints.constraint import (
    Beside,
    Change,
    Placed,
    Share,
    SharedConstraint,
    raised,
)
from broker.decide.later_starts import holds_at, hours_held, starts_of
from broker.decide.pairs import Floats, PairFigures
from broker.decide.shapes import places
from broker.decide.tallies import Tally
from broker.decide.terms import SLACK, Geography, rounded_up, within
from broker.decide.violations import ViolationKind
from broker.model.problem import Pool, Problem
from federation.refusals import Refusal, RefusalCode


def _most(pairs: PairFigures) -> Floats:
    starts_h = pairs.pools.later_h
    if not starts_h.any():
        return np.full(1, np.inf)
    rows = pairs.rows
    fits = rows.room.empty_slots >= rows.column("replicas")[:, None]
    fits &= starts_h <= rows.limits("defer_h")[:, None]
    room = np.array([_room(pool) for pool in pairs.pools.pools])
    most = np.where(fits[pairs.row, pairs.pool], np.floor(room[pairs.pool] / pairs.gang), 0.0)
    return np.where(starts_h[pairs.pool] > 0, most, np.inf)


def _room(pool: Pool) -> int:
    """Accelerators expected to be free at a start to come."""
    return pool.later[0].free_accelerators if pool.starts_h and pool.later else 0


def _tallies(pairs: PairFigures) -> Iterator[Tally]:
    """The n-th start of every pool: what begins then, and what has begun before and still runs."""
    pools, starts = pairs.pools.pools, _starts(pairs.pools.pools)
    if not starts:
        return
    begin_h = pairs.pools.later_h[pairs.pool]
    end_h = np.where(pairs.pools.pending[pairs.pool], 0.0, pairs.start_h + pairs.hours)
    units = np.broadcast_to(pairs.gang, begin_h.shape).astype(np.int64)
    for nth in range(max(len(found) for found in starts.values())):
        some = {name: found[nth] for name, found in starts.items() if len(found) > nth}
        row_of = {name: row for row, name in enumerate(some)}
        of_pool = np.array([row_of.get(_home(pool), -1) for pool in pools])
        at_h = np.array([_hour(some, pool) for pool in pools])[pairs.pool]
        held = (begin_h <= at_h * (1 + SLACK)) & (end_h > at_h * (1 + SLACK))
        row = np.where(held, of_pool[pairs.pool], -1)
        yield Tally(_tally(nth), tuple(_room(pool) for pool in some.values()), row, units)


def _starts(pools: tuple[Pool, ...]) -> dict[str, list[Pool]]:
    """The starts to come by the name of their pool, soonest first."""
    found: dict[str, list[Pool]] = defaultdict(list)
    for pool in pools:
        if pool.starts_h:
            found[pool.queue_of].append(pool)
    return found


def _home(pool: Pool) -> str:
    """The pool that one stands before, or is a rack of; itself otherwise."""
    return pool.queue_of or pool.part_of or pool.name


def _hour(some: dict[str, Pool], pool: Pool) -> float:
    start = some.get(_home(pool))
    return start.starts_h if start is not None else np.inf


def _tally(nth: int) -> str:
    return f"{LATER.name} {nth}"


def _check(placed: Placed) -> Iterator[str]:
    where = Geography(placed.problem)
    by_pool: dict[str, list[tuple[Share, float, float]]] = defaultdict(list)
    put_off = {share.pool.place[0] for share in placed.shares if share.pool.starts_h}
    for share in placed.shares:
        starts_h = share.pool.starts_h
        held_h = hours_held(where, share.job, share.pool)
        _note(by_pool, share, held_h)
        if not starts_h:
            continue
        if not within(starts_h, share.job.defer_h):
            yield f"{share.text}: it may be put off by {share.job.defer_h:g} h"
        if share.pool.when_empty and places(share.job, share.pool.when_empty) < share.job.replicas:
            yield f"{share.text}: the pool could not hold it empty"
    for pool in placed.problem.pools:
        for start in starts_of(pool) if pool.name in put_off else ():
            held = [
                share.accelerators_in(pool.name)
                for share, from_h, until_h in by_pool[pool.name]
                if holds_at(from_h, until_h, start.start_h)
            ]
            if sum(held) > start.free_accelerators:
                has = f"{sum(held)} accelerators of {start.free_accelerators}"
                yield f"{pool.name} in {start.start_h:g} h: {has}"
        known = {start.start_h for start in starts_of(pool)}
        for share, _, _ in by_pool[pool.name] if pool.name in put_off else ():
            if share.pool.starts_h and share.pool.starts_h not in known:
                yield f"{share.text}: no start is known then"


def _note(
    by_pool: dict[str, list[tuple[Share, float, float]]], share: Share, held_h: tuple[float, float]
) -> None:
    """Note some copies for each pool they lie in."""
    for name in share.replicas if share.parts else (share.pool.place[0],):
        by_pool[name].append((share, *held_h))


def _refusals(beside: Beside) -> Iterator[Refusal]:
    job, pool = beside.job, beside.pool
    if not pool.starts_h or beside.too_large:
        return
    if not within(pool.starts_h, job.defer_h):
        needed = f"a start within {job.defer_h:g} h"
        advice = f"defer_h {rounded_up(pool.starts_h):g}"
        has = f"one in {pool.starts_h:.4g} h"
        yield Refusal(RefusalCode.DEFER_LIMIT, pool.name, needed, has, advice)
        return
    left = [n for name, n in beside.left.items() if name.startswith(f"{LATER.name} ")]
    room = min(left, default=_room(pool))
    if room < job.gang_accelerators:
        needed, has = f"{job.gang_accelerators} accelerators then", f"{max(room, 0)}"
        yield Refusal(RefusalCode.LATER_FULL, pool.name, needed, has)


def _undo(problem: Problem, refusal: Refusal) -> tuple[Problem, Change] | None:
    job, pool = problem.jobs[0], problem.pools[0]
    if refusal.code is RefusalCode.DEFER_LIMIT:
        longer_h = rounded_up(pool.starts_h)
        change = raised(refusal, "defer_h", job.defer_h, longer_h)
        return replace(problem, jobs=(replace(job, defer_h=longer_h),)), change
    if not pool.later:
        return None
    missing = job.gang_accelerators - _room(pool)
    start = replace(pool.later[0], free_accelerators=job.gang_accelerators)
    what = f"{missing} more {pool.accelerator} free in {pool.starts_h:.4g} h"
    change = Change(refusal.code, what, "", "", float(missing))
    return replace(problem, pools=(replace(pool, later=(start,)),)), change


LATER = SharedConstraint(
    "later",
    frozenset({RefusalCode.LATER_FULL, RefusalCode.DEFER_LIMIT}),
    ViolationKind.CAPACITY,
    _most,
    _check,
    _refusals,
    _undo,
    _tallies,
)
