"""What runs goes on at a better place: once, for less than it saves, never twice at the same time,
whoever leads; and never more at once than operators allow."""

from __future__ import annotations

from typing import Any

import pytest

from broker.simulator.run import Result
from tests.simulation.federations import job, moments, pool, simulate

CHEAP = pool("near", price_usd_per_accelerator_hour=1)
DEAR = pool("far", price_usd_per_accelerator_hour=3)
FREELY = {"disturbed_share_max": 1}
LONG_S = 5400.0


def busy(lasts: float = 600.0) -> dict[str, Any]:
    """All of the cheap place, for a while."""
    return job("busy", 1, lasts, spec={"resources": {"accelerators": "H100:8", "replicas": 2}})


def mover(at: float = 5, **rest: Any) -> dict[str, Any]:
    """Eight cards for an hour and a half, wherever there is room."""
    spec = {"movable": True, "expected_runtime": "90m", "resources": {"accelerators": "H100:8"}}
    spec |= rest.pop("spec", {})
    return job(rest.pop("name", "mover"), at, rest.pop("lasts", LONG_S), spec=spec, **rest)


def run(*jobs: dict[str, Any], faults: Any = (), **rest: Any) -> Result:
    settings = {**FREELY, **rest.pop("settings", {})}
    return simulate(jobs, faults, pools=(CHEAP, DEAR), settings=settings, settle=4 * 3600, **rest)


def test_a_job_that_may_move_goes_on_where_it_is_cheaper_once_there_is_room() -> None:
    result = run(busy(), mover())
    assert result.story["mover"] == "succeeded far:moved near:succeeded"
    assert result.metrics["moves"] == 1 and result.metrics["preemptions"] == 0
    assert 600 < moments(result, "queued moved")[0] < 700


def test_a_job_stays_where_it_runs_unless_it_says_otherwise() -> None:
    """Neither does one whose checkpoints nobody knows the interval of, nor what of an array has
    begun."""
    plain = {"movable": False}
    begun = job("array", 5, LONG_S, spec={"movable": True, "array": "0-3"}, cards=1)
    begun["spec"]["resources"] = {"accelerators": "H100:1"}
    result = run(busy(), mover(spec=plain), begun)
    assert result.metrics["moves"] == 0
    assert result.story["mover"] == "succeeded far:succeeded"


def test_what_is_kept_for_a_move_goes_to_nobody_else() -> None:
    """Another job of the same tenant and shape comes in the moment the mover leaves; it gets what
    is left, not the place the mover was promised."""
    late = job("late", 620.9, 600, spec={"resources": {"accelerators": "H100:8"}}, count=3)
    result = run(busy(), mover(), late)
    assert result.story["mover"] == "succeeded far:moved near:succeeded"
    assert len(moments(result, "placed at near")) >= 2


def test_a_job_moves_no_sooner_than_a_set_time_after_its_last_move() -> None:
    """A better place comes free after ten minutes, the best one after twenty."""
    whole = {"resources": {"accelerators": "H100:8", "replicas": 2}}
    result = simulate(
        [job("n", 1, 1200, spec=dict(whole), on="near"), job("m", 1, 600, spec=whole, on="mid"),
         mover(lasts=9000.0, spec={"expected_runtime": "150m"})],
        pools=(CHEAP, pool("mid"), pool("far", price_usd_per_accelerator_hour=5)),
        settings={**FREELY, "move_gap_s": 3600},
        settle=4 * 3600,
    )  # fmt: skip
    assert result.story["mover"] == "succeeded far:moved mid:moved near:succeeded"
    first, second = moments(result, "queued moved")
    assert 600 < first < 700 and first + 3600 <= second < first + 3700


def test_no_more_move_at_one_look_than_may() -> None:
    small = {"resources": {"accelerators": "H100:2"}}
    several = mover(count=6, spec=small, lasts=LONG_S)
    result = run(busy(), several, settings={"moves_max": 2, "move_look_s": 300})
    gone = moments(result, "queued moved")
    assert len(gone) == 6
    rounds = sorted(gone)
    assert [round(b - a) > 200 for a, b in zip(rounds[1::2], rounds[2::2], strict=False)] == [
        True,
        True,
    ]


def test_more_moves_than_the_share_wait_for_an_operator() -> None:
    """Nobody answers: all stay where they are, and one alone would have been let go."""
    small = {"resources": {"accelerators": "H100:4"}}
    result = simulate(
        [busy(), mover(count=4, spec=small)],
        pools=(CHEAP, DEAR),
        settings={"disturbed_share_max": 0.3},
        settle=4 * 3600,
    )
    assert result.metrics["moves"] == 0
    assert result.metrics["succeeded"] == 5


SHORT = {"settings": {**FREELY, "move_look_s": 1, "move_saving_min_usd": 0.001}}


def life(point: str | None) -> Result:
    """A move in a short life, so that a crash at every step of it is affordable."""
    faults = [{"at": point, "kind": "broker_crash", "for": 1}] if point else []
    spec = {"preempt_grace": "2s", "expected_runtime": "60s"}
    return simulate(
        [busy(8.0), mover(lasts=60.0, spec=spec)],
        faults,
        pools=(CHEAP, DEAR),
        settle=1800,
        **SHORT,
    )


def test_a_short_life_moves() -> None:
    assert life(None).story["mover"] == "succeeded far:moved near:succeeded"


@pytest.mark.parametrize(
    ("kind", "points"),
    [
        ("commit", range(30, 46, 2)),
        ("committed", range(31, 47, 2)),
        ("send", range(3, 7)),
        ("sent", range(3, 7)),
    ],
)
def test_a_crash_at_every_step_of_a_move_runs_nothing_twice(kind: str, points: range) -> None:
    """From the first start of the job until the second one runs. `simulate` looks for two running
    at once, lost jobs and places sold twice."""
    killed_s = []
    for number in points:
        at = f"{kind}:{number}"
        result = life(at)
        found = [line for line in result.transcript if line.endswith("is killed")]
        assert found, at
        killed_s.append(float(found[0].split()[0]))
        assert result.metrics["succeeded"] == 2 and result.metrics["starts"] == 3, at
        assert result.story["mover"] == "succeeded far:moved near:succeeded", at
    moved_s = moments(life(None), "queued moved")[0]
    assert min(killed_s) < moved_s < max(killed_s)


# Arrays ------------------------------------------------------------------------------------------


def array(tasks: str = "0-199%8", **rest: Any) -> dict[str, Any]:
    """Tasks of a card and five minutes, eight at a time."""
    spec = {"array": tasks, "resources": {"accelerators": "H100:1"}, "expected_runtime": "5m"}
    return job("array", 5, 300.0, spec=spec | rest.pop("spec", {}), **rest)


def test_the_tasks_of_an_array_that_have_not_begun_go_where_it_is_cheaper() -> None:
    """Its limit leaves no room for a further slice. Nothing is stopped, every task runs once."""
    went, stayed = run(busy(), array()), run(busy(), array(spec={"movable": False}))
    assert went.story["array"] == "succeeded far:succeeded near:succeeded"
    assert stayed.story["array"] == "succeeded far:succeeded"
    assert went.metrics["starts"] == stayed.metrics["starts"] == 201
    assert went.metrics["moves"] == 0
    assert went.metrics["usd"] < 0.6 * stayed.metrics["usd"]
    assert went.metrics["makespan_s"] < stayed.metrics["makespan_s"] + 60
    # What the slice had been given, four rounds at most, it runs.
    assert 600 < moments(went, "-2 placed at near")[0] < 600 + 60 + 5 * 300


def test_an_array_without_a_limit_uses_both_places() -> None:
    """The better place gets a slice of its own at once; the other goes on as long as there are
    tasks: starting goes before paying little."""
    result = run(busy(), array("0-399"))
    assert sorted(result.story["array"].split()[1:]) == ["far:succeeded", "near:succeeded"]
    assert moments(result, "-2 placed at near")[0] < 700
    assert result.metrics["starts"] == 401


def test_long_tasks_are_not_tied_to_the_first_place() -> None:
    """The first place has room for 16 at a time, the other opens after twenty minutes. Of 48 tasks
    of an hour each gets a part, so that all is over after little more than two hours, not three."""
    hours = array("0-47", spec={"expected_runtime": "1h"})
    result = run(busy(1200.0), {**hours, "duration": 3600.0})
    assert sorted(result.story["array"].split()[1:]) == ["far:succeeded", "near:succeeded"]
    assert result.metrics["makespan_s"] < 2.1 * 3600


def test_an_array_goes_nowhere_for_less_than_a_move_must_save() -> None:
    result = run(busy(), array(), settings={"move_saving_min_usd": 60})
    assert result.story["array"] == "succeeded far:succeeded"


def test_an_array_goes_elsewhere_no_sooner_than_a_set_time_after_it_went() -> None:
    """A better place comes free after ten minutes, the best one while its tasks go there."""
    whole = {"resources": {"accelerators": "H100:8", "replicas": 2}}
    stories = {}
    for gap_s in (600, 7200):
        result = simulate(
            [job("n", 1, 3000, spec=dict(whole), on="near"),
             job("m", 1, 600, spec=dict(whole), on="mid"), array()],
            pools=(CHEAP, pool("mid"), pool("far", price_usd_per_accelerator_hour=5)),
            settings={**FREELY, "move_gap_s": gap_s},
            settle=4 * 3600,
        )  # fmt: skip
        stories[gap_s] = result.story["array"]
        assert result.metrics["starts"] == 202
    assert stories == {
        600: "succeeded far:succeeded mid:succeeded near:succeeded",
        7200: "succeeded far:succeeded mid:succeeded",
    }


@pytest.mark.parametrize("at", [700, 1500, 2105.5, 2106])
def test_a_crash_while_an_array_goes_elsewhere_runs_nothing_twice(at: float) -> None:
    """The next leader looks for itself."""
    crash = {"at": at, "kind": "broker_crash", "for": 1}
    result = run(busy(), array(), faults=[crash])
    assert result.story["array"] == "succeeded far:succeeded near:succeeded"
    assert result.metrics["starts"] == 201 and result.metrics["succeeded"] == 2
