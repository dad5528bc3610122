"""A start is put off to the hour that saves most, within what the job allows; else it is now."""

from __future__ import annotations

import random
from typing import Any

import pytest

from broker.decide.later import SAVING_SHARE, Expected, Later, later
from broker.decide.terms import Geography
from broker.model.problem import (
    Cluster,
    Job,
    NodeGroup,
    Pool,
    PriceWindow,
    Problem,
    Window,
)  # fmt: skip
from federation.refusals import Refusal, RefusalCode


def a_pool(name: str, usd: float, *windows: tuple[float, float, float], **rest: Any) -> Pool:
    prices = tuple(PriceWindow(*window) for window in windows)
    made = {"nodes": (NodeGroup(1, 8),), "prices": prices, **rest}
    return Pool(f"{name}/h", name, "H100", usd, 8, **made)


def best(*pools: Pool, latest_h: float = 24.0, delay_s: float = 0.0, **job: Any) -> Later | None:
    names = tuple(pool.cluster for pool in pools)
    clusters = tuple(Cluster(name, name, start_delay_s=delay_s) for name in names)
    problem = Problem(names, clusters, pools, ())
    asked = Job("j", "t", {"H100": 1.0}, job.pop("runtime_h", 2.0), **job)
    return later(Geography(problem), pools, asked, latest_h)


NIGHT = (8.0, 16.0, 1.0)


def test_the_start_waits_for_the_hour_at_which_the_price_falls_and_says_what_that_saves() -> None:
    found = best(a_pool("a", 3.0, NIGHT))
    assert found is not None
    assert (found.pool, found.start_h, found.closed) == ("a/h", 8.0, {"a": 6.0})
    assert (found.now_usd, found.cost_usd, found.saved_usd) == pytest.approx((6.0, 2.0, 4.0))


def test_it_does_not_wait_longer_than_it_may_nor_past_its_deadline() -> None:
    assert best(a_pool("a", 3.0, NIGHT), latest_h=7.9) is None
    assert best(a_pool("a", 3.0, NIGHT), latest_h=8.0) is not None
    assert best(a_pool("a", 3.0, NIGHT), deadline_h=9.9) is None
    assert best(a_pool("a", 3.0, NIGHT), deadline_h=10.0) is not None
    assert best(a_pool("a", 3.0, NIGHT), deadline_h=10.0, delay_s=60) is None


def test_what_time_is_worth_is_part_of_what_waiting_costs() -> None:
    assert best(a_pool("a", 3.0, NIGHT), value_of_time_usd_per_h=0.4) is not None
    assert best(a_pool("a", 3.0, NIGHT), value_of_time_usd_per_h=0.6) is None


def test_waiting_for_next_to_nothing_is_not_waited_for() -> None:
    almost = 3.0 * (1 - SAVING_SHARE)
    assert best(a_pool("a", 3.0, (8.0, 16.0, almost + 0.001))) is None
    assert best(a_pool("a", 3.0, (8.0, 16.0, almost - 0.001))) is not None


def test_only_places_that_cost_more_now_than_waiting_are_closed() -> None:
    """One is as cheap already: the job starts there if there is room, and waits for it or for the
    night if there is none."""
    same = best(a_pool("a", 3.0, NIGHT), a_pool("b", 1.0))
    assert same is None
    found = best(a_pool("a", 3.0, NIGHT), a_pool("b", 2.0))
    assert found is not None and set(found.closed) == {"a", "b"}
    spot = a_pool("c", 0.9, spot=True)
    found = best(a_pool("a", 3.0, NIGHT), spot, spot_ok=False)
    assert found is not None and set(found.closed) == {"a"}


def test_a_long_run_pays_the_prices_of_all_its_hours() -> None:
    found = best(a_pool("a", 3.0, NIGHT), runtime_h=12.0)
    assert found is not None and found.cost_usd == pytest.approx(8 * 1 + 4 * 3)
    cheap_now = a_pool("a", 3.0, (0.0, 1.0, 1.0), (8.0, 16.0, 1.0))
    found = best(cheap_now, runtime_h=1.0)
    assert found is None


def test_hours_in_which_nothing_may_run_are_no_hours_to_wait_for() -> None:
    closed = a_pool("a", 3.0, NIGHT, maintenance=(Window(9.0, 12.0),))
    assert best(closed) is None


def test_a_job_that_cannot_start_anywhere_is_told_that_and_nothing_of_later_hours() -> None:
    why = {"a": Refusal(RefusalCode.POLICY_DENIED, "a")}
    assert best(a_pool("a", 3.0, NIGHT), excluded=why) is None


def by_hand(pools: list[Pool], runtime_h: float, latest_h: float, per_h: float) -> float:
    """The least that a start at any hour up to the latest costs, in steps of six minutes."""

    def price(pool: Pool, at_h: float) -> float:
        for window in pool.prices:
            if window.from_h <= at_h < window.to_h:
                return window.price_usd_per_accelerator_hour
        return pool.price_usd_per_accelerator_hour

    def cost(pool: Pool, start: int) -> float:
        steps = range(start, start + round(runtime_h * 10))
        return sum(price(pool, (step + 0.5) / 10) for step in steps) / 10 + per_h * start / 10

    return min(cost(pool, start) for pool in pools for start in range(round(latest_h * 10) + 1))


@pytest.mark.parametrize("seed", range(60))
def test_no_hour_is_cheaper_than_the_one_that_is_waited_for(seed: int) -> None:
    """Where windows are as long as the run or longer the best start is now or at a change."""
    dice = random.Random(seed)
    runtime_h = dice.choice([0.5, 1.0, 2.0])
    pools = []
    for name in "abc"[: dice.randint(1, 3)]:
        edges = [0.0]
        while edges[-1] < 20:
            edges.append(edges[-1] + dice.choice([2.0, 3.0, 5.0]))
        windows = [
            (first, last, dice.choice([1.0, 2.0, 3.0, 4.0]))
            for first, last in zip(edges, edges[1:], strict=False)
        ]
        pools.append(a_pool(name, 5.0, *windows))
    latest_h, per_h = dice.choice([1.0, 6.0, 15.0]), dice.choice([0.0, 0.05, 0.3])
    found = best(*pools, latest_h=latest_h, runtime_h=runtime_h, value_of_time_usd_per_h=per_h)
    least = by_hand(pools, runtime_h, latest_h, per_h)
    if found is not None:
        assert found.cost_usd == pytest.approx(least, abs=1e-6) and found.start_h <= latest_h
    else:
        now = by_hand(pools, runtime_h, 0.0, per_h)
        assert now - least <= SAVING_SHARE * now + 1e-9


def shared(*jobs: Job) -> list[Later | None]:
    """The best starts of jobs compared in order, in one pool of eight that is cheap at night."""
    pool = a_pool("a", 3.0, NIGHT)
    problem = Problem(("a",), (Cluster("a", "a"),), (pool,), ())
    expected = Expected()
    return [later(Geography(problem), [pool], job, 24.0, expected) for job in jobs]


def test_not_everybody_waits_for_the_same_hour() -> None:
    """The pool has eight: the third of four each finds no room at night and starts now."""
    wide = [Job(f"j{n}", "t", {"H100": 1.0}, 2.0, accelerators_per_replica=4) for n in range(3)]
    assert [found is not None for found in shared(*wide)] == [True, True, False]


def test_copies_of_a_class_take_their_room_together() -> None:
    many = Job("many", "t", {"H100": 1.0}, 2.0, count=8)
    one = Job("one", "t", {"H100": 1.0}, 2.0)
    assert [found is not None for found in shared(many, one)] == [True, False]
