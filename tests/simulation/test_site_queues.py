"""Jobs in the queues of sites: joined where that is best, left for a better place, begun once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from broker.simulator.run import Result
from tests.simulation.federations import fault as any_fault
from tests.simulation.federations import job, moments, pool, simulate

NEAR = pool("near", price_usd_per_accelerator_hour=1, free_nodes={8: 1})
DEAR = pool("far", price_usd_per_accelerator_hour=10, free_nodes={8: 1})
LIKE = pool("far", price_usd_per_accelerator_hour=1, free_nodes={8: 1})


def fault(kind: str, at: float | str, lasts: float, target: str = "", **rest: Any) -> Any:
    """Users who leave when they said, unless said otherwise."""
    return any_fault(kind, at, lasts, target, **({"share": 1} | rest))


def an_hour(name: str = "one", at: float = 10, lasts: float = 600, **rest: Any) -> dict[str, Any]:
    spec = {"expected_runtime": "1h", **rest.pop("spec", {})}
    return job(name, at, lasts, spec=spec, **rest)


def begun(result: Result) -> list[str]:
    """Who began at which site, in order."""
    return [line.split(" ", 1)[1] for line in result.transcript if " starts j" in line]


def test_a_queue_is_joined_where_what_is_free_is_ten_times_dearer() -> None:
    """Five minutes behind the site's own users, or at once at ten times the price."""
    result = simulate([an_hour()], [fault("crowd", 1, 300, "near")], [NEAR, DEAR])
    assert result.metrics["succeeded"] == 1
    (start,) = moments(result, "near starts")
    assert 301 <= start < 303 and not moments(result, "far starts")


def test_a_queue_of_hours_is_not_joined_to_save_half() -> None:
    result = simulate([an_hour()], [fault("crowd", 1, 4500, "near")], [NEAR, pool("far")])
    assert len(moments(result, "far starts")) == 1 and not moments(result, "placed at near")


@pytest.mark.parametrize("jobs", [3, 9])
def test_no_more_jobs_wait_at_a_site_than_may(jobs: int) -> None:
    """The rest waits at the broker, with a reason, and starts as places come free."""
    result = simulate(
        [an_hour(count=jobs, cards=4)], [fault("crowd", 1, 300, "near")], [NEAR], settle=4000
    )
    assert result.metrics["succeeded"] == jobs
    before = [at for at in moments(result, "placed at near") if at < 301]
    assert len(before) == min(jobs, 4)


def test_a_job_leaves_its_queue_when_a_better_place_opens() -> None:
    """The far site takes nothing for two minutes; what waits at the near one, for ten, then goes
    there: not before it is gone from the queue, and it begins once."""
    result = simulate(
        [an_hour()],
        [fault("crowd", 1, 600, "near"), fault("pause", 1, 120, "far")],
        [NEAR, pool("far", price_usd_per_accelerator_hour=1.05, free_nodes={8: 1})],
    )
    (start,) = moments(result, "far starts")
    assert 121 <= start < 150 and not moments(result, "near starts")
    (gone,) = moments(result, "-1 ended at near")
    (placed,) = moments(result, "-2 placed at far")
    assert gone < placed < start and result.metrics["withdrawals"] == 1


def test_a_job_stays_where_little_is_gained() -> None:
    """Half a minute of waiting is below the margin."""
    result = simulate(
        [an_hour()],
        [fault("crowd", 1, 150, "near"), fault("pause", 1, 130, "far")],
        [NEAR, LIKE],
    )
    assert len(moments(result, "near starts")) == 1 and result.metrics["withdrawals"] == 0


def test_a_job_does_not_leave_for_a_place_that_the_next_decision_thinks_less_of() -> None:
    """What a minute and a half of waiting costs is less than breaking into a whole node does."""
    result = simulate(
        [an_hour(lasts=20)],
        [fault("crowd", 1, 120, "near"), fault("pause", 1, 20, "far")],
        [NEAR, LIKE],
    )
    assert result.metrics["withdrawals"] == 0 and len(moments(result, "near starts")) == 1


def test_what_has_begun_meanwhile_stays() -> None:
    """The near site's users leave long before they said, while nobody hears of it; the far one
    opens just before. The broker takes the job back and is told that it runs: it stays."""
    result = simulate(
        [an_hour()],
        [
            fault("crowd", 1, 200, "near", share=0.1),
            fault("pause", 1, 195, "far"),
            fault("partition", 195, 20, "near"),
        ],
        [NEAR, LIKE],
        settle=7200,
    )
    assert len(begun(result)) == 1 and len(moments(result, "near starts")) == 1
    assert result.metrics["succeeded"] == 1 and result.metrics["withdrawals"] == 0
    assert moments(result, "-1 is to leave near for far/h100")


MOVING = [fault("crowd", 1, 900, "near"), fault("pause", 1, 120, "far")]


@pytest.mark.parametrize(("kind", "target"), [("broker_crash", ""), ("agent_crash", "near")])
def test_a_move_survives_a_crash_at_any_of_its_steps(kind: str, target: str) -> None:
    """Just before and just after each of them; whatever is told late or twice, it begins once."""
    whole = simulate([an_hour()], MOVING, [NEAR, LIKE])
    steps = ("is to leave near", "-1 ended at near", "-2 placed", "-2 reserved", "far starts")
    for step in steps:
        (at,) = moments(whole, step)
        for crash in (at - 0.002, at + 0.001):
            result = simulate([an_hour()], [*MOVING, fault(kind, crash, 15, target)], [NEAR, LIKE])
            assert len(begun(result)) == 1 and result.metrics["succeeded"] == 1, (step, crash)


def test_queues_under_ambiguous_commits() -> None:
    result = simulate(
        [an_hour(count=6, cards=2), an_hour("two", 60, count=3, cards=4)],
        [
            fault("store_ambiguous", 5, 300, share=0.4),
            fault("crowd", 1, 400, "near"),
            fault("pause", 1, 120, "far"),
        ],
        [NEAR, LIKE],
        settle=4000,
    )
    assert result.metrics["succeeded"] == 9 and len(begun(result)) == 9


def an_array(tasks: int, **rest: Any) -> dict[str, Any]:
    """Tasks of two cards each."""
    spec = {"array": f"0-{tasks - 1}", "expected_runtime": "1h", **rest.pop("spec", {})}
    return job("array", 10, rest.pop("lasts", 600), cards=2, spec=spec, **rest)


def tasks_begun(result: Result) -> list[str]:
    """Which tasks of the array began, by number, with those that began again."""
    return sorted(line.rpartition("/")[2] for line in begun(result))


def test_an_array_joins_a_queue_with_no_more_tasks_than_may_wait() -> None:
    """Four of six wait at the site, two at the broker; each begins once."""
    result = simulate([an_array(6)], [fault("crowd", 1, 300, "near")], [NEAR], settle=4000)
    assert result.metrics["succeeded"] == 1 and tasks_begun(result) == list("012345")
    starts = moments(result, "near starts")
    assert len([at for at in starts if 301 <= at < 303]) == 4


def test_a_slice_leaves_its_queue_when_a_better_place_opens() -> None:
    result = simulate(
        [an_array(4)],
        [fault("crowd", 1, 900, "near"), fault("pause", 1, 120, "far")],
        [NEAR, pool("far", price_usd_per_accelerator_hour=1.05, free_nodes={8: 1})],
    )
    assert result.metrics["succeeded"] == 1 and result.metrics["withdrawals"] == 1
    assert tasks_begun(result) == list("0123") and not moments(result, "near starts")
    (gone,) = moments(result, "-1 ended at near")
    assert all(121 <= gone < at < 160 for at in moments(result, "far starts"))


def test_a_slice_that_has_begun_meanwhile_stays() -> None:
    """The near site's users leave long before they said, while nobody hears of it."""
    result = simulate(
        [an_array(4)],
        [
            fault("crowd", 1, 200, "near", share=0.1),
            fault("pause", 1, 195, "far"),
            fault("partition", 195, 20, "near"),
        ],
        [NEAR, LIKE],
        settle=7200,
    )
    assert tasks_begun(result) == list("0123") and len(moments(result, "near starts")) == 4
    assert result.metrics["succeeded"] == 1 and result.metrics["withdrawals"] == 0


@pytest.mark.parametrize(("kind", "target"), [("broker_crash", ""), ("agent_crash", "near")])
def test_no_task_begins_twice_where_a_slice_moves_through_a_crash(kind: str, target: str) -> None:
    whole = simulate([an_array(4)], MOVING, [NEAR, LIKE])
    for step in ("is to leave near", "-1 ended at near", "-2 placed", "-2 reserved"):
        (at,) = moments(whole, step)
        for crash in (at - 0.002, at + 0.001):
            faults = [*MOVING, fault(kind, crash, 15, target)]
            result = simulate([an_array(4)], faults, [NEAR, LIKE])
            assert tasks_begun(result) == list("0123"), (step, crash)
            assert result.metrics["succeeded"] == 1, (step, crash)


SHORT_LIFE = [fault("crowd", 1, 400, "near"), fault("pause", 1, 20, "far")]


def leaving(point: str | None) -> Result:
    """A withdrawal in a short life, so that a crash at every step of it is affordable."""
    killed = [any_fault("broker_crash", point, 1)] if point else []
    return simulate([an_hour(lasts=20)], [*SHORT_LIFE, *killed], [NEAR, LIKE], settle=1800)


@pytest.mark.parametrize(
    ("kind", "points"),
    [
        ("commit", (*range(17, 23), *range(38, 51))),
        ("committed", (*range(17, 23), *range(38, 51))),
        ("send", range(1, 5)),
        ("sent", range(1, 5)),
    ],
)
def test_a_crash_at_every_step_of_a_withdrawal_runs_nothing_twice(
    kind: str, points: Sequence[int]
) -> None:
    """Before and after each commit and each message, as it joins the queue, and from the moment it
    is to leave until it runs elsewhere; beats of the leader in between are left out. `simulate`
    looks for two that run at once, lost jobs and places sold twice."""
    whole = leaving(None)
    assert whole.metrics["withdrawals"] == 1 and len(moments(whole, "far starts")) == 1
    killed_s = []
    for number in points:
        result = leaving(f"{kind}:{number}")
        found = [line for line in result.transcript if line.endswith("is killed")]
        assert found, number
        killed_s.append(float(found[0].split()[0]))
        assert len(begun(result)) == 1 and result.metrics["succeeded"] == 1, number
    (joined,), (leaves,) = moments(whole, "-1 placed at near"), moments(whole, "is to leave near")
    (again,) = moments(whole, "-2 placed at far")
    assert killed_s[0] <= joined + 0.002 and killed_s[-1] > again
    assert len([at for at in killed_s if leaves - 0.01 <= at <= again + 0.02]) >= 3
