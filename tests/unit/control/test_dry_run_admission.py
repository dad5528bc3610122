"""A dry run says what the next cycle would: quotas, fair share, and what is kept for others."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from broker.control.submission import Request
from broker.control.tenants import put_tenant
from broker.control.viewing import Viewer
from broker.decide.admission.holds import Hold, HoldWhy
from broker.model.fleet import TenantPolicy
from federation.jobs import parse_job_spec
from tests.unit.control.federation import Federation, Site, until
from tests.unit.control.test_explaining import explain
from tests.unit.control.test_policies_at_work import submit

ADA = Viewer("ada", ("default",))


@pytest.fixture
async def fed(tmp_path: Path) -> AsyncIterator[Federation]:
    made = await Federation.make(tmp_path, Site("us-east", 4, hold=True))
    await made.start()
    assert made.plane is not None
    world = made.plane.services.control.explainer.world
    await until(lambda: any(view.capacity for view in world().fleet.clusters.values()))
    yield made
    await made.kill()
    await made.sites.close()


async def dry_run(fed: Federation, **spec: Any) -> dict[str, Any]:
    assert fed.plane is not None
    read = parse_job_spec({"run": "true", "tenant": "default", "max_runtime": "4h", **spec})
    return await fed.plane.services.control.dry_run(read, "default", ADA)


async def with_tenants(fed: Federation, *tenants: TenantPolicy) -> None:
    assert fed.plane is not None
    services = fed.plane.services
    for tenant in tenants:
        revision, put = await put_tenant(services.store, tenant)
        services.projection.fold_own(revision, (put,))


async def started(fed: Federation, *jobs: str) -> None:
    assert fed.plane is not None
    projection = fed.plane.services.projection
    await until(lambda: all((j := projection.job(job)) and j.started_ms for job in jobs))


async def others(fed: Federation, n: int) -> list[str]:
    assert fed.plane is not None
    data = [{"command": ["true"], "max_runtime": "1h", "tenant": "physics"}] * n
    request = Request(Viewer("bob", ("physics",)), b"")
    taken = await fed.plane.services.submissions().submit(data, request)
    return [str(job) for job in taken.ids]


async def test_a_quota_that_is_used_up_is_told_with_what_would_help(fed: Federation) -> None:
    await with_tenants(fed, TenantPolicy("default", quota_accelerators=2))
    await started(fed, *await submit(fed, 2))
    told = await dry_run(fed)
    assert told["chosen"] is None
    assert told["admission"]["may_take"] == 0
    assert told["waiting"][0]["code"] == "tenant_quota"
    assert told["smallest_change"]["text"] == "1 more CPU slot of quota for default"
    assert told["smallest_change"]["verified"] is True


async def test_in_a_cohort_it_is_told_what_may_still_be_borrowed(fed: Federation) -> None:
    await with_tenants(
        fed, TenantPolicy("default", quota_accelerators=1, cohort="lab", borrow_accelerators=1),
        TenantPolicy("physics", quota_accelerators=3, cohort="lab"),
    )  # fmt: skip
    await started(fed, *await submit(fed, 1))
    told = await dry_run(fed)
    assert told["chosen"]["cluster"] == "us-east" and told["admission"]["may_take"] == 1
    await started(fed, *await submit(fed, 1))
    told = await dry_run(fed)
    assert told["chosen"] is None
    assert told["summary"].startswith("waits: default: borrow limit: quota 1")
    assert "1 borrowed, no more allowed" in told["summary"]


async def test_whose_turn_it_is_is_told(fed: Federation) -> None:
    await with_tenants(fed, TenantPolicy("default"), TenantPolicy("physics"))
    await started(fed, *await submit(fed, 3), *await others(fed, 1))
    (waits,) = await others(fed, 1)
    assert fed.plane is not None and fed.plane.office.term is not None
    admitting = fed.plane.office.term.admitting
    await until(lambda: [wish.job.tenant for wish in admitting.waits] == ["physics"])
    told = await dry_run(fed)
    assert told["admission"]["turn"] is False and told["admission"]["share"] > 1.2
    assert told["summary"].startswith("waits: ") and "others have less of theirs" in told["summary"]
    assert waits not in str(told) and "physics" not in str(told)
    (mine,) = await submit(fed, 1)
    explained = await explain(fed, mine)
    assert "others have less of theirs" in explained["summary"]
    change = explained["smallest_change"]
    place = "1 more free place of 1 CPU on one node"
    assert change["verified"] and change["text"] == f"{place} and weight of default 1 -> 3"
    assert explained["waiting"][0]["change"] == place


@pytest.mark.parametrize(("weight", "whose"), [(2, "physics"), (3, "default")])
async def test_the_weight_that_is_told_is_the_least_that_gives_the_turn(
    fed: Federation, weight: int, whose: str
) -> None:
    await with_tenants(fed, TenantPolicy("default", weight=weight), TenantPolicy("physics"))
    await started(fed, *await submit(fed, 3), *await others(fed, 1))
    waiting = {"physics": (await others(fed, 1))[0], "default": (await submit(fed, 1))[0]}
    assert fed.plane is not None and fed.plane.office.term is not None
    admitting, projection = fed.plane.office.term.admitting, fed.plane.services.projection
    await until(lambda: len(admitting.waits) == 2)
    fed.sites.sites["us-east"].slots += 1
    fed.sites.report("us-east")
    await until(lambda: any((j := projection.job(i)) and j.attempts for i in waiting.values()))
    placed = [who for who, i in waiting.items() if (j := projection.job(i)) and j.attempts]
    assert placed == [whose]


async def test_what_is_kept_for_a_gang_is_no_room_unless_it_ends_in_time(fed: Federation) -> None:
    assert fed.plane is not None and fed.plane.office.term is not None
    term, now_ms = fed.plane.office.term, fed.backends.clock.now_ms()
    shape = ("physics", 100, 4, 1, ("CPU",), None)
    in_two_hours_ms = now_ms + 2 * 3_600_000
    term.admitting.holds = (
        Hold(
            shape, "us-east/cpu", 100, 4, 1, HoldWhy.GANG, now_ms, in_two_hours_ms + 120_000,
            in_two_hours_ms, model="CPU",
        ),
    )  # fmt: skip
    told = await dry_run(fed)
    assert told["chosen"] is None and "kept for a gang until" in told["summary"]
    assert "physics" not in str(told)
    assert (await dry_run(fed, max_runtime="1h"))["chosen"]["cluster"] == "us-east"


async def test_a_replica_that_does_not_lead_says_what_it_does_not_know(fed: Federation) -> None:
    assert fed.plane is not None
    office = fed.plane.office
    term, office.term = office.term, None
    try:
        told = await dry_run(fed)
    finally:
        office.term = term
    assert told["admission"] is None and told["chosen"]["cluster"] == "us-east"
