"""Extra things of a pool that are counted: licences, scratch space, whatever it names."""

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
)
from broker.decide.pairs import Floats, Integers, PairFigures, integers
from broker.decide.tallies import Tally
from broker.decide.violations import ViolationKind
from broker.model.problem import Job, Problem
from federation.refusals import Refusal, RefusalCode


def _names(pairs: PairFigures) -> list[str]:
    return sorted({name for job in pairs.rows.jobs for name in job.extras_per_replica})


def _needed(pairs: PairFigures, name: str) -> Integers:
    jobs = pairs.rows.jobs
    return integers(job.replicas * job.extras_per_replica.get(name, 0) for job in jobs)


def _most(pairs: PairFigures) -> Floats:
    most = np.full(1, np.inf)
    for name in _names(pairs):
        # One that waits in a queue takes none now, but must be able to get some.
        free = np.array(
            [
                np.inf if pool.queue_of and pool.extras.get(name) else pool.extras.get(name, 0)
                for pool in pairs.pools.pools
            ]
        )
        needed = pairs.by_row(_needed(pairs, name))
        fit = np.floor(free[pairs.pool] / np.maximum(needed, 1))
        most = np.minimum(most, np.where(needed > 0, fit, np.inf))
    return most


def _tallies(pairs: PairFigures) -> Iterator[Tally]:
    for name in _names(pairs):
        pools = pairs.pools.pools
        have = [i for i, pool in enumerate(pools) if name in pool.extras and not pool.queue_of]
        of_pool = np.full(len(pools), -1, dtype=np.int64)
        of_pool[have] = np.arange(len(have))
        of_pool = np.where(pairs.pools.queued, -1, of_pool[pairs.pools.home])
        units = pairs.by_row(_needed(pairs, name))
        row = np.where(units > 0, of_pool[pairs.pool], -1)
        yield Tally(_tally(name), tuple(pools[i].extras[name] for i in have), row, units)


def _tally(name: str) -> str:
    return f"extras {name}"


def _check(placed: Placed) -> Iterator[str]:
    used: dict[tuple[str, str], int] = defaultdict(int)
    pools = {pool.name: pool for pool in placed.problem.pools}
    for share in placed.shares:
        for name, each in share.job.extras_per_replica.items():
            if not share.pool.queue_of:
                for pool, replicas in share.replicas.items():
                    used[pool, name] += share.copies * replicas * each
            elif each and not share.pool.extras.get(name, 0):
                yield f"{share.text}: there is no {name}"
    for (place, name), amount in used.items():
        has = pools[place].extras.get(name, 0)
        if amount > has:
            yield f"{place}: {amount} {name} used of {has}"


def _refusals(beside: Beside) -> Iterator[Refusal]:
    for name, each in beside.job.extras_per_replica.items():
        needed = each * beside.job.replicas
        left = beside.left.get(_tally(name), beside.pool.extras.get(name, 0))
        if needed > left and not (beside.pool.queue_of and left):
            advice = f"{needed - left} more {name}"
            code = RefusalCode.NO_EXTRAS
            yield Refusal(code, beside.pool.name, f"{needed} {name}", f"{left}", advice)


def _undo(problem: Problem, refusal: Refusal) -> tuple[Problem, Change] | None:
    job, pool = problem.jobs[0], problem.pools[0]
    for name, each in job.extras_per_replica.items():
        missing = each * job.replicas - pool.extras.get(name, 0)
        if missing > 0:
            enough = replace(pool, extras={**pool.extras, name: each * job.replicas})
            what = f"{missing} more {name} free in {pool.name}"
            change = Change(refusal.code, what, "", "", float(missing))
            return replace(problem, pools=(enough, *problem.pools[1:])), change
    return None


def extras_of(job: Job, copies: int) -> dict[str, int]:
    """What some copies of a job take."""
    return {name: copies * job.replicas * n for name, n in job.extras_per_replica.items()}


EXTRAS = SharedConstraint(
    "extras",
    frozenset({RefusalCode.NO_EXTRAS}),
    ViolationKind.CAPACITY,
    _most,
    _check,
    _refusals,
    _undo,
    _tallies,
)
