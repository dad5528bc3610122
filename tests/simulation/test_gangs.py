"""Gangs beside small jobs: none starves, none keeps much from others, and who lost a member finds
its place again."""

from __future__ import annotations

from typing import Any

from broker.simulator.run import Result
from tests.simulation.federations import fault, job, moments, pool, simulate

HOUR = 3600
ONE = [pool("near")]
IMPATIENT = {"patience_s": 120}


def small(name: str, at: float, lasts: float, **rest: Any) -> dict[str, Any]:
    """Jobs that say how long they may run."""
    spec = {
        "resources": {"accelerators": f"H100:{rest.pop('cards', 1)}"},
        "max_runtime": f"{round(lasts) + 60}s",
        **rest.pop("spec", {}),
    }
    return job(name, at, lasts, spec=spec, **rest)


def gang(name: str, at: float, lasts: float, replicas: int = 2, **rest: Any) -> dict[str, Any]:
    spec = {
        "resources": {"accelerators": "H100:8", "replicas": replicas},
        "max_runtime": f"{round(lasts) + 600}s",
        **rest.pop("spec", {}),
    }
    return job(name, at, lasts, spec=spec, **rest)


def started(result: Result, name: str) -> float:
    """When the first attempt of a submission was placed."""
    job_id = next(
        line.split()[4] for line in result.transcript if f" user {name} has " in line
    )
    return moments(result, f"store {job_id}-1 placed")[0]


def stream(every: float, lasts: float, until: float, **rest: Any) -> list[dict[str, Any]]:
    """Small jobs that never end coming."""
    count = int(until / every)
    return [small(f"s{n}", 1 + n * every, lasts, **rest) for n in range(count)]


def test_no_gang_starves_under_small_jobs() -> None:
    """Sixteen cards, always wanted by jobs of one card; the gang of sixteen waits its patience,
    then as long as what runs may run, and starts."""
    jobs = [*stream(30, 900, 2 * HOUR), gang("gang", 600, 600)]
    result = simulate(jobs, pools=ONE, settings=IMPATIENT, settle=4 * HOUR)
    assert started(result, "gang") < 600 + 120 + 960 + 120 + 60
    assert any("queued capacity_held" in line for line in result.transcript)


def test_short_jobs_fill_what_is_kept_and_do_not_delay_the_gang() -> None:
    """While the gang's room is kept, jobs that end before it is there run in it."""
    long = [small(f"l{n}", 1 + n, 1800, cards=4) for n in range(3)]
    filler = [small(f"f{n}", 400 + n, 200) for n in range(4)]
    alone = simulate([*long, gang("gang", 60, 300)], pools=ONE, settings=IMPATIENT)
    with_short = simulate([*long, gang("gang", 60, 300), *filler], pools=ONE, settings=IMPATIENT)
    for n in range(4):
        assert started(with_short, f"f{n}") < 460
    assert started(with_short, "gang") <= started(alone, "gang") + 5


def test_a_job_that_would_not_end_in_time_waits_and_is_told_until_when() -> None:
    long = [small(f"l{n}", 1 + n, 1800, cards=4) for n in range(3)]
    result = simulate(
        [*long, gang("gang", 60, 300), small("late", 400, 3000)], pools=ONE, settings=IMPATIENT
    )
    assert started(result, "late") > started(result, "gang")
    assert any("queued capacity_held" in line for line in result.transcript)


def test_a_higher_priority_uses_what_is_kept_for_a_lower_one() -> None:
    long = [small(f"l{n}", 1 + n, 1800, cards=4) for n in range(3)]
    urgent = small("urgent", 400, 3000, spec={"priority": 900})
    result = simulate([*long, gang("gang", 60, 300), urgent], pools=ONE, settings=IMPATIENT)
    assert started(result, "urgent") < 460


def test_a_doomed_gang_does_not_win_each_cycle() -> None:
    """What was kept for it came to nothing (its site refuses it): others go on meanwhile, and
    something is kept for it only now and then."""
    jobs = [*stream(60, 300, 2 * HOUR), gang("doomed", 60, 300, cancel=2 * HOUR)]
    result = simulate(
        jobs,
        [fault("refuse", 60, 2 * HOUR, "near", share=0.3)],
        pools=ONE,
        settings={"patience_s": 60},
        settle=4 * HOUR,
    )
    assert result.metrics["succeeded"] >= 120 - 1
    assert result.metrics["wait_s_p50"] < 300


def test_lesson_28_a_gang_that_lost_a_member_finds_its_place_again() -> None:
    """Another tenant's endless queue does not take the nodes before the gang is back."""
    retry = {"retry": {"attempts": 3, "on": ["failed"]}}
    failing = gang("gang", 1, 300, exit=1, spec=retry)
    others = stream(20, 1200, 1200, spec={"tenant": "other"})
    others = [{**each, "at": each["at"] + 10} for each in others]
    result = simulate([failing, *others], pools=ONE, settle=6 * HOUR)
    job_id = next(line.split()[4] for line in result.transcript if " user gang has " in line)
    for number in (1, 2):
        (ended_s,) = moments(result, f"store {job_id}-{number} ended")
        (again_s,) = moments(result, f"store {job_id}-{number + 1} placed")
        assert again_s - ended_s < 10
    assert result.metrics["succeeded"] == 60


def test_the_hold_for_a_gangs_recovery_is_bounded() -> None:
    """A gang that fails again and again waits longer each time: 64 s after the seventh. Its place
    is kept for 60 s after each end, and then it is anybody's."""
    retry = {"retry": {"attempts": 9, "on": ["failed"]}}
    failing = gang("gang", 1, 10, exit=1, spec=retry)
    others = stream(5, 1200, 400, spec={"tenant": "other"})
    others = [{**each, "at": each["at"] + 5} for each in others]
    result = simulate(
        [failing, *others], pools=ONE, settings={"gang_recovery_s": 60}, settle=4 * HOUR
    )
    job_id = next(line.split()[4] for line in result.transcript if " user gang has " in line)
    (ended_s,) = moments(result, f"store {job_id}-7 ended")
    first_s = min(started(result, f"s{n}") for n in range(80))
    assert 60 <= first_s - ended_s < 64


def test_what_was_kept_for_a_gang_is_kept_until_the_same_moment_by_the_next_leader() -> None:
    """The hold is bounded whoever leads: a leader that dies while it lasts does not begin it anew,
    and jobs that would not end in time do not slip in between."""
    long = [small(f"l{n}", 1 + n, 900, cards=4) for n in range(3)]
    late = [small(f"x{n}", 420 + n, 1200, cards=4) for n in range(2)]
    jobs = [*long, gang("gang", 60, 300), *late]
    calm = simulate(jobs, pools=ONE, settings=IMPATIENT, settle=HOUR)
    crash = [fault("broker_crash", 400, 15)]
    led_anew = simulate(jobs, crash, pools=ONE, settings=IMPATIENT, settle=HOUR)
    assert any("is killed" in line for line in led_anew.transcript)
    assert started(led_anew, "gang") <= started(calm, "gang") + 20
    assert all(started(led_anew, f"x{n}") > started(led_anew, "gang") for n in range(2))
