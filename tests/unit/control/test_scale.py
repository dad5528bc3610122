"""The leader's own time at scale: nothing it does in one turn of the event loop grows too long.

Bounds are some ten times what was measured, so that a slow machine passes and a square does not.
"""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from broker.control.books import Admitted, Books, terms_of
from broker.control.build_problem import ProblemBuilder, World
from broker.control.cycle import CycleRecord, Decided
from broker.control.plan_applier import PlanApplier
from broker.control.recording import RECEIPT_ROWS_MAX, receipts
from broker.control.round import OPS_A_PIECE, Round, writes_of
from broker.control.survey import survey
from broker.lifecycle import events as ev
from broker.lifecycle.machine import step
from broker.model.fleet import (
    Capacity,
    ClusterIdentity,
    ClusterState,
    ClusterView,
    Fleet,
    NodeGroup,
    PoolCapacity,
    PoolPrice,
)
from broker.model.jobs import Job, Terms
from broker.model.plan import Assignment, Plan, PlanStatus, Unplaced
from broker.sense.accounting import free_pools
from federation.ids import Cluster, JobId, Region
from federation.jobs import parse_job_spec
from federation.refusals import Refusal, RefusalCode
from tests.unit.lifecycle.builders import JOB, a_job, an_attempt, runs

TEBI = 1 << 40
NOW_MS = 1_000_000


def a_view(number: int) -> ClusterView:
    name = Cluster(f"c{number:03d}")
    identity = ClusterIdentity(name, Region(f"r{number % 10}"), ClusterState.JOINED)
    busy = NodeGroup(60, "H100", 8, 3, 64_000, 64_000, TEBI, TEBI)
    pools = tuple(PoolCapacity(f"p{n}", (busy,)) for n in range(3))
    return ClusterView(
        identity,
        Capacity(NOW_MS, 1, 1, 0, 0, pools),
        {p.pool: PoolPrice(p.pool, "owned", 1_000_000 + number, 1, 1, "test") for p in pools},
        connected_since_ms=1,
        reported=True,
    )


def some_books(jobs: int, classes: int) -> Books:
    specs = [
        parse_job_spec(
            {
                "command": ["true", str(n)],
                "tenant": "default",
                "value_of_time_usd_per_hour": n,  # which makes it a class of its own
                "resources": {"accelerators": "H100:1"},
                "placement": {"regions": ["r1", "r2"]} if n % 3 else {},
            }
        )
        for n in range(classes)
    ]
    books = Books(lambda kid: None)
    for n in range(jobs):
        job = a_job(id=JobId(f"j{n:016d}"), created_ms=n)
        books.install([job])
        spec = specs[n % classes]
        books._admitted[job.id] = Admitted(spec, b"", "", "", "", terms_of(spec))
    return books


@pytest.fixture(scope="module")
def fleet() -> Fleet:
    return Fleet({v.identity.name: v for v in map(a_view, range(200))})


def test_no_step_of_building_the_problem_of_a_full_queue_is_long(fleet: Fleet) -> None:
    books = some_books(20_000, 20_000)
    began_s = time.perf_counter()
    waiting, _ = survey(books, NOW_MS)
    assert len(waiting) == 20_000 and time.perf_counter() - began_s < 10
    attempts = {
        str(name): [an_attempt(a_job(), n + 1, cluster=name, pool="p0") for n in range(100)]
        for name in fleet.clusters
    }
    builder = ProblemBuilder(World(fleet, attempts, {}, NOW_MS), waiting)
    longest_s = 0.0
    found = []
    for start in range(0, len(waiting), 100):
        began_s = time.perf_counter()
        found += [builder.job(one) for one in waiting[start : start + 100]]
        longest_s = max(longest_s, time.perf_counter() - began_s)
    began_s = time.perf_counter()
    for _ in builder.pools():
        longest_s = max(longest_s, time.perf_counter() - began_s)
        began_s = time.perf_counter()
    assert longest_s < 0.3
    began_s = time.perf_counter()
    problem = builder.problem(found)
    assert len(problem.jobs) == 20_000 and len(problem.pools) == 600
    assert time.perf_counter() - began_s < 1


def test_a_large_plan_is_applied_in_pieces_and_its_receipts_stay_small(fleet: Fleet) -> None:
    books = some_books(3_000, 3_000)
    waiting, _ = survey(books, NOW_MS)
    world = World(fleet, {}, {}, NOW_MS)
    builder = ProblemBuilder(world, waiting)
    assert len(list(builder.pools())) == 200
    problem = builder.problem([builder.job(one) for one in waiting])
    full = Refusal(RefusalCode.NO_CAPACITY, "all")
    plan = Plan(
        PlanStatus.FLOOR, 0.0, None, 0.0,
        assignments=tuple(
            Assignment(job.id, problem.pools[n % 600].name, 1)
            for n, job in enumerate(problem.jobs[:2_000])
        ),
        unplaced=tuple(Unplaced(job.id, 1, full) for job in problem.jobs[2_000:]),
    )
    applier = PlanApplier(plan, problem, world, "1.1")
    pieces = 0
    while not applier.finished:
        round_ = Round(books, NOW_MS)
        began_s = time.perf_counter()
        applier.fold(round_, Leading())
        for job in round_.draft.changed.values():
            writes_of(books.job(job.id), job, 0)
        books.install(round_.draft.changed.values())
        applier.applied(round_)
        assert time.perf_counter() - began_s < 0.6 and not round_.faults
        pieces += 1
    assert pieces == 12 and len(applier.placed) == 2_000
    again = Round(books, NOW_MS)
    left = Plan(PlanStatus.FLOOR, 0.0, None, 0.0, unplaced=plan.unplaced)
    waits = PlanApplier(left, problem, world, "1.2")
    while not waits.finished:
        waits.fold(again, Leading())
    assert not again.draft.changed  # the same reason once more is not written again
    cycle = CycleRecord("1.1", 1, 1, 0.0, problem, Decided(plan, 0.0), world, applier)
    told = [entry for entries in receipts(cycle, 3) for entry in entries]
    assert {entry.attempt for entry in told} == {a.uid for a in applier.placed}
    assert max(len(entry.body_json) for entry in told) < 1_000 * (RECEIPT_ROWS_MAX + 2)


def test_jobs_alike_are_one_job_of_the_problem(fleet: Fleet) -> None:
    books = some_books(3_000, 3)
    books.install([replace(job, reason_code="new") for job in list(books.jobs())[:5]])
    waiting, _ = survey(books, NOW_MS)
    assert [(w.job.id, w.copies) for w in waiting] == [
        (f"j{n:016d}", 1_000) for n in range(3)
    ]
    world = World(fleet, {}, {}, NOW_MS)
    builder = ProblemBuilder(world, waiting)
    assert len(list(builder.pools())) == 200
    problem = builder.problem([builder.job(one) for one in waiting])
    full = Refusal(RefusalCode.NO_CAPACITY, "all")
    first, second, third = (job.id for job in problem.jobs)
    pools = [pool.name for pool in problem.pools]
    plan = Plan(
        PlanStatus.FLOOR, 0.0, None, 0.0,
        assignments=(Assignment(first, pools[0], 600), Assignment(first, pools[1], 2)),
        unplaced=(Unplaced(first, 398, full), Unplaced(third, 1_000, full)),
    )
    applier = PlanApplier(
        plan, problem, world, "1.1", waiting={str(w.job.id): w for w in waiting}
    )
    sizes = []
    while not applier.finished:
        round_ = Round(books, NOW_MS)
        applier.fold(round_, Leading())
        sizes.append(len(round_.draft.changed))
        books.install(round_.draft.changed.values())
        applier.applied(round_)
    assert max(sizes) <= 500 and not applier.fallen
    oldest = sorted(f"j{n:016d}" for n in range(0, 3 * 602, 3))
    assert [a.job for a in applier.placed] == oldest
    assert {a.pool for a in applier.placed[600:]} == {"p1"}
    waits = [job for job in books.jobs() if job.reason_code == "no_capacity"]
    assert len(waits) == 398 + 1_000 and not any(job.attempts for job in waits)
    left, _ = survey(books, NOW_MS)
    assert [(w.job.id, w.copies) for w in left] == [
        (second, 1_000), (third, 1_000), (f"j{3 * 602:016d}", 398)
    ]
    cycle = CycleRecord("1.1", 1, 1, 0.0, problem, Decided(plan, 0.0), world, applier)
    assert (cycle.considered, cycle.unplaced) == (3_000, 1_398)
    told = [entry for entries in receipts(cycle, 3) for entry in entries]
    assert [entry.job for entry in told] == oldest


class Leading:
    """A leader, as far as a plan needs one."""

    epoch = 1


def test_events_of_one_slice_do_not_cost_by_the_number_of_slices() -> None:
    def events_s(slices: int) -> float:
        job: Job = a_job(tasks=runs(0, 99_999))
        for n in range(slices):
            attempt = an_attempt(
                job, n + 1, tasks=runs(n * 10, n * 10 + 7), width=2, cluster=f"c{n}"
            )
            job = step(job, ev.AttemptPlaced(attempt), Terms(), 2_000).job
        books = Books(lambda kid: None)
        books.install([job])
        round_ = Round(books, 5_000)
        began_s = time.perf_counter()
        for n in range(slices):
            uid = f"{JOB}-{n + 1}"
            round_.site_events(f"c{n}", [ev.Started(uid, 1, 3_000, 1, "x")], 1)
        took_s = time.perf_counter() - began_s
        after = round_.draft.job(job.id)
        assert after is not None
        pieces = writes_of(job, after, None)
        assert all(len(txn.then) <= OPS_A_PIECE for txn in pieces)
        return took_s / slices

    assert events_s(300) < 12 * events_s(30) + 0.005


def test_a_slice_as_wide_as_a_cluster_is_taken_off_at_once() -> None:
    group = NodeGroup(10_000, "H100", 8, 8, 64_000, 64_000, TEBI, TEBI)
    capacity = Capacity(1, 1, 1, 0, 0, (PoolCapacity("p0", (group,)),))
    job = a_job(tasks=runs(0, 99_999))
    wide = an_attempt(job, pool="p0", width=70_003, tasks=runs(0, 9), reserved_ms=1)
    began_s = time.perf_counter()
    (pool,) = free_pools(capacity, [wide])
    assert time.perf_counter() - began_s < 0.1
    assert sum(g.count * g.free for g in pool.groups) == 80_000 - 70_003
    assert sorted((g.free, g.count) for g in pool.groups) == [(0, 8_750), (5, 1), (8, 1_249)]
