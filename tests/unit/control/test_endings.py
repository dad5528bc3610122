"""When a job will have ended: what is claimed is computed, and says from what."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from broker.control.endings import Ending, RunTime, ending, more_nodes, run_time
from broker.control.viewing import Viewer
from federation.jobs import parse_job_spec
from federation.units import format_utc, parse_rfc3339_ms
from tests.unit.control.federation import Federation, Site, until
from tests.unit.control.test_policies_at_work import ended, submit
from tests.unit.feedback.builders import a_job

ADA = Viewer("ada", ("default",))


def spec(**more: Any) -> Any:
    return parse_job_spec({"run": "x", "name": "train", "tenant": "default", **more})


def runs(*took_s: int) -> list[Any]:
    return [
        a_job(f"j{n}", started_ms=1_000, ended_ms=1_000 + s * 1000) for n, s in enumerate(took_s)
    ]


def test_earlier_runs_of_the_name_say_how_long_the_next_one_takes() -> None:
    known = run_time(spec(expected_runtime="1m"), runs(*range(100, 200)))
    assert known == RunTime(150.0, 190.0, "100 earlier runs", "90 %")


@pytest.mark.parametrize(
    ("earlier", "more", "expected"),
    [
        (runs(1, 2, 3, 4), {"expected_runtime": "1m", "max_runtime": "5m"},
         RunTime(60.0, 300.0, "expected_runtime", "at most")),
        ([replace(r, name="other") for r in runs(*range(9))], {"max_runtime": "5m"},
         RunTime(300.0, 300.0, "max_runtime", "at most")),
        (runs(*range(9)), {"array": "0-9", "expected_runtime": "1m"},
         RunTime(60.0, 60.0, "expected_runtime", "at most")),
        ([], {}, None),
    ],
)  # fmt: skip
def test_where_too_few_runs_are_known_the_job_speaks_for_itself(
    earlier: list[Any], more: dict[str, Any], expected: RunTime | None
) -> None:
    assert run_time(spec(**more), earlier) == expected


def test_an_array_runs_in_waves() -> None:
    known = RunTime(60.0, 90.0, "", "")
    assert ending((1.0, 5.0), known, 0) == Ending(61_000, 95_000)
    assert ending((1.0, 5.0), known, 0, tasks=10, at_once=4) == Ending(181_000, 275_000)


@pytest.fixture
async def fed(tmp_path: Path) -> AsyncIterator[Federation]:
    made = await Federation.make(
        tmp_path, Site("us-east", 2, price_usd=0.05), Site("eu-west", 8, price_usd=0.09)
    )
    plane = await made.start()
    views = plane.services.control.fleet
    await until(lambda: all(v.capacity and v.prices for v in views().clusters.values()))
    yield made
    await made.kill()
    await made.sites.close()


async def test_a_dry_run_says_when_it_ends_and_whether_the_deadline_holds(
    fed: Federation,
) -> None:
    assert fed.plane is not None
    control, now_ms = fed.plane.services.control, fed.backends.clock.now_ms()
    tight = spec(expected_runtime="1h", max_runtime="3h", deadline=format_utc(now_ms + 7_200_000))
    told = (await control.dry_run(tight, "default", ADA))["ends"]
    assert abs(parse_rfc3339_ms(told["expected_at"]) - now_ms - 3_600_000) < 60_000
    assert abs(parse_rfc3339_ms(told["late_at"]) - now_ms - 10_800_000) < 60_000
    assert (told["slips"], told["at_risk"], told["basis"]) == (False, True, "expected_runtime")
    wide = spec(array="0-7%2", expected_runtime="1h", max_runtime="3h")
    told = (await control.dry_run(wide, "default", ADA))["ends"]
    assert abs(parse_rfc3339_ms(told["expected_at"]) - now_ms - 4 * 3_600_000) < 60_000
    (other,) = told["alternatives"]
    assert other["what"] == "4 tasks at once"
    assert abs(parse_rfc3339_ms(other["expected_at"]) - now_ms - 2 * 3_600_000) < 60_000
    assert other["difference_usd"] > 0, "two of them go to the dearer place"


async def test_a_running_job_that_slips_is_written_down_once_and_shown(fed: Federation) -> None:
    for site in fed.sites.sites.values():
        site.hold, site.took_ms = True, (0, 2_500)  # it starts later than anybody expects
    assert fed.plane is not None and fed.plane.office.term is not None
    plane, clock = fed.plane, fed.backends.clock
    due = format_utc(clock.now_ms() + 3_602_000)
    (late,) = await submit(fed, expected_runtime="1h", max_runtime="2h", deadline=due)
    (calm,) = await submit(fed, expected_runtime="1h", max_runtime="2h", deadline="5h")
    projection = plane.services.projection
    await until(lambda: all((j := projection.job(x)) and j.started_ms for x in (late, calm)))
    deadlines = plane.office.term.deadlines
    async with asyncio.timeout(15):
        while not deadlines.slipping:
            await asyncio.sleep(0.2)
            await deadlines.look()
    await deadlines.look()
    assert set(deadlines.slipping) == {late}
    status = plane.services.control.status()
    assert [slip["job"] for slip in status["slipping"]] == [late]
    async with asyncio.timeout(10):
        while not (
            told := [
                e for e in await plane.services.ledger.audit(late) if e.what == "deadline slips"
            ]
        ):
            await asyncio.sleep(0.02)
    assert len(told) == 1 and "expected to end" in told[0].why
    for site in fed.sites.sites.values():
        site.hold = False
    await until(lambda: ended(fed, late, calm))
    await deadlines.look()
    assert not deadlines.slipping


def test_what_more_nodes_are_taken_to_bring_is_stated() -> None:
    gang = spec(expected_runtime="10h", max_runtime="20h", resources={"replicas": 4})
    found = more_nodes(gang)
    assert found is not None
    bigger, factor = found
    assert bigger.resources.replicas == 6 and factor == pytest.approx(0.1 + 0.9 * 4 / 6)
    assert bigger.expected_runtime_s == 25_200 and bigger.max_runtime_s == 50_400
    assert more_nodes(spec(resources={"replicas": 64}))[0].resources.replicas == 80  # type: ignore[index]
    assert more_nodes(spec()) is None, "one node alone is no gang"


async def test_a_gang_is_told_what_two_more_nodes_would_bring(fed: Federation) -> None:
    assert fed.plane is not None
    control = fed.plane.services.control
    gang = spec(expected_runtime="10h", max_runtime="20h", resources={"replicas": 2, "cpus": 1})
    told = await control.dry_run(gang, "default", ADA)
    (other,) = told["ends"]["alternatives"]
    assert other["what"] == "+2 nodes, if nine tenths of its work divide over them"
    now_ms = fed.backends.clock.now_ms()
    sooner_h = (parse_rfc3339_ms(other["expected_at"]) - now_ms) / 3_600_000
    assert sooner_h == pytest.approx(5.5, abs=0.1), "a tenth of ten hours, and half of the rest"
    assert told["chosen"]["cluster"] == "us-east", "where four find no room, but in eu-west"
    assert other["difference_usd"] == pytest.approx(0.09 * 4 * 5.5 - 0.05 * 2 * 10, rel=0.02)
    whole = spec(expected_runtime="10h", max_runtime="20h", resources={"replicas": 3, "cpus": 2})
    told = await control.dry_run(whole, "default", ADA)
    assert told["chosen"] and told["ends"]["alternatives"] == [], "five would not fit"
