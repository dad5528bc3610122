"""The checkers see what they are there for: each kind of fault, made by hand, is reported."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest

from broker.feedback.backends.memory import MemoryLedger
from broker.model.jobs import Attempt, AttemptPhase, Intent, Job, JobPhase, Outcome, OutcomeKind
from broker.simulator.checkers import Auditor
from broker.simulator.truth import Truth
from broker.state import keys
from broker.state.backends.memory import MemoryStore
from broker.state.codec import encode_attempt, encode_intent, encode_job
from broker.state.projection import Projection
from federation.ids import AttemptUid, Cluster, JobId, Tenant
from federation.kv import Put, Txn
from federation.virtual_time import SimClock, SimLoop
from regional_agent.act.schedulers.port import LaunchOrder
from regional_agent.act.schedulers.port import Outcome as LocalOutcome
from regional_agent.act.schedulers.port import OutcomeKind as LocalKind
from regional_agent.session.ledger import Place, Pool

POOL = Pool("p", "H100", nodes=1, accelerators_per_node=4, cpus_milli=8000, memory_bytes=2**34)
DONE = LocalOutcome(LocalKind.SUCCEEDED)
JOB = "jcvhmnrzt39gx8qb6"


def truth(phase: str = "running") -> Truth:
    found = Truth(lambda: 1.0, lambda text: None, lambda cluster, uid: phase)
    found.pools["a", "p"] = found.pools["b", "p"] = POOL
    return found


def order(uid: str, *cards: int, cpus_milli: int = 1000) -> tuple[LaunchOrder, tuple[Place, ...]]:
    places = (Place("p", 0, cards),)
    job = uid.rsplit("-", 1)[0]
    made = LaunchOrder(uid, job, "t", argv=("work", "1"), cpus_milli=cpus_milli, places=places)
    return made, places


def begin(seen: Truth, site: str, uid: str, *cards: int, cpus_milli: int = 1000) -> LaunchOrder:
    made, places = order(uid, *cards, cpus_milli=cpus_milli)
    seen.started(site, made, 0, places)
    return made


def test_honest_runs_are_fine() -> None:
    seen = truth()
    first = begin(seen, "a", "j1-1", 0, 1)
    seen.stopped("a", first, 0, DONE)
    begin(seen, "a", "j2-1", 0, 1)
    assert seen.violations == []


@pytest.mark.parametrize(
    ("story", "words"),
    [
        (lambda t: (begin(t, "a", "j1-1", 0), begin(t, "b", "j1-2", 1)), "while j1-1 runs at a"),
        (lambda t: (begin(t, "a", "j1-1", 0), begin(t, "a", "j2-1", 0)), "is given to"),
        (lambda t: begin(t, "a", "j1-1", 4), "which is not there"),
        (lambda t: begin(t, "a", "j1-1", 0, cpus_milli=9000), "more cpus or memory"),
        (
            lambda t: (t.stopped("a", begin(t, "a", "j1-1", 0), 0, DONE), begin(t, "a", "j1-2", 0)),
            "although it has succeeded before",
        ),
        (
            lambda t: (
                t.stopped("a", begin(t, "a", "j1-1", 0), 0, LocalOutcome(LocalKind.LOST)),
                begin(t, "a", "j1-1", 0),
            ),
            "starts twice",
        ),
    ],
    ids=["two at once", "a card twice", "no such card", "cpus", "after success", "again"],
)
def test_what_must_not_happen_at_sites(story: Callable[[Truth], object], words: str) -> None:
    seen = truth()
    story(seen)
    assert any(words in text for text in seen.violations)


@pytest.mark.parametrize("phase", ["", "ended", "superseded"])
def test_a_start_the_store_knows_nothing_of(phase: str) -> None:
    seen = truth(phase)
    begin(seen, "a", "j1-1", 0)
    assert "in the store it is" in seen.violations[0]


# Claims -------------------------------------------------------------------------------------------


def a_job(**changes: object) -> Job:
    usual = Job(
        id=JobId(JOB), tenant=Tenant("default"), name="x", subject="s", priority=0,
        class_key="", created_ms=1, changed_ms=1,
    )  # fmt: skip
    return replace(usual, **changes)  # type: ignore[arg-type]


def an_attempt(**changes: object) -> Attempt:
    usual = Attempt(
        uid=AttemptUid(f"{JOB}-1"), job=JobId(JOB), tenant=Tenant("default"),
        cluster=Cluster("a"), region="r", pool="p", epoch=1, dispatch_seq=1, ticket=b"",
        placed_ms=1,
    )  # fmt: skip
    return replace(usual, **changes)  # type: ignore[arg-type]


ENDED = {"phase": JobPhase.ENDED, "outcome": Outcome(OutcomeKind.SUCCEEDED), "ended_ms": 5}


def audited(*puts: Put, later_s: float = 0.0, submitted: tuple[str, ...] = (JOB,)) -> list[str]:
    """What an auditor finds in a store written by hand, with nothing true behind it."""
    loop = SimLoop()

    async def main() -> list[str]:
        store = MemoryStore(SimClock(loop))
        projection = Projection(store, lambda text: None)
        seen = truth()
        auditor = Auditor(projection, seen)
        tasks = [
            asyncio.create_task(projection.run()),
            asyncio.create_task(auditor.run(loop.time, lambda text: None)),
        ]
        await asyncio.sleep(1)
        for put in puts:
            await store.txn(Txn(then=(put,)))
            await asyncio.sleep(1)
        await auditor.conclude(MemoryLedger(), set(submitted), loop.time() + later_s)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return seen.violations

    try:
        return loop.run_until_complete(main())
    finally:
        loop.close()


def job_put(**changes: object) -> Put:
    return Put(keys.job(JOB), encode_job(a_job(**changes)))


def attempt_put(**changes: object) -> Put:
    attempt = an_attempt(**changes)
    return Put(keys.attempt(attempt.cluster, attempt.uid), encode_attempt(attempt))


def test_a_claimed_success_that_never_ran() -> None:
    found = " ".join(audited(job_put(), job_put(**ENDED)))
    assert "is said to be succeeded; at the sites it was not so" in found
    assert "is not in the ledger" in found
    assert "became ended" in found and "no audit says why" in found


def test_an_acknowledged_job_that_is_nowhere() -> None:
    assert "is nowhere" in audited()[0]


def test_a_job_nobody_submitted() -> None:
    found = audited(job_put(reason_code="no_capacity"), submitted=())
    assert "nobody submitted it" in found[0]


def test_a_wait_without_a_reason() -> None:
    assert "for no reason" in audited(job_put())[0]
    assert audited(job_put(reason_code="no_capacity")) == []


def test_a_placed_job_that_never_starts() -> None:
    placed = job_put(phase=JobPhase.PLACED)
    assert "does not start" not in " ".join(audited(placed))
    assert "does not start" in " ".join(audited(placed, later_s=600.0))


def test_a_run_that_is_nowhere() -> None:
    running = attempt_put(phase=AttemptPhase.RUNNING, started_ms=2)
    found = " ".join(audited(running, job_put(phase=JobPhase.RUNNING)))
    assert "is said to run, and runs nowhere" in found


def test_a_resurrection() -> None:
    found = " ".join(audited(job_put(), job_put(**ENDED), job_put(reason_code="x")))
    assert "is queued again after it had ended" in found


def test_a_launch_after_an_acknowledged_cancel() -> None:
    cancel = Put(keys.intent(JOB), encode_intent(Intent(cancel=True)))
    found = " ".join(audited(job_put(), cancel, attempt_put()))
    assert "is placed after its cancel was acknowledged" in found


def test_an_attempt_without_its_row() -> None:
    over = attempt_put(
        phase=AttemptPhase.ENDED, outcome=Outcome(OutcomeKind.LOST), ended_ms=9, started_ms=2
    )
    assert "has 0 rows in the ledger" in " ".join(audited(job_put(reason_code="x"), over))


def test_a_record_that_contradicts_itself() -> None:
    found = " ".join(audited(job_put(phase=JobPhase.RUNNING)))
    assert "is not what its attempts say" in found
