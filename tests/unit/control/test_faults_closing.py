"""Closing: silent sites wait without work, ended jobs leave, and nothing is kept of them."""

from __future__ import annotations

import asyncio
from pathlib import Path

from broker.act.gateway import Command, Forget, LogPart, SiteSilent
from broker.app import build
from broker.control.closer import Closer
from broker.model.jobs import JobPhase
from broker.settings import BrokerSettings
from tests.unit.control.faulty import all_end, faulty_federation, job_of, phase, submit
from tests.unit.control.federation import TTL_S, Federation, Site, Sites, until


class Shy(Sites):
    """Speaks of everything but its logs, as long as it is shy."""

    shy = True
    asked = 0

    async def read_log(
        self, cluster: str, uid: str, stream: str, offset: int, limit: int, *, wait_ms: int = 0
    ) -> LogPart:
        self.asked += 1
        if self.shy:
            raise SiteSilent(cluster)
        return await super().read_log(cluster, uid, stream, offset, limit, wait_ms=wait_ms)


async def start(fed: Federation, keep_ended_s: float) -> Closer:
    settings = BrokerSettings(
        state_dir=fed.directory, leader_ttl_s=TTL_S, keep_ended_s=keep_ended_s
    )
    fed.plane = build(settings, fed.backends, lambda _: fed.sites)
    fed.running = asyncio.create_task(fed.plane.run())
    await until(lambda: fed.plane is not None and fed.plane.office.leading())
    for name in fed.sites.sites:
        fed.sites.connect(name)
    term = fed.plane.office.term
    assert term is not None
    return term.closer


async def test_a_site_that_gives_no_logs_is_asked_for_one_now_and_then(tmp_path: Path) -> None:
    fed, _ = await faulty_federation(tmp_path, Site("us-east", 8))
    sites = fed.sites = Shy(list(fed.sites.sites.values()), fed.sites._clock)
    closer = await start(fed, 3600)
    jobs = await submit(fed, 60)
    await all_end(fed, jobs)
    await asyncio.sleep(0.3)
    assert sites.asked <= 20  # the fetchers of the first moment, not one per job and retry
    sites.shy = False
    await until(lambda: len(closer._logs_done) == 60)
    assert not closer._parked.get("us-east")
    await fed.kill()
    await sites.close()


async def test_ended_jobs_leave_etcd_and_memory(tmp_path: Path) -> None:
    fed, _ = await faulty_federation(tmp_path, Site("us-east", 8))
    closer = await start(fed, 1.0)
    jobs = await submit(fed, 40)
    jobs += await submit(fed, array="0-49")
    assert fed.plane is not None
    projection = fed.plane.services.projection
    await until(lambda: not projection.jobs() and not closer._ended_jobs)
    for job in jobs:
        assert await fed.backends.ledger.job(job) is not None
        assert job_of(fed, job) is None and phase(fed, job) is None
    term = fed.plane.office.term
    assert term is not None
    leader, books = term.leader, term.books
    await until(lambda: not leader._sent_s)
    kept = [
        closer._logs_done, closer._jobs_in_ledger, closer._rows, closer._writing,
        books._jobs, books._admitted, books._queued, books.intents,
        projection._jobs, projection._attempts, projection._chunks, projection._listed,
    ]
    assert not any(kept), kept
    indexed = [*books._live.values(), *books._ended.values()]
    assert not any(indexed), indexed
    await fed.kill()
    await fed.sites.close()


async def test_a_site_is_told_to_forget_only_what_was_acknowledged(tmp_path: Path) -> None:
    fed, _ = await faulty_federation(tmp_path, Site("us-east", 8))
    early: list[str] = []

    class Watching(Sites):
        async def send(self, cluster: str, commands: list[Command]) -> None:  # type: ignore[override]
            site = self.sites[cluster]
            for command in commands:
                told = [e.event_seq for e in site.events if e.uid == command.uid]
                if isinstance(command, Forget) and max(told) > site.acked:
                    early.append(command.uid)
            await super().send(cluster, commands)

    fed.sites = Watching(list(fed.sites.sites.values()), fed.sites._clock)
    await fed.start()
    await all_end(fed, await submit(fed, 30))
    await asyncio.sleep(0.2)
    assert not early
    await fed.kill()
    await fed.sites.close()


async def test_transitions_reach_the_ledger_when_a_broker_stops(tmp_path: Path) -> None:
    fed, _ = await faulty_federation(tmp_path, Site("us-east", 8, hold=True))
    await fed.start()
    jobs = await submit(fed, 5)
    await until(lambda: all(phase(fed, job) is JobPhase.RUNNING for job in jobs))
    await fed.kill()
    for job in jobs:
        told = [entry.what for entry in await fed.backends.ledger.audit(job)]
        assert any("running" in what for what in told), told
    await fed.sites.close()
