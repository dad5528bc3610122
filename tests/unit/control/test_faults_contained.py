"""One broken job, record, row, log or decision: it is named in an alarm, and all else goes on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from broker.act.gateway import LogPart
from broker.control.cycle import TIMER_S, Decided
from broker.feedback.backends.memory import MemoryLedger
from broker.feedback.ports import LedgerBatch
from broker.lifecycle import events as ev
from broker.model.jobs import Intent, JobPhase, Outcome, OutcomeKind
from broker.model.problem import Problem
from broker.state import keys
from broker.state.codec import encode_job
from federation.kv import Put, Txn
from federation.runs import Runs
from tests.unit.control.faulty import (
    FaultyStore,
    alarms,
    all_end,
    ask,
    epoch,
    faulty_federation,
    job_of,
    phase,
    starts,
    submit,
)
from tests.unit.control.federation import WITHIN_S, Federation, InlineDecider, Site, Sites, until
from tests.unit.lifecycle.builders import a_job

Pair = tuple[Federation, FaultyStore]


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncIterator[Pair]:
    made, store = await faulty_federation(tmp_path, Site("us-east", 8), Site("eu-west", 8))
    await made.start()
    yield made, store
    store.heal()
    assert epoch(made) == 1, "the leadership did not survive it"
    await made.kill()
    await made.sites.close()


async def write(fed: Federation, key: str, value: bytes) -> None:
    await fed.store.txn(Txn(then=(Put(key, value),)))


async def goes_on(fed: Federation) -> None:
    """Whatever is broken, the next job runs."""
    await all_end(fed, await submit(fed, 3))


# Records ------------------------------------------------------------------------------


async def test_a_spec_that_cannot_be_read(pair: Pair) -> None:
    fed, _ = pair
    job = a_job()
    await write(fed, keys.spec(job.id), b"\xff\xff\xff")
    await write(fed, keys.job(job.id), encode_job(job))
    await until(lambda: any(job.id in text for text in alarms(fed)))
    await goes_on(fed)


async def test_task_states_and_intents_that_cannot_be_read(pair: Pair) -> None:
    fed, _ = pair
    (job,) = await submit(fed, placement={"clusters": ["nowhere"]})
    await write(fed, keys.intent(job), b"\xff\xff\xff")
    await until(lambda: any(job in text for text in alarms(fed)))
    other = a_job(id="j0000000000000002", tasks=Runs.of([(0, 9)]))
    await write(fed, keys.task_chunk(other.id, 0), b"\xff\xff\xff")
    await write(fed, keys.job(other.id), encode_job(other))
    await until(lambda: any(other.id in text for text in alarms(fed)))
    await goes_on(fed)


async def test_a_cluster_a_report_and_a_tenant_that_cannot_be_read(pair: Pair) -> None:
    fed, _ = pair
    await write(fed, keys.cluster("broken"), b"\xff\xff\xff")
    await write(fed, keys.report("eu-west", "capacity"), b"\xff\xff\xff")
    await write(fed, keys.tenant("broken"), b"\xff\xff\xff")
    await goes_on(fed)


async def test_what_was_broken_before_an_election_does_not_prevent_it(tmp_path: Path) -> None:
    fed, store = await faulty_federation(tmp_path, Site("us-east", 8))
    job = a_job()
    await write(fed, keys.job(job.id), b"\xff\xff\xff")
    for key in (keys.dispatch_seq("us-east"), keys.spec("j0000000000000003")):
        await write(fed, key, b"\xff\xff\xff")
    await write(fed, keys.job("j0000000000000003"), encode_job(a_job(id="j0000000000000003")))
    array = a_job(id="j0000000000000004", tasks=Runs.of([(0, 9)]))
    await write(fed, keys.job(array.id), encode_job(array))
    await write(fed, keys.task_chunk(array.id, 0), b"\xff\xff\xff")
    await fed.start()
    await goes_on(fed)
    assert epoch(fed) == 1
    await fed.kill()
    await fed.sites.close()


# Sites ------------------------------------------------------------------------------


async def test_a_site_cannot_end_what_runs_elsewhere(pair: Pair) -> None:
    fed, _ = pair
    for site in fed.sites.sites.values():
        site.hold = True
    (job,) = await submit(fed)
    await until(lambda: phase(fed, job) is JobPhase.RUNNING)
    found = job_of(fed, job)
    assert found is not None
    (other,) = {"us-east", "eu-west"} - {found.attempts[0].cluster}
    liar = fed.sites.sites[other]
    told = liar.say(ev.Ended(f"{job}-1", 0, 1, Outcome(OutcomeKind.FAILED, 1)))
    fed.sites._tell(liar, [told])
    await until(lambda: any(f"{other} speaks of" in text for text in alarms(fed)))
    assert phase(fed, job) is JobPhase.RUNNING
    await until(lambda: liar.acked == liar.seq)


async def test_a_slice_the_site_keeps_small_is_not_asked_for_without_end(pair: Pair) -> None:
    fed, store = pair
    fed.sites.disconnect("eu-west")
    site = fed.sites.sites["us-east"]
    site.task_s = 0.4
    small = Keeps(site)
    (array,) = await submit(fed, array="0-199", placement={"clusters": ["us-east"]})
    await until(lambda: site.slices)
    site.slices = small
    await asyncio.sleep(1.5)
    assert small.asked < 20


class Keeps(dict[str, Runs]):
    """Slices that stay as they were, whatever is asked."""

    def __init__(self, site: Site) -> None:
        super().__init__(site.slices)
        self.asked = 0

    def __setitem__(self, key: str, value: Runs) -> None:
        self.asked += 1
        if key not in self:
            super().__setitem__(key, value)


async def test_a_change_too_large_for_any_request_is_set_aside(pair: Pair) -> None:
    fed, _ = pair
    for site in fed.sites.sites.values():
        site.hold = True
    (job,) = await submit(fed)
    await until(lambda: phase(fed, job) is JobPhase.RUNNING)
    found = job_of(fed, job)
    assert found is not None
    site = fed.sites.sites[found.attempts[0].cluster]
    kind = Outcome(OutcomeKind.SUCCEEDED, text="x" * 100, code="y" * 1_600_000)
    fed.sites._tell(site, [site.say(ev.Ended(f"{job}-1", 0, 1, kind))])
    await until(lambda: any("set aside" in text for text in alarms(fed)))
    for each in fed.sites.sites.values():
        each.hold = False
    await goes_on(fed)


# Ledger, logs, decisions ---------------------------------------------------------------------


class PickyLedger(MemoryLedger):
    """Cannot hold the row of one job."""

    refused = ""

    async def record(self, batch: LedgerBatch) -> None:
        if any(entry.job == self.refused for entry in batch.jobs):
            raise ValueError("the ledger cannot hold this: a text with a zero byte")
        await super().record(batch)


async def test_a_row_the_ledger_cannot_hold(tmp_path: Path) -> None:
    fed, _ = await faulty_federation(tmp_path, Site("us-east", 8))
    ledger = PickyLedger()
    fed.backends = replace(fed.backends, ledger=ledger)
    await fed.start()
    fed.sites.sites["us-east"].hold = True
    jobs = await submit(fed, 5)
    ledger.refused = jobs[2]
    fed.sites.sites["us-east"].hold = False
    await all_end(fed, jobs)
    await until(lambda: any("zero byte" in text for text in alarms(fed)))
    for job in jobs:
        async with asyncio.timeout(WITHIN_S):
            while job != jobs[2] and await ledger.job(job) is None:
                await asyncio.sleep(0.02)
        assert await ledger.attempts(job) and await ledger.audit(job)
    await goes_on(fed)
    assert epoch(fed) == 1
    await fed.kill()
    await fed.sites.close()


class ForgetfulSites(Sites):
    """Sites that lost their logs, or answer nonsense about them."""

    answer: LogPart | Exception = LookupError("no such stream")
    asked = 0

    async def read_log(
        self, cluster: str, uid: str, stream: str, offset: int, limit: int, *, wait_ms: int = 0
    ) -> LogPart:
        self.asked += 1
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


@pytest.mark.parametrize(
    "answer",
    [
        LookupError("no such stream"),
        LogPart(b"hello\n", 4, 6, True),  # a gap
        LogPart(b"x", 0, 6, False),  # the same byte for ever
    ],
)
async def test_logs_a_site_does_not_have_any_more(
    tmp_path: Path, answer: LogPart | Exception
) -> None:
    fed, _ = await faulty_federation(tmp_path, Site("us-east", 8))
    sites = ForgetfulSites(list(fed.sites.sites.values()), fed.sites._clock)
    sites.answer = answer
    fed.sites = sites
    await fed.start()
    await all_end(fed, await submit(fed, 3))
    await asyncio.sleep(0.3)
    assert 3 <= sites.asked <= 20
    await goes_on(fed)
    assert epoch(fed) == 1
    await fed.kill()
    await fed.sites.close()


class MoodyDecider(InlineDecider):
    """Fails now and then, as a solver does."""

    failures = 2

    async def __call__(self, problem: Problem) -> Decided:
        if self.failures:
            self.failures -= 1
            raise RuntimeError("the solver died")
        return await super().__call__(problem)


async def test_a_decision_that_fails(tmp_path: Path) -> None:
    fed, _ = await faulty_federation(tmp_path, Site("us-east", 8))
    fed.backends = replace(fed.backends, decider=MoodyDecider())
    await fed.start()
    await all_end(fed, await submit(fed, 3))
    assert sum("the solver died" in text for text in alarms(fed)) == 2 and epoch(fed) == 1
    await fed.kill()
    await fed.sites.close()


# Storms ------------------------------------------------------------------------------


async def test_jobs_that_wait_are_not_written_again_and_again(pair: Pair) -> None:
    fed, store = pair
    jobs = await submit(fed, 60, resources={"accelerators": "H100:8"})
    await until(lambda: all((j := job_of(fed, job)) and j.reason_code for job in jobs))
    await asyncio.sleep(0.2)
    store.written.clear()
    cycles = fed.plane.office.last_cycle  # type: ignore[union-attr]
    for _ in range(10):
        fed.sites.report("us-east")
        await asyncio.sleep(0.1)
    assert not [key for key in store.written if key.startswith(keys.JOBS)]
    last = fed.plane.office.last_cycle  # type: ignore[union-attr]
    assert cycles and last
    assert int(last.cycle.split(".")[1]) - int(cycles.cycle.split(".")[1]) <= 6


async def test_a_retry_is_decided_when_its_wait_is_over_not_at_the_next_timer(pair: Pair) -> None:
    fed, _ = pair
    for site in fed.sites.sites.values():
        site.refuse_next = ["ticket_expired"]
    (job,) = await submit(fed)
    await until(lambda: (j := job_of(fed, job)) and j.not_before_ms > 0)
    began_s = asyncio.get_running_loop().time()
    await until(lambda: (j := job_of(fed, job)) and j.attempts_made >= 2)
    assert asyncio.get_running_loop().time() - began_s < TIMER_S - 0.5


async def test_a_job_submitted_while_nothing_waits_is_placed_at_once(pair: Pair) -> None:
    fed, _ = pair
    waits = []
    for _ in range(5):
        await asyncio.sleep(0.3)
        fed.sites.report("us-east")  # rings for nobody
        await asyncio.sleep(0.05)
        (job,) = await submit(fed)
        began_s = asyncio.get_running_loop().time()
        await until(lambda job=job: (j := job_of(fed, job)) and j.attempts_made == 1)
        waits.append(asyncio.get_running_loop().time() - began_s)
    assert min(waits) < 0.15  # a busy machine delays some; a wait for a timer delays all


async def test_a_cancel_of_an_array_with_more_slices_than_one_request_carries(
    tmp_path: Path,
) -> None:
    sites = [Site(f"site-{n:03d}", 1, hold=True, task_s=5.0) for n in range(140)]
    fed, _ = await faulty_federation(tmp_path, *sites)
    await fed.start()
    (array,) = await submit(fed, array="0-9999")
    await until(lambda: (j := job_of(fed, array)) and len(j.live_attempts) == 140, within_s=30)
    await ask(fed, array, Intent(cancel=True))
    await all_end(fed, [array], within_s=30)
    assert epoch(fed) == 1 and set(starts(fed).values()) == {1}
    await fed.kill()
    await fed.sites.close()
