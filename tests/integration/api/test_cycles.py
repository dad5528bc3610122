"""Stored decisions over REST and through the command line: listed, fetched, decided again."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from broker.control.storing import build_facts, packed, recorded_problem
from broker.feedback.decision_days import DAY_MS
from broker.feedback.ports import CycleEntry, LedgerBatch
from tests.integration.api.world import World, running
from tests.unit.cli.test_against_the_api import tradewind
from tests.unit.control.test_storing import a_decision
from tests.unit.feedback.builders import a_cycle, a_gain, a_prediction


async def store(world: World, *cycles: str) -> None:
    assert world.services.decisions is not None
    for cycle in cycles:
        decision = a_decision(cycle)
        await world.services.decisions.put(cycle, "", packed(decision, build_facts()))
    entry = CycleEntry(
        cycle=cycles[-1], revision=1, at_ms=1_700_000_000_000, wall_s=0.1, cpu_s=0.05,
        status="optimal", gap=0.0, considered=6, placed=5, unplaced=1,
    )  # fmt: skip
    await world.services.ledger.record_cycle(entry)


async def test_stored_decisions_are_listed_and_fetched(world: World) -> None:
    await store(world, "1.1", "1.2")
    status, listed, _ = await world.call("GET", "/v1/cycles?limit=1")
    assert (status, listed["kept"]) == (200, 2) and listed["size_bytes"] > 0
    (newest,) = listed["cycles"]
    assert (newest["cycle"], newest["status"], newest["considered"]) == ("1.2", "optimal", 6)
    expected = json.loads(json.dumps(recorded_problem(a_decision("1.2"), build_facts())))
    for encoding in ("gzip", "identity"):
        headers = {"Accept-Encoding": encoding}
        status, body, response = await world.call("GET", "/v1/cycles/1.2", headers=headers)
        assert (status, response.headers.get("Content-Encoding")) == (
            200, "gzip" if encoding == "gzip" else None
        )  # fmt: skip
        assert body == expected


async def test_a_stored_decision_names_everybody_so_only_operators_read_it(world: World) -> None:
    await store(world, "1.1")
    ada = await world.token("physics")
    for path in ("/v1/cycles", "/v1/cycles/1.1"):
        assert (await world.call("GET", path, token=ada))[0] == 403
    for path in ("/v1/cycles/9.9", "/v1/cycles/..", "/v1/cycles/1"):
        assert (await world.call("GET", path))[0] == 404


@pytest.mark.timeout(180)
async def test_replay_from_the_command_line(tmp_path: Path) -> None:
    async with running(tmp_path / "broker") as world:
        await store(world, "1.1", "1.2")
        code, out, err = await tradewind(world, tmp_path, "replay", "--list")
        assert (code, err) == (0, "") and [line.split()[0] for line in out.splitlines()] == [
            "CYCLE", "1.2", "1.1"
        ]  # fmt: skip
        code, out, _ = await tradewind(world, tmp_path, "replay", "1.1", "--save", "c.json.gz")
        assert code == 0 and "the same plan, with 1 s of CPU time" in out
        code, out, _ = await tradewind(world, tmp_path, "replay", "c.json.gz", "--json")
        told = json.loads(out)
        assert (code, told["same"], told["differences"]) == (0, True, [])
        code, out, _ = await tradewind(world, tmp_path, "plan", "--problem", "c.json.gz", "--json")
        assert code == 0
        same = ("assignments", "unplaced", "cost_usd")
        assert all(json.loads(out)[k] == told["recorded"]["answer"][k] for k in same)
        document = json.loads(gzip.decompress((tmp_path / "c.json.gz").read_bytes()))
        document["recorded"]["answer"]["assignments"].pop()
        document["recorded"]["build"]["ortools"] = "9.1"
        (tmp_path / "other.json").write_text(json.dumps(document))
        code, out, _ = await tradewind(world, tmp_path, "replay", "other.json")
        assert code == 1 and "another plan" in out
        assert "assignments: j" in out and "possible cause: ortools was 9.1" in out
        code, out, _ = await tradewind(world, tmp_path, "policy", "sensitivity", "--json")
        assert (code, json.loads(out)["cycle"], json.loads(out)["jobs"]) == (0, "1.2", 6)
        for words, told_code in ((["replay", "7.7"], 3), (["replay", "nothing.json"], 2)):
            code, out, err = await tradewind(world, tmp_path, *words)
            assert (code, out) == (told_code, "") and err.startswith("tradewind: ")



# What decisions gained ----------------------------------------------------------------------------


async def record(world: World, now_ms: int) -> None:
    """Yesterday a gain; today none; predictions of today."""
    await world.services.ledger.record(
        LedgerBatch(
            cycles=(a_cycle("1.1", at_ms=now_ms - DAY_MS), a_cycle("1.2", at_ms=now_ms)),
            gains=(
                a_gain("1.1", at_ms=now_ms - DAY_MS),
                a_gain(
                    "1.2", at_ms=now_ms, saved_micro_usd=0, sooner_ms=0, more_copies=0,
                    floor_copies=5, wait_saved_ms=0,
                ),
            ),
            predictions=tuple(
                a_prediction(f"j{n}", at_ms=now_ms, actual_ms=actual_ms)
                for n, actual_ms in enumerate((100, 450, 800, 2_000))
            ),
        )
    )  # fmt: skip


async def test_users_see_how_predictions_came_true_and_not_what_others_cost(world: World) -> None:
    await record(world, world.services.clock.now_ms())
    status, told, _ = await world.call("GET", "/v1/decide/stats")
    yesterday, today = told["days"]
    assert status == 200 and yesterday["gain"]["saved_usd"] == 2.5
    assert yesterday["gain"]["sooner_s"] == -0.3 and today["gain"]["gaining"] == 0
    assert today["calibration"] == [
        {"kind": "start", "predictions": 4, "within_p50": 0.25, "within_p90": 0.75}
    ]
    ada = await world.token("physics")
    _, seen, _ = await world.call("GET", "/v1/decide/stats", token=ada)
    assert [day["gain"] for day in seen["days"]] == [None, None]
    assert [day["calibration"] for day in seen["days"]] == [
        day["calibration"] for day in told["days"]
    ]
    _, only, _ = await world.call("GET", "/v1/decide/stats?days=1")
    assert only["days"] == [today]


@pytest.mark.timeout(120)
async def test_a_day_without_gain_is_told_as_such(tmp_path: Path) -> None:
    async with running(tmp_path / "broker") as world:
        code, out, _ = await tradewind(world, tmp_path, "decide", "stats")
        assert (code, out) == (0, "nothing was decided in these days\n")
        await record(world, world.services.clock.now_ms())
        code, out, err = await tradewind(world, tmp_path, "decide", "stats")
        assert (code, err) == (0, "")
        lines = out.splitlines()
        assert "the same copies cost $2.50 less (25.0% of the floor's cost)" in lines[4]
        assert "1 copy more started at once" in lines[4]
        assert lines[5].endswith("to its cheapest place) in 1 measured decisions")
        assert lines[-1].split()[-2:] == ["25%", "75%"]
