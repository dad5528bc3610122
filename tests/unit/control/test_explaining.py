"""Why a job waits, on a broker that runs: beside the whole queue, per cluster, and until when."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from broker.cli import candidates
from broker.cli.formatting import Now
from broker.control.viewing import Viewer
from federation.jobs import parse_job_spec
from federation.units import parse_rfc3339_ms
from tests.unit.control.federation import Federation, Site, until
from tests.unit.control.test_policies_at_work import apply, ended, submit

ADA = Viewer("ada", ("default",))
HOUR_MS = 3_600_000


@pytest.fixture
async def fed(tmp_path: Path) -> AsyncIterator[Federation]:
    made = await Federation.make(
        tmp_path, Site("us-east", 1, price_usd=0.05, hold=True),
        Site("eu-west", 1, price_usd=0.09, hold=True),
    )  # fmt: skip
    await made.start()
    yield made
    await made.kill()
    await made.sites.close()


async def full(fed: Federation) -> list[str]:
    """Two jobs that hold every slot: they said 30 minutes and may take two hours."""
    jobs = await submit(fed, 2, expected_runtime="30m", max_runtime="2h")
    assert fed.plane is not None
    projection = fed.plane.services.projection
    await until(lambda: all((j := projection.job(job)) and j.started_ms for job in jobs))
    return jobs


async def explain(fed: Federation, job_id: str) -> dict[str, Any]:
    """What is said of a waiting job once a cycle has looked at it."""
    assert fed.plane is not None
    services = fed.plane.services
    office = fed.plane.office

    def looked_at() -> bool:
        last = office.last_cycle
        return last is not None and any(
            job_id in (w.members or (w.job.id,)) for w in last.applier.waiting.values()
        )

    await until(looked_at)
    job = services.projection.job(job_id)
    assert job is not None
    spec = parse_job_spec({"run": "true", "tenant": "default"})
    return await services.control.explain(job, spec, ADA)


async def test_a_waiting_job_is_told_when_it_starts_if_nothing_changes(fed: Federation) -> None:
    await full(fed)
    jobs = []
    for _ in range(3):
        jobs += await submit(fed, expected_runtime="1h", max_runtime="2h")
        await asyncio.sleep(0.005)  # the age of a job counts in milliseconds
    now_ms = fed.backends.clock.now_ms()
    spans = []
    for job in jobs:
        told = await explain(fed, job)
        assert told["chosen"] is None and told["decision"]["cycle"]
        span = told["starts_unchanged"]
        spans.append([parse_rfc3339_ms(span[k]) - now_ms for k in ("from_at", "until_at")])
        assert span["predictions"] == 0 and span["within_until"] is None
    for early, late in spans[:2]:
        assert 0.4 * HOUR_MS < early < 0.6 * HOUR_MS, "what runs said it takes half an hour"
        assert 1.8 * HOUR_MS < late < 2.1 * HOUR_MS, "and may take two"
    early, late = spans[2]
    assert 1.4 * HOUR_MS < early < 1.6 * HOUR_MS, "behind the two that came before"
    assert 2.8 * HOUR_MS < late < 3.1 * HOUR_MS


async def test_each_cluster_says_what_binds_and_what_would_start_it(fed: Federation) -> None:
    await full(fed)
    (job,) = await submit(fed, placement={"regions": ["us-east"]})
    told = await explain(fed, job)
    by_cluster = {row["cluster"]: row for row in told["waiting"]}
    assert by_cluster["us-east"]["code"] == "no_capacity"
    assert by_cluster["us-east"]["change"] == "1 more free place of 1 CPU on one node"
    assert by_cluster["us-east"]["room_from_at"] < by_cluster["us-east"]["room_until_at"]
    assert by_cluster["eu-west"]["change"] == (
        "allow eu-west and 1 more free place of 1 CPU on one node"
    )
    assert told["smallest_change"]["verified"] is True
    assert told["smallest_change"]["cluster"] == "us-east"
    row = next(row for row in told["candidates"] if row["cluster"] == "us-east")
    assert row["room_in_s"][0] < row["room_in_s"][1] and not row["chosen"]


async def test_a_dry_run_says_until_when_places_are_taken(fed: Federation) -> None:
    await full(fed)
    (ahead,) = await submit(fed, expected_runtime="1h", max_runtime="2h")
    await explain(fed, ahead)
    assert fed.plane is not None
    spec = parse_job_spec({"run": "true", "tenant": "default", "max_runtime": "1h"})
    told = await fed.plane.services.control.dry_run(spec, "default", ADA)
    rooms = sorted(row["room_in_s"] for row in told["candidates"])
    assert [round(early / 1800) for early, _ in rooms] == [1, 3], "one place goes to the job ahead"
    assert told["starts_unchanged"]["from_at"] is not None


async def test_an_array_ends_after_as_many_waves_as_all_its_places_need(fed: Federation) -> None:
    """Eight tasks of an hour on one slot at either site: four waves."""
    assert fed.plane is not None
    control, now_ms = fed.plane.services.control, fed.backends.clock.now_ms()
    await until(lambda: all(v.capacity for v in control.explainer.world().fleet.clusters.values()))
    asked = {"run": "true", "tenant": "default", "array": "0-7", "max_runtime": "1h"}
    told = await control.dry_run(parse_job_spec(asked), "default", ADA)
    assert sum(row["copies"] for row in told["candidates"]) == 2
    ends_ms = parse_rfc3339_ms(told["ends"]["expected_at"])
    assert ends_ms - now_ms == pytest.approx(4 * HOUR_MS, rel=0.02)


async def test_predicted_waits_are_published_with_what_came_of_them(fed: Federation) -> None:
    await full(fed)
    (job,) = await submit(fed, expected_runtime="1h", max_runtime="2h")
    await explain(fed, job)
    assert fed.plane is not None and fed.plane.office.term is not None
    waits = fed.plane.office.term.waits
    await until(lambda: waits.predicted(job) is not None, 20)
    for site in fed.sites.sites.values():
        site.hold = False
    await until(lambda: ended(fed, job))
    ledger = fed.plane.services.ledger
    async with asyncio.timeout(10):
        while not (made := (await ledger.decision_days(0, 2**60)).calibration):
            await asyncio.sleep(0.02)
    (total,) = [calibrated for calibrated in made if calibrated.kind == "wait"]
    assert (total.predictions, total.within_p50, total.within_p90) == (1, 1, 1), "sooner than said"
    assert waits.predicted(job) is None


def one_hour_from(now_ms: int) -> tuple[str, str]:
    """An hour of the week in UTC that opens in one to two hours, as a policy says it, and when."""
    opens = datetime.fromtimestamp(now_ms / 1000, UTC).replace(minute=0) + timedelta(hours=2)
    closes = opens + timedelta(hours=1)
    return f"{opens:%H:%M}-{closes:%H:%M} UTC", f"{opens:%a %H:%M} UTC"


async def test_each_kind_of_change_is_told_and_holds_when_it_is_made(tmp_path: Path) -> None:
    """The change that a person reads, and the same job with it made: it starts."""
    fed = await Federation.make(
        tmp_path, Site("us-east", 4, price_usd=2.35), Site("eu-north", 4, price_usd=3.0)
    )
    typed = {"a": "us-east", "b": "eu-north", "rtt_ms": 58, "source": "ping"}
    fed.settings["typed_rtt"] = [{**typed, "as_of": "2026-01-01T00:00:00Z"}]
    await fed.start()
    assert fed.plane is not None
    control, hours = fed.plane.services.control, one_hour_from(fed.backends.clock.now_ms())
    await until(lambda: all(v.capacity for v in control.explainer.world().fleet.clusters.values()))
    await apply(fed, f"{{name: late, require: {{hours: '{hours[0]}'}}}}")
    near = {"to": "eu-north", "ms": 40}
    east = {"clusters": ["us-east"]}
    cap = "max_price_usd_per_accelerator_hour"
    try:
        for asked, expected, made in (
            ({"clusters": ["eu-north"], "regions": ["us-east"]}, "allow eu-north",
             {"clusters": ["eu-north"], "regions": ["us-east", "eu-north"]}),
            ({**east, cap: 2.1}, "price cap 2.10 -> 2.35", {**east, cap: 2.35}),
            ({**east, "max_rtt": near}, "max_rtt 40 -> 58 ms",
             {**east, "max_rtt": {**near, "ms": 58}}),
            ({**east, "policy": "late"}, f"wait until {hours[1]}", east),
        ):  # fmt: skip
            told = await tried(fed, asked)
            assert told["chosen"] is None
            assert told["smallest_change"]["text"] == expected
            line = f"Smallest change that would start it: {expected}"
            shown = candidates.explanation_lines(told, Now(fed.backends.clock.now_ms(), UTC))
            assert any(each.startswith(line) and "solving again" in each for each in shown), shown
            assert (await tried(fed, made))["chosen"], expected
    finally:
        await fed.kill()
        await fed.sites.close()


async def tried(fed: Federation, placement: dict[str, Any]) -> dict[str, Any]:
    assert fed.plane is not None
    spec = parse_job_spec(
        {"run": "true", "tenant": "default", "max_runtime": "1h", "placement": placement}
    )
    return await fed.plane.services.control.dry_run(spec, "default", ADA)
