"""The page about the format tells the truth: its example, and every key of the reader."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from broker.decide import problem_file, warm_file
from broker.decide.answer import plan_to_json
from broker.decide.decision import decide
from broker.decide.problem_file import parse_problem

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "planning-problem.md").read_text()
BLOCKS = re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)


def test_the_example_gets_the_answer_on_the_page() -> None:
    problem = parse_problem(BLOCKS[0])
    stated = json.loads(BLOCKS[1])
    answer = plan_to_json(problem, decide(problem), stated["cpu_s"])
    money = {"objective_usd", "bound_usd", "cost_usd"}
    assert {k: v for k, v in answer.items() if k not in money} == {
        k: v for k, v in stated.items() if k not in money
    }
    assert all(answer[key] == pytest.approx(stated[key]) for key in money)


@pytest.mark.parametrize(
    "keys",
    [
        problem_file.PROBLEM_KEYS,
        problem_file.OBJECTIVE_KEYS,
        problem_file.CLUSTER_KEYS,
        problem_file.POOL_KEYS,
        problem_file.NODES_KEYS,
        problem_file.TENANT_KEYS,
        problem_file.JOB_KEYS,
        warm_file.WARM_KEYS,
        warm_file.PRICES_KEYS,
        warm_file.ASSIGNMENT_KEYS,
        warm_file.POOL_PRICE_KEYS,
        warm_file.TENANT_PRICE_KEYS,
    ],
)
def test_every_key_is_on_the_page(keys: dict[str, problem_file.Key]) -> None:
    assert [key for key in keys if not re.search(rf"\b{key}\b", PAGE)] == []
