"""Jobs that wait for others: started when what they wait for has come, ended when it never can."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from broker.api.intents import Intents
from broker.control.predecessors import Standing
from broker.control.submission import Request
from broker.control.viewing import Viewer
from broker.feedback.ports import JobEntry, LedgerBatch
from broker.model.jobs import Job, JobPhase, OutcomeKind
from federation.job_errors import InvalidJob
from tests.unit.control.federation import Federation, Site, until

ADA = Viewer("ada", ("default",))


@pytest.fixture
async def fed(tmp_path: Path) -> AsyncIterator[Federation]:
    made = await Federation.make(tmp_path, Site("us-east", 4, hold=True))
    await made.start()
    yield made
    await made.kill()
    await made.sites.close()


async def submit(fed: Federation, *waits: object, **spec: Any) -> str:
    assert fed.plane is not None
    data = {"command": ["true"], "depends_on": list(waits), **spec}
    taken = await fed.plane.services.submissions().submit([data], Request(ADA, b""))
    return str(taken.ids[0])


async def ask(fed: Federation, job: str, **wish: Any) -> None:
    assert fed.plane is not None
    services = fed.plane.services
    intents = Intents(services.store, services.projection, services.lanes)
    await intents.ask(job, lambda _, intent: replace(intent, **wish), subject="ada", now_ms=1)


def job_of(fed: Federation, job: str) -> Job:
    assert fed.plane is not None
    found = fed.plane.services.projection.job(job)
    assert found is not None
    return found


def ran(fed: Federation, job: str) -> bool:
    return f"{job}-1" in fed.sites.sites["us-east"].starts


async def test_a_job_starts_when_all_it_waits_for_has_come(fed: Federation) -> None:
    first, second = await submit(fed), await submit(fed)
    after_both = await submit(fed, first, {"job": second, "when": "ended"})
    after_start = await submit(fed, {"job": first, "when": "started"})
    await until(lambda: ran(fed, first) and ran(fed, after_start))
    assert job_of(fed, after_both).reason_text == f"waits for {first} to succeed, {second} to end"
    await ask(fed, second, cancel=True)
    await until(lambda: job_of(fed, second).phase is JobPhase.ENDED)
    await until(lambda: job_of(fed, after_both).reason_text == f"waits for {first} to succeed")
    assert not ran(fed, after_both)
    fed.sites.sites["us-east"].hold = False
    await until(lambda: job_of(fed, after_both).phase is JobPhase.ENDED)
    assert ran(fed, after_both) and job_of(fed, after_both).awaits == ()


async def test_what_can_never_come_ends_all_that_wait_for_it(fed: Federation) -> None:
    first = await submit(fed)
    second = await submit(fed, first)
    third = await submit(fed, second)
    cleaning = await submit(fed, {"job": third, "when": "ended"})
    await until(lambda: ran(fed, first))
    await ask(fed, first, cancel=True)
    fed.sites.sites["us-east"].hold = False
    await until(lambda: job_of(fed, cleaning).phase is JobPhase.ENDED)
    for job, waited_for in ((second, first), (third, second)):
        outcome = job_of(fed, job).outcome
        assert outcome is not None and outcome.code == "dependency_failed"
        assert outcome.kind is OutcomeKind.CANCELLED
        assert outcome.text == f"job {waited_for}, which had to succeed, has ended as cancelled"
    assert ran(fed, cleaning) and not ran(fed, second) and not ran(fed, third)


async def test_a_new_leader_settles_what_the_last_one_left(fed: Federation) -> None:
    first = await submit(fed)
    second = await submit(fed, first)
    await until(lambda: ran(fed, first))
    await fed.kill()
    fed.sites.sites["us-east"].hold = False
    await fed.start()
    await until(lambda: job_of(fed, second).phase is JobPhase.ENDED)
    assert ran(fed, second)


async def test_a_held_job_that_waits_keeps_both_reasons_apart(fed: Federation) -> None:
    first = await submit(fed)
    second = await submit(fed, first)
    await ask(fed, second, hold=True)
    await until(lambda: job_of(fed, second).phase is JobPhase.HELD)
    fed.sites.sites["us-east"].hold = False
    await until(lambda: job_of(fed, second).awaits == ())
    assert job_of(fed, second).reason_code == "held"
    await ask(fed, second, hold=False)
    await until(lambda: job_of(fed, second).phase is JobPhase.ENDED)


async def test_jobs_that_are_only_in_the_ledger_count(fed: Federation) -> None:
    assert fed.plane is not None
    entries = tuple(
        JobEntry(
            job="j" + name * 16, tenant=tenant, name="", created_ms=1, ended_ms=2, outcome=outcome
        )
        for name, tenant, outcome in (
            ("1", "default", "succeeded"), ("2", "default", "failed"), ("3", "other", "succeeded"),
        )
    )  # fmt: skip
    await fed.backends.ledger.record(LedgerBatch(jobs=entries))
    fed.sites.sites["us-east"].hold = False
    job = await submit(fed, "j" + "1" * 16, {"job": "j" + "2" * 16, "when": "ended"})
    await until(lambda: job_of(fed, job).phase is JobPhase.ENDED)
    with pytest.raises(InvalidJob, match="has ended as failed"):
        await submit(fed, "j" + "2" * 16)
    with pytest.raises(InvalidJob, match="no such job"):
        await submit(fed, "j" + "3" * 16)


@pytest.mark.parametrize(
    ("standing", "when", "came"),
    [
        (Standing(False), "started", None), (Standing(True), "started", True),
        (Standing(True), "ended", None), (Standing(True), "succeeded", None),
        (Standing(False, "cancelled"), "started", True), (Standing(True, "lost"), "ended", True),
        (Standing(True, "lost"), "succeeded", False),
        (Standing(True, "succeeded"), "succeeded", True),
    ],
)  # fmt: skip
def test_what_counts_as_having_come(standing: Standing, when: str, came: bool | None) -> None:
    assert standing.came(when) is came
