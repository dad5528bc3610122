"""The control shell over memory: placed once, run once, through faults and changes of leader."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from broker.api.intents import Intents
from broker.control.submission import Request
from broker.control.viewing import Viewer
from broker.model.jobs import JobPhase, OutcomeKind
from broker.state import keys
from federation.kv import Put, Txn
from federation.wire import records as pb
from tests.unit.control.federation import Federation, Site, until


@pytest.fixture
async def two_sites(tmp_path: Path) -> AsyncIterator[Federation]:
    made = await Federation.make(
        tmp_path, Site("us-east", 4, price_usd=0.05), Site("eu-west", 8, price_usd=0.09)
    )
    await made.start()
    yield made
    await made.kill()
    await made.sites.close()


async def submit(fed: Federation, n: int = 1, **spec: Any) -> list[str]:
    assert fed.plane is not None
    data = [{"command": ["true"], **spec} for _ in range(n)]
    request = Request(Viewer("ada", ("default",)), b"")
    taken = await fed.plane.services.submissions().submit(data, request)
    return [str(job) for job in taken.ids]


def phase(fed: Federation, job: str) -> JobPhase | None:
    assert fed.plane is not None
    found = fed.plane.services.projection.job(job)
    return found.phase if found else None


def all_ended(fed: Federation, jobs: list[str]) -> bool:
    return all(phase(fed, job) is JobPhase.ENDED for job in jobs)


def starts(fed: Federation) -> dict[str, int]:
    found: dict[str, int] = {}
    for site in fed.sites.sites.values():
        for key, count in site.starts.items():
            found[key] = found.get(key, 0) + count
    return found


async def test_jobs_are_placed_cheapest_first_and_run_once(two_sites: Federation) -> None:
    jobs = await submit(two_sites, 30)
    await until(lambda: all_ended(two_sites, jobs))
    ran = starts(two_sites)
    assert set(ran.values()) == {1} and len(ran) == 30
    assert two_sites.sites.sites["us-east"].starts


async def test_an_array_runs_every_task_once_without_a_decision_per_task(
    two_sites: Federation,
) -> None:
    assert two_sites.plane is not None
    (job,) = await submit(two_sites, array="0-299")
    await until(lambda: phase(two_sites, job) is JobPhase.ENDED)
    ran = starts(two_sites)
    assert len(ran) == 300 and set(ran.values()) == {1}
    found = two_sites.plane.services.projection.job(job)
    assert found is not None and found.outcome is not None
    assert found.outcome.kind is OutcomeKind.SUCCEEDED
    assert len(found.attempts) < 20


@pytest.mark.parametrize("spec", [{}, {"placement": {"spread": "cluster"}}])
async def test_tasks_ahead_at_one_site_leave_none_without_that_was_planned_elsewhere(
    two_sites: Federation, spec: dict[str, Any]
) -> None:
    for site in two_sites.sites.sites.values():
        site.hold = True
    tasks = 2 if spec else 12  # eight slots at one site, and the rest at the other
    (job,) = await submit(two_sites, array=f"0-{tasks - 1}", **spec)

    def run_at() -> dict[str, int]:
        found = two_sites.plane.services.projection.job(job) if two_sites.plane else None
        return {str(a.cluster): a.tasks.count for a in found.live_attempts} if found else {}

    await until(lambda: len(run_at()) == 2)
    assert sum(run_at().values()) == tasks and min(run_at().values()) >= tasks // 4


async def test_a_refused_job_goes_elsewhere(two_sites: Federation) -> None:
    two_sites.sites.sites["us-east"].refuse_next = ["capacity_taken"]
    (job,) = await submit(two_sites)
    await until(lambda: phase(two_sites, job) is JobPhase.ENDED)
    assert two_sites.sites.sites["eu-west"].starts == {f"{job}-2": 1}


async def test_a_job_that_fits_nowhere_says_why(two_sites: Federation) -> None:
    assert two_sites.plane is not None
    projection = two_sites.plane.services.projection
    (job,) = await submit(two_sites, resources={"accelerators": "H100:8"})
    await until(lambda: (j := projection.job(job)) and j.reason_code == "wrong_accelerator")


async def test_a_job_behind_others_alike_is_told_at_once_why_it_waits(
    two_sites: Federation,
) -> None:
    assert two_sites.plane is not None
    services = two_sites.plane.services
    for site in two_sites.sites.sites.values():
        site.hold = True
    filling = await submit(two_sites, 13)  # one more than there is room for
    await until(lambda: sum(phase(two_sites, job) is JobPhase.RUNNING for job in filling) == 12)
    waits = next(job for job in filling if phase(two_sites, job) is not JobPhase.RUNNING)
    await until(lambda: (j := services.projection.job(waits)) and j.reason_code)
    request = Request(Viewer("ada", ("default",)), b"")
    alike, sent = {"command": ["true"], "name": "another", "env": {"N": "2"}}, list(filling)
    for priority in range(300):  # a leader just elected has yet to decide
        unlike = {"run": "x", "priority": priority}
        taken = await services.submissions().submit([alike, unlike], request)
        sent += taken.ids
        told, other = taken.jobs
        if told.reason_code:
            break
        await asyncio.sleep(0.1)
    assert told.reason_code == "no_capacity" and "has 0 x 1" in told.reason_text
    assert other.reason_code == ""  # nothing like it waits: that is still to be decided
    written = services.projection.mod_revision(keys.job(told.id))
    await until(lambda: (j := services.projection.job(other.id)) and j.reason_code)
    assert services.projection.mod_revision(keys.job(told.id)) == written
    for site in two_sites.sites.sites.values():
        site.hold = False
    await until(lambda: all_ended(two_sites, sent))


async def test_a_cancel_reaches_the_site(two_sites: Federation) -> None:
    assert two_sites.plane is not None
    for site in two_sites.sites.sites.values():
        site.hold = True
    (job,) = await submit(two_sites)
    await until(lambda: phase(two_sites, job) is JobPhase.RUNNING)
    services = two_sites.plane.services
    intents = Intents(services.store, services.projection, services.lanes)
    await intents.ask(
        job, lambda _, before: replace(before, cancel=True), subject="ada", now_ms=1
    )
    await until(lambda: phase(two_sites, job) is JobPhase.ENDED)
    found = two_sites.plane.services.projection.job(job)
    assert found and found.outcome and found.outcome.kind is OutcomeKind.CANCELLED


async def test_a_change_of_leader_in_the_middle_loses_nothing_and_doubles_nothing(
    two_sites: Federation,
) -> None:
    jobs = await submit(two_sites, 40)
    (array,) = await submit(two_sites, array="0-199")
    await until(lambda: sum(starts(two_sites).values()) > 20)
    await two_sites.kill()
    await asyncio.sleep(0.1)
    await two_sites.start()
    await until(lambda: all_ended(two_sites, [*jobs, array]))
    ran = starts(two_sites)
    assert len(ran) == 240 and set(ran.values()) == {1}


async def test_a_silent_site_keeps_its_work_and_tells_it_later(two_sites: Federation) -> None:
    for site in two_sites.sites.sites.values():
        site.hold = True
    jobs = await submit(two_sites, 4)
    await until(lambda: all(phase(two_sites, job) is JobPhase.RUNNING for job in jobs))
    two_sites.sites.disconnect("us-east")
    for site in two_sites.sites.sites.values():
        site.hold = False
    await asyncio.sleep(0.3)
    assert any(phase(two_sites, job) is JobPhase.RUNNING for job in jobs)
    two_sites.sites.connect("us-east")
    await until(lambda: all_ended(two_sites, jobs))
    assert set(starts(two_sites).values()) == {1}


async def test_a_record_that_the_api_did_not_write_is_never_planned(
    two_sites: Federation,
) -> None:
    assert two_sites.plane is not None
    (job,) = await submit(two_sites, placement={"clusters": ["nowhere"]})
    projection = two_sites.plane.services.projection
    raw = projection.value(keys.spec(job))
    assert raw is not None
    forged = pb.SpecRecord.FromString(raw)
    forged.job = "j0000000000000001"
    record = pb.JobRecord.FromString(projection.value(keys.job(job)) or b"")
    record.job = forged.job
    await two_sites.store.txn(
        Txn(
            then=(
                Put(keys.spec(forged.job), forged.SerializeToString()),
                Put(keys.job(forged.job), record.SerializeToString()),
            )
        )
    )
    office = two_sites.plane.office
    await until(lambda: any("MAC" in text for _, text in office.alarms))
    await asyncio.sleep(0.2)
    assert phase(two_sites, forged.job) is JobPhase.QUEUED
