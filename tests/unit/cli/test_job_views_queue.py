"""A job in the queue of its site, as the lists show it."""

from __future__ import annotations

from broker.cli.formatting import state
from broker.cli.job_views import why

WAITS = {
    "uid": "j1-1", "cluster": "alpha", "phase": "starting", "queued": True,
    "expected_start_at": "2026-11-30T22:00:00Z",
}  # fmt: skip


def test_it_is_queued_at_its_site_and_says_when_it_is_expected_to_start() -> None:
    job = {"phase": "placed", "outcome": None, "attempts": [WAITS]}
    assert state(job) == state(WAITS) == "queued at site"
    assert why(job) == "waits in the queue of alpha, expected to start 2026-11-30T22:00:00Z"


def test_once_it_runs_it_is_shown_like_any_other() -> None:
    runs = {**WAITS, "phase": "running", "expected_start_at": None}
    job = {"phase": "running", "outcome": None, "attempts": [runs]}
    assert state(job) == "running" and "queue" not in why(job)
