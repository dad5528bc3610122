"""The lesson about data in another region, as far as it applies here.

The deciding core prices where data lies. The running broker refuses a job whose inputs nobody knows
the place or the size of rather than placing it as if they cost nothing.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from broker.control.admission_rules import input_faults
from broker.decide.decision import decide
from broker.decide.problem_file import parse_problem
from federation.jobs import parse_job_spec
from tests.unit.decide.problems import a_job, a_pool, a_problem

HERE_AND_THERE: dict[str, Any] = {
    "clusters": [{"name": "c0", "region": "east"}, {"name": "c1", "region": "west"}],
    "egress_usd_per_gb": [[0, 0.09], [0.09, 0]],
}


def placed(**job: Any) -> tuple[str, float]:
    """Where one job goes (data in the east; west is a dollar cheaper), and what all costs."""
    pools = [
        a_pool("east", cluster="c0", price_usd_per_accelerator_hour=3),
        a_pool("west", cluster="c1", price_usd_per_accelerator_hour=2),
    ]
    data = {"data_region": "east", **job}
    text = json.dumps(a_problem(**HERE_AND_THERE, pools=pools, jobs=[a_job(**data)]))
    plan = decide(parse_problem(text))
    return plan.assignments[0].pool, plan.cost_usd


def test_lesson_24_a_job_stays_with_its_data_where_moving_it_costs_more() -> None:
    assert placed(input_gb=1_000) == ("east", 3.0)


def test_lesson_24_moving_a_little_data_to_a_cheaper_place_is_fine() -> None:
    assert placed(input_gb=1) == ("west", 2.09)


def test_lesson_24_where_it_must_move_the_transfer_is_in_the_bill() -> None:
    pool, cost_usd = placed(input_gb=1_000, regions=["west"])
    assert (pool, round(cost_usd, 6)) == ("west", 92.0)


@pytest.mark.parametrize(
    ("item", "named"),
    [
        ({"dataset": "imagenet"}, ["inputs[0].dataset"]),
        ({"uri": "https://data.example/x.tar"}, ["inputs[0].size", "inputs[0].regions"]),
    ],
)
def test_lesson_24_the_broker_takes_no_inputs_whose_place_it_does_not_know(item, named) -> None:
    faults = input_faults(parse_job_spec({"run": "true", "inputs": [item]}), {})
    assert [fault.path for fault in faults] == named
    assert all(fault.remedy for fault in faults)
