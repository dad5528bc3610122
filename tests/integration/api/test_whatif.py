"""What if over REST and through the command line: who may ask what, and files without a broker."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.integration.api.world import World, running
from tests.unit.cli.test_against_the_api import tradewind
from tests.unit.decide.problems import a_job, a_pool, a_problem


async def post(world: World, body: dict[str, Any], token: str | None = None) -> tuple[int, Any]:
    status, answer, _ = await world.call("POST", "/v1/whatif", json=body, token=token)
    return status, answer


async def test_users_may_ask_of_their_own_and_operators_of_everything(world: World) -> None:
    ada = await world.token("physics")
    assert (await post(world, {}, ada))[0] == 200
    assert (await post(world, {"policies": ["name: p\n"]}, ada))[0] == 403
    quotas = [{"tenant": "clinic", "accelerators": 3}]
    assert (await post(world, {"quotas": quotas}, ada))[0] == 403
    assert (await post(world, {"policies": ["name: p\n"], "quotas": quotas}))[0] == 200


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ({"lose": ["mars"]}, "changes"),
        ({"prices": [{"target": "H100"}]}, "prices.0"),
        ({"prices": [{"target": "H100", "usd": 1, "factor": 2}]}, "prices.0"),
        ({"prices": [{"target": "H100", "usd": -1}]}, "prices.0.usd"),
        ({"quotas": [{"tenant": "physics"}]}, "quotas.0.accelerators"),
        ({"jobs": [{"spec": {"run": "x", "array": "z"}}]}, "jobs.0.spec.array"),
        ({"jobs": [{"spec": {"run": "x"}, "count": 0}]}, "jobs.0.count"),
        ({"drian": ["east"]}, "drian"),
    ],
)
async def test_what_makes_no_sense_is_refused_with_its_path(
    world: World, body: dict[str, Any], path: str
) -> None:
    status, told = await post(world, body)
    assert status == 422 and told["errors"][0]["path"] == path and told["errors"][0]["remedy"]


async def test_a_bad_policy_is_told_with_line_and_column(world: World) -> None:
    status, told = await post(world, {"policies": ["name: p\nspot: perhaps\n"]})
    assert (status, told["errors"][0]["line"], told["errors"][0]["column"]) == (422, 2, 7)


@pytest.mark.timeout(180)
async def test_options_of_the_command_line(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text("run: echo hello\n")
    (tmp_path / "p.yaml").write_text("name: p\n")
    async with running(tmp_path / "broker") as world:
        code, out, err = await tradewind(
            world, tmp_path, "whatif", "--quota", "physics=8", "--quota", "clinic=none",
            "--policy", "p.yaml", "--add", "job.yaml:3",
        )  # fmt: skip
        assert (code, err) == (0, "") and "No job goes elsewhere, and the cost is the same." in out
        for words, told in (
            (["--price", "H100"], "is not TARGET=USD"),
            (["--price", "H100=-1"], "is not TARGET=USD"),
            (["--quota", "physics=many"], "is not TENANT=N"),
            (["--add", "job.yaml:0"], "1 to 1000 times"),
            (["--lose", "mars"], "no cluster or region 'mars'"),
            (["--policy", "none.yaml"], "cannot be read"),
        ):
            code, out, err = await tradewind(world, tmp_path, "whatif", *words)
            assert (code, out) == (2, "") and told in err, words


@pytest.mark.timeout(120)
async def test_a_file_needs_no_broker(tmp_path: Path) -> None:
    problem = a_problem(
        clusters=[{"name": "c0", "region": "east"}, {"name": "c1", "region": "west"}],
        pools=[a_pool("p0"), a_pool("p1", cluster="c1", price_usd_per_accelerator_hour=3.0)],
        jobs=[a_job("a", count=4), a_job("b", current_pool="p0", migration_usd=2)],
    )
    (tmp_path / "p.json").write_text(json.dumps(problem))
    (tmp_path / "more.json").write_text(json.dumps(a_job("c")))
    async with running(tmp_path / "broker") as world:
        await world.services.store.close()
        words = ["whatif", "--problem", "p.json", "--lose", "east", "--add", "more.json:2"]
        code, out, err = await tradewind(world, tmp_path, *words)
        assert (code, err) == (0, "")
        lines = [" ".join(line.split()) for line in out.splitlines()]
        assert "accelerators placed, priority 0 5 7" in lines
        assert "cost $5.00 $23.00" in lines
        assert "start now in c0 5 in 0s -" in lines and "start now in c1 - 7 in 0s" in lines
        assert "3 jobs go elsewhere or come in or out, for $18.00 more." in lines
        assert "1 running attempt starts anew, 0 stay where they are." in lines
        assert "c c added t0 not there c1/p1 x 2 -" in lines
        code, out, _ = await tradewind(world, tmp_path, *words, "--json")
        assert sorted(move["job"] for move in json.loads(out)["moves"]) == ["a", "b", "c"]
        for words, told in (
            (["--lose", "mars"], "name one that is in p.json"),
            (["--policy", "p.yaml"], "p.yaml cannot be read"),
            (["--add", "p.json"], "--add: jobs[0].version: unknown key"),
        ):
            code, out, err = await tradewind(
                world, tmp_path, "whatif", "--problem", "p.json", *words
            )
            assert (code, out) == (2, "") and told in err, (words, err)
