"""What the promise of `on_disconnect.replace` rests on: where it is broken, a checker says so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from broker.simulator.run import Result, prepare, run
from broker.simulator.scenario import scenario_from
from tests.simulation.federations import FAR, NEAR, fault, job, moments, simulate

REPLACED = {"on_disconnect": {"replace": True, "lost_after": "60s"}, "preempt_grace": "5s"}


def silent(*more: dict[str, Any], **rest: Any) -> Result:
    """A long job whose site is silent from 30 s to 330 s; violations are the caller's."""
    body = {
        "fleet": {
            "clusters": [{"name": name, "region": name} for name in ("near", "far")],
            "pools": [NEAR, FAR],
        },
        "workload": {"jobs": [job("a", 1, 600, spec=REPLACED)]},
        "faults": [fault("partition", 30, 300, "near"), *more],
        **rest,
    }
    return run(prepare(scenario_from(body), Path.cwd()))


def test_a_site_that_keeps_its_promise_has_stopped_before_another_starts() -> None:
    result = silent()
    assert not result.violations
    (stopped_s,), (started_s,) = moments(result, "near ends"), moments(result, "far starts")
    assert 30 + 60 + 5 - 6 < stopped_s < started_s


def test_a_site_that_breaks_it_is_seen_to() -> None:
    result = silent(fault("unfenced", 0, 400, "near"))
    assert any("starts at far while" in text for text in result.violations)


def test_back_with_a_job_that_should_have_stopped_it_is_stopped() -> None:
    """Even then one copy is left, and its result alone counts."""
    result = silent(fault("unfenced", 0, 400, "near"))
    (stopped_s,) = moments(result, "near ends", "cancelled")
    assert 330 < stopped_s < 360
    assert result.story == {"a": "succeeded near:lost far:succeeded"}


def test_a_leader_that_is_none_any_more_puts_no_deadline_off() -> None:
    """The brokers reach the site and not the store: nobody is known to lead, so the site stops what
    it may have to stop; what said nothing runs on."""
    result = simulate(
        [job("a", 1, 600, spec=REPLACED), job("b", 1, 600)],
        [fault("store_down", 30, 300)],
    )
    (stopped_s,) = moments(result, "near ends", "fenced")
    assert 30 + 60 - 6 < stopped_s < 30 + 60 + 5 + 6
    assert result.story["b"] == "succeeded near:succeeded"
    assert result.story["a"].endswith(":succeeded")


def test_two_brokers_cut_from_each_other_never_run_it_twice() -> None:
    """The old leader still hears the site, the new one does not."""
    for at_s in (20, 40, 85, 100):
        result = silent(fault("broker_cut_off", at_s, 120, "broker-1"), brokers=2)
        assert not result.violations


def test_an_attempt_accepted_but_not_started_before_the_silence_never_starts() -> None:
    """Its site is slow to start it; by then another may run."""
    result = simulate(
        [job("a", 20, 60, spec=REPLACED)],
        [fault("slow", 1, 600, "near", factor=150), fault("partition", 30, 300, "near")],
    )
    assert not moments(result, "near starts")
    assert result.story == {"a": "succeeded near:lost far:succeeded"}


@pytest.mark.parametrize("kind", ["agent_crash", "deaf"])
def test_a_site_without_its_agent_or_scheduler_keeps_its_promise(kind: str) -> None:
    result = simulate([job("a", 1, 600, spec=REPLACED)], [fault(kind, 30, 300, "near")])
    assert len(moments(result, "near ends", "fenced")) == 1


