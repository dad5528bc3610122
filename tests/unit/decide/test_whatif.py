"""Changes of the world do what they say, to what they name and to nothing else."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from broker.decide.decision import Budget, decide
from broker.decide.problem_file import problem_from_json
from broker.decide.whatif import (
    Changes,
    PriceChange,
    QuotaChange,
    UnknownTarget,
    changed,
    clusters_named,
)
from broker.model.problem import PriceWindow, Problem
from federation.refusals import RefusalCode
from tests.unit.decide.problems import a_job, a_pool, a_problem


def two_regions(**changes: Any) -> Problem:
    return problem_from_json(
        a_problem(
            clusters=[
                {"name": "c0", "region": "east"}, {"name": "c1", "region": "east"},
                {"name": "c2", "region": "west"},
            ],
            pools=[
                a_pool("p0"), a_pool("p1", cluster="c1", price_usd_per_accelerator_hour=2.0),
                a_pool("p2", cluster="c2", price_usd_per_accelerator_hour=3.0),
            ],
            tenants=[{"name": "t0"}],
            **changes,
        )
    )  # fmt: skip


def places(problem: Problem) -> dict[str, str]:
    return {a.job: a.pool for a in decide(problem, Budget(cpu_s=1)).assignments}


def test_a_drained_cluster_takes_nothing_new_and_keeps_what_runs() -> None:
    jobs = [a_job("new"), a_job("runs", current_pool="p0", migration_usd=1)]
    problem = two_regions(jobs=jobs)
    assert places(problem) == {"new": "p0", "runs": "p0"}
    drained = changed(problem, Changes(drain=("c0",)))
    assert places(drained) == {"new": "p1", "runs": "p0"}
    assert drained.jobs[0].excluded["c0"].code is RefusalCode.DRAINING
    assert places(changed(problem, Changes(drain=("east",)))) == {"new": "p2", "runs": "p0"}


def test_a_lost_cluster_keeps_nothing() -> None:
    jobs = [a_job("new"), a_job("runs", current_pool="p0", migration_usd=1)]
    problem = two_regions(jobs=jobs)
    assert places(changed(problem, Changes(lose=("c0",)))) == {"new": "p1", "runs": "p1"}
    everywhere = changed(problem, Changes(lose=("east", "west"), drain=("c0",)))
    assert places(everywhere) == {}


@pytest.mark.parametrize("target", ["p0", "c0", "H100", "east"])
def test_a_price_is_changed_for_all_that_is_named(target: str) -> None:
    problem = two_regions()
    half = changed(problem, Changes(prices=(PriceChange(target, factor=0.5),)))
    named = {"p0": {"p0"}, "c0": {"p0"}, "east": {"p0", "p1"}}.get(target, {"p0", "p1", "p2"})
    for old, new in zip(problem.pools, half.pools, strict=True):
        expected = old.price_usd_per_accelerator_hour * (0.5 if old.name in named else 1.0)
        assert new.price_usd_per_accelerator_hour == expected
    night = replace(problem.pools[2], prices=(PriceWindow(1.0, 2.0, 4.0),))
    hourly = replace(problem, pools=(*problem.pools[:2], night))
    (halved,) = changed(hourly, Changes(prices=(PriceChange("c2", factor=0.5),))).pools[2].prices
    assert halved == PriceWindow(1.0, 2.0, 2.0)
    assert changed(hourly, Changes(prices=(PriceChange("c2", usd=0.1),))).pools[2].prices == ()
    cheap = changed(problem, Changes(prices=(PriceChange("c2", usd=0.1),)))
    assert places(cheap) == {"j0": "p2"}


def test_a_quota_is_changed_for_one_tenant_in_all_or_in_one_cluster() -> None:
    problem = two_regions(jobs=[a_job(count=4)])
    none = changed(problem, Changes(quotas=(QuotaChange("t0", 0),)))
    assert places(none) == {}
    some = changed(problem, Changes(quotas=(QuotaChange("t0", 0, "c0"),)))
    assert places(some) == {"j0": "p1"}
    lifted = changed(
        none, Changes(quotas=(QuotaChange("t0", None), QuotaChange("other", 3)))
    )
    assert places(lifted) == {"j0": "p0"}
    assert [t.name for t in lifted.tenants] == ["t0", "other"]


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        (Changes(drain=("c9",)), "c9"),
        (Changes(lose=("wset",)), "wset"),
        (Changes(prices=(PriceChange("A100", 1.0),)), "A100"),
        (Changes(quotas=(QuotaChange("t0", 1, "c9"),)), "c9"),
    ],
)
def test_what_is_not_there_is_refused_by_name(changes: Changes, name: str) -> None:
    with pytest.raises(UnknownTarget, match=name) as told:
        changed(two_regions(), changes)
    assert told.value.name == name


def test_a_near_miss_is_suggested() -> None:
    with pytest.raises(UnknownTarget, match='did you mean "west"'):
        clusters_named(two_regions(), ["wset"])
