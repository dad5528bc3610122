"""A site falls silent for good and comes back: what was to be replaced has stopped there by itself
before another starts, what said nothing runs on, one result of each counts."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.chaos.federation import RealFederation, until

pytestmark = [pytest.mark.etcd, pytest.mark.slow, pytest.mark.timeout(280)]
LOST_AFTER_S, GRACE_S = 60, 2


@pytest.fixture
def federation(tmp_path: Path) -> Iterator[RealFederation]:
    made = RealFederation(tmp_path)
    try:
        made.start("us-east", "eu-west")
        yield made
    finally:
        made.stop()


def lines(marks: Path, name: str) -> list[tuple[float, str, str]]:
    """(time, start or end, attempt) as a job wrote them."""
    if not (marks / name).exists():
        return []
    found = (line.split() for line in (marks / name).read_text().splitlines())
    return [(float(at), what, uid) for at, what, uid in found]


def attempts(federation: RealFederation, job: str) -> list[dict[str, Any]]:
    body = federation.job(job)
    return list(body.get("job", body)["attempts"])


def test_replaced_only_after_the_site_has_stopped_it(federation: RealFederation) -> None:
    marks = federation.directory / "beats"
    marks.mkdir()

    def beating(name: str) -> dict[str, Any]:
        """Writes down twice a second that it lives, and does not stop for a signal."""
        file = marks / name
        run = (
            "trap '' TERM\n"
            f"while ! [ -e {marks}/go ]; do\n"
            f'  echo "$(date +%s.%N) beat $TRADEWIND_ATTEMPT" >> {file}; sleep 0.5\n'
            "done"
        )
        return {"name": name, "run": run, "placement": {"clusters": ["us-east"]}}

    replaced = beating("replaced") | {
        "placement": {},
        "on_disconnect": {"replace": True, "lost_after": f"{LOST_AFTER_S}s"},
        "preempt_grace": f"{GRACE_S}s",
    }
    job, patient = federation.submit([replaced, beating("patient")], "k")
    until(lambda: lines(marks, "replaced") and lines(marks, "patient"), 30, "both run")
    (first,) = attempts(federation, job)
    home = first["cluster"]
    cut_s = time.time()
    federation.kill(home)  # its keeper lives, and no heartbeat comes any more
    until(lambda: len(attempts(federation, job)) == 2, LOST_AFTER_S * 2, "the replacement")
    until(lambda: len({u for _, _, u in lines(marks, "replaced")}) == 2, 30, "it runs")
    beats = lines(marks, "replaced")
    last_s = max(at for at, _, uid in beats if uid == first["uid"])
    again_s = min(at for at, _, uid in beats if uid != first["uid"])
    assert last_s < cut_s + LOST_AFTER_S + GRACE_S + 1.5
    assert again_s > cut_s - 1 + (LOST_AFTER_S + GRACE_S) * 1.1
    shown = attempts(federation, job)
    assert shown[0]["superseded_at"] and shown[0]["phase"] != "ended"
    assert shown[1]["cluster"] != home

    federation.start_agent(home)
    until(lambda: attempts(federation, job)[0]["phase"] == "ended", 40, "the original's end")
    ended = attempts(federation, job)[0]
    assert (ended["outcome"]["kind"], ended["outcome"]["code"]) == ("lost", "fenced")
    (marks / "go").touch()
    done = federation.wait([job, patient], 40)
    kinds = {each.get("job", each)["outcome"]["kind"] for each in done.values()}
    assert kinds == {"succeeded"}
    assert len({uid for _, _, uid in lines(marks, "patient")}) == 1
