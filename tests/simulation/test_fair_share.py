"""Tenants get what they are due, over a day of virtual time, and nothing lies idle meanwhile."""

from __future__ import annotations

from typing import Any

import pytest

from tests.simulation.federations import job, pool, simulate

DAY = 86_400
CALM = {"heartbeat": 60, "settings": {"leader_ttl_s": 120}}
"""What beats seldom is simulated fast."""
ONE = [pool("near", free_nodes={8: 3})]


def backlog(tenant: str, count: int, **rest: Any) -> dict[str, Any]:
    """Jobs that all wait from the first minute on."""
    spec = {"tenant": tenant, "resources": {"accelerators": f"H100:{rest.pop('cards', 2)}"}}
    minutes = rest.pop("minutes", 60)
    at = rest.pop("at", 1.0)
    found = job(f"{tenant}-{at:g}", at, 60.0 * minutes, spec=spec, count=count, **rest)
    return found


def held_s(result: Any) -> dict[str, float]:
    """By user, seconds of all attempts from their placing to their end, or to the end of the day:
    what runs then has taken its places as well."""
    owner, since, held = dict[str, str](), dict[str, float](), dict[str, float]()
    for line in result.transcript:
        at, text = line.split(" ", 1)
        words = text.split()
        if words[0] == "user" and words[2] == "has":
            owner[words[3]] = words[1].split("-")[0]
        elif words[0] == "store" and "placed at" in text:
            since[words[1]] = float(at)
        elif words[0] == "store" and "ended at" in text:
            user = owner[words[1].rsplit("-", 1)[0]]
            held[user] = held.get(user, 0.0) + float(at) - since.pop(words[1])
    for uid, start in since.items():
        user = owner[uid.rsplit("-", 1)[0]]
        held[user] = held.get(user, 0.0) + DAY - start
    return held


def test_a_day_of_backlogs_is_shared_by_weight_well_within_five_percent() -> None:
    """Unlike runtimes and weights, nobody ever without work: what each got is its weight's. Two
    percent are asked for here: one job of 97 minutes more or less is four for the smallest."""
    weights = {"one": 1, "two": 2, "five": 5}
    result = simulate(
        [
            backlog("one", 60, minutes=97),
            backlog("two", 120, minutes=61),
            backlog("five", 280, minutes=47),
        ],
        pools=ONE,
        tenants=[{"name": name, "weight": weight} for name, weight in weights.items()],
        settle=DAY,
        **CALM,
    )
    used = held_s(result)
    whole = sum(used.values())
    for name, weight in weights.items():
        assert abs(used[name] / whole - weight / 8) < 0.02 * weight / 8, (name, used)
    assert result.metrics["utilisation"] > 0.95


def test_what_still_runs_at_the_end_counts_for_who_runs_it() -> None:
    """An hour is over, and nothing has ended: both had half of the cards all the time."""
    result = simulate(
        [backlog("short", 12, minutes=600), backlog("long", 12, minutes=900)],
        pools=ONE,
        settle=3600,
    )
    used = [result.metrics[f"accelerator_s.{name}"] for name in ("short", "long")]
    assert result.metrics["succeeded"] == 0
    assert used == [pytest.approx(12 * 3600, rel=0.02)] * 2


def test_a_share_nobody_uses_is_everybodys() -> None:
    """One tenant alone has the whole federation, whatever its weight; when the other comes it
    gets what is due to it as places come free, with what it did not use counted for it."""
    result = simulate(
        [backlog("light", 60, minutes=30), backlog("heavy", 60, minutes=30, at=7200.0)],
        pools=ONE,
        tenants=[{"name": "light", "weight": 1}, {"name": "heavy", "weight": 3}],
        settle=4 * 3600,
    )
    starts: dict[str, list[float]] = {"light": [], "heavy": []}
    owner = {}
    for line in result.transcript:
        at, text = line.split(" ", 1)
        words = text.split()
        if words[:1] == ["user"] and words[2:3] == ["has"]:
            owner[words[3]] = words[1].split("-")[0]
        elif "placed at near" in text:
            starts[owner[words[1].rsplit("-", 1)[0]]].append(float(at))
    assert len([at for at in starts["light"] if at < 60]) == 12  # all of it at once
    after = [at for name in starts for at in starts[name] if 7260 < at < 4 * 3600]
    heavy = [at for at in starts["heavy"] if 7260 < at < 4 * 3600]
    assert len(heavy) / len(after) >= 0.75


def test_who_waits_for_its_turn_is_told_so() -> None:
    result = simulate(
        [backlog("big", 40, minutes=30), backlog("small", 4, minutes=10, at=60.0)],
        pools=ONE,
        settle=10_800,
    )
    assert any("queued fair_share" in line for line in result.transcript)
    assert result.metrics["succeeded"] == 44


def test_an_array_gives_back_what_others_are_due() -> None:
    """An array alone has everything; when another tenant comes, slices get no more tasks, and the
    newcomer has its half as tasks end. Nothing is stopped."""
    body = {"tenant": "sweep", "array": "0-999", "resources": {"accelerators": "H100:1"}}
    sweep = job("sweep", 1, 60, spec=body, cancel=3000)
    result = simulate([sweep, backlog("other", 12, minutes=20, at=600.0)], pools=ONE, settle=5400)
    owners = [line.split()[4] for line in result.transcript if " user other" in line]
    placed = [
        float(line.split(" ", 1)[0])
        for line in result.transcript
        if " placed at near" in line and line.split()[2].rsplit("-", 1)[0] in owners
    ]
    assert sum(at < 600 + 6 * 60 for at in placed) >= 5  # of six that are its half
    assert result.metrics["preemptions"] == 0
