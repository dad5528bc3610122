"""Where jobs that wait for room will probably start: the place that is free for them first. Pure.

A forecast, not a plan: it counts accelerators only and takes every job for as long as it said. What
hangs on it is where files are fetched ahead, never where a job runs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from broker.decide.classes import group_jobs
from broker.decide.constraints import refusals
from broker.decide.objective import cost_terms
from broker.decide.terms import Geography
from broker.model.plan import Plan
from broker.model.problem import Job, NodeGroup, Pool, Problem
from federation.refusals import RefusalCode

CLASSES_MAX = 64
JOBS_MAX = 512
JOBS_A_STEP = 20
FULL = frozenset((RefusalCode.NO_CAPACITY, RefusalCode.NO_CPUS, RefusalCode.NO_MEMORY))
"""What keeps a job waiting where its place is merely taken."""


@dataclass(frozen=True, slots=True)
class Expected:
    """A job and where it will probably start, and when (UTC ms)."""

    job: str
    cluster: str
    start_ms: int


def merely_full(plan: Plan) -> frozenset[str]:
    """Jobs of a plan that only wait for others to end."""
    return frozenset(u.job for u in plan.unplaced if u.refusal.code in FULL)


class Forecast:
    """One forecast, worked out in steps so that others may work in between.

    For each wanted job the place where room for it is expected first, the cheaper of two. `ends`:
    by pool, when running work ends and how many accelerators that frees. Jobs ahead in the queue
    take their room first, copy by copy, wanted or not. `copies`: how many of which job wait (None:
    those that the plan leaves because its pools are full).
    """

    def __init__(
        self,
        problem: Problem,
        plan: Plan,
        ends: Mapping[str, Sequence[tuple[int, int]]],
        now_ms: int,
        wanted: Collection[str],
        copies: Mapping[str, int] | None = None,
    ) -> None:
        if copies is None:
            waiting = merely_full(plan)
            copies = {u.job: u.count for u in plan.unplaced if u.job in waiting}
        queue = [job for job in problem.jobs if copies.get(job.id)]
        self._queue = sorted(queue, key=lambda job: -job.priority)[:JOBS_MAX]
        self._copies = copies
        self._problem, self._now_ms, self._wanted = problem, now_ms, wanted
        taken = _taken(problem, plan)
        self._lines = {
            pool.name: _Line(_free(pool) - taken[pool.name], ends.get(pool.name, ()))
            for pool in problem.pools
        }
        self._places: dict[str, list[tuple[float, Pool]]] = {}
        self._found: dict[tuple[str, int], Expected] = {}

    def steps(self) -> Iterator[None]:
        """Work it out: some milliseconds a step in a large fleet."""
        where = Geography(self._problem)
        for item in group_jobs(self._queue)[:CLASSES_MAX]:
            pools = _places(where, self._problem, item.job)
            self._places.update((self._queue[index].id, pools) for index in item.members)
            yield
        turns = ((job, turn) for job in self._queue for turn in range(self._copies[job.id]))
        for number, (job, turn) in enumerate(islice(turns, JOBS_MAX)):
            self._expect(job, turn)
            if number % JOBS_A_STEP == JOBS_A_STEP - 1:
                yield

    @property
    def expected(self) -> list[Expected]:
        """Of each wanted job the first copy, the nearest start first."""
        first = [expected for (_, turn), expected in self._found.items() if turn == 0]
        return sorted(first, key=lambda expected: expected.start_ms)

    def of(self, job: str, turn: int = 0) -> Expected | None:
        """The start of one waiting copy of a wanted job; None where none is in sight."""
        return self._found.get((job, turn))

    def room_ms(self, pool: str, accelerators: int) -> int:
        """When so many are free in a pool, behind everybody in the queue; `NEVER_MS` if never."""
        return self._lines[pool].room_ms(accelerators, self._now_ms)

    def _expect(self, job: Job, turn: int) -> None:
        need = job.gang_accelerators
        choice = min(
            (
                (self._lines[pool.name].room_ms(need, self._now_ms), cost_usd, pool.name, pool)
                for cost_usd, pool in self._places.get(job.id, ())
            ),
            key=lambda option: option[:3],
            default=None,
        )
        if choice is None or choice[0] == NEVER_MS:
            return
        start_ms, _, name, pool = choice
        runtime_ms = round(job.runtime_h / job.accelerators[pool.accelerator] * 3_600_000)
        self._lines[name].take(need, start_ms, start_ms + runtime_ms)
        if job.id in self._wanted:
            self._found[job.id, turn] = Expected(job.id, pool.cluster, start_ms)


NEVER_MS = 2**62


class _Line:
    """When accelerators of one pool come free; those at 0 are free, and were not enough."""

    def __init__(self, free: int, ends: Sequence[tuple[int, int]]) -> None:
        self._free = [(0, max(free, 0)), *sorted(ends)]

    def room_ms(self, need: int, now_ms: int) -> int:
        """The first end after which so many are free together; `NEVER_MS` if that is never."""
        have = 0
        for at_ms, accelerators in self._free:
            have += accelerators
            if at_ms and have >= need:
                return max(at_ms, now_ms)
        return NEVER_MS

    def take(self, need: int, start_ms: int, end_ms: int) -> None:
        """Somebody has them from then until then."""
        left: list[tuple[int, int]] = []
        for at_ms, accelerators in self._free:
            taken = min(accelerators, need) if at_ms <= start_ms else 0
            need -= taken
            if accelerators > taken:
                left.append((at_ms, accelerators - taken))
            if taken:
                left.append((end_ms, taken))
        self._free = sorted(left)


def _places(where: Geography, problem: Problem, job: Job) -> list[tuple[float, Pool]]:
    """The pools a job fits when they are empty, with the cost of a copy there."""
    return [
        (cost_terms(where, job, pool).total_usd, pool)
        for pool in problem.pools
        if pool.accelerator in job.accelerators
        and _fits_empty(job, pool)
        and next(refusals(where, job, pool), None) is None
    ]


def _fits_empty(job: Job, pool: Pool) -> bool:
    return sum(g.count * _replicas(job, g) for g in pool.when_empty) >= job.replicas


def _replicas(job: Job, group: NodeGroup) -> int:
    fit = group.free_accelerators // job.accelerators_per_replica
    for need, free in (
        (job.replica_cpus, group.free_cpus),
        (job.replica_memory_gib, group.free_memory_gib),
    ):
        if need > 0 and free is not None:
            fit = min(fit, int(free / need * (1 + 1e-9)))
    return fit


def _free(pool: Pool) -> int:
    return sum(g.count * g.free_accelerators for g in pool.nodes)


def _taken(problem: Problem, plan: Plan) -> Counter[str]:
    """Accelerators that the plan gives away, by pool."""
    gangs = {job.id: job.gang_accelerators for job in problem.jobs}
    taken: Counter[str] = Counter()
    for assignment in plan.assignments:
        taken[assignment.pool] += assignment.count * gangs[assignment.job]
    return taken
