"""A change of leader at the worst moment: nothing asked is forgotten, nothing told is lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from broker.act.gateway import EventsArrived
from broker.lifecycle import events as ev
from broker.model.jobs import Intent, JobPhase, Outcome, OutcomeKind
from broker.state import keys
from federation.kv import Put, StoreUnavailable, Txn
from federation.wire import records as pb
from tests.unit.control.faulty import (
    FaultyStore,
    all_end,
    ask,
    epoch,
    faulty_federation,
    job_of,
    phase,
    put_keys,
    starts,
    submit,
)
from tests.unit.control.federation import Federation, Site, until

Pair = tuple[Federation, FaultyStore]


@pytest.fixture
async def one_site(tmp_path: Path) -> AsyncIterator[Pair]:
    made, store = await faulty_federation(tmp_path, Site("us-east", 8))
    await made.start()
    yield made, store
    store.heal()
    await made.kill()
    await made.sites.close()


async def test_a_cancel_acknowledged_while_nobody_leads_is_carried_out(one_site: Pair) -> None:
    fed, _ = one_site
    (waiting,) = await submit(fed, placement={"clusters": ["nowhere"]})
    fed.sites.sites["us-east"].hold = True
    (running,) = await submit(fed)
    await until(lambda: phase(fed, running) is JobPhase.RUNNING)
    await fed.kill()
    await ask(fed, waiting, Intent(cancel=True))
    await ask(fed, running, Intent(cancel=True))
    await fed.start()
    await all_end(fed, [waiting, running])
    for job in (waiting, running):
        found = job_of(fed, job)
        assert found and found.outcome and found.outcome.kind is OutcomeKind.CANCELLED


async def test_a_cancelled_array_does_not_go_on_under_the_next_leader(one_site: Pair) -> None:
    fed, _ = one_site
    site = fed.sites.sites["us-east"]
    site.task_s = 0.3
    (array,) = await submit(fed, array="0-99")
    await until(lambda: phase(fed, array) is JobPhase.RUNNING)
    fed.sites.disconnect("us-east")  # the stop does not arrive before the leader dies
    await ask(fed, array, Intent(cancel=True))
    await until(lambda: (j := job_of(fed, array)) and j.live_attempts[0].stop_why is not None)
    await fed.kill()
    await fed.start()
    await all_end(fed, [array])
    found = job_of(fed, array)
    assert found and found.outcome and found.outcome.kind is OutcomeKind.CANCELLED
    assert sum(starts(fed).values()) < 50


async def test_a_held_array_stays_held_under_the_next_leader(one_site: Pair) -> None:
    fed, _ = one_site
    fed.sites.sites["us-east"].task_s = 0.1
    (array,) = await submit(fed, array="0-199")
    await until(lambda: sum(starts(fed).values()) >= 8)
    await ask(fed, array, Intent(hold=True))
    await fed.kill()
    await fed.start()
    await until(lambda: phase(fed, array) is JobPhase.HELD)
    at_hold = sum(starts(fed).values())
    await asyncio.sleep(0.5)
    assert sum(starts(fed).values()) == at_hold < 200
    await ask(fed, array, Intent())
    await all_end(fed, [array])
    assert set(starts(fed).values()) == {1} and len(starts(fed)) == 200


async def test_a_job_submitted_and_one_cancelled_during_adoption_are_not_missed(
    one_site: Pair,
) -> None:
    fed, store = one_site
    fed.sites.sites["us-east"].hold = True
    fed.sites.disconnect("us-east")
    jobs = await submit(fed, 3, placement={"clusters": ["us-east"]})
    (waiting,) = await submit(fed, placement={"clusters": ["nowhere"]})
    # placed and never answered: the next leader has something to write before it leads
    fed.sites.connect("us-east")
    held_back = fed.sites.sites["us-east"]
    held_back.seen.update(f"{job}-1" for job in jobs)
    await until(lambda: all(phase(fed, job) is JobPhase.PLACED for job in jobs))
    await fed.kill()
    adopting = asyncio.Event()

    def slow(txn: Txn) -> None:
        if any(key.startswith(keys.ATTEMPTS) for key in put_keys(txn)) and not adopting.is_set():
            adopting.set()
            raise StoreUnavailable("a moment", retry_after_s=0.05)

    store.before = slow
    starting = asyncio.create_task(fed.start())
    await adopting.wait()
    (late,) = await submit(fed, placement={"clusters": ["us-east"]})
    await ask(fed, waiting, Intent(cancel=True))
    await starting
    await until(lambda: phase(fed, waiting) is JobPhase.ENDED)
    await until(lambda: phase(fed, late) is JobPhase.RUNNING)


async def test_a_leader_keeps_its_office_however_long_adoption_takes(one_site: Pair) -> None:
    fed, store = one_site
    fed.sites.disconnect("us-east")
    fed.sites.connect("us-east")
    site = fed.sites.sites["us-east"]
    site.slots = 400
    fed.sites.report("us-east")
    site.seen = Everything()
    jobs = await submit(fed, 300, resources={"memory": "1MiB"})
    await until(lambda: all(phase(fed, job) is JobPhase.PLACED for job in jobs))
    before = epoch(fed)
    await fed.kill()
    store.delay_s = 0.25  # five groups of 60, longer than the TTL of 0.6 s together
    await fed.start()
    assert epoch(fed) == before + 1
    await asyncio.sleep(0.5)
    assert epoch(fed) == before + 1


class Everything(set[str]):
    """Of a site that keeps its answers to itself."""

    def __contains__(self, _: object) -> bool:
        return True


async def test_events_of_a_session_that_this_term_did_not_open_are_neither_taken_nor_acknowledged(
    one_site: Pair,
) -> None:
    fed, _ = one_site
    site = fed.sites.sites["us-east"]
    site.hold = True
    (job,) = await submit(fed)
    await until(lambda: phase(fed, job) is JobPhase.RUNNING)
    await until(lambda: site.acked == site.seq)
    acked = site.acked
    stale = ev.Ended(f"{job}-1", 500, 1, Outcome(OutcomeKind.LOST))
    fed.sites._inbox.put_nowait(EventsArrived("us-east", 0, (stale,), 500))
    await asyncio.sleep(0.1)
    assert phase(fed, job) is JobPhase.RUNNING and site.acked == acked


async def test_an_event_counter_never_goes_back(one_site: Pair) -> None:
    fed, _ = one_site
    site = fed.sites.sites["us-east"]
    jobs = await submit(fed, 5)
    await all_end(fed, jobs)
    await until(lambda: site.acked == site.seq)
    number = fed.sites._sessions["us-east"]
    again = tuple(e for e in site.events if e.event_seq <= 3)
    fed.sites._inbox.put_nowait(EventsArrived("us-east", number, again, 3))
    await asyncio.sleep(0.1)
    kv = await fed.store.get(keys.event_seq("us-east"))
    assert kv is not None and pb.SeqRecord.FromString(kv.value).seq == site.seq


async def test_the_event_counter_is_durable_only_after_what_the_events_changed(
    one_site: Pair,
) -> None:
    """A crash between two requests of a round must not leave a counter ahead of its jobs."""
    fed, store = one_site
    site = fed.sites.sites["us-east"]
    site.slots, site.hold = 300, True
    fed.sites.report("us-east")
    jobs = await submit(fed, 200, resources={"memory": "1MiB"})
    await until(lambda: all(phase(fed, job) is JobPhase.RUNNING for job in jobs))
    fed.sites.disconnect("us-east")
    site.hold = False
    await until(lambda: not site.holding)
    failed = asyncio.Event()

    def first_group_fails(txn: Txn) -> None:
        touched = put_keys(txn)
        if any(jobs[0] in key for key in touched):
            failed.set()
            raise StoreUnavailable("this group only", retry_after_s=10)

    store.before = first_group_fails
    fed.sites.connect("us-east")
    await failed.wait()
    await asyncio.sleep(0.05)
    await fed.kill()
    kv = await fed.store.get(keys.event_seq("us-east"))
    durable = pb.SeqRecord.FromString(kv.value).seq if kv else 0
    untold = [e for e in site.events if e.uid.startswith(jobs[0]) and isinstance(e, ev.Ended)]
    assert durable < untold[0].event_seq
    store.heal()
    site.acked = durable
    await fed.start()
    await all_end(fed, jobs)


async def test_a_dispatch_number_is_never_given_twice_even_if_its_counter_was_lost(
    one_site: Pair,
) -> None:
    fed, _ = one_site
    fed.sites.sites["us-east"].hold = True
    jobs = await submit(fed, 3)
    await until(lambda: all(phase(fed, job) is JobPhase.RUNNING for job in jobs))
    await fed.kill()
    behind = pb.SeqRecord(schema=1, seq=0).SerializeToString()
    await fed.store.txn(Txn(then=(Put(keys.dispatch_seq("us-east"), behind),)))
    await fed.start()
    (late,) = await submit(fed)
    await until(lambda: phase(fed, late) is JobPhase.RUNNING)
    numbers = [a.dispatch_seq for j in (*jobs, late) for a in job_of(fed, j).attempts]  # type: ignore[union-attr]
    assert len(set(numbers)) == 4


async def test_etcd_away_and_back_costs_time_only(one_site: Pair) -> None:
    fed, store = one_site
    jobs = await submit(fed, 20)
    store.down()
    await asyncio.sleep(1.0)  # longer than the TTL: the leadership is lost
    assert fed.plane is not None and not fed.plane.office.leading()
    store.heal()
    await until(lambda: fed.plane is not None and fed.plane.office.leading())
    fed.sites.connect("us-east")
    await all_end(fed, jobs)
    assert set(starts(fed).values()) == {1}
