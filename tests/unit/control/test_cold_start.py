"""A job's files as the planning problem takes them."""

from __future__ import annotations

import pytest

from broker.control.build_problem import Waiting, World, build
from broker.control.cold_start import NAMES_MAX, ColdStarts, blobs_of, planned_delay_s, stepped_s
from broker.decide.classes import group_jobs
from broker.decide.decision import Budget, decide
from broker.decide.prepared import changed_pools
from broker.model.fleet import (
    Cache,
    Capacity,
    ClusterIdentity,
    ClusterState,
    ClusterView,
    Fleet,
    NodeGroup,
    PoolCapacity,
    PoolPrice,
)
from broker.model.jobs import Job
from broker.model.policies import Ruling
from broker.sense.start_delay import StartDelays, StartSample
from federation.ids import Cluster, JobId, Region, Tenant
from federation.jobs import JobSpec, parse_job_spec
from federation.refusals import RefusalCode

NOW_MS = 1_000_000
MB = 1_000_000
GIB = 2**30


def digest(n: int) -> str:
    return f"{n:064x}"


def spec(*sizes: int, first: int = 0, **more) -> JobSpec:
    files = [
        {"path": f"f{n}", "sha256": digest(first + n), "bytes": size}
        for n, size in enumerate(sizes)
    ]
    return parse_job_spec({"run": "true", "files": files, **more})


def view(name: str, *cached: tuple[int, int]) -> ClusterView:
    group = NodeGroup(1, "CPU", 8, 8, 8_000, 8_000, 64 * GIB, 64 * GIB)
    return ClusterView(
        ClusterIdentity(Cluster(name), Region(name), ClusterState.JOINED),
        capacity=Capacity(NOW_MS, NOW_MS, 1, 0, 0, (PoolCapacity("cpu", (group,)),)),
        prices={"cpu": PoolPrice("cpu", "owned", 50_000, 50_000, 1, "test")},
        connected_since_ms=1,
        reported=True,
        cache=Cache(NOW_MS, {digest(n): size for n, size in cached}),
    )


def learned(**bytes_per_s: int) -> StartDelays:
    delays = StartDelays()
    for name, rate in bytes_per_s.items():
        delays.observe(StartSample(f"{name}-1", name, 5, 10_000, 20, rate * 10))
    return delays


def world(delays: StartDelays, *views: ClusterView) -> World:
    return World(Fleet({v.identity.name: v for v in views}), {}, {}, NOW_MS, starts=delays)


def waiting(job_spec: JobSpec, n: int = 0) -> Waiting:
    job = Job(JobId(f"j{n:016d}"), Tenant("lab"), "", "ann", 100, "", NOW_MS + n, NOW_MS + n)
    return Waiting.under(Ruling(job_spec), job, 1)


def test_durations_are_in_few_steps():
    assert [stepped_s(s) for s in (0.4, 0.6, 1.3, 1.5, 3, 4, 8, 90)] == [
        0, 0.5, 1, 2, 2, 5, 10, 100,
    ]  # fmt: skip


def test_what_is_fetched_is_paid_for_where_it_is_not_cached():
    delays = learned(eu=10 * MB, us=MB)
    views = (view("eu"), view("us", (0, 50 * MB)))
    problem = build(world(delays, *views), [waiting(spec(50 * MB))])
    (job,) = problem.jobs
    seconds = {c.name: c.cold_start_s.get(job.image, 0) for c in problem.clusters}
    assert seconds == {"eu": 5, "us": 0}
    assert {c.name: c.start_delay_s for c in problem.clusters} == {
        "eu": 0.1, "us": 0.1,
    }  # fmt: skip


def test_a_delay_before_every_start_is_planned_in_steps_and_never_too_short():
    found = [planned_delay_s(s) for s in (0, 0.02, 0.1, 0.105, 3.0, 3.1, 3.15, 60)]
    assert found == pytest.approx([0, 0.1, 0.1, 0.11, 3.09, 3.40, 3.40, 65.26], rel=0.002)
    learned_s = [40 + n / 100 for n in range(300)]
    planned = [planned_delay_s(s) for s in learned_s]
    assert len(set(planned)) <= 2
    pairs = zip(learned_s, planned, strict=True)
    assert all(exact <= step <= 1.101 * exact for exact, step in pairs)


def test_jobs_that_fetch_next_to_nothing_know_of_no_cold_start():
    problem = build(world(learned(eu=10 * MB), view("eu")), [waiting(spec(1_000))])
    assert problem.jobs[0].image is None
    assert problem.clusters[0].cold_start_s == {}


def test_jobs_that_differ_in_files_of_one_size_stay_one_class():
    delays = learned(eu=MB, us=2 * MB)
    jobs = [waiting(spec(50 * MB + n, first=n), n) for n in range(40)]
    problem = build(world(delays, view("eu"), view("us")), jobs)
    assert len(group_jobs(problem.jobs)) == 1


def test_however_many_caches_differ_there_are_few_names():
    rates = {f"c{n:03d}": MB for n in range(100)}
    views = [view(f"c{n:03d}", (n, 50 * MB)) for n in range(100)]
    cold = ColdStarts(views, learned(**rates), NOW_MS)
    names = {cold.image(spec(50 * MB, first=n)) for n in range(100)}
    assert len(names) == NAMES_MAX + 1
    last = cold.image(spec(50 * MB, first=99))
    assert cold.seconds("c099")[last] == 50, "taken for cold: nobody is sent there for nothing"


def test_a_name_is_the_same_whichever_jobs_are_there_and_whatever_a_site_was_learned_to_fetch_at():
    views = [view("eu", (0, 20 * MB)), view("us"), view("jp", (7, 50 * MB))]
    specs = [spec(50 * MB), spec(50 * MB, first=7), spec(9 * MB), spec(50 * MB, image="repo/a:1")]
    cold = ColdStarts(views, learned(eu=MB, us=2 * MB, jp=MB), NOW_MS)
    names = [cold.image(s) for s in specs]
    assert len(set(names)) == len(specs)
    later = ColdStarts(views, learned(eu=MB, us=5 * MB, jp=MB), NOW_MS)
    assert [later.image(s) for s in (spec(200 * MB), *reversed(specs))][1:] == names[::-1]


def test_a_new_job_with_files_of_its_own_leaves_what_all_others_cost_as_it_was():
    views = (view("eu"), view("us", (7, 50 * MB)))
    delays = learned(eu=MB, us=2 * MB)
    old = [waiting(spec(50 * MB, first=n), n) for n in (0, 7)]
    before = build(world(delays, *views), old)
    new = build(world(delays, *views), [waiting(spec(9 * MB, first=3), 9), *old])
    images = {job.image for job in before.jobs}
    assert images < {job.image for job in new.jobs}
    changed = changed_pools(new, before, images)
    assert changed is not None
    assert not len(changed)


def test_an_image_of_its_own_keeps_its_name_apart():
    cold = ColdStarts([view("eu")], learned(eu=MB), NOW_MS)
    plain, boxed = spec(50 * MB), spec(50 * MB, image="repo/a:1")
    assert cold.image(plain) != cold.image(boxed)
    assert cold.image(spec(10, image="repo/a:1")) == "repo/a:1"


def test_a_start_too_late_because_of_the_bytes_is_refused_with_the_figure():
    delays = learned(eu=MB, us=MB)
    place = {"placement": {"max_start_delay": "10s"}}
    where = world(delays, view("eu"), view("us", (0, 50 * MB)))
    problem = build(where, [waiting(spec(50 * MB, **place))])
    (job,) = problem.jobs
    assert job.excluded["eu"].code is RefusalCode.START_DELAY_EXCEEDED
    assert "50" in job.excluded["eu"].text
    assert "us" not in job.excluded


def test_the_place_with_the_files_wins_where_time_has_a_value():
    delays = learned(eu=MB, us=MB)
    costly = {"value_of_time_usd_per_hour": 100, "expected_runtime": "1m"}
    where = world(delays, view("eu"), view("us", (0, 50 * MB)))
    problem = build(where, [waiting(spec(50 * MB, **costly))])
    plan = decide(problem, Budget(cpu_s=1.0))
    assert [item.pool for item in plan.assignments] == ["us/cpu"]


def test_blobs_of_a_spec_are_files_and_archive():
    made = parse_job_spec(
        {
            "run": "true",
            "files": [{"path": "a", "sha256": digest(1), "bytes": 3}],
            "workdir": {"archive": digest(2), "bytes": 4},
        }
    )
    assert blobs_of(made) == {digest(1): 3, digest(2): 4}
