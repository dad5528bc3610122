"""What people see of a job whose site was silent: where it counts, and what was replaced."""

from __future__ import annotations

from typing import Any

from broker.cli.formatting import state
from broker.cli.job_views import where


def attempt(cluster: str, phase: str, **rest: Any) -> dict[str, Any]:
    return {"uid": f"j-{cluster}", "cluster": cluster, "phase": phase, "outcome": None, **rest}


GONE = attempt("near", "running", superseded_at="2026-11-30T17:00:00Z")
FENCED = {**GONE, "phase": "ended", "outcome": {"kind": "lost", "code": "fenced"}}


def test_a_job_is_where_it_counts() -> None:
    assert where({"attempts": [GONE, attempt("far", "running")]}) == "far"


def test_while_nothing_took_its_place_the_last_one_is_shown() -> None:
    assert where({"attempts": [GONE]}) == "near"


def test_a_superseded_attempt_says_so() -> None:
    assert state(GONE) == "running, superseded"
    assert state(FENCED) == "lost (fenced), superseded"
    assert state(attempt("far", "running")) == "running"
