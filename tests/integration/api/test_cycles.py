"""Stored decisions over REST and through the command line: listed, fetched, decided again."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from broker.control.storing import build_facts, packed, recorded_problem
from broker.feedback.ports import CycleEntry
from tests.integration.api.world import World, running
from tests.unit.cli.test_against_the_api import tradewind
from tests.unit.control.test_storing import a_decision


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
        for words, told_code in ((["replay", "7.7"], 3), (["replay", "nothing.json"], 2)):
            code, out, err = await tradewind(world, tmp_path, *words)
            assert (code, out) == (told_code, "") and err.startswith("tradewind: ")

