"""Preparing ahead: one place for a job, never two; and what starts teach."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from broker.api.intents import Intents
from broker.control.closing_receipt import CLOSING
from broker.control.preparing import CAPABILITY, SITE_REQUESTS_MAX
from broker.model.jobs import JobPhase
from federation.ids import prepare_uid
from federation.tickets import Ticket, read_ticket
from tests.unit.control.federation import Federation, Site, until
from tests.unit.control.test_control import all_ended, phase, submit

DATA = b"d" * 200_000


def site(name: str, **more: Any) -> Site:
    return Site(name, 1, hold=True, capabilities=(CAPABILITY,), **more)


@pytest.fixture
async def full(tmp_path: Path) -> AsyncIterator[Federation]:
    """Three sites of one slot each, every slot taken."""
    made = await Federation.make(tmp_path, *(site(f"s{n}") for n in range(3)))
    await made.start()
    running = await submit(made, 3)
    await until(lambda: all(phase(made, job) is JobPhase.RUNNING for job in running))
    yield made
    await made.kill()
    await made.sites.close()


async def blob(fed: Federation, data: bytes = DATA) -> str:
    sha256 = hashlib.sha256(data).hexdigest()

    async def chunks() -> AsyncIterator[bytes]:
        yield data

    await fed.backends.blobs.put(sha256, chunks(), now_ms=1)
    await fed.backends.blobs.grant(sha256, "default")
    return sha256


async def with_file(fed: Federation, n: int = 1, data: bytes = DATA, **more: Any) -> list[str]:
    sha256 = await blob(fed, data)
    files = [{"path": "data", "sha256": sha256, "bytes": len(data)}]
    return await submit(fed, n, files=files, **more)


def prepared(fed: Federation) -> list[tuple[str, str]]:
    """(cluster, uid) of everything that any site was asked to prepare."""
    return [(s.name, p.uid) for s in fed.sites.sites.values() for p in s.prepared]


async def test_a_waiting_job_is_prepared_at_one_place_however_long_it_waits(
    full: Federation,
) -> None:
    (job,) = await with_file(full)
    await until(lambda: prepared(full))
    (place,) = prepared(full)
    assert place[1] == prepare_uid(job)
    for _ in range(4):  # further cycles, and reports that ring for one
        for name in full.sites.sites:
            full.sites.report(name)
        await asyncio.sleep(0.6)
    assert prepared(full) == [place]
    assert full.plane is not None and full.plane.office.prepared_in(job) == place[0]
    assert not any(job in uid for s in full.sites.sites.values() for uid in s.seen)


async def test_the_ticket_is_for_that_place_and_that_spec_and_for_no_attempt(
    full: Federation,
) -> None:
    (job,) = await with_file(full)
    await until(lambda: prepared(full))
    (place, _), *_ = prepared(full)
    command = full.sites.sites[place].prepared[0]
    ticket = read_ticket(command.ticket, full.backends.keyring.ticket_keys)
    assert isinstance(ticket, Ticket)
    assert (ticket.uid, ticket.job, ticket.cluster) == (f"{job}-0", job, place)
    assert ticket.spec_sha256 == hashlib.sha256(command.spec).hexdigest()


async def test_it_follows_the_place_only_after_that_takes_jobs_no_more(full: Federation) -> None:
    await with_file(full)
    await until(lambda: prepared(full))
    (first, _), *_ = prepared(full)
    full.sites.disconnect(first)
    await until(lambda: len(prepared(full)) == 2)
    assert len({place for place, _ in prepared(full)}) == 2


async def test_a_place_that_has_the_files_is_not_asked_for_them(full: Federation) -> None:
    sha256 = await blob(full)
    for name in full.sites.sites:
        full.sites.cache(name, **{sha256: len(DATA)})
    (job,) = await with_file(full)
    assert full.plane is not None
    await until(lambda: full.plane and full.plane.office.prepared_in(job))
    assert prepared(full) == []


async def test_no_site_is_asked_for_many_at_once(full: Federation) -> None:
    jobs = []
    for n in range(5 * SITE_REQUESTS_MAX):
        jobs += await with_file(full, data=DATA + bytes([n]))
    await until(lambda: len(prepared(full)) >= SITE_REQUESTS_MAX)
    await asyncio.sleep(2.5)
    asked = prepared(full)
    assert len({uid for _, uid in asked}) == len(asked)
    for name in full.sites.sites:
        assert sum(place == name for place, _ in asked) <= SITE_REQUESTS_MAX


async def test_an_image_goes_ahead_once_to_a_site_that_runs_images(tmp_path: Path) -> None:
    """However many jobs name it."""
    able = Site("s0", 1, hold=True, capabilities=(CAPABILITY, "images"))
    made = await Federation.make(tmp_path, able)
    await made.start()
    (running,) = await submit(made, 1)
    await until(lambda: phase(made, running) is JobPhase.RUNNING)
    await submit(made, 5, image="docker://train:1")
    await until(lambda: prepared(made))
    await asyncio.sleep(1.5)
    assert len(prepared(made)) == 1
    await made.kill()
    await made.sites.close()


async def test_sites_that_do_not_know_how_are_not_asked(tmp_path: Path) -> None:
    fed = await Federation.make(tmp_path, Site("old", 1, hold=True))
    await fed.start()
    await submit(fed)
    (job,) = await with_file(fed)
    await until(lambda: phase(fed, job) is JobPhase.QUEUED)
    await asyncio.sleep(1.5)
    assert prepared(fed) == []
    await fed.kill()
    await fed.sites.close()


async def test_a_cancelled_job_is_prepared_nowhere_and_starts_nowhere(full: Federation) -> None:
    (job,) = await with_file(full)
    await until(lambda: prepared(full))
    assert full.plane is not None
    services = full.plane.services
    intents = Intents(services.store, services.projection, services.lanes)
    await intents.ask(
        job, lambda _, before: replace(before, cancel=True), subject="ada", now_ms=1
    )
    await until(lambda: phase(full, job) is JobPhase.ENDED)
    for s in full.sites.sites.values():
        s.hold = False
    await asyncio.sleep(0.3)
    assert full.plane.office.prepared_in(job) is None
    assert not any(job in uid for s in full.sites.sites.values() for uid in s.starts)


# What starts teach ------------------------------------------------------------------------------


async def test_the_next_start_is_expected_as_the_last_ones_were(tmp_path: Path) -> None:
    fed = await Federation.make(tmp_path, Site("eu", 4, took_ms=(300, 200)))
    plane = await fed.start()
    first = await submit(fed, 8)
    await until(lambda: all_ended(fed, first))
    (job,) = await submit(fed)
    await until(lambda: all_ended(fed, [job]))
    found = plane.services.projection.job(job)
    assert found is not None
    (attempt,) = found.attempts
    assert 500 <= attempt.expected_start_delay_ms <= attempt.expected_start_p90_ms < 1_500
    kept = fed.backends.ledger._receipts  # type: ignore[attr-defined]
    await until(lambda: any(r.job == job and r.cycle == CLOSING for r in kept.values()))
    receipts = await fed.backends.ledger.receipts(job)
    (closing,) = [json.loads(r.body_json) for r in receipts if r.cycle == CLOSING]
    measured = closing["measured_start"]
    assert closing["expected_start_delay_ms"] == attempt.expected_start_delay_ms
    assert measured["prepare_ms"] == 300 and measured["launch_ms"] >= 199
    parts = ("handshake_ms", "prepare_ms", "launch_ms")
    assert measured["took_ms"] == sum(measured[part] for part in parts)
    await fed.kill()
    await fed.sites.close()


async def test_a_new_leader_knows_what_the_last_one_learned(tmp_path: Path) -> None:
    fed = await Federation.make(tmp_path, Site("eu", 4, took_ms=(300, 200)))
    await fed.start()
    jobs = await submit(fed, 4)
    await until(lambda: all_ended(fed, jobs))
    await until(lambda: len(fed.backends.ledger._attempts) == 4)  # type: ignore[attr-defined]
    await fed.kill()
    plane = await fed.start()
    await until(lambda: plane.office.starts.delays._samples.get("eu"))
    view = plane.services.control.fleet().clusters["eu"]
    estimate = plane.office.starts.delays.estimate(view, {}, fed.backends.clock.now_ms())
    assert estimate.samples == 4 and 0.5 <= estimate.p50_s < 1.5
    await fed.kill()
    await fed.sites.close()
