"""A job that may wait for a cheaper hour does, says until when and what it saves, and starts then;
with a deadline early enough to end by it with a margin."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from broker.control.build_problem import Waiting, World, build
from broker.control.deferring import MARGIN_MIN_S, latest_start_ms
from broker.decide.decision import decide
from broker.decide.explain import Standing, explain_unplaced
from broker.model.fleet import ClusterView, Fleet, PoolPrice, PriceStep
from broker.model.jobs import AttemptPhase, Job, Outcome, OutcomeKind
from broker.model.plan import Plan
from broker.model.policies import Ruling
from federation.jobs import parse_job_spec
from federation.refusals import RefusalCode
from federation.units import format_utc
from tests.unit.control.test_policy_problem import DEAR_EU, NOW_MS
from tests.unit.lifecycle.builders import a_job, an_attempt

HOUR_MS = 3_600_000
NIGHT_MS = NOW_MS + 6 * HOUR_MS
NIGHT = PriceStep(NIGHT_MS, NIGHT_MS + 8 * HOUR_MS, 100_000)


def a_view(name: str = "east", usd: float = 1.0, *steps: PriceStep) -> ClusterView:
    price = PoolPrice("cpu", "owned", int(usd * 1e6), 0, NOW_MS, "test", steps=steps)
    return replace(
        DEAR_EU, identity=replace(DEAR_EU.identity, name=name), prices={"cpu": price}
    )


def planned(
    *views: ClusterView, job: Job | None = None, now_ms: int = NOW_MS, **spec: Any
) -> Plan:
    views = views or (a_view("east", 1.0, NIGHT),)
    asked = {"run": "x", "tenant": "default", "max_runtime": "2h", "defer": "12h", **spec}
    waits = job or a_job(created_ms=NOW_MS)
    fresh = [replace(v, capacity=replace(v.capacity, received_ms=now_ms)) for v in views]
    world = World(Fleet({v.identity.name: v for v in fresh}), {}, {}, now_ms)
    problem = build(world, [Waiting.under(Ruling(parse_job_spec(asked)), waits, 1)])
    return decide(problem)


def test_the_plan_says_from_when_and_what_that_saves() -> None:
    (unplaced,) = planned().unplaced
    assert unplaced.refusal.code is RefusalCode.DEFERRED
    at = format_utc(NIGHT_MS)
    assert unplaced.refusal.text == (
        f"east: deferred: from {at} a copy costs 0.20 USD in east/cpu, here and now 2.00; "
        f"saves 1.80 USD; wait until {at}"
    )


def test_the_moment_is_told_exactly_whenever_it_is_asked() -> None:
    (unplaced,) = planned(now_ms=NOW_MS + 12_345).unplaced
    assert unplaced.refusal.advice == f"wait until {format_utc(NIGHT_MS)}"


def test_it_starts_when_the_hour_has_come_and_nobody_puts_it_off_again() -> None:
    assert planned(now_ms=NIGHT_MS - 600_000).unplaced
    assert planned(now_ms=NIGHT_MS).assignments
    assert planned(now_ms=NIGHT_MS + HOUR_MS).assignments


def test_a_place_that_is_no_dearer_is_taken_at_once() -> None:
    (found,) = planned(a_view("east", 1.0, NIGHT), a_view("west", 0.1)).assignments
    assert found.pool == "west/cpu"


def test_only_who_says_so_waits_and_not_beyond_what_was_said() -> None:
    assert planned(defer="5h").assignments
    assert planned(defer="7h").unplaced
    without = {"run": "x", "tenant": "default", "max_runtime": "2h"}
    assert parse_job_spec(without).defer_s is None
    later = a_job(created_ms=NOW_MS - 10 * HOUR_MS)
    assert planned(job=later).assignments  # it has waited ten of its twelve hours


@pytest.mark.parametrize(("deadline", "waits"), [("8h", False), ("8h10m", False), ("8h20m", True)])
def test_a_deadline_leaves_max_runtime_and_a_margin(deadline: str, *, waits: bool) -> None:
    """Two hours from the night on end after eight; a margin of a quarter of an hour stays."""
    assert MARGIN_MIN_S == 900
    assert bool(planned(deadline=deadline).unplaced) is waits


def test_the_margin_grows_with_the_run() -> None:
    spec = parse_job_spec(
        {"run": "x", "tenant": "t", "max_runtime": "10h", "defer": "1w", "deadline": "2d"}
    )
    assert latest_start_ms(a_job(created_ms=NOW_MS), spec) == NOW_MS + (48 - 11) * HOUR_MS


def test_what_moves_and_what_has_begun_is_not_put_off() -> None:
    job, how = a_job(created_ms=NOW_MS), Outcome(OutcomeKind.MOVED, text="moves")
    moved = an_attempt(job, phase=AttemptPhase.ENDED, outcome=how)
    assert planned(job=replace(job, attempts=(moved,))).assignments


def test_the_explanation_says_to_wait_and_until_when() -> None:
    views = (a_view("east", 1.0, NIGHT),)
    asked = {"run": "x", "tenant": "default", "max_runtime": "2h", "defer": "12h"}
    world = World(Fleet({v.identity.name: v for v in views}), {}, {}, NOW_MS)
    one = Waiting.under(Ruling(parse_job_spec(asked)), a_job(created_ms=NOW_MS), 1)
    problem = build(world, [one])
    told = explain_unplaced(problem, decide(problem), problem.jobs[0].id)
    (reason,) = told.reasons
    assert reason.standing is Standing.CHEAPER_LATER
    assert told.advice is not None
    assert told.advice.changes[0].text == f"wait until {format_utc(NIGHT_MS)}"
