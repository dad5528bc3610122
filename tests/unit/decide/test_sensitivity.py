"""Half and twice the weights: where the order of clusters stands, and where it does not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from broker.decide.problem_file import problem_from_json
from broker.decide.sensitivity import Trial, sensitivity
from tests.unit.cli.conftest import Cli, cli, server  # noqa: F401
from tests.unit.decide.problems import Document, a_job, a_pool, a_problem


def slow_and_cheap_or_quick_and_dear(*jobs: Document) -> Document:
    """An hour's delay at 1 USD an hour, or none at 2."""
    return a_problem(
        clusters=[
            {"name": "slow", "region": "east", "start_delay_s": 3600},
            {"name": "quick", "region": "east"},
        ],
        pools=[
            a_pool("s", cluster="slow"),
            a_pool("q", cluster="quick", price_usd_per_accelerator_hour=2.0),
        ],
        jobs=list(jobs),
    )


def by_weight(document: Document) -> dict[tuple[str, float], Trial]:
    trials = sensitivity(problem_from_json(document))
    return {(trial.weight, trial.factor): trial for trial in trials}


@pytest.mark.parametrize(
    ("value", "half", "twice"),
    [(0.4, None, None), (0.7, None, ("slow", "quick")), (1.5, ("quick", "slow"), None),
     (3.0, None, None)],
)  # fmt: skip
def test_where_the_first_choice_depends_on_the_value_of_time(
    value: float, half: Any, twice: Any
) -> None:
    found = by_weight(slow_and_cheap_or_quick_and_dear(a_job(value_of_time_usd_per_h=value)))
    for factor, expected in ((0.5, half), (2.0, twice)):
        trial = found["value_of_time_usd_per_h", factor]
        assert trial.classes == 1
        shifts = [(shift.first, shift.then) for shift in trial.shifts]
        assert shifts == ([expected] if expected else [])
        assert all(shift.more_usd > 0 for shift in trial.shifts)


def test_jobs_without_a_weight_are_not_counted_and_kinds_are_counted_once() -> None:
    jobs = [a_job("a"), *(a_job(f"b{n}", value_of_time_usd_per_h=1.5) for n in range(5))]
    trial = by_weight(slow_and_cheap_or_quick_and_dear(*jobs))["value_of_time_usd_per_h", 0.5]
    assert (trial.classes, trial.first_differs) == (1, 1)
    assert (trial.shifts[0].job, trial.shifts[0].copies) == ("b0", 5)


def test_a_cluster_the_job_may_not_go_to_is_not_ranked() -> None:
    job = a_job(value_of_time_usd_per_h=1.5, max_price_usd_per_accelerator_hour=1.5)
    found = by_weight(slow_and_cheap_or_quick_and_dear(job))
    assert all(not trial.order_differs for trial in found.values())


def test_a_file_is_asked_without_a_broker(cli: Cli, tmp_path: Path) -> None:  # noqa: F811
    file = tmp_path / "p.json"
    document = slow_and_cheap_or_quick_and_dear(a_job(value_of_time_usd_per_h=1.5))
    file.write_text(json.dumps(document))
    ran = cli("policy", "sensitivity", "--problem", str(file))
    assert ran.code == 0 and "depends on what time or distance is worth" in ran.out
    assert "value of time" in ran.out and "quick" in ran.out
    told = json.loads(cli("policy", "sensitivity", "--problem", str(file), "--json").out)
    assert told["trials"][0]["shifts"][0]["then"] == "slow"
    file.write_text(json.dumps(slow_and_cheap_or_quick_and_dear(a_job())))
    ran = cli("policy", "sensitivity", "--problem", str(file))
    assert ran.out.startswith("No job here has a weight")
    assert cli("policy", "sensitivity", "--problem", str(tmp_path / "none")).code == 2
