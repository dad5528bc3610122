"""What `status` tells: silence, certificates, the wait, and the last day, to whom it concerns."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC
from pathlib import Path
from typing import Any

import pytest

from broker.cli.federation_views import status_facts
from broker.cli.formatting import Now
from broker.control.submission import Request
from broker.control.viewing import Viewer
from broker.feedback.alarms import alarm_entry
from broker.feedback.ports import FeedbackUnavailable, LedgerBatch
from broker.model.jobs import JobPhase
from broker.state import keys
from federation.kv import Put, Txn
from federation.units import parse_rfc3339_ms
from federation.wire import records as pb
from tests.unit.control.federation import Federation, Site, until
from tests.unit.feedback.builders import a_job, a_usage

OPERATOR = Viewer("root-of-all", operator=True)
DAY_MS = 86_400_000
NOW = Now(parse_rfc3339_ms("2026-11-30T13:10:00Z"), UTC)


@pytest.fixture
async def federation(tmp_path: Path) -> AsyncIterator[Federation]:
    made = await Federation.make(tmp_path, Site("us-east", 1), Site("eu-west", 1))
    await made.start()
    yield made
    await made.kill()
    await made.sites.close()


async def submit(fed: Federation, count: int, **spec: Any) -> list[str]:
    assert fed.plane is not None
    data = [{"command": ["true"], **spec} for _ in range(count)]
    request = Request(Viewer("ada", ("default",)), b"")
    return list((await fed.plane.services.submissions().submit(data, request)).ids)


async def test_status_names_the_wait_the_silent_and_the_late(federation: Federation) -> None:
    assert federation.plane is not None
    control = federation.plane.services.control
    await until(lambda: control.status()["clusters"]["connected"] == 2)
    federation.sites.disconnect("eu-west")
    federation.sites.sites["us-east"].hold = True
    first, second = await submit(federation, 2)
    projection = federation.plane.services.projection

    def stuck() -> bool:
        waiting = projection.job(second) or projection.job(first)
        told = control.status()["oldest_wait"]
        return waiting is not None and told is not None and told["code"] == "no_capacity"

    await until(stuck)
    told = control.status()
    assert told["oldest_wait"]["job"] in (first, second) and told["oldest_wait"]["reason"]
    (silent,) = told["silent_sites"]
    assert silent["cluster"] == "eu-west" and silent["for_s"] >= 0 and told["silent"] == ["eu-west"]
    assert told["cycle"]["age_s"] >= 0 and told["leader"]["here"]
    assert told["expiring"] == []
    now_ms = federation.backends.clock.now_ms()
    record = pb.ClusterRecord.FromString(projection.value(keys.cluster("eu-west")) or b"")
    record.certificate_expires_ms = now_ms + 3_600_000
    record.joined_ms = now_ms - 1_000
    put = Put(keys.cluster("eu-west"), record.SerializeToString())
    await federation.store.txn(Txn(then=(put,)))
    await until(lambda: control.status()["expiring"])
    (late,) = control.status()["expiring"]
    assert late["cluster"] == "eu-west" and 3_500 < late["in_s"] <= 3_600
    day = await control.changes(OPERATOR)
    assert [c["name"] for c in day["new_clusters"]] == ["eu-west"]


async def test_the_last_day_is_told_to_whom_it_concerns(federation: Federation) -> None:
    assert federation.plane is not None
    plane, ledger = federation.plane, federation.backends.ledger
    now_ms = federation.backends.clock.now_ms()
    rows = (
        a_job(job="j1", tenant="acme", ended_ms=now_ms - 1_000, outcome="succeeded"),
        a_job(job="j2", tenant="acme", ended_ms=now_ms - DAY_MS - 5_000, outcome="failed"),
        a_job(job="j3", tenant="other", ended_ms=now_ms - 1_000, outcome="failed"),
    )
    used = a_usage(attempt="j1-1", tenant="acme", to_ms=now_ms - 1_000, cost_micro_usd=2_500_000)
    old = alarm_entry(now_ms - 2 * DAY_MS, "long ago", "broker-1")
    kept = alarm_entry(now_ms - 5_000, "of another leader", "broker-2")
    await ledger.record(LedgerBatch(jobs=rows, usage=(used,), audit=(old, kept)))
    plane.office.alarm("here and now")
    control = plane.services.control
    everything = await control.changes(OPERATOR)
    assert everything["jobs"] == {"failed": 1, "succeeded": 1}
    assert everything["cost_usd"] == 2.5
    assert [a["text"] for a in everything["alarms"]] == ["here and now", "of another leader"]
    mine = await control.changes(Viewer("ada", ("acme",)))
    assert (mine["jobs"], mine["cost_usd"], mine["alarms"]) == ({"succeeded": 1}, 2.5, None)

    day = now_ms // DAY_MS
    async with asyncio.timeout(10):
        while "here and now" not in [e.why for e in await ledger.audit(f"alarms/{day}")]:
            await asyncio.sleep(0.01)  # it outlives its process


async def test_a_ledger_that_is_away_leaves_the_rest_of_the_status(
    federation: Federation,
) -> None:
    assert federation.plane is not None

    class Away:
        async def outcomes(self, *_: object) -> tuple[()]:
            raise FeedbackUnavailable("disk full")

    standing = federation.plane.services.control.standing  # type: ignore[attr-defined]
    told = await type(standing)(
        standing.office, standing.sites, standing.projection, Away(), standing.clock
    ).changes(OPERATOR)
    assert told["jobs"] is None and "disk full" in told["note"]


async def test_an_array_that_is_all_placed_waits_for_nothing(federation: Federation) -> None:
    assert federation.plane is not None
    control, projection = federation.plane.services.control, federation.plane.services.projection
    (job,) = await submit(federation, 1, array="0-5")

    def ended() -> bool:
        found = projection.job(job)
        return found is not None and found.phase is JobPhase.ENDED

    await until(ended)
    assert control.status()["oldest_wait"] is None


def test_status_as_a_person_reads_it() -> None:
    facts = dict(
        status_facts(
            {
                "leader": {"name": "broker-1"}, "epoch": 4,
                "clusters": {"connected": 2, "silent": 1}, "queued": 3, "running": 2,
                "cycle": {"age_s": 2.4, "status": "optimal", "gap": 0.0, "cpu_s": 0.012},
                "oldest_wait": {"job": "j1", "age_s": 130, "reason": "no H100 is free"},
                "silent_sites": [{"cluster": "eu-west", "for_s": 200.0}, {"cluster": "ap"}],
                "expiring": [{"cluster": "us-east", "in_s": 7200}, {"cluster": "x", "in_s": -5}],
                "last_24h": {
                    "jobs": {"succeeded": 12, "timed_out": 1}, "cost_usd": 3.42,
                    "new_clusters": [{"name": "us-east"}],
                    "alarms": [{"at": "2026-11-30T13:08:00.000Z", "text": "price refused"}],
                },
            },
            NOW,
        )
    )  # fmt: skip
    assert facts["last cycle"].startswith("optimal, 2")
    assert facts["longest wait"] == "j1 for 2m10s: no H100 is free"
    assert facts["silent sites"] == "eu-west for 3m20s, ap (never heard)"
    assert facts["certificates"] == "us-east expires in 2h00m, x has expired"
    assert facts["last 24 h"] == "12 succeeded, 1 timed out"
    assert (facts["cost"], facts["new clusters"]) == ("$3.42", "us-east")
    assert facts["alarms"] == "1, the last: price refused (2m ago)"
