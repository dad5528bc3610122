"""The replay of simpler rules: who goes where, who waits, what is paid."""

from __future__ import annotations

import pytest

from broker.local.demo.baselines import (
    ReplayJob,
    ReplayPool,
    allowed,
    cheapest_first,
    home_only,
    replay,
)

DEAR = ReplayPool("us/h100", "us", "H100", nodes=2, per_node=8, usd_per_hour=12.0)
MIDDLE = ReplayPool("eu/a100", "eu", "A100", nodes=2, per_node=8, usd_per_hour=7.0)
CHEAP = ReplayPool("ap/l40s", "ap", "L40S", nodes=2, per_node=4, usd_per_hour=2.0, spot=True)
POOLS = (DEAR, MIDDLE, CHEAP)


def job(name: str, *models: str, **more: object) -> ReplayJob:
    values: dict[str, object] = {"arrived_s": 0.0, "run_s": 3600.0, "home": "eu", "spot": True}
    return ReplayJob(name, models=models, **(values | more))  # type: ignore[arg-type]


def test_cheapest_first_takes_the_cheapest_pool_that_has_room() -> None:
    three = [job(f"j{n}", "L40S", "A100", per_replica=4) for n in range(3)]
    result = replay(three, POOLS, cheapest_first)
    # Two nodes of four cards at 2 USD, then A100 at 7.
    assert result.paid_usd == pytest.approx(2 * 4 * 2.0 + 4 * 7.0)
    assert result.mean_wait_s == 0 and result.copies_ran == 3


def test_who_came_first_may_take_what_another_needs() -> None:
    flexible = [job(f"f{n}", "L40S", "A100", per_replica=4) for n in range(2)]
    picky = job("picky", "L40S", per_replica=4, replicas=2)
    result = replay([*flexible, picky], POOLS, cheapest_first)
    assert result.longest_wait_s == pytest.approx(3600.0)
    assert result.end_s == pytest.approx(7200.0)


def test_home_only_never_runs_what_home_does_not_have() -> None:
    here = job("here", "A100", per_replica=8)
    away = job("away", "H100", copies=5)
    result = replay([here, away], POOLS, home_only)
    assert result.never == ("away",) and result.jobs_ran == 1
    assert result.copies_ran == 1 and result.paid_usd == pytest.approx(8 * 7.0)


def test_priority_goes_before_age() -> None:
    running = job("running", "A100", per_replica=8, replicas=2, run_s=10)
    early = job("early", "A100", per_replica=8, replicas=2, arrived_s=1, run_s=10)
    urgent = job("urgent", "A100", per_replica=8, replicas=2, arrived_s=2, run_s=10, priority=900)
    alone = replay([running, early], POOLS, cheapest_first)
    both = replay([running, early, urgent], POOLS, cheapest_first)
    assert alone.longest_wait_s == pytest.approx(9)
    assert both.longest_wait_s == pytest.approx(19), "early waits for urgent"


def test_an_array_fills_what_is_there_wave_after_wave() -> None:
    array = job("array", "A100", copies=40, run_s=10)
    result = replay([array], POOLS, cheapest_first)
    # 16 at once: three waves.
    assert result.copies_ran == 40 and result.end_s == pytest.approx(30)
    assert result.paid_usd == pytest.approx(40 * 7.0 * 10 / 3600)


@pytest.mark.parametrize(
    ("asked", "pool", "fits"),
    [
        (job("spot", "L40S", spot=False), CHEAP, False),
        (job("region", "A100", regions=("us",)), MIDDLE, False),
        (job("wide", "A100", per_replica=16), MIDDLE, False),
        (job("many", "A100", per_replica=8, replicas=3), MIDDLE, False),
        (job("odd", "A100", per_replica=3, replicas=4), MIDDLE, True),
        (job("odd", "A100", per_replica=3, replicas=5), MIDDLE, False),
    ],
)
def test_what_could_ever_run_there(asked: ReplayJob, pool: ReplayPool, fits: bool) -> None:
    assert allowed(asked, pool) is fits


def test_an_array_keeps_to_its_own_limit() -> None:
    array = job("array", "A100", copies=40, at_once=4, run_s=10)
    result = replay([array], POOLS, cheapest_first)
    assert result.end_s == pytest.approx(100)
    assert result.mean_wait_s == 0, "the wait of a job is until its first copy"


def test_nothing_is_replayed_of_nothing() -> None:
    result = replay([], POOLS, cheapest_first)
    assert result.copies_ran == 0 and result.paid_usd == 0
