"""What runs makes room: for lenders always, for higher priorities where the rules say so; never in
chains, never much at once without an operator."""

from __future__ import annotations

from typing import Any

from broker.simulator.run import Result
from tests.simulation.federations import job, moments, pool, simulate

ONE = [pool("near")]
LAB = [
    {"name": "lender", "quota_accelerators": 8, "cohort": "lab"},
    {"name": "borrower", "quota_accelerators": 8, "cohort": "lab"},
]


def of(tenant: str, at: float, cards: int = 4, **rest: Any) -> dict[str, Any]:
    spec = {"tenant": tenant, "resources": {"accelerators": f"H100:{cards}"}}
    spec |= rest.pop("spec", {})
    return job(f"{tenant}-{at:g}", at, rest.pop("lasts", 3600.0), spec=spec, **rest)


def runs(result: Result, name: str) -> int:
    """How many of a submission's jobs had an attempt that was preempted."""
    return sum("preempted" in how for label, how in result.story.items() if label.startswith(name))


def test_what_was_lent_comes_back_when_it_is_wanted() -> None:
    """The borrower has all sixteen; the lender wants eight, and exactly eight are given back, by
    those that lose least: the youngest."""
    result = simulate(
        [of("borrower", 1, count=2), of("borrower", 600, count=2), of("lender", 900, count=2)],
        pools=ONE,
        tenants=LAB,
        settings={"disturbed_share_max": 1},
        settle=4 * 3600,
    )
    assert runs(result, "borrower-600") == 2 and runs(result, "borrower-1.") == 0
    assert runs(result, "lender") == 0
    assert result.metrics["succeeded"] == 6 and result.metrics["preemptions"] == 2
    back = moments(result, "placed at near")[4:6]
    assert all(900 <= at < 960 for at in back)


def test_a_preempted_job_waits_with_a_reason_and_runs_again() -> None:
    result = simulate(
        [of("borrower", 1, count=4), of("lender", 300, lasts=600.0)],
        pools=ONE,
        tenants=LAB,
        settings={"disturbed_share_max": 1},
        settle=4 * 3600,
    )
    assert any("queued preempted" in line for line in result.transcript)
    assert any("queued borrow_limit" in line for line in result.transcript)
    assert result.metrics["succeeded"] == 5 and result.metrics["preemptions"] == 1


def test_a_higher_priority_waits_unless_the_rules_say_otherwise() -> None:
    low = of("default", 1, count=4, lasts=900.0)
    high = of("default", 60, spec={"priority": 900, "tenant": "default"}, lasts=60.0)
    waits = simulate([low, high], pools=ONE)
    assert waits.metrics["preemptions"] == 0
    takes = simulate(
        [low, high], pools=ONE, settings={"preempt": "lower_priority", "disturbed_share_max": 1}
    )
    assert takes.metrics["preemptions"] == 1
    assert takes.metrics["succeeded"] == 5


def test_preemption_never_cascades() -> None:
    """Three priorities, all places taken by the lowest; the middle takes from it, the highest from
    whoever is lowest then: nothing that was stopped stops anything, and each is stopped once for
    each that came above."""
    priorities = {"low": 0, "middle": 500, "high": 900}

    def at(name: str, at_s: float, count: int) -> dict[str, Any]:
        spec = {"priority": priorities[name], "resources": {"accelerators": "H100:8"}}
        return job(name, at_s, 1200, spec=spec, count=count)

    result = simulate(
        [at("low", 1, 2), at("middle", 60, 2), at("high", 120, 1)],
        pools=ONE,
        settings={"preempt": "lower_priority", "disturbed_share_max": 1},
        settle=4 * 3600,
    )
    assert result.metrics["succeeded"] == 5
    assert result.metrics["preemptions"] == 3  # two for the middle, one for the highest
    assert runs(result, "low") == 2 and runs(result, "middle") == 1 and runs(result, "high") == 0


def test_more_than_a_share_waits_for_an_operator() -> None:
    """Nobody answers: the borrower keeps all of it, and the lender waits until it gives up."""
    result = simulate(
        [of("borrower", 1, count=4, lasts=1800.0), of("lender", 300, count=2, cancel=1500)],
        pools=ONE,
        tenants=LAB,
        settle=4 * 3600,
    )
    assert result.metrics["preemptions"] == 0
    assert result.metrics["succeeded"] == 4 and result.metrics["cancelled"] == 2


def test_a_preemption_survives_the_death_of_its_leader() -> None:
    result = simulate(
        [of("borrower", 1, count=4), of("lender", 300, lasts=600.0)],
        [
            {"kind": "broker_crash", "at": 300.6, "for": 30},
            {"kind": "flap", "at": 331, "for": 40, "target": "near", "every": 2},
        ],
        pools=ONE,
        tenants=LAB,
        settings={"disturbed_share_max": 1},
        settle=4 * 3600,
    )
    assert result.metrics["succeeded"] == 5 and result.metrics["preemptions"] == 1


def test_lesson_26_a_site_full_of_work_that_must_give_way_is_not_full_for_who_outranks_it() -> None:
    """Both sites report nothing free. A gang of a higher priority starts at once all the same,
    where that loses least: what its priority could have is known job by job, not reported."""

    def filler(name: str, at: float, on: str) -> dict[str, Any]:
        spec = {"priority": 100, "resources": {"accelerators": "H100:8"}}
        return job(name, at, 7200, spec=spec, on=on, count=2)

    high = {"priority": 900, "resources": {"accelerators": "H100:8", "replicas": 2}}
    result = simulate(
        [filler("old", 1, "near"), filler("young", 500, "far"), job("gang", 900, 600, spec=high)],
        pools=[pool("near"), pool("far", price_usd_per_accelerator_hour=3)],
        settings={"preempt": "lower_priority", "disturbed_share_max": 1},
        settle=4 * 3600,
    )
    assert result.story["gang"] == "succeeded far:succeeded"
    assert runs(result, "young") == 2 and runs(result, "old") == 0
    (placed_s,) = [at for at in moments(result, "placed at far") if at > 900][:1]
    assert placed_s < 930
