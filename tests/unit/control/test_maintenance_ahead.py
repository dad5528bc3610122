"""Windows a site reports ahead: no job may still run in them, whatever its start takes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from broker.control.build_problem import Waiting, World, build
from broker.control.change_words import advice_words
from broker.control.price_hours import windows_ahead
from broker.decide.decision import decide
from broker.decide.explain import Standing, explain_unplaced
from broker.model.fleet import ClusterView, Fleet
from broker.model.plan import Plan
from broker.model.policies import Ruling
from broker.model.problem import Problem, Window
from federation.jobs import parse_job_spec
from federation.refusals import RefusalCode
from federation.site_limits import ClosedWindow
from tests.unit.control.test_policy_problem import DEAR_EU, NOW_MS
from tests.unit.lifecycle.builders import JOB, a_job

HOUR_MS = 3_600_000


def a_window(from_h: float, until_h: float, reason: str = "") -> ClosedWindow:
    from_ms, until_ms = (round(NOW_MS + hours * HOUR_MS) for hours in (from_h, until_h))
    return ClosedWindow(from_ms, until_ms, reason)


def decided(*windows: ClosedWindow, start_ms: int = 0, **spec: Any) -> tuple[Problem, Plan]:
    assert DEAR_EU.capacity is not None
    capacity = replace(DEAR_EU.capacity, windows=windows, start_p50_ms=start_ms)
    view: ClusterView = replace(DEAR_EU, capacity=capacity)
    job = a_job(created_ms=NOW_MS)
    asked = parse_job_spec({"run": "x", "tenant": "default", "max_runtime": "4h", **spec})
    world = World(Fleet({view.identity.name: view}), {}, {}, NOW_MS)
    problem = build(world, [Waiting.under(Ruling(asked), job, 1)])
    return problem, decide(problem)


def test_lesson_45_a_job_that_would_run_into_maintenance_is_told_what_helps() -> None:
    """At a peer jobs waited for ever before a maintenance reservation."""
    problem, plan = decided(a_window(3, 6, "new power"), expected_runtime="1h")
    told = explain_unplaced(problem, plan, JOB)
    (reason,) = told.reasons
    assert reason.standing is Standing.MAINTENANCE
    assert reason.refusals[0].code is RefusalCode.MAINTENANCE
    assert "maintenance from 3h to 6h (new power)" in reason.refusals[0].text
    assert told.advice is not None
    assert advice_words(told.advice, problem.jobs[0]) == "max_runtime 4h -> 3h"
    assert decided(a_window(3, 6), expected_runtime="1h", max_runtime="3h")[1].assignments
    assert decided(a_window(4, 6))[1].assignments


def test_the_time_until_it_starts_counts() -> None:
    assert decided(a_window(4, 6), start_ms=60_000)[1].assignments == ()
    assert decided(a_window(4.1, 6), start_ms=60_000)[1].assignments


def test_without_windows_how_long_a_job_may_run_decides_nothing() -> None:
    assert decided()[0].jobs[0].max_runtime_h is None


def test_windows_that_meet_are_one_and_the_one_in_force_is_left_to_the_site() -> None:
    found = windows_ahead(
        [a_window(5, 7, "b"), a_window(-1, 1, "now"), a_window(2, 5, "a"), a_window(9, 10)],
        NOW_MS,
    )
    assert found == (Window(2.0, 7.0, "b"), Window(9.0, 10.0))
    assert windows_ahead([a_window(2, 9, "a"), a_window(3, 4, "b")], NOW_MS) == (
        Window(2.0, 9.0, "b"),
    )
