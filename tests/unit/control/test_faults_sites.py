"""Sites that drain, go for good, or come back with another disk; a store that fails at random."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from broker.act.gateway import Command, Dispatch, SessionOpened
from broker.lifecycle import events as ev
from broker.model.jobs import Intent, JobPhase, OutcomeKind
from broker.state import keys
from federation.kv import Put, Txn
from federation.wire import records as pb
from tests.unit.control.faulty import (
    FaultyStore,
    all_end,
    ask,
    faulty_federation,
    job_of,
    phase,
    starts,
    submit,
)
from tests.unit.control.federation import Federation, Site, Sites, until

Pair = tuple[Federation, FaultyStore]
HERE = {"clusters": ["us-east"]}


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncIterator[Pair]:
    made, store = await faulty_federation(
        tmp_path, Site("us-east", 8, hold=True), Site("eu-west", 8, price_usd=0.09)
    )
    await made.start()
    yield made, store
    store.heal()
    await made.kill()
    await made.sites.close()


async def change(fed: Federation, name: str, **fields: object) -> None:
    """What an operator does to a cluster's record."""
    kv = await fed.store.get(keys.cluster(name))
    assert kv is not None
    record = pb.ClusterRecord.FromString(kv.value)
    for field, value in fields.items():
        setattr(record, field, value)
    await fed.store.txn(Txn(then=(Put(kv.key, record.SerializeToString()),)))


async def test_a_drain_stops_what_is_left_at_its_deadline_and_moves_it(pair: Pair) -> None:
    fed, _ = pair
    jobs = await submit(fed, 4)
    await until(lambda: all(phase(fed, job) is JobPhase.RUNNING for job in jobs))
    await change(fed, "us-east", state="draining", drain_deadline_ms=2**50)
    await asyncio.sleep(1.5)
    assert all((j := job_of(fed, job)) and j.attempts_made == 1 for job in jobs)
    await change(fed, "us-east", drain_deadline_ms=1)
    await all_end(fed, jobs)
    assert {j.attempts[-1].cluster for job in jobs if (j := job_of(fed, job))} == {"eu-west"}


async def test_nothing_runs_for_ever_at_a_cluster_that_was_removed(pair: Pair) -> None:
    fed, _ = pair
    lost, cancelled = await submit(fed, 2, placement=HERE)
    (again,) = await submit(fed, retry={"attempts": 2, "on": ["lost"]})
    jobs = [lost, cancelled, again]
    await until(lambda: all(phase(fed, job) is JobPhase.RUNNING for job in jobs))
    fed.sites.disconnect("us-east")
    await ask(fed, cancelled, Intent(cancel=True))
    await asyncio.sleep(1.5)
    assert phase(fed, cancelled) is JobPhase.RUNNING  # unknown is not gone
    await change(fed, "us-east", state="removed")
    await all_end(fed, jobs)
    kinds = [j.outcome.kind for job in jobs if (j := job_of(fed, job)) and j.outcome]
    assert kinds == [OutcomeKind.LOST, OutcomeKind.CANCELLED, OutcomeKind.SUCCEEDED]


class Amnesiac(Sites):
    """Answers an adoption with what it knows; notes what it was asked."""

    def __init__(self, sites: Sites) -> None:
        super().__init__(list(sites.sites.values()), sites._clock)
        self.adoptions: list[str] = []
        self.deaf = False

    def _take(self, site: Site, command: Command) -> None:
        if isinstance(command, Dispatch) and command.adopt_only:
            self.adoptions.append(command.uid)
            if not self.deaf:
                now_ms = self._clock.now_ms()
                gone = ev.FoundMissing(command.uid, 0, now_ms, "not at this site")
                self._tell(site, [site.say(gone)])
        elif not self.deaf:
            super()._take(site, command)

    def connect_with_another_disk(self, name: str) -> None:
        self.connect(name)
        waiting = [self._inbox.get_nowait() for _ in range(self._inbox.qsize())]
        for event in waiting:
            opened = isinstance(event, SessionOpened)
            self._inbox.put_nowait(replace(event, disk_replaced=True) if opened else event)  # type: ignore[arg-type]


async def test_a_lost_disk_is_asked_about_until_the_site_answers_whatever_breaks_meanwhile(
    tmp_path: Path,
) -> None:
    fed, _ = await faulty_federation(tmp_path, Site("us-east", 8, hold=True))
    sites = fed.sites = Amnesiac(fed.sites)
    await fed.start()
    (job,) = await submit(fed)
    await until(lambda: phase(fed, job) is JobPhase.RUNNING)
    sites.disconnect("us-east")
    sites.deaf = True
    sites.connect_with_another_disk("us-east")
    await until(lambda: sites.adoptions)
    sites.disconnect("us-east")  # before it could answer
    await fed.kill()
    sites.deaf = False
    sites.adoptions.clear()
    await fed.start()  # its disk is known by now: it does not say again that it is new
    await all_end(fed, [job])
    found = job_of(fed, job)
    assert found and found.outcome and found.outcome.kind is OutcomeKind.LOST
    assert sites.adoptions == [f"{job}-1"]
    await fed.kill()
    await sites.close()


async def test_commands_reach_a_site_that_comes_back_in_the_order_of_their_numbers(
    tmp_path: Path,
) -> None:
    fed, _ = await faulty_federation(tmp_path, Site("us-east", 8, hold=True))
    site, sites = fed.sites.sites["us-east"], fed.sites
    taken: list[int] = []

    class Listening(Sites):
        def _take(self, site: Site, command: Command) -> None:
            taken.append(getattr(command, "dispatch_seq", 0))
            super()._take(site, command)

    fed.sites = Listening([site], sites._clock)
    await fed.start()
    for _ in range(5):
        await submit(fed)
        await asyncio.sleep(0.01)
        fed.sites.disconnect("us-east")
        fed.sites.connect("us-east")
    await until(lambda: len(site.seen) == 5)
    first = list(dict.fromkeys(taken))
    assert first == sorted(first)
    await fed.kill()
    await fed.sites.close()


@pytest.mark.parametrize("seed", range(4))
async def test_whatever_fails_and_whoever_dies_every_task_runs_once(
    tmp_path: Path, seed: int
) -> None:
    """Half of the failures of the store come after it has applied what it was given."""
    dice = random.Random(seed)
    fed, store = await faulty_federation(
        tmp_path, Site("us-east", 6), Site("eu-west", 6, price_usd=0.09)
    )
    await fed.start()
    jobs = await submit(fed, 25)
    jobs += await submit(fed, array="0-149")
    stopped = await submit(fed, 5, placement={"clusters": ["nowhere"]})
    store.at_random(dice, 0.3)
    for step in itertools.count():
        await asyncio.sleep(dice.uniform(0.05, 0.3))
        name = dice.choice(["us-east", "eu-west"])
        if name in fed.sites._sessions and dice.random() < 0.5:
            fed.sites.disconnect(name)
        elif name not in fed.sites._sessions and fed.plane and fed.plane.office.leading():
            fed.sites.connect(name)
        if step < len(stopped):
            await ask(fed, stopped[step], Intent(cancel=True))
        if step % 4 == 3:
            await fed.kill()
            await fed.start()
        if step >= 12:
            break
    store.heal()
    for name in ("us-east", "eu-west"):
        if name not in fed.sites._sessions:
            fed.sites.connect(name)
    await all_end(fed, [*jobs, *stopped], within_s=30)
    ran = starts(fed)
    assert len(ran) == 175 and set(ran.values()) == {1}
    for site in fed.sites.sites.values():
        await until(lambda site=site: site.acked == site.seq)
    await fed.kill()
    await fed.sites.close()
