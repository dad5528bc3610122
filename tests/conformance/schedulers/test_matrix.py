"""The matrix in the page on schedulers is that of the recorded runs, which are of this suite."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from regional_agent.conformance.cases import ALL
from regional_agent.conformance.matrix import with_matrix

DOCS = Path(__file__).resolve().parents[3] / "docs"
RECORDED = [json.loads(path.read_bytes()) for path in sorted((DOCS / "conformance").glob("*.json"))]


def test_the_page_shows_what_was_recorded() -> None:
    text = (DOCS / "schedulers.md").read_text(encoding="utf-8")
    assert with_matrix(text, RECORDED) == text, "run: python docs/draw_schedulers.py"


@pytest.mark.parametrize("run", RECORDED, ids=lambda run: run["scheduler"])
def test_a_recorded_run_is_of_this_suite_and_nothing_failed(run: dict) -> None:
    assert [(c["case"], c["says"]) for c in run["cases"]] == [(c.name, c.says) for c in ALL]
    assert not [c for c in run["cases"] if c["result"] == "failed"]
