"""Whether a start is better put off to a cheaper hour, and until when. Pure.

A job that may wait is compared with itself: the cheapest start now, wherever there is room or not,
against a start at each hour to come at which a price changes. Nothing is kept for it meanwhile, so
its latest start has to leave it time to be placed like any other. Jobs that are compared before it
and wait for the same hours leave it what room they do not need.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from broker.decide.constraints import PAIR_CONSTRAINTS
from broker.decide.later_starts import free_of, holds_at
from broker.decide.objective import cost_terms
from broker.decide.terms import Geography
from broker.model.problem import Job, Pool, PriceWindow, Window

SAVING_SHARE = 0.01
"""Of what starting now costs, what waiting must save at least."""


@dataclass(frozen=True, slots=True)
class Later:
    """The cheapest start to come of one copy: `start_h` hours from now in `pool`, at `cost_usd`
    with the value of the time until then. `now_usd` is what a start now costs at least, `closed`
    the clusters where it costs too much more, each with what it costs there."""

    pool: str
    start_h: float
    cost_usd: float
    now_usd: float
    closed: Mapping[str, float]

    @property
    def saved_usd(self) -> float:
        """What waiting saves."""
        return self.now_usd - self.cost_usd


class Expected:
    """Accelerators that jobs which wait are expected to hold in hours to come, by pool."""

    def __init__(self) -> None:
        self._held: dict[str, list[tuple[int, float, float]]] = defaultdict(list)

    def has_room(self, job: Job, pool: Pool, start_h: float) -> bool:
        """Whether a copy that starts then finds room beside them in the pool, were it empty
        otherwise; also at a later hour at which others are to start."""
        room = free_of(pool.when_empty) or free_of(pool.nodes)
        held, end_h = self._held[pool.name], start_h + _run_h(job, pool)
        starts = {start_h, *(at_h for _, at_h, _ in held if holds_at(start_h, end_h, at_h))}
        return all(
            sum(n for n, begin_h, until_h in held if holds_at(begin_h, until_h, at_h))
            + job.gang_accelerators
            <= room
            for at_h in starts
        )

    def hold(self, job: Job, pool: Pool, start_h: float) -> None:
        """All copies of a job are to start then, as many as there is room for."""
        self._held[pool.name] += [
            (job.gang_accelerators * job.count, start_h, start_h + _run_h(job, pool))
        ]


def _run_h(job: Job, pool: Pool) -> float:
    return job.runtime_h / job.accelerators[pool.accelerator]


def later(
    where: Geography,
    pools: Sequence[Pool],
    job: Job,
    latest_h: float,
    expected: Expected | None = None,
) -> Later | None:
    """The best start within `latest_h` hours for which waiting pays; None where none does, or where
    the job cannot start anywhere as things stand. `expected`: who else waits for hours to come; the
    job is one of them afterwards."""
    expected = expected or Expected()
    known = [pool for pool in pools if pool.accelerator in job.accelerators]
    costs = ((pool.name, _cost_usd(where, job, pool, 0.0)) for pool in known)
    now = {name: usd for name, usd in costs if usd is not None}
    if not now:
        return None
    starts = (
        (usd, start_h, pool.name)
        for pool in known
        for start_h in _changes(pool, latest_h)
        if (usd := _cost_usd(where, job, pool, start_h)) is not None
        and expected.has_room(job, pool, start_h)
    )
    cost_usd, start_h, name = min(starts, default=(float("inf"), 0.0, ""))
    now_usd = min(now.values())
    least_usd = SAVING_SHARE * now_usd
    if now_usd - cost_usd < least_usd or now_usd <= cost_usd:
        return None
    cheapest: dict[str, float] = {}
    for pool in known:
        if pool.name in now:
            cheapest[pool.cluster] = min(cheapest.get(pool.cluster, now[pool.name]), now[pool.name])
    closed = {c: usd for c, usd in cheapest.items() if usd - cost_usd >= least_usd}
    expected.hold(job, next(pool for pool in known if pool.name == name), start_h)
    return Later(name, start_h, cost_usd, now_usd, closed)


def _changes(pool: Pool, latest_h: float) -> Iterable[float]:
    """Hours from now, at which the price of a pool changes."""
    edges = {edge for window in pool.prices for edge in (window.from_h, window.to_h)}
    return (edge for edge in sorted(edges) if 0 < edge <= latest_h)


def _cost_usd(where: Geography, job: Job, pool: Pool, start_h: float) -> float | None:
    """What a copy costs that starts so many hours from now; None where it may not."""
    if start_h:
        pool = _then(pool, start_h)
        deadline_h = job.deadline_h
        if deadline_h is not None and deadline_h <= start_h:
            return None
        job = job if deadline_h is None else replace(job, deadline_h=deadline_h - start_h)
    if not all(constraint.check(where, job, pool) for constraint in PAIR_CONSTRAINTS):
        return None
    return cost_terms(where, job, pool).total_usd + job.value_of_time_usd_per_h * start_h


def _then(pool: Pool, start_h: float) -> Pool:
    """A pool as it will be so many hours from now, as far as that is known."""
    return replace(
        pool,
        prices=tuple(
            PriceWindow(
                max(w.from_h - start_h, 0.0), w.to_h - start_h, w.price_usd_per_accelerator_hour
            )
            for w in pool.prices
            if w.to_h > start_h
        ),
        maintenance=tuple(
            Window(max(w.from_h - start_h, 0.0), w.to_h - start_h, w.reason)
            for w in pool.maintenance
            if w.to_h > start_h
        ),
    )
