"""A slice at a real Grid Engine whose agent is gone: its tasks stop before they run again."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.chaos.federation import until
from tests.federation.test_mixed_sites import MixedFederation
from tests.schedulers.gridengine_cluster import GridEngine

pytestmark = [pytest.mark.etcd, pytest.mark.slow, pytest.mark.timeout(280)]
LOST_AFTER_S, GRACE_S = 60, 2
TASKS = 4


@pytest.fixture
def federation(cell: GridEngine) -> Iterator[MixedFederation]:
    """The grid alone; a host joins later."""
    directory = cell.scratch / "federation"
    directory.mkdir(mode=0o700)
    (directory / "marks").mkdir()
    made = MixedFederation(directory, grid=cell, kinds={"grid": "gridengine", "host1": "process"})
    try:
        made.start("grid")
        yield made
    finally:
        made.stop()


def beats(made: MixedFederation) -> list[tuple[float, str, str]]:
    """(time, attempt, task), twice a second from each that lives."""
    path = made.directory / "marks" / "beats"
    lines = path.read_text().splitlines() if path.exists() else []
    return [(float(at), uid, task) for at, uid, task in map(str.split, lines)]


def attempts(made: MixedFederation, job: str) -> list[dict[str, Any]]:
    body = made.job(job)
    return list(body.get("job", body)["attempts"])


def test_tasks_run_again_only_after_the_nodes_have_stopped_them(
    federation: MixedFederation,
) -> None:
    marks = federation.directory / "marks"
    run = (
        "trap '' TERM\n"
        f"while ! [ -e {marks}/go ]; do\n"
        f'  echo "$(date +%s.%N) $TRADEWIND_ATTEMPT $TRADEWIND_TASK" >> {marks}/beats; sleep 0.5\n'
        "done"
    )
    spec = {
        "name": "sweep", "run": run, "array": f"0-{TASKS - 1}%2", "preempt_grace": f"{GRACE_S}s",
        "on_disconnect": {"replace": True, "lost_after": f"{LOST_AFTER_S}s"},
    }  # fmt: skip
    (job,) = federation.submit([spec], "k")
    until(lambda: len({task for _, _, task in beats(federation)}) == 2, 60, "two tasks run")
    federation.join("host1", 8)
    federation.start_agent("host1")
    cut_s = time.time()
    federation.kill("grid")  # nobody is at the site who could stop anything
    until(lambda: len(attempts(federation, job)) == 2, LOST_AFTER_S * 2, "the replacement")
    first, second = attempts(federation, job)
    until(lambda: any(uid == second["uid"] for _, uid, _ in beats(federation)), 30, "it runs")
    seen = beats(federation)
    last_s = max(at for at, uid, _ in seen if uid == first["uid"])
    again_s = min(at for at, uid, _ in seen if uid == second["uid"])
    assert last_s < cut_s + LOST_AFTER_S + GRACE_S + 1.5
    assert again_s > cut_s - 1 + (LOST_AFTER_S + GRACE_S) * 1.1

    federation.start_agent("grid")
    until(lambda: attempts(federation, job)[0]["phase"] == "ended", 60, "the original's end")
    (marks / "go").touch()
    done = federation.wait([job], 60)[job]
    body = done.get("job", done)
    assert body["outcome"]["kind"] == "succeeded" and body["array"]["succeeded"] == TASKS
    kept = beats(federation)
    assert {task for _, uid, task in kept if uid == first["uid"]} == {"0", "1"}
    assert max(at for at, uid, _ in kept if uid == first["uid"]) == last_s
