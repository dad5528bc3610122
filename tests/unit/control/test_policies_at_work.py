"""Policies in a running broker: queued jobs follow a change, pinned ones do not, trials store
nothing."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from broker.control.policy_book import Change, restore_policy, write_policy
from broker.control.submission import Request
from broker.control.viewing import Viewer
from broker.model.jobs import JobPhase
from broker.state import keys
from federation.jobs import InvalidJob
from tests.unit.control.federation import Federation, Site, until

ANYWHERE = "{name: p, description: one}"
EU_ONLY = "{name: p, require: {regions: [eu-west]}}"


@pytest.fixture
async def fed(tmp_path: Path) -> AsyncIterator[Federation]:
    made = await Federation.make(
        tmp_path, Site("us-east", 4, price_usd=0.05), Site("eu-west", 4, price_usd=0.09)
    )
    await made.start()
    yield made
    await made.kill()
    await made.sites.close()


async def submit(fed: Federation, n: int = 1, **spec: Any) -> list[str]:
    assert fed.plane is not None
    data = [{"command": ["true"], "max_runtime": "1h", **spec} for _ in range(n)]
    request = Request(Viewer("ada", ("default",)), b"")
    taken = await fed.plane.services.submissions().submit(data, request)
    return [str(job) for job in taken.ids]


async def apply(fed: Federation, source: str) -> int:
    assert fed.plane is not None
    services = fed.plane.services
    written = await write_policy(
        services.store, Change(source, 1, "op"), services.projection.fold_own
    )
    return written.version.version


def cluster_of(fed: Federation, job: str) -> str:
    assert fed.plane is not None
    found = fed.plane.services.projection.job(job)
    return found.attempts[-1].cluster if found and found.attempts else ""


def ended(fed: Federation, *jobs: str) -> bool:
    assert fed.plane is not None
    found = [fed.plane.services.projection.job(job) for job in jobs]
    return all(job is not None and job.phase is JobPhase.ENDED for job in found)


async def fill(fed: Federation) -> list[str]:
    """Jobs that hold every slot until their site lets go."""
    for site in fed.sites.sites.values():
        site.hold = True
    jobs = await submit(fed, 8)
    assert fed.plane is not None
    projection = fed.plane.services.projection
    await until(
        lambda: all((j := projection.job(job)) and j.phase is JobPhase.RUNNING for job in jobs)
    )
    return jobs


async def test_a_named_policy_sends_a_job_where_it_says_and_the_receipt_tells(
    fed: Federation,
) -> None:
    await apply(fed, EU_ONLY)
    (job,) = await submit(fed, placement={"policy": "p"})
    await until(lambda: ended(fed, job))
    assert cluster_of(fed, job) == "eu-west"
    assert fed.plane is not None
    ledger = fed.plane.services.ledger
    receipts = []
    for _ in range(200):
        receipts = [json.loads(r.body_json) for r in await ledger.receipts(job)]
        if receipts:
            break
        await until(lambda: True)
    assert ["p@1"] in [body.get("policies") for body in receipts]


async def test_queued_jobs_follow_a_change_and_pinned_ones_do_not(fed: Federation) -> None:
    await apply(fed, ANYWHERE)
    await fill(fed)
    (follows,) = await submit(fed, placement={"policy": "p"})
    (pinned,) = await submit(fed, placement={"policy": "p@1"})
    assert await apply(fed, EU_ONLY) == 2
    fed.sites.sites["us-east"].hold = False
    await until(lambda: ended(fed, pinned))
    assert cluster_of(fed, pinned) == "us-east"
    assert cluster_of(fed, follows) == ""
    fed.sites.sites["eu-west"].hold = False
    await until(lambda: ended(fed, follows))
    assert cluster_of(fed, follows) == "eu-west"


async def test_a_change_moves_jobs_that_match_without_naming_it(fed: Federation) -> None:
    await fill(fed)
    (job,) = await submit(fed, labels={"data": "personal"})
    await apply(
        fed, "{name: p, match: {labels: {data: personal}}, require: {regions: [eu-west]}}"
    )
    for site in fed.sites.sites.values():
        site.hold = False
    await until(lambda: ended(fed, job))
    assert cluster_of(fed, job) == "eu-west"


async def test_a_contradiction_is_refused_at_submission_and_later_waits_with_its_reason(
    fed: Federation,
) -> None:
    assert fed.plane is not None
    projection = fed.plane.services.projection
    await apply(fed, EU_ONLY)
    with pytest.raises(InvalidJob, match=r"the job allows us-east, policy p@1 allows eu-west"):
        await submit(fed, placement={"policy": "p", "regions": ["us-east"]})
    with pytest.raises(InvalidJob, match=r"the job names us-east \(us-east\), policy p@1"):
        await submit(fed, placement={"policy": "p", "clusters": ["us-east"]})
    with pytest.raises(InvalidJob, match=r"no such policy \(got q\)"):
        await submit(fed, placement={"policy": "q"})
    await apply(fed, ANYWHERE)
    await fill(fed)
    (job,) = await submit(fed, placement={"policy": "p", "regions": ["us-east"]})
    await apply(fed, EU_ONLY)
    await until(lambda: (j := projection.job(job)) and j.reason_code == "policy_denied")
    found = projection.job(job)
    assert found is not None and "the job allows us-east" in found.reason_text


async def test_history_is_kept_and_a_rollback_is_a_new_version(fed: Federation) -> None:
    assert fed.plane is not None
    services = fed.plane.services
    book = services.submissions().specs.policies
    assert [await apply(fed, text) for text in (ANYWHERE, EU_ONLY, EU_ONLY)] == [1, 2, 2]
    written = await restore_policy(
        services.store, "p", 1, Change("", 2, "op"), services.projection.fold_own
    )
    assert (written.version.version, written.version.restores) == (3, 1)
    assert [v.source for v in book.history("p")] == [ANYWHERE, EU_ONLY, ANYWHERE]
    assert book.policies().current["p"].version == 3


async def test_a_trial_tells_who_moves_and_what_it_costs_and_stores_nothing(
    fed: Federation,
) -> None:
    assert fed.plane is not None
    services = fed.plane.services
    (done,) = await submit(fed, labels={"data": "personal"})
    await until(lambda: ended(fed, done))
    running = await fill(fed)
    (queued,) = await submit(fed, labels={"data": "personal"})
    fed.sites.sites["us-east"].hold = False
    await until(lambda: ended(fed, queued))
    source = (
        "{name: p, match: {labels: {data: personal}}, require: {regions: [eu-west]}}"
    )
    revision = services.projection.mod_revision(keys.policy("p"))
    told = await services.control.test_policy(source)
    assert services.projection.mod_revision(keys.policy("p")) == revision == 0
    assert told["policy"] == {"name": "p", "version": 1, "replaces": None}
    assert told["queued"]["affected"] == 0 and told["queued"]["placed_after"] is None
    by_job = {move["job"]: move for move in told["moves"]}
    for job in (done, queued):
        move = by_job[job]
        assert move["before"]["places"] == [{"cluster": "us-east", "pool": "cpu", "copies": 1}]
        assert move["after"]["places"] == [{"cluster": "eu-west", "pool": "cpu", "copies": 1}]
        assert move["difference_usd"] == pytest.approx(0.04, rel=0.01)
        assert move["ran_in"] == "us-east" and move["policies_after"] == ["p@1"]
    assert not set(running) & set(by_job)
    assert told["recent"]["affected"] == 2
    assert told["recent"]["difference_usd"] == pytest.approx(0.08, rel=0.01)


async def test_a_trial_decides_the_queue_as_a_whole(fed: Federation) -> None:
    assert fed.plane is not None
    projection = fed.plane.services.projection
    await apply(fed, "{name: p, require: {max_price_usd_per_accelerator_hour: 0.01}}")
    jobs = await submit(fed, 6, placement={"policy": "p"})
    await until(lambda: (j := projection.job(jobs[-1])) and j.reason_code == "price_cap")
    told = await fed.plane.services.control.test_policy(ANYWHERE)
    assert told["policy"] == {"name": "p", "version": 2, "replaces": 1}
    queued = told["queued"]
    assert (queued["jobs"], queued["affected"], queued["moved"]) == (6, 6, 6)
    assert (queued["placed_before"], queued["placed_after"]) == (0, 6)
    assert queued["difference_usd"] == pytest.approx(4 * 0.05 + 2 * 0.09, rel=0.3)
    places = sorted(m["after"]["places"][0]["cluster"] for m in told["moves"])
    assert places == ["eu-west"] * 2 + ["us-east"] * 4
    assert all("price cap" in m["before"]["waits"] for m in told["moves"])
    assert all((j := projection.job(job)) and not j.attempts for job in jobs)


async def test_expressions_choose_clusters_and_write_into_jobs(fed: Federation) -> None:
    await apply(
        fed,
        "name: p\nmatch: {when: job.kind == 'batch'}\n"
        "require: {where: cluster.region.startsWith('eu-')}\n"
        "mutate: {labels: {cost-centre: '\"cc-\" + job.tenant'}}\n",
    )
    (job,) = await submit(fed)
    await until(lambda: ended(fed, job))
    assert cluster_of(fed, job) == "eu-west"
    assert fed.plane is not None
    raw = fed.plane.services.projection.value(keys.spec(job)) or b""
    assert b"cc-default" in raw


async def test_outside_the_hours_of_a_policy_jobs_wait_and_are_told_until_when(
    fed: Federation,
) -> None:
    now = datetime.now(UTC)
    opens, closes = now + timedelta(hours=2), now + timedelta(hours=3)
    hours = f"{opens:%H:%M}-{closes:%H:%M} UTC"
    await apply(fed, f"name: p\nmatch: {{}}\nrequire: {{hours: '{hours}'}}\n")
    (job,) = await submit(fed)
    assert fed.plane is not None
    projection = fed.plane.services.projection
    await until(lambda: (j := projection.job(job)) and j.reason_code == "policy_denied")
    found = projection.job(job)
    assert found is not None and f"wait until {opens:%a %H:%M} UTC" in found.reason_text
