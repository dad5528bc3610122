"""What runs moves where that saves more than it costs, by the margin asked for; else it stays."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from broker.decide.admission.moving import LOOKED_AT_MAX, Move, Mover, moving
from broker.decide.decision import decide
from broker.decide.verify import verify
from broker.model.admission import MovingRules
from broker.model.problem import Cluster, Job, Objective, Pool, PriceWindow, Problem, Tenant
from federation.refusals import Refusal, RefusalCode
from tests.unit.decide.admission.scenes import pool, running

HOUR_MS = 3_600_000
NOW_MS = 10 * HOUR_MS
RULES = MovingRules(saving_share=0.0, saving_min_usd=1.0)


def world(*pools: Pool, **rest: Any) -> Problem:
    """Nothing waits; `far` (3 USD) is where jobs run, `near` (1 USD) has room."""
    found = pools or (
        pool("far/h100", free=0, price_usd_per_accelerator_hour=3.0),
        pool("near/h100", price_usd_per_accelerator_hour=1.0),
    )
    names = list(dict.fromkeys(p.cluster for p in found))
    usual: dict[str, Any] = {
        "regions": tuple(names),
        "clusters": tuple(Cluster(name, name) for name in names),
        "pools": found,
        "jobs": (),
    }
    return Problem(**(usual | rest))


def mover(name: str = "j1", ran_h: float = 1.0, **rest: Any) -> Mover:
    """A job of four cards for ten hours that runs at `far`, with a minute of grace."""
    attempt = {"pool": "far/h100", "grace_s": 60, "started_ms": NOW_MS - round(ran_h * HOUR_MS)}
    attempt |= {key: rest.pop(key) for key in ("kept_s", "grace_s", "pool") if key in rest}
    spent_usd = rest.pop("spent_usd", 0.0)
    usual: dict[str, Any] = {
        "accelerators": {"H100": 1.0}, "runtime_h": 10.0, "accelerators_per_replica": 4,
    }  # fmt: skip
    job = Job(name, "t", **(usual | rest))
    return Mover(running(f"{name}-1", "t", 4, **attempt), job, spent_usd)


def moves(problem: Problem, *movers: Mover, rules: MovingRules = RULES) -> tuple[Move, ...]:
    asked = moving(problem, movers, rules, NOW_MS)
    if asked is None:
        return ()
    plan = decide(asked.problem)
    assert verify(asked.problem, plan) == ()
    return asked.moves(plan, rules)


def test_a_job_moves_to_a_cheaper_place_and_says_what_that_costs_and_saves() -> None:
    (move,) = moves(world(), mover(ran_h=1.0, grace_s=3600))
    assert (move.mover.attempt.pool, move.pool) == ("far/h100", "near/h100")
    assert move.stay_usd == pytest.approx(4 * 9 * 3)
    assert move.there_usd == pytest.approx(4 * 9 * 1)
    # The hour it ran is done again there, and the hour of grace is paid for here.
    assert move.lost_usd == pytest.approx(4 * 1 * 1 + 4 * 1 * 3)
    assert move.start_usd == 0
    assert move.saved_usd == pytest.approx(108 - 36 - 16)
    assert move.text == (
        "moves from far/h100 to near/h100: the rest costs 36.00 instead of 108.00 USD, restarting "
        "16.00 (lost work 16.00, start 0.00); saves 56.00 USD"
    )


def test_a_checkpoint_bounds_the_work_that_is_done_again() -> None:
    (without,) = moves(world(), mover(ran_h=4.0))
    (kept,) = moves(world(), mover(ran_h=4.0, kept_s=900))
    assert without.lost_usd - kept.lost_usd == pytest.approx(4 * 3.75 * 1)


def test_egress_the_cold_start_and_the_time_lost_are_part_of_what_a_move_costs() -> None:
    clusters = (
        Cluster("far", "far"),
        Cluster("near", "near", cold_start_s={"*": 1800.0}, start_delay_s=1800.0),
    )
    egress = ((0.0, 0.5), (0.0, 0.0))
    problem = world(clusters=clusters, egress_usd_per_gb=egress)
    job = mover(
        ran_h=1.0, kept_s=3600, grace_s=0, input_gb=10.0, data_region="far",
        value_of_time_usd_per_h=2.0,
    )  # fmt: skip
    (move,) = moves(problem, job)
    assert move.start_usd == pytest.approx(5 + 4 * 0.5 * 1 + 2 * 1)
    assert move.lost_usd == pytest.approx(4 * 1 * 1 + 2 * 1)


@pytest.mark.parametrize(
    ("rules", "moved"),
    [
        (MovingRules(saving_share=0.0, saving_min_usd=67.7), 1),
        (MovingRules(saving_share=0.0, saving_min_usd=67.9), 0),
        (MovingRules(saving_share=0.62, saving_min_usd=1.0), 1),
        (MovingRules(saving_share=0.64, saving_min_usd=1.0), 0),
        (MovingRules(most=0, saving_share=0.0), 0),
    ],
)
def test_a_move_has_to_save_what_the_margin_says(rules: MovingRules, moved: int) -> None:
    """It saves 67.80: 72 by the price, less 4 of work done again and 0.20 of grace."""
    assert len(moves(world(), mover(), rules=rules)) == moved


def test_nothing_moves_within_one_place_or_to_a_dearer_one() -> None:
    assert moves(world(pool("far/h100", price_usd_per_accelerator_hour=3.0)), mover()) == ()
    full = pool("far/h100", free=0, price_usd_per_accelerator_hour=3.0)
    dear = pool("sea/h100", price_usd_per_accelerator_hour=3.5)
    assert moves(world(full, dear), mover()) == ()


def test_nothing_moves_into_what_another_has_yet_to_leave() -> None:
    """Both would be better off in the other's place; neither place is free."""
    full = (
        pool("far/h100", free=0, price_usd_per_accelerator_hour=3.0),
        pool("near/h100", free=0, price_usd_per_accelerator_hour=1.0),
    )
    assert moves(world(*full), mover(), mover("j2", pool="near/h100")) == ()


def test_what_saves_most_moves_first_and_no_more_than_may() -> None:
    long = [mover(f"j{n}", runtime_h=float(10 + n)) for n in range(6)]
    found = moves(world(), *long, rules=replace(RULES, most=2))
    assert [move.mover.job.id for move in found] == ["j5", "j4"]
    assert found[0].saved_usd > found[1].saved_usd


def test_limits_of_the_job_hold_for_the_rest_of_it() -> None:
    assert moves(world(), mover(deadline_h=10.1))  # nine hours left, one again, a minute of grace
    assert moves(world(), mover(deadline_h=10.0)) == ()
    assert moves(world(), mover(budget_usd=60.0, spent_usd=12.0))  # forty more
    assert moves(world(), mover(budget_usd=50.0, spent_usd=12.0)) == ()
    closed = {"near": Refusal(RefusalCode.POLICY_DENIED, "near")}
    assert moves(world(), mover(excluded=closed)) == ()


def test_quotas_of_a_cluster_hold_and_what_it_has_in_all_is_its_own_already() -> None:
    full = Tenant("t", quota_accelerators=0)
    assert moves(world(tenants=(full,)), mover())
    there = Tenant("t", quota_accelerators=0, cluster_quota={"near": 3})
    assert moves(world(tenants=(there,)), mover()) == ()


def test_who_ran_longer_than_it_said_or_has_not_started_stays() -> None:
    assert moves(world(), mover(ran_h=10.0)) == ()
    not_yet = mover()
    assert moves(world(), replace(not_yet, attempt=replace(not_yet.attempt, started_ms=0))) == ()


def test_prices_by_the_hour_count_for_the_hours_that_are_left() -> None:
    """Far becomes cheap in an hour: there is little to gain by leaving now."""
    soon = (PriceWindow(1.0, 100.0, 0.5),)
    far = pool("far/h100", free=0, price_usd_per_accelerator_hour=3.0, prices=soon)
    near = pool("near/h100", price_usd_per_accelerator_hour=1.0)
    assert moves(world(far, near), mover()) == ()


def test_only_so_many_are_looked_at_those_with_most_to_save() -> None:
    many = [mover(f"j{n}", runtime_h=2.0 + n / 100) for n in range(LOOKED_AT_MAX + 20)]
    asked = moving(world(objective=Objective()), many, RULES, NOW_MS)
    assert asked is not None
    looked_at = {job.id for job in asked.problem.jobs}
    assert looked_at == {f"j{n}" for n in range(20, LOOKED_AT_MAX + 20)}
