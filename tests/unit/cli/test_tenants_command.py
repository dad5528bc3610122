"""`tradewind tenants` and `tradewind freeze` against the API itself."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from broker.state import keys
from federation.kv import Put, Txn
from federation.wire import records as pb
from tests.integration.api.world import running
from tests.unit.cli.test_against_the_api import tradewind


@pytest.mark.timeout(180)
async def test_a_tenant_is_made_changed_and_shown(tmp_path: Path) -> None:
    async with running(tmp_path / "broker") as world:

        async def ran(*arguments: str) -> tuple[int, str, str]:
            return await tradewind(world, tmp_path, "tenants", *arguments)

        code, _, err = await ran("set", "physics", "--weight", "3", "--quota", "16")
        assert (code, err) == (0, "")
        code, _, err = await ran(
            "set", "physics", "--cohort", "lab", "--borrow", "4", "--cluster-quota", "near=8"
        )
        assert (code, err) == (0, "")
        code, out, _ = await ran("show", "physics", "--json")
        told = json.loads(out)
        assert (told["weight"], told["quota_accelerators"], told["cohort"]) == (3, 16, "lab")
        assert (told["borrow_accelerators"], told["cluster_quota"]) == (4, {"near": 8})
        code, _, _ = await ran("set", "physics", "--cluster-quota", "near=none", "--borrow", "none")
        told = json.loads((await ran("show", "physics", "--json"))[1])
        assert (told["borrow_accelerators"], told["cluster_quota"]) == (None, {})
        code, out, _ = await ran()
        assert code == 0 and "physics" in out and "lab" in out and "MAY BORROW" in out
        code, out, _ = await ran("show", "physics")
        assert code == 0 and "weight" in out


@pytest.mark.timeout(180)
async def test_what_makes_no_sense_is_refused_by_name(tmp_path: Path) -> None:
    async with running(tmp_path / "broker") as world:
        for arguments, word in (
            (["set", "physics"], "nothing is to be changed"),
            (["set", "physics", "--quota", "many"], "--quota"),
            (["set", "physics", "--cluster-quota", "near"], "CLUSTER=N"),
            (["set", "physics", "--cohort", "lab"], "quota"),
            (["set", "physics", "--borrow", "4"], "cohort"),
        ):
            code, out, err = await tradewind(world, tmp_path, "tenants", *arguments)
            assert (code, out) == (2, ""), arguments
            assert word in err, err
        code, _, err = await tradewind(world, tmp_path, "tenants", "show", "nobody")
        assert code == 3 and "nobody" in err


@pytest.mark.timeout(180)
async def test_freeze_and_approval_with_an_audit_row(tmp_path: Path) -> None:
    async with running(tmp_path / "broker") as world:
        code, out, _ = await tradewind(world, tmp_path, "freeze", "on", "--why", "a demo")
        assert code == 0 and "yes" in out
        _, out, _ = await tradewind(world, tmp_path, "status")
        assert "nothing is stopped for others" in out
        code, _, err = await tradewind(world, tmp_path, "freeze", "approve", "3.7")
        assert code == 4 and "nothing waits" in err
        waits = pb.ProposalRecord(
            schema=1, cycle="3.7", attempts=["a-1", "b-1"], accelerators=8, in_use=16, why="lent"
        )
        await world.store.txn(Txn(then=(Put(keys.PROPOSAL, waits.SerializeToString()),)))
        code, _, err = await tradewind(world, tmp_path, "freeze", "approve", "3.7")
        assert code == 4 and "frozen" in err
        await tradewind(world, tmp_path, "freeze", "off")
        _, out, _ = await tradewind(world, tmp_path, "status")
        assert "cycle 3.7 would stop 2 attempts with 8 of 16 accelerators" in out
        code, out, _ = await tradewind(world, tmp_path, "freeze", "approve", "3.7", "--why", "ok")
        assert code == 0 and "3.7" in out
        _, out, _ = await tradewind(world, tmp_path, "freeze", "status", "--json")
        told = json.loads(out)
        assert told["proposal"]["approved"] and not told["frozen"]
        rows = await world.services.ledger.audit("freeze")
        assert [row.what for row in rows] == [
            "frozen", "not frozen", "approved cycle 3.7: 2 attempts",
        ]  # fmt: skip
        assert [row.why for row in rows] == ["a demo", "", "ok"]
