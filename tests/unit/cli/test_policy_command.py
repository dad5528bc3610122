"""`tradewind policy` against the API itself."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.integration.api.world import running
from tests.unit.cli.test_against_the_api import tradewind


@pytest.mark.timeout(180)
async def test_a_policy_from_a_file_to_a_rollback(tmp_path: Path) -> None:
    file = tmp_path / "eu.yaml"
    async with running(tmp_path / "broker") as world:
        file.write_text("name: eu\nrequire: {regions: [eu-west]}\n")
        assert await tradewind(world, tmp_path, "policy", "test", "eu.yaml") == (
            0,
            "eu@1 (new)\n0 queued: 0 under it, nothing moves\n"
            "0 running or ended in the last day: 0 under it, nothing moves\n\n"
            "no job would go elsewhere\n",
            "",
        )
        code, out, _ = await tradewind(world, tmp_path, "policy", "apply", "eu.yaml")
        assert (code, out) == (0, "eu@1 is in force\n")
        code, out, _ = await tradewind(world, tmp_path, "policy", "apply", "eu.yaml")
        assert (code, out) == (0, "eu@1 was in force already\n")
        file.write_text("name: eu\nmatch: {}\npriority: 7\nspot: yes\n")
        await tradewind(world, tmp_path, "policy", "apply", "eu.yaml", "--why", "cheaper")
        code, out, _ = await tradewind(world, tmp_path, "policy")
        assert code == 0 and "every job" in out and "eu" in out
        code, out, _ = await tradewind(world, tmp_path, "policy", "show", "eu", "--version", "1")
        assert "eu@1 (not in force)" in out and "eu-west" in out
        code, out, _ = await tradewind(world, tmp_path, "policy", "show", "eu", "--source")
        assert out == file.read_text()
        code, out, _ = await tradewind(world, tmp_path, "policy", "rollback", "eu", "--to", "1")
        assert (code, out) == (0, "eu@3 is in force\n")
        code, out, _ = await tradewind(world, tmp_path, "policy", "history", "eu", "--json")
        assert [v["version"] for v in json.loads(out)["versions"]] == [3, 2, 1]


@pytest.mark.timeout(120)
async def test_faults_are_told_as_compilers_do(tmp_path: Path) -> None:
    (tmp_path / "eu.yaml").write_text("name: eu\nrequire:\n  regons: [eu-west]\nspread: region\n")
    async with running(tmp_path / "broker") as world:
        for verb in ("apply", "test"):
            code, out, err = await tradewind(world, tmp_path, "policy", verb, "eu.yaml")
            assert (code, out) == (2, "")
            assert err.splitlines() == [
                "tradewind: eu.yaml is not a policy: 2 faults",
                "eu.yaml:3:3: require.regons: unknown key `regons`; did you mean `regions`?",
                "eu.yaml:4:9: spread: not a share from 0% to 100% (got 'region'); "
                "write a share such as 50%",
            ]
        (tmp_path / "eu.yaml").write_text("name: EU WEST\n")
        code, _, err = await tradewind(world, tmp_path, "policy", "apply", "eu.yaml")
        assert code == 2 and "eu.yaml:1:7: name: not a valid policy name" in err
        code, _, err = await tradewind(world, tmp_path, "policy", "show", "nobody")
        assert code == 3
        code, _, _ = await tradewind(world, tmp_path, "policy", "apply", "missing.yaml")
        assert code == 2
