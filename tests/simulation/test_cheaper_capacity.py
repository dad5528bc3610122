"""Cheaper capacity over virtual time: how much of what a policy governs goes to spot, and jobs that
wait for a cheaper place or hour, because their policy says so or they do."""

from __future__ import annotations

from typing import Any

import pytest

from broker.simulator.run import Result
from tests.simulation.federations import fault, job, moments, pool, simulate

SPOT = pool("spot", spot=True, price_usd_per_accelerator_hour=1)
OWNED = pool("owned", price_usd_per_accelerator_hour=3)
HALF = "{name: half, match: {}, spot: true, spot_share: 50%}"
KEPT = {"path": "/ckpt", "interval": "5m"}


def pairs(count: int, at: float = 1, lasts: float = 1800.0) -> dict[str, Any]:
    """Jobs of two H100 that spot capacity will do for."""
    spec = {"placement": {"spot": True}, "checkpoint": KEPT, "max_runtime": "1h"}
    spec["resources"] = {"accelerators": "H100:2"}
    return job(f"pairs-{at:g}", at, lasts, spec=spec, count=count)


def shares_on_spot(result: Result) -> list[float]:
    """Of what was held once the placements of a moment were through, the share on spot."""
    held: dict[str, str] = {}
    found: dict[str, float] = {}
    for line in result.transcript:
        words = line.split()
        if words[1] == "store" and words[4:5] == ["at"] and words[3] in ("placed", "ended"):
            held.pop(words[2], None)
            if words[3] == "placed":
                held[words[2]] = words[5]
                found[words[0]] = sum(at == "spot" for at in held.values()) / len(held)
    return list(found.values())


@pytest.mark.parametrize("faults", [(), (fault("broker_crash", 900, 5),)], ids=["calm", "crash"])
def test_no_more_than_its_share_of_a_policy_is_on_spot(faults: Any) -> None:
    """Twelve jobs come in two lots; sixteen cards are free at either place. Half go to each, also
    when the second lot comes under another leader; and what runs does not move to spot instead."""
    result = simulate(
        [pairs(6), pairs(6, at=920)], faults, pools=(SPOT, OWNED), policy=HALF
    )
    assert result.metrics["succeeded"] == 12
    assert len(moments(result, "placed at spot")) == 6
    assert len(moments(result, "placed at owned")) == 6
    assert shares_on_spot(result) == [0.5, 0.5]
    assert result.metrics["moves"] == 0  # for the price, what is on owned capacity would


def test_without_a_share_all_go_to_spot() -> None:
    """So the test above shows what the policy does."""
    result = simulate([pairs(6)], pools=(SPOT, OWNED))
    assert len(moments(result, "placed at spot")) == 6


def busy(lasts: float) -> dict[str, Any]:
    """All of the cheap place, for a while."""
    return job("busy", 1, lasts, on="near", cards=8, count=2)


CHEAP = pool("near", price_usd_per_accelerator_hour=1)
DEAR = pool("far", price_usd_per_accelerator_hour=3)
WAITS = (
    "{name: waits, match: {}, defer: {max_price_usd_per_accelerator_hour: 2, up_to: 1h}}"
)


@pytest.mark.parametrize(
    ("lasts", "place", "starts"), [(1200.0, "near", 1200.0), (5400.0, "far", 3600.0)]
)
def test_a_policy_lets_a_job_wait_for_a_cheaper_place_and_no_longer_than_it_says(
    lasts: float, place: str, starts: float
) -> None:
    patient = job("patient", 5, 600, cards=8)
    result = simulate(
        [busy(lasts), patient], pools=(CHEAP, DEAR), policy=WAITS, settle=3 * 3600
    )
    assert result.story["patient"] == f"succeeded {place}:succeeded"
    (placed,) = [at for at in moments(result, f"placed at {place}") if at > 60]
    assert starts < placed < starts + 60


def test_a_job_waits_for_the_hour_that_it_says_it_may_wait_for() -> None:
    """The run begins at 08:00; from 10:00 on the place costs a tenth. A job that may not wait for
    so long starts at once, and so does one without `defer`."""
    hours = [{"from": "10:00", "to": "18:00", "usd_per_accelerator_hour": 0.3}]
    spec = {"max_runtime": "1h"}
    jobs = [
        job("late", 5, 600, spec={**spec, "defer": "6h"}),
        job("hasty", 5, 600, spec={**spec, "defer": "1h"}),
        job("plain", 5, 600, spec=dict(spec)),
    ]
    result = simulate(
        jobs, pools=(pool("near", price_usd_per_accelerator_hour=3, hours=hours),), settle=4 * 3600
    )
    early, also, late = moments(result, "placed at near")
    assert early < 60 and also < 60 and 7200 <= late < 7260
    assert result.metrics["succeeded"] == 3
