"""Where a job that waits for room is expected to start."""

from __future__ import annotations

from broker.control.forecast import Expected, Forecast, merely_full
from broker.decide.decision import Budget, decide
from broker.model.problem import Cluster, Job, NodeGroup, Pool, Problem
from federation.refusals import Refusal, RefusalCode

NOW_MS = 1_000_000
MIN_MS = 60_000


def pool(cluster: str, free: int = 0, total: int = 4, **more) -> Pool:
    fields = {
        "price_usd_per_accelerator_hour": 1.0,
        "accelerators_per_node": total,
        "nodes": (NodeGroup(1, free, 64, 64),),
        "when_empty": (NodeGroup(1, total, 64, 64),),
        "per_node": True,
    }
    return Pool(f"{cluster}/cpu", cluster, "CPU", **(fields | more))


def job(name: str, **more) -> Job:
    fields = {"tenant": "lab", "accelerators": {"CPU": 1.0}, "runtime_h": 0.5}
    return Job(name, **(fields | more))


def forecast(pools, jobs, ends, wanted=None) -> list[Expected]:
    clusters = tuple(Cluster(p.cluster, "r") for p in pools)
    problem = Problem(("r",), clusters, tuple(pools), tuple(jobs))
    plan = decide(problem, Budget(cpu_s=1.0))
    names = {j.id for j in jobs} if wanted is None else wanted
    made = Forecast(problem, plan, ends, NOW_MS, names)
    for _ in made.steps():
        pass
    return made.expected


def test_the_place_that_is_free_first_and_the_cheaper_of_two() -> None:
    ends = {"eu/cpu": [(NOW_MS + 5 * MIN_MS, 4)], "us/cpu": [(NOW_MS + 2 * MIN_MS, 4)]}
    assert forecast([pool("eu"), pool("us")], [job("a")], ends) == [
        Expected("a", "us", NOW_MS + 2 * MIN_MS)
    ]
    same = {"eu/cpu": [(NOW_MS + MIN_MS, 4)], "us/cpu": [(NOW_MS + MIN_MS, 4)]}
    cheap = pool("us", price_usd_per_accelerator_hour=0.1)
    assert forecast([pool("eu"), cheap], [job("a")], same)[0].cluster == "us"


def test_jobs_ahead_take_their_room_first_whoever_is_asked_for() -> None:
    ends = {"eu/cpu": [(NOW_MS + MIN_MS, 4)], "us/cpu": [(NOW_MS + 9 * MIN_MS, 4)]}
    jobs = [job("first", accelerators_per_replica=4), job("second", accelerators_per_replica=4)]
    assert forecast([pool("eu"), pool("us")], jobs, ends, {"second"}) == [
        Expected("second", "us", NOW_MS + 9 * MIN_MS)
    ]
    urgent = [jobs[0], job("urgent", accelerators_per_replica=4, priority=9)]
    found = forecast([pool("eu"), pool("us")], urgent, ends)
    assert [(e.job, e.cluster) for e in found] == [("urgent", "eu"), ("first", "us")]


def test_room_is_gathered_from_several_ends() -> None:
    ends = {"eu/cpu": [(NOW_MS + 3 * MIN_MS, 2), (NOW_MS + MIN_MS, 1)]}
    wide = job("a", accelerators_per_replica=4)
    assert forecast([pool("eu", free=1)], [wide], ends) == [
        Expected("a", "eu", NOW_MS + 3 * MIN_MS)
    ]


def test_a_place_it_may_not_go_to_or_never_fits_is_no_place() -> None:
    ends = {name: [(NOW_MS + MIN_MS, 9)] for name in ("eu/cpu", "us/cpu", "ap/cpu")}
    no = Refusal(RefusalCode.CLUSTER_NOT_ALLOWED, "us")
    wide = job("a", accelerators_per_replica=4, excluded={"us": no})
    found = forecast([pool("us"), pool("ap", total=2), pool("eu")], [wide], ends)
    assert [e.cluster for e in found] == ["eu"]


def test_nothing_is_expected_of_a_place_where_nothing_ends() -> None:
    assert forecast([pool("eu")], [job("a")], {}) == []


def test_what_waits_for_more_than_room_is_not_prepared() -> None:
    dear = job("a", budget_usd=0.0)
    problem = Problem(("r",), (Cluster("eu", "r"),), (pool("eu"),), (dear, job("b")))
    assert merely_full(decide(problem, Budget(cpu_s=1.0))) == {"b"}
