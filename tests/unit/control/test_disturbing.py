"""A whole broker: lent places come back, operators have the last word, nothing is stopped twice."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from broker.control.freeze_record import Freeze, read_proposal, write_freeze
from broker.control.submission import Request, Submissions
from broker.control.tenants import put_tenant
from broker.control.viewing import Viewer
from broker.model.fleet import TenantPolicy
from broker.model.jobs import JobPhase, OutcomeKind
from tests.unit.control.federation import Federation, Site, until

OPERATOR = Viewer("op", operator=True)


async def lab(directory: Path) -> Federation:
    """A borrower may hold all eight slots of one site, four of which are the lender's."""
    federation = await Federation.make(directory, Site("east", hold=True))
    for name in ("lender", "borrower"):
        await put_tenant(federation.store, TenantPolicy(name, 1, 4, "lab"))
    return federation


def submissions(federation: Federation) -> Submissions:
    assert federation.plane is not None
    return federation.plane.services.submissions()


async def submit(federation: Federation, tenant: str, count: int) -> list[str]:
    body: dict[str, Any] = {"run": "work", "tenant": tenant, "resources": {"cpus": 1}}
    key = f"{tenant}{count}".encode()
    done = await submissions(federation).submit([body] * count, Request(OPERATOR, key))
    return list(done.ids)


def phases(federation: Federation, ids: list[str]) -> list[JobPhase]:
    assert federation.plane is not None
    found = [federation.plane.services.projection.job(job) for job in ids]
    return [job.phase for job in found if job is not None]


async def test_more_than_the_share_waits_until_it_is_approved(tmp_path: Path) -> None:
    federation = await lab(tmp_path)
    plane = await federation.start()
    projection, store = plane.services.projection, plane.services.store
    lent = await submit(federation, "borrower", 8)
    await until(lambda: phases(federation, lent) == [JobPhase.RUNNING] * 8)
    wanted = await submit(federation, "lender", 3)
    await until(lambda: read_proposal(projection) is not None)
    proposal = read_proposal(projection)
    assert proposal is not None
    assert (len(proposal.attempts), proposal.accelerators, proposal.in_use) == (3, 3, 8)
    assert not federation.sites.sites["east"].stopped
    said = Freeze(subject="op", approved_cycle=proposal.cycle)
    await write_freeze(store, projection, said)
    await until(lambda: phases(federation, wanted) == [JobPhase.RUNNING] * 3)
    assert federation.sites.sites["east"].stopped == proposal.attempts
    await until(lambda: read_proposal(projection) is None)
    back = [projection.job(uid.rsplit("-", 1)[0]) for uid in proposal.attempts]
    for job in back:
        assert job is not None and job.phase is JobPhase.QUEUED
        outcome = job.attempts[-1].outcome
        assert outcome is not None and outcome.kind is OutcomeKind.PREEMPTED
        assert outcome.text == "its place was lent, and is wanted back"
    await federation.kill()


async def test_frozen_nothing_is_stopped(tmp_path: Path) -> None:
    federation = await lab(tmp_path)
    plane = await federation.start()
    projection, store = plane.services.projection, plane.services.store
    await write_freeze(store, projection, Freeze(frozen=True, subject="op"))
    lent = await submit(federation, "borrower", 8)
    await until(lambda: phases(federation, lent) == [JobPhase.RUNNING] * 8)
    wanted = await submit(federation, "lender", 1)
    await until(lambda: _reason(federation, wanted[0]) != "")
    assert not federation.sites.sites["east"].stopped
    await write_freeze(store, projection, Freeze(subject="op"))
    await until(lambda: phases(federation, wanted) == [JobPhase.RUNNING])
    assert len(federation.sites.sites["east"].stopped) == 1
    await federation.kill()


def _reason(federation: Federation, job_id: str) -> str:
    assert federation.plane is not None
    job = federation.plane.services.projection.job(job_id)
    return job.reason_code if job else ""


async def test_what_tenants_had_outlives_the_leader(tmp_path: Path) -> None:
    federation = await lab(tmp_path)
    plane = await federation.start()
    term = plane.office.term
    assert term is not None
    await submit(federation, "borrower", 2)
    await until(lambda: len(federation.sites.sites["east"].starts) == 2)
    term.admitting.past = replace(term.admitting.past, depth=0.5, average={"borrower": 0.25})
    await term.shares.write()
    await federation.kill()
    plane = await federation.start()
    again = plane.office.term
    assert again is not None
    assert again.admitting.past.of("borrower") > 0.4
    await federation.kill()
