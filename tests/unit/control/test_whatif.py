"""What if, on a running broker: who moves, what it costs, and who may see what."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from broker.control.viewing import Viewer
from broker.control.whatif import WhatIfAsk
from broker.decide.whatif import Changes, PriceChange, QuotaChange, UnknownTarget
from federation.jobs import parse_job_spec
from tests.unit.control.federation import Federation, Site, until
from tests.unit.control.test_policies_at_work import ended, fill, submit

OPERATOR = Viewer("op", operator=True)
ADA = Viewer("ada", ("default",))


@pytest.fixture
async def fed(tmp_path: Path) -> AsyncIterator[Federation]:
    made = await Federation.make(
        tmp_path, Site("us-east", 4, price_usd=0.05), Site("eu-west", 8, price_usd=0.09)
    )
    plane = await made.start()
    views = plane.services.control.fleet
    await until(lambda: all(v.capacity and v.prices for v in views().clusters.values()))
    yield made
    await made.kill()
    await made.sites.close()


async def ask(fed: Federation, viewer: Viewer = OPERATOR, **more: Any) -> dict[str, Any]:
    assert fed.plane is not None
    changes = Changes(**more.pop("changes", {}))
    return await fed.plane.services.control.whatif(WhatIfAsk(changes, **more), viewer)


async def running(fed: Federation, n: int) -> list[str]:
    """Jobs that hold slots of the cheaper site until it lets go."""
    for site in fed.sites.sites.values():
        site.hold = True
    jobs = await submit(fed, n, expected_runtime="30m")
    assert fed.plane is not None
    projection = fed.plane.services.projection
    await until(
        lambda: all((j := projection.job(job)) and j.started_ms for job in jobs)
    )
    return jobs


async def test_what_runs_in_a_lost_cluster_starts_anew_elsewhere(fed: Federation) -> None:
    jobs = await running(fed, 3)
    told = await ask(fed, changes={"lose": ("us-east",)})
    assert told["running"] == {"stay": 0, "displaced": 3} and told["moved"] == 3
    assert {move["job"].split("-")[0] for move in told["moves"]} == set(jobs)
    for move in told["moves"]:
        assert move["state"] == "running"
        assert move["before"]["places"] == [{"cluster": "us-east", "pool": "cpu", "copies": 1}]
        assert move["after"]["places"] == [{"cluster": "eu-west", "pool": "cpu", "copies": 1}]
        assert move["difference_usd"] > 0, "a dearer place, and from the start again"
    assert told["today"]["placed"] == told["whatif"]["placed"] == {"100": 3}
    assert told["difference_usd"] == pytest.approx(
        sum(move["difference_usd"] for move in told["moves"]), abs=0.2
    )
    drained = await ask(fed, changes={"drain": ("us-east",)})
    assert drained["running"] == {"stay": 3, "displaced": 0} and drained["moved"] == 0


async def test_the_queue_is_decided_anew_and_nothing_is_stored(fed: Federation) -> None:
    await fill(fed)  # 8 of 12 slots
    assert fed.plane is not None
    before = fed.plane.services.projection.jobs()
    spec = parse_job_spec({"run": "x", "tenant": "default", "max_runtime": "1h", "name": "more"})
    told = await ask(fed, jobs=((spec, 6),))
    assert told["today"]["copies"] == 0
    assert (told["whatif"]["copies"], told["whatif"]["waiting"]) == (4, 2)
    assert {move["state"] for move in told["moves"]} == {"added"}
    assert told["moves"][0]["before"] == {"places": [], "cost_usd": None, "waits": "not there"}
    (start,) = told["whatif"]["starts"]
    assert (start["cluster"], start["copies"]) == ("eu-west", 4)
    assert sum(row["jobs"] for row in told["whatif"]["later"]) == 2, "they wait for room"
    assert fed.plane.services.projection.jobs() == before


async def test_prices_quotas_and_policies_change_where_jobs_go(fed: Federation) -> None:
    spec = parse_job_spec({"run": "x", "tenant": "default", "max_runtime": "1h"})
    jobs = ((spec, 4),)
    async def where(**more: Any) -> dict[str, int]:
        told = await ask(fed, jobs=jobs, **more)
        return {row["cluster"]: row["copies"] for row in told["whatif"]["starts"]}

    assert await where() == {"us-east": 4}
    dear = PriceChange("us-east", usd=9.0)
    assert await where(changes={"prices": (dear,)}) == {"eu-west": 4}
    assert await where(changes={"quotas": (QuotaChange("default", 1),)}) == {"us-east": 1}
    quota = QuotaChange("default", 3, "us-east")
    assert await where(changes={"quotas": (quota,)}) == {"us-east": 3, "eu-west": 1}
    rules = "{name: p, match: {}, require: {regions: [eu-west]}}"
    assert await where(policies=(rules,)) == {"eu-west": 4}
    unknowns: tuple[dict[str, Any], ...] = (
        {"quotas": (QuotaChange("default", 1, "mars"),)}, {"lose": ("mars",)},
    )  # fmt: skip
    for unknown in unknowns:
        with pytest.raises(UnknownTarget):
            await ask(fed, changes=unknown)


async def test_a_user_sees_own_jobs_and_of_others_the_totals(fed: Federation) -> None:
    await running(fed, 3)
    everything = await ask(fed, changes={"lose": ("us-east",)})
    mine = await ask(fed, ADA, changes={"lose": ("us-east",)})
    assert [move["job"] for move in mine["moves"]] == [m["job"] for m in everything["moves"]]
    others = await ask(fed, Viewer("eve", ("other",)), changes={"lose": ("us-east",)})
    assert (others["moves"], others["moved"]) == ([], 3)
    assert others["notes"] == ["3 jobs of others would move"]
    assert others["today"]["cost_usd"] == others["whatif"]["cost_usd"] == 0.0
    assert others["today"]["placed"] == everything["today"]["placed"]
    for site in fed.sites.sites.values():
        site.hold = False
    assert fed.plane is not None
    jobs = [str(job) for job in fed.plane.services.projection.job_ids()]
    await until(lambda: ended(fed, *jobs))
